"""Broken connections: what was sent is sent again, and applied once; reads go on."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import collect, cut, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_appends_under_way_are_applied_once(client: boki.Client, book: boki.Book) -> None:
    datas = [str(number).encode() for number in range(400)]
    tickets: list[boki.Ticket] = []
    for number, data in enumerate(datas):
        tickets.append(book.submit(data, tags=["t"]))
        if number % 40 == 39:
            await asyncio.sleep(0)
        if number % 100 == 99:
            cut(client)
            await tickets[-1]
    seqnums = [await ticket for ticket in tickets]
    found = await collect(book.read("t"))
    assert [(record.seqnum, record.data) for record in found] == list(zip(seqnums, datas, strict=True))


async def test_a_connection_cut_before_the_frame_leaves(client: boki.Client, book: boki.Book) -> None:
    ticket = book.submit(b"x")
    cut(client)
    seqnum = await ticket
    assert [record.seqnum for record in await collect(book.read())] == [seqnum]


async def test_append_many_through_a_cut(client: boki.Client, book: boki.Book) -> None:
    records = [(str(number).encode(), ["t"]) for number in range(3_000)]
    appending = asyncio.create_task(book.append_many(records))
    for _ in range(3):
        await book.read_next(wait=0.01)
        cut(client)
        await book.read_next()
    seqnums = await appending
    found = await collect(book.read())
    assert [(record.seqnum, record.data) for record in found] == [
        (seqnum, data) for seqnum, (data, _) in zip(seqnums, records, strict=True)
    ]


async def test_expectations_are_decided_once(client: boki.Client, book: boki.Book) -> None:
    winner = book.submit(b"winner", tags=["a"], expect={"a": None})
    loser = book.submit(b"loser", tags=["a"], expect={"a": None})
    behind = book.submit(b"behind")
    await asyncio.sleep(0)
    cut(client)
    seqnum = await winner
    with pytest.raises(boki.Conflict) as caught:
        await loser
    assert caught.value.actual == {"a": seqnum}
    assert await behind > seqnum
    assert [record.data for record in await collect(book.read())] == [b"winner", b"behind"]


async def test_many_books_through_a_cut(client: boki.Client, name: str) -> None:
    books = [client.book(f"{name} {number}") for number in range(40)]
    tickets = [book.submit(bytes([turn])) for turn in range(5) for book in books]
    await asyncio.sleep(0)
    cut(client)
    for ticket in tickets:
        await ticket
    for book in books:
        assert [record.data for record in await collect(book.read())] == [bytes([turn]) for turn in range(5)]


async def test_a_waiting_read_survives_a_cut(client: boki.Client, book: boki.Book) -> None:
    waiting = asyncio.create_task(book.read_next("a", wait=30))
    await asyncio.sleep(0)
    cut(client)
    seqnum = await book.append(b"x", tags=["a"])
    assert present(await waiting).seqnum == seqnum


async def test_a_follower_survives_cuts(client: boki.Client, cluster: Cluster, name: str) -> None:
    seen: list[int] = []

    async def follow() -> None:
        async for record in client.book(name).read(follow=True):
            seen.append(int(record.data))
            if len(seen) == 30:
                return

    following = asyncio.create_task(follow())
    async with await cluster.connect() as other:
        for number in range(30):
            await other.book(name).append(str(number).encode())
            if number % 10 == 5:
                cut(client)
                await client.book(name).read_next()
    await asyncio.wait_for(following, 30)
    assert seen == list(range(30))


async def test_the_session_keeps_its_view_through_a_cut(client: boki.Client, book: boki.Book) -> None:
    seqnum = await book.append(b"x")
    position = book.position
    cut(client)
    assert present(await book.check_tail()).seqnum == seqnum
    assert position is not None
    assert (book.position or 0) >= position


async def test_after_close_everything_is_refused(cluster: Cluster, name: str) -> None:
    client = await cluster.connect()
    book = client.book(name)
    await book.append(b"x")
    await client.close()
    await client.close()
    with pytest.raises(boki.ClosedError):
        await book.append(b"y")
    with pytest.raises(boki.ClosedError):
        _ = book.submit(b"y")
    with pytest.raises(boki.ClosedError):
        await book.read_next()
    with pytest.raises(boki.ClosedError):
        client.book("other")


async def test_a_client_is_used_after_it_is_opened(cluster: Cluster) -> None:
    with pytest.raises(boki.ClosedError, match="not open yet"):
        boki.connect(cluster.url).book("x")
    async with boki.connect(cluster.url) as client:
        with pytest.raises(boki.ClosedError, match="opened before"):
            _ = await client


async def test_each_who_waits_when_the_client_is_closed_gets_an_exception_of_its_own(
    cluster: Cluster, name: str
) -> None:
    client = await cluster.connect()
    book = client.book(name)
    ticket = book.submit(b"x", tags=["another"])
    waits = [asyncio.ensure_future(book.read_next("t", wait=60)) for _ in range(300)]
    await ticket
    await client.close()
    errors = await asyncio.gather(*waits, return_exceptions=True)
    closed = [error for error in errors if isinstance(error, boki.ClosedError)]
    assert len({id(error) for error in closed}) == len(closed) > 200
    assert max(len(traceback.extract_tb(error.__traceback__)) for error in closed) < 30


async def test_each_who_awaits_a_ticket_gets_an_exception_of_its_own(book: boki.Book) -> None:
    await book.append(b"first", tags=["t"])
    ticket = book.submit(b"second", tags=["t"], expect={"t": None})

    async def refused() -> boki.Conflict:
        with pytest.raises(boki.Conflict) as caught:
            await ticket
        return caught.value

    errors = [*await asyncio.gather(*(refused() for _ in range(50))), *[await refused() for _ in range(50)]]
    assert len({id(error) for error in errors}) == 100
    assert len({(str(error), error.position) for error in errors}) == 1
    assert max(len(traceback.extract_tb(error.__traceback__)) for error in errors) < 10
