"""Engines of one cluster, as processes: a client that knows one learns the others, and keeps its view when it moves; one that
does not index a book forwards, and nothing is lost or doubled when the engine behind it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import boki
from boki_cli.demo.local_cluster import LocalCluster, Place
from boki_common.ids import slot_of
from itests.support.sdk_client import present

pytestmark = pytest.mark.processes


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, bookies=3, engines=2) as cluster:
        yield cluster


async def test_views_on_two_engines(engines: LocalCluster) -> None:
    one, other = (f"boki://{engines.address(role)}" for role in ("engine-1", "engine-2"))
    seqnum = 0
    async with boki.connect(one) as here, boki.connect(other) as there:
        mine, theirs = here.book("b"), there.book("b")
        for number in range(30):
            seqnum = await mine.append(b"%d" % number, tags=["t"])
            newest = present(await theirs.check_tail("t", consistency="linearizable"))
            assert newest.seqnum == seqnum, "whatever returned before is seen, through any engine"
        found = await asyncio.gather(*(theirs.check_tail(consistency="linearizable") for _ in range(64)))
        assert {record.seqnum if record else 0 for record in found} == {seqnum}

        async def child(token: str) -> str:
            session = there.session(token)
            assert present(await session.book("b").check_tail("t")).seqnum == seqnum
            await session.book("b").append(b"of the child", tags=["child"])
            await session.book("b").trim(before=seqnum, tag="t")
            return session.session_token()

        here.merge(await child(here.session_token()))
        assert present(await mine.check_tail("child")).data == b"of the child"
        assert [item.seqnum async for item in mine.read("t")] == [seqnum], "the child's trim is seen"
        writer = await mine.writer("w")
        again = await writer.append(b"once")
        assert await theirs.append(b"once", writer=("w", 1)) == again
        with pytest.raises(boki.NumberReused):
            await theirs.append(b"twice", writer=("w", 1))


async def test_a_client_moves_to_an_engine_that_another_named(engines: LocalCluster) -> None:
    async with boki.connect(f"boki://{engines.address('engine-1')}") as client:
        connection = client._connection
        assert connection is not None
        while connection.dialer.engines < 2:  # engine-2 may have come later: who connects again hears of it
            peer = connection.peer
            assert peer is not None
            peer.connection.abort(boki.ConnectionLost("again"))
            await client.book("b").read_next()
        book = client.book("b")
        seqnums = [await book.append(b"%d" % number) for number in range(10)]
        position = book.position
        tickets = [book.submit(b"%d" % number) for number in range(10, 20)]
        await asyncio.sleep(0)
        another = client.session().book("b")
        given_up = another.submit(b"given up")
        await asyncio.sleep(0)
        another._appends.give_up(another._numbers, "for a test")
        await engines.kill("engine-1")
        seqnums += [await ticket for ticket in tickets]
        outcome = await given_up.outcome(settle=True)
        assert [record.data async for record in book.read()] == sorted(
            [b"%d" % number for number in range(20)] + [b"given up"] * isinstance(outcome, boki.Committed),
            key=lambda data: seqnums[int(data)] if data.isdigit() else getattr(outcome, "seqnum", 0),
        )
        assert position is not None
        assert (book.position or 0) >= position
        assert await book.append(b"on") > seqnums[-1]


@pytest.fixture
async def some_slots(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    places = {
        name: Place(settings={"BOKI_ENGINE_INDEX_SLOTS": slots})
        for name, slots in (("engine-1", "0-511"), ("engine-2", "512-1023"), ("engine-3", "512-1023"))
    }
    async with LocalCluster(tmp_path, bookies=2, engines=3, places=places) as cluster:
        yield cluster


async def test_engines_killed_behind_one_that_forwards(some_slots: LocalCluster) -> None:
    """Both that index the book are killed in turn, while appends are forwarded to them."""
    number = next(book for book in range(1, 100) if slot_of(book) >= 512)
    async with boki.connect(f"boki://{some_slots.address('engine-1')}") as client:
        book = client.book(number)
        seqnums = [await book.append(b"0")]
        for killed in ("engine-2", "engine-3", "engine-2"):
            tickets = []
            for at in range(100):
                tickets.append(book.submit(b"%d" % (len(seqnums) + at)))
                if at == 50:
                    await asyncio.sleep(0)
                    await some_slots.kill(killed)
            seqnums += [await ticket for ticket in tickets]
            assert present(await book.check_tail(consistency="linearizable")).seqnum == seqnums[-1]
            await some_slots.restart(killed)
        found = [item async for item in book.read() if isinstance(item, boki.Record)]
        assert [record.seqnum for record in found] == seqnums
        assert [record.data for record in found] == [b"%d" % at for at in range(301)]
