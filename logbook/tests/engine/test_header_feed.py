"""Entries of other engines arrive in time, whatever the order of reads."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boki_common.errors import CorruptData
from boki_common.record_batch import RecordBatch
from boki_logbook.entry_source import EntrySource
from boki_logbook.header_feed import READ_ENTRIES, READS, WINDOW_ENTRIES, HeaderFeed
from boki_logbook.pushed_headers import PushedHeaders
from boki_logbook.testing import RecordSpec, RunSpec, ScriptedLedgers, make_batch


class Feeding:
    """A feed over some ledgers, and what it called."""

    def __init__(self, shards: int, entries: int) -> None:
        self.ledgers = ScriptedLedgers()
        self.arrivals = 0
        self.source = EntrySource(self.ledgers)
        self.pushed = PushedHeaders()
        self.feed = HeaderFeed(self.source, self._arrived, pushed=self.pushed, retry_first_s=0.001, retry_limit_s=0.001)
        self._shards, self._entries = shards, entries

    def _arrived(self) -> None:
        self.arrivals += 1

    async def fill(self) -> None:
        for _ in range(self._shards):
            ledger = await self.ledgers.create()
            for entry in range(self._entries):
                ledger.submit(make_batch(RunSpec(1, bytes(16), 1 + entry, (RecordSpec(),)))._view)

    async def take(self, ledger_id: int, entry: int) -> int:
        """Waits for an entry as the indexer does; returns the number of its first record."""
        async with asyncio.timeout(10):
            while True:
                batch = self.feed.take(ledger_id, entry)
                self.feed.fetch(blocked=batch is None)
                if batch is not None:
                    return batch.runs[0].first
                await asyncio.sleep(0)

    async def close(self) -> None:
        await self.feed.close()
        await self.source.close()


async def test_neighbours_are_read_at_once() -> None:
    feeding = Feeding(1, 20)
    await feeding.fill()
    for entry in range(20):
        feeding.feed.want(0, entry, 1)
    assert [await feeding.take(0, entry) for entry in range(20)] == list(range(1, 21))
    assert len(feeding.ledgers.reads) == -(-20 // READ_ENTRIES)
    await feeding.close()


async def test_the_window_bounds_what_is_fetched_ahead() -> None:
    feeding = Feeding(1, 400)
    await feeding.fill()
    feeding.feed.want(0, 0, 400)
    for _ in range(200):
        feeding.feed.fetch(blocked=False)
        await asyncio.sleep(0)
    fetched = sum(last - first + 1 for _, first, last in feeding.ledgers.reads)
    assert fetched <= WINDOW_ENTRIES + READ_ENTRIES
    assert [await feeding.take(0, entry) for entry in range(400)] == list(range(1, 401))
    await feeding.close()


async def test_what_is_needed_comes_although_the_window_is_full_of_what_is_not() -> None:
    shards = 2 + WINDOW_ENTRIES // (READ_ENTRIES - 1)
    feeding = Feeding(shards, READ_ENTRIES)
    await feeding.fill()
    order = [(shard, entry) for entry in range(READ_ENTRIES) for shard in range(shards)]
    for shard, entry in order:
        feeding.feed.want(shard, entry, 1)
    for shard, entry in order:
        assert await feeding.take(shard, entry) == entry + 1
    await feeding.close()


async def test_a_read_that_fails_is_repeated_and_others_go_on() -> None:
    feeding = Feeding(READS, 1)
    await feeding.fill()
    feeding.ledgers.missing[0, 0] = None
    for shard in range(READS):
        feeding.feed.want(shard, 0, 1)
    for shard in range(1, READS):
        await feeding.take(shard, 0)
    assert feeding.feed.take(0, 0) is None
    feeding.ledgers.missing.clear()
    await feeding.take(0, 0)
    await feeding.close()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), max_size=25))
async def test_everything_wanted_comes_once(wanted: list[tuple[int, int]]) -> None:
    feeding = Feeding(4, sum(count for _, count in wanted))
    await feeding.fill()
    ends = dict.fromkeys(range(4), 0)
    order = []
    for shard, count in wanted:
        feeding.feed.want(shard, ends[shard], count)
        order += [(shard, entry) for entry in range(ends[shard], ends[shard] + count)]
        ends[shard] += count
    for shard, entry in order:
        assert await feeding.take(shard, entry) == entry + 1
        assert feeding.feed.take(shard, entry) is None
    await feeding.close()


async def test_only_entries_that_were_given_up_and_cannot_be_had_are_lost() -> None:
    feeding = Feeding(shards=1, entries=6)
    await feeding.fill()
    feeding.ledgers.missing.update({(0, 1): None, (0, 4): None})
    feeding.feed.want(0, 0, 6)
    feeding.feed.fetch(blocked=True)
    async with asyncio.timeout(10):
        while len(feeding.ledgers.reads) < 3:
            await asyncio.sleep(0)
    assert not feeding.feed.take_lost(0, 1) and not feeding.arrivals
    feeding.feed.lost(0, 1, 4)
    async with asyncio.timeout(10):
        while len(feeding.ledgers.reads) < 12:
            await asyncio.sleep(0)
    assert not feeding.arrivals, "entry 4 is waited for still"
    del feeding.ledgers.missing[0, 4]
    assert [await feeding.take(0, entry) for entry in (0, 2, 3, 4, 5)] == [1, 3, 4, 5, 6]
    assert feeding.feed.take(0, 1) is None
    assert feeding.feed.take_lost(0, 1)
    assert not feeding.feed.take_lost(0, 1) and not feeding.feed.take_lost(0, 2)
    await feeding.close()


async def test_what_was_pushed_is_not_read_and_gaps_are() -> None:
    feeding = Feeding(1, 12)
    await feeding.fill()
    for entry in (0, 1, 2, 6, 7, 11):
        (whole,) = await feeding.source.read(0, entry, entry)
        feeding.pushed.add(0, entry, RecordBatch.parse(memoryview(bytes(whole.header)), header_only=True))
    feeding.ledgers.reads.clear()
    feeding.feed.want(0, 0, 12)
    assert [await feeding.take(0, entry) for entry in range(12)] == list(range(1, 13))
    assert [read[1:] for read in feeding.ledgers.reads] == [(3, 5), (8, 10)]
    await feeding.close()


async def test_pushed_headers_beyond_the_window_are_read_again_in_their_turn() -> None:
    feeding = Feeding(1, 2 * WINDOW_ENTRIES)
    await feeding.fill()
    for entry in range(2 * WINDOW_ENTRIES):
        (whole,) = await feeding.source.read(0, entry, entry)
        feeding.pushed.add(0, entry, whole)
    feeding.feed.want(0, 0, 2 * WINDOW_ENTRIES)
    assert len(feeding.feed._ready) == WINDOW_ENTRIES
    assert [await feeding.take(0, entry) for entry in range(2 * WINDOW_ENTRIES)] == list(
        range(1, 2 * WINDOW_ENTRIES + 1)
    )
    await feeding.close()


async def test_what_the_metalog_carries_is_not_read() -> None:
    feeding = Feeding(1, 4)
    await feeding.fill()
    feeding.feed.carried(0, 2, feeding.ledgers[0].entries[2])
    feeding.feed.want(0, 0, 4)
    assert [await feeding.take(0, entry) for entry in range(4)] == [1, 2, 3, 4]
    assert feeding.ledgers.reads == [(0, 0, 1), (0, 3, 3)]
    with pytest.raises(CorruptData, match="the metalog carries entry 4 of data ledger 0, which holds no record batch"):
        feeding.feed.carried(0, 4, b"no batch")
    await feeding.close()
