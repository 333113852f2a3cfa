"""MemoryCluster: opened, closed, cut, and reached from other loops."""

from __future__ import annotations

import asyncio

import pytest

import boki
import boki.testing
from boki.testing import MemoryCluster


async def test_it_forgets_everything_when_it_closes() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        client = await cluster.connect()
        await client.book(1).append(b"x")
        url = cluster.url
    with pytest.raises(boki.ClosedError):
        await client.book(1).append(b"y")
    with pytest.raises(boki.Unreachable):
        _ = boki.connect(url)
    with pytest.raises(boki.ClosedError, match="make a new one"):
        await cluster.__aenter__()


async def test_clusters_are_apart() -> None:
    async with boki.testing.MemoryCluster() as one, boki.testing.MemoryCluster() as other:
        await (await one.connect()).book(1).append(b"x")
        assert await (await other.connect()).book(1).check_tail() is None


async def test_cutting_loses_answers_but_no_record(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book(1)
    tickets = [book.submit(bytes([number])) for number in range(10)]
    await asyncio.sleep(0)
    memory.disconnect()
    seqnums = [await ticket for ticket in tickets]
    assert [record.seqnum async for record in book.read()] == seqnums


@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_is_cut_while_it_is_made(memory: MemoryCluster, turns: int) -> None:
    """Also in the turn between the engine's hello and who waits for it: a client that took it for made would wait for ever."""
    made = asyncio.create_task(memory.connect())
    for _ in range(turns):
        await asyncio.sleep(0)
    memory.disconnect()
    try:
        async with asyncio.timeout(5):
            assert await (await made).book(1).append(b"x")
    except boki.Unreachable:
        assert turns, "it was cut before anybody answered"


async def test_the_time_of_records_is_the_clocks() -> None:
    class Clock:
        def now_ms(self) -> int:
            return 1_234

    async with boki.testing.MemoryCluster(clock=Clock()) as cluster:
        book = (await cluster.connect()).book(1)
        await book.append(b"x")
        record = await book.check_tail()
        assert record is not None
        assert record.time_ms == 1_234


async def test_what_is_asked_while_answers_are_lost_is_done_once(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    await book.append(b"0")
    with memory.losing_answers():
        tickets = [book.submit(b"%d" % number) for number in range(1, 4)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(ticket.done() for ticket in tickets)
    seqnums = [await ticket for ticket in tickets]
    assert [record.seqnum async for record in book.read()][1:] == seqnums


async def test_an_append_that_is_given_up_while_answers_are_lost_may_be_there(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    with memory.losing_answers():
        with pytest.raises(boki.OutcomeUnknown) as raised:
            await book.append(b"x", timeout=0.05)
        assert not raised.value.definite
    found = await book.check_tail()
    assert found is not None and found.data == b"x"


async def test_a_writer_that_is_forgotten_while_answers_are_lost_has_unknown_outcomes(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    await book.append(b"0")
    with memory.losing_answers():
        ticket = book.submit(b"1")
        for _ in range(20):
            await asyncio.sleep(0)
        memory.forget_writers()
    with pytest.raises(boki.WriterForgotten):
        await ticket


async def test_a_trim_comes_before_any_request(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(3)]
    asked: list[str] = []

    def trim(request: str) -> None:
        asked.append(request)
        if len(asked) == 2:
            memory.trim("b", before=seqnums[1], tag="a")

    memory.before_each = trim
    assert await book.read_next("a", at_least=seqnums[0]) is not None
    with pytest.raises(boki.Trimmed):
        await book.read_next("a", at_least=seqnums[0])
    await book.append(b"3")
    await book.trim(before=seqnums[2])
    assert asked == ["read", "read", "append", "trim"]


async def test_a_request_is_answered_by_what_is_raised_before_it(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book("b")
    left = 2

    def refuse(request: str) -> None:
        nonlocal left
        if request == "read" and left:
            left -= 1
            raise boki.Overloaded("not now")

    memory.before_each = refuse
    assert await book.check_tail() is None
    assert left == 0, "what is retryable was asked again"


async def test_the_age_from_which_streams_are_forgotten() -> None:
    class Clock:
        ms = 60_000

        def now_ms(self) -> int:
            return self.ms

    clock = Clock()
    async with boki.testing.MemoryCluster(clock=clock, forget_age_s=120) as cluster:
        book = (await cluster.connect()).book("b")
        seqnum = await book.append(b"x", tags=["a"])
        for minutes, forgotten in ((3, False), (4, True)):
            clock.ms = minutes * 60_000
            cluster.trim("b", [("a", seqnum + 1)], forget=True)
            if forgotten:
                await book.append(b"anew", tags=["a"], expect={"a": None})
            else:
                with pytest.raises(boki.Conflict):
                    await book.append(b"anew", tags=["a"], expect={"a": None})
    for age_s in (119.9, 0, -1, float("nan")):
        with pytest.raises(boki.InvalidArgument, match="at least 120"):
            boki.testing.MemoryCluster(forget_age_s=age_s)


async def test_one_that_is_not_open_does_nothing() -> None:
    with pytest.raises(boki.ClosedError):
        boki.testing.MemoryCluster().trim("b", before=7)
