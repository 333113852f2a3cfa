"""A book with a fault at one operation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import Unreachable
from boki_common.testing.virtual_time import VirtualTimeLoop
from bokilib.ports import BookPort
from bokilib.testing import Died, Fault, FaultKind, FaultyBook
from bokilib.testing._faults import SILENCE_S


@pytest.fixture
async def book() -> AsyncIterator[boki.Book]:
    async with MemoryCluster() as cluster:
        yield (await cluster.connect()).book("b")


async def everything(book: BookPort) -> None:
    seqnum = await book.submit(b"1", tags=["a"])
    snapshot = await book.now()
    assert book.position is not None and book.position >= snapshot
    await book.ready()
    assert (await book.read_prev("a", at_most=snapshot)) is not None
    assert len(await book.read_prev_many([("a", None), ("b", None)])) == 2
    assert [item async for item in book.read("a", start=1)]
    assert await book.set_aux_data(seqnum, b"x")
    await book.trim([("a", seqnum)])


async def test_without_a_fault_it_is_the_book(book: boki.Book) -> None:
    faulty = FaultyBook(book)
    await everything(faulty)
    assert [what.split()[0] for what in faulty.operations] == [
        "append", "now", "read_prev", "read_prev_many", "read", "set_aux_data", "trim",
    ]  # fmt: skip
    assert faulty.appends == [0]


async def test_long_lists_are_counted_in_the_texts_of_operations(book: boki.Book) -> None:
    faulty, tags = FaultyBook(book), [f"partition/{number}" for number in range(64)]
    seqnum = await faulty.submit(b"1", tags=tags, expect=dict.fromkeys(tags[:3]))
    await faulty.submit(b"2", tags=tags[:4], expect=dict.fromkeys(tags, seqnum))
    await faulty.read_prev_many([(tag, None) for tag in tags])
    await faulty.read_since(dict.fromkeys(tags, 0))
    await anext(aiter(faulty.read(tags=tags, start=1)))
    await faulty.trim([(tag, 1) for tag in tags])
    first, second, *others = faulty.operations
    assert first == (
        "append to ['partition/0', 'partition/1', 'partition/2', 'partition/3', … and 60 more] "
        "expecting {'partition/0': None, 'partition/1': None, 'partition/2': None}"
    )
    assert "['partition/0', 'partition/1', 'partition/2', 'partition/3'] expecting" in second
    assert all("… and 60 more" in what and len(what) < 250 for what in (second, *others)), faulty.operations


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("kind", ["before", "after"])
async def test_who_died_does_nothing_any_more(book: boki.Book, at: int, kind: FaultKind) -> None:
    faulty = FaultyBook(book, Fault(at, kind))
    with pytest.raises(Died):
        await everything(faulty)
    assert faulty.dead
    done = len(faulty.operations)
    for again in (faulty.now(), faulty.trim([("a", 1)]), faulty.read("a").__anext__()):
        with pytest.raises(Died):
            await again
    with pytest.raises(Died):
        await faulty.submit(b"2")
    assert len(faulty.operations) == done == at + 1
    assert bool(await book.read_prev("a", consistency="linearizable")) == (at > 0 or kind == "after")


async def test_a_lost_answer_happened_and_a_lost_record_did_not(book: boki.Book) -> None:
    lost, never = (FaultyBook(book, Fault(0, kind)).submit(b"x", tags=[kind]) for kind in ("lost", "never"))
    for ticket in (lost, never):
        with pytest.raises(boki.OutcomeUnknown):
            await ticket
    assert isinstance(await lost.outcome(settle=True), boki.Committed)
    assert await never.outcome(settle=True) == await never.outcome() == boki.Never()
    assert [item.tags async for item in book.read()] == [("lost",)]
    again = FaultyBook(book, Fault(0, "never")).submit(b"x", tags=["again"])
    assert isinstance(await again.outcome(), boki.Committed), "asked without settling, it is sent"


@pytest.mark.parametrize("later", range(3))
async def test_an_unanswered_append_happens_and_its_process_dies_some_operations_later(
    book: boki.Book, later: int
) -> None:
    faulty = FaultyBook(book, Fault(1, "unanswered", later))
    await faulty.submit(b"1", tags=["a"])
    ticket = faulty.submit(b"2", tags=["a"])
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(ticket.outcome()), asyncio.ensure_future(ticket)]
    for _ in range(later):
        await faulty.submit(b"3", tags=["a"])
    assert not faulty.dead and not any(one.done() for one in waits)
    with pytest.raises(Died):
        await faulty.submit(b"4", tags=["a"])
    for one in waits:
        with pytest.raises(Died):
            await one
    found = [item.data async for item in book.read("a") if isinstance(item, boki.Record)]
    assert found == [b"1", b"2", *[b"3"] * later]
    assert faulty.appends == [*range(later + 3)]


def test_a_process_that_only_waits_for_an_unanswered_append_dies_too() -> None:
    async def waits() -> None:
        async with MemoryCluster() as cluster:
            faulty = FaultyBook((await cluster.connect()).book("b"), Fault(0, "unanswered", 1))
            began = asyncio.get_running_loop().time()
            with pytest.raises(Died):
                await faulty.submit(b"1")
            assert asyncio.get_running_loop().time() == pytest.approx(began + SILENCE_S)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(waits())


@pytest.mark.parametrize("at", range(7))
async def test_a_refused_operation_is_not_done_and_the_process_goes_on(book: boki.Book, at: int) -> None:
    faulty = FaultyBook(book, Fault(at, "refused"))
    with pytest.raises(Unreachable) as caught:
        await everything(faulty)
    assert caught.value.definite and not faulty.dead
    assert bool(await book.read_prev("a", consistency="linearizable")) == (at > 0)
    await everything(faulty)
