"""Reads that wait are found by the tags of what comes, whoever else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from boki_logbook.index.index import Index
from boki_logbook.read.parked_reads import Arrival, Parked, ParkedReads
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

WRITER = bytes(15) + b"a"


class Engine:
    """An index that counts how often it is looked at, and who waits for it."""

    def __init__(self) -> None:
        self.index = Index()
        self.looks = 0
        self.reads = ParkedReads(self.newest)
        self.end = 1

    def newest(self, book: int, tag: int) -> int:
        self.looks += 1
        return self.index.newest(book, tag)

    def apply(self, *records: tuple[int, Iterable[int]], lost: bool = False) -> int:
        """Applies a batch of (book, tags); returns where it begins."""
        runs = [
            RunSpec(book, WRITER, self.end + at, (RecordSpec(tuple(tags)),)) for at, (book, tags) in enumerate(records)
        ]
        batch = make_batch(*runs)
        if not lost:
            self.index.add(batch, 0, len(records), self.end)
        arrival = Arrival(batch, self.end)
        self.end += len(records)
        self.looks = 0
        self.reads.applied([arrival])
        return arrival.first_seqnum

    def park(self, book: int, *tags: int) -> Parked:
        return self.reads.park(book, tags, self.end)


async def test_a_read_is_woken_by_its_own_streams_only() -> None:
    engine = Engine()
    one, both, any_tag, elsewhere = engine.park(1, 5), engine.park(1, 5, 6), engine.park(1, 0), engine.park(2, 5)
    first = engine.apply((1, [6]), (1, [7]))
    assert both.woken.result() == any_tag.woken.result() == first
    assert not one.woken.done() and not elsewhere.woken.done()
    second = engine.apply((2, []), (2, [5]))
    assert elsewhere.woken.result() == second and not one.woken.done()
    engine.apply((1, [5]))
    assert one.woken.done()


async def test_what_lost_wakes_nobody_and_neither_does_what_was_there() -> None:
    engine = Engine()
    engine.apply((1, [5]))
    parked = engine.park(1, 5)
    engine.apply((1, [5]), lost=True)
    assert not parked.woken.done()


async def test_a_stream_is_looked_up_once_however_many_wait_and_others_not_at_all() -> None:
    engine = Engine()
    for tag in range(10, 4_010):
        engine.park(1, tag)
    for _ in range(100):
        engine.park(1, 5, 6)
    engine.apply((1, [7]), (1, [8, 9]), (2, [5_000]))
    assert engine.looks == 0
    engine.apply((1, [5]), (1, [5, 6]))
    assert engine.looks <= 2


async def test_who_leaves_is_not_woken_and_leaves_nothing_behind() -> None:
    engine = Engine()
    parked, other = engine.park(1, 5, 6), engine.park(1, 5)
    engine.reads.leave(parked)
    engine.reads.leave(parked)
    engine.apply((1, [5]))
    assert not parked.woken.done() and other.woken.done()
    cancelled = engine.park(1, 9)
    cancelled.woken.cancel()
    engine.apply((1, [9]))
    engine.reads.leave(cancelled)
    assert engine.reads._waiting == {}


async def test_a_task_that_waits_goes_on() -> None:
    engine = Engine()
    parked = engine.park(1, 5)

    async def wait() -> int:
        return await parked.woken

    waiting = asyncio.ensure_future(wait())
    first = engine.apply((1, [5]))
    assert await waiting == first
