"""Batches are handed over in order, bounded, and what is committed is known exactly, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from boki.testing import MemoryCluster
from boki_cli.records.ingest import BATCH_RECORDS, IN_FLIGHT, BatchTime, Ingest, latency_ms
from boki_common import limits
from boki_common.errors import OutcomeUnknown

BATCH = [(b"abc", ["t"])] * 3


class HeldBook:
    """Answers each batch when asked to, in the order of the calls."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Sequence[int]]] = []

    async def append_many(self, records: Sequence[tuple[bytes, Sequence[str]]]) -> Sequence[int]:
        answer: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer


def test_all_batches_in_flight_fit_the_window() -> None:
    assert BATCH_RECORDS * IN_FLIGHT <= limits.WINDOW_RECORDS


async def test_a_real_book_keeps_the_order() -> None:
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("b")
        reports: list[tuple[int, int]] = []
        ingest = Ingest(book, progress=lambda records, size: reports.append((records, size)))
        for first in range(0, 3000, BATCH_RECORDS):
            await ingest.add([(b"%d" % number, ["t"]) for number in range(first, min(first + BATCH_RECORDS, 3000))])
        await ingest.finish()
        assert (ingest.committed, ingest.in_order, len(ingest.seqnums)) == (3000, True, 3000)
        assert ingest.committed_bytes == sum(len(b"%d" % number) for number in range(3000))
        assert reports[-1] == (3000, ingest.committed_bytes)
        found = [(record.seqnum, record.data) async for record in book.read("t")]
        assert found == [(seqnum, b"%d" % number) for number, seqnum in enumerate(ingest.seqnums)]
        assert sum(one.records for one in ingest.batch_times) == 3000


async def test_it_waits_while_enough_is_in_flight() -> None:
    book = HeldBook()
    ingest = Ingest(book, in_flight=2)
    await ingest.add(BATCH)
    await ingest.add(BATCH)
    third = asyncio.create_task(ingest.add(BATCH))
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(book.answers), third.done(), ingest.committed) == (2, False, 0)
    book.answers[0].set_result([1, 2, 3])
    await third
    assert (len(book.answers), ingest.committed, ingest.last_seqnum) == (3, 3, 3)
    book.answers[1].set_result([4, 5, 6])
    book.answers[2].set_result([7, 8, 9])
    await ingest.finish()
    assert (ingest.committed, ingest.committed_bytes, ingest.in_order) == (9, 27, True)


async def test_a_failure_leaves_the_committed_prefix() -> None:
    book = HeldBook()
    ingest = Ingest(book, in_flight=3)
    for _ in range(3):
        await ingest.add(BATCH)
    book.answers[0].set_result([1, 2, 3])
    book.answers[1].set_exception(OutcomeUnknown("given up", seqnums=[4]))
    book.answers[2].set_exception(OutcomeUnknown("given up"))
    with pytest.raises(OutcomeUnknown):
        await ingest.finish()
    assert (ingest.committed, ingest.committed_bytes, list(ingest.seqnums)) == (4, 12, [1, 2, 3, 4])
    await ingest.finish()


async def test_seqnums_out_of_order_are_noticed() -> None:
    book = HeldBook()
    ingest = Ingest(book)
    await ingest.add(BATCH)
    book.answers[0].set_result([1, 3, 2])
    await ingest.finish()
    assert not ingest.in_order


def test_latencies_are_weighted_by_records() -> None:
    times = [BatchTime(98, 0.001), BatchTime(1, 0.5), BatchTime(1, 0.2)]
    assert latency_ms(times, 0.5) == 1.0
    assert latency_ms(times, 0.99) == 200.0
    assert latency_ms(times, 1.0) == 500.0
    assert latency_ms([], 0.5) == 0.0
