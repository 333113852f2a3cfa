"""Entries of other engines arrive in time, whatever the order of reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.scripted import until

from boki_common.backoff import Backoff
from boki_common.records.record_batch import RecordBatch
from boki_logbook.apply.header_feed import READ_ENTRIES, READS, WINDOW_ENTRIES, HeaderFeed
from boki_logbook.peers.pushed_headers import PushedHeaders
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch, model_ledgers


class Feeding:
    """A feed over some ledgers, and what it called."""

    def __init__(self) -> None:
        self.ledgers = model_ledgers()
        self.arrivals = 0
        self.source = EntrySource(self.ledgers)
        self.pushed = PushedHeaders()
        self.feed = HeaderFeed(self.source, self._arrived, pushed=self.pushed, backoff=lambda: Backoff(0.001, 0.001))

    def _arrived(self) -> None:
        self.arrivals += 1

    async def fill(self, shards: int, entries: int) -> None:
        for _ in range(shards):
            ledger = await self.ledgers.create()
            for entry in range(entries):
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

    async def unreadable(self, entry: int) -> None:
        """Waits until an entry is known not to be readable."""
        async with asyncio.timeout(10):
            while entry not in [one["first"] for one in self.feed.unreadable]:
                self.feed.fetch(blocked=True)
                await asyncio.sleep(0)

    async def close(self) -> None:
        await self.feed.close()
        await self.source.close()


@pytest.fixture
async def feeding() -> AsyncIterator[Feeding]:
    made = Feeding()
    yield made
    await made.close()


async def test_neighbours_are_read_at_once(feeding: Feeding) -> None:
    await feeding.fill(1, 20)
    for entry in range(20):
        feeding.feed.want(0, entry, 1)
    assert [await feeding.take(0, entry) for entry in range(20)] == list(range(1, 21))
    assert len(feeding.ledgers.reads) == -(-20 // READ_ENTRIES)


async def test_the_window_bounds_what_is_fetched_ahead(feeding: Feeding) -> None:
    await feeding.fill(1, 400)
    feeding.feed.want(0, 0, 400)
    for _ in range(200):
        feeding.feed.fetch(blocked=False)
        await asyncio.sleep(0)
    fetched = sum(last - first + 1 for _, first, last in feeding.ledgers.reads)
    assert fetched <= WINDOW_ENTRIES + READ_ENTRIES
    assert [await feeding.take(0, entry) for entry in range(400)] == list(range(1, 401))


async def test_what_is_needed_comes_although_the_window_is_full_of_what_is_not(feeding: Feeding) -> None:
    shards = 2 + WINDOW_ENTRIES // (READ_ENTRIES - 1)
    await feeding.fill(shards, READ_ENTRIES)
    order = [(shard, entry) for entry in range(READ_ENTRIES) for shard in range(shards)]
    for shard, entry in order:
        feeding.feed.want(shard, entry, 1)
    for shard, entry in order:
        assert await feeding.take(shard, entry) == entry + 1


async def test_a_read_that_fails_is_repeated_and_others_go_on(feeding: Feeding) -> None:
    await feeding.fill(READS, 1)
    feeding.ledgers.missing[0, 0] = None
    for shard in range(READS):
        feeding.feed.want(shard, 0, 1)
    for shard in range(1, READS):
        await feeding.take(shard, 0)
    assert feeding.feed.take(0, 0) is None
    feeding.ledgers.missing.clear()
    await feeding.take(0, 0)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), max_size=25))
async def test_everything_wanted_comes_once(wanted: list[tuple[int, int]]) -> None:
    feeding = Feeding()
    await feeding.fill(4, sum(count for _, count in wanted))
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


async def test_only_entries_that_were_given_up_and_cannot_be_had_are_lost(feeding: Feeding) -> None:
    await feeding.fill(1, 6)
    feeding.ledgers.missing.update({(0, 1): None, (0, 4): None})
    feeding.feed.want(0, 0, 6)
    assert await feeding.take(0, 0) == 1, "those that can be had do not wait for others"
    await feeding.unreadable(1)
    assert not feeding.feed.take_lost(0, 1)
    feeding.feed.lost(0, 1, 4)
    await feeding.unreadable(4)
    assert feeding.feed.take(0, 1) is None
    assert feeding.feed.take_lost(0, 1)
    assert not feeding.feed.take_lost(0, 1) and not feeding.feed.take_lost(0, 2)
    assert [await feeding.take(0, entry) for entry in (2, 3)] == [3, 4]
    del feeding.ledgers.missing[0, 4]
    assert [await feeding.take(0, entry) for entry in (4, 5)] == [5, 6]
    assert not feeding.feed.waits


async def test_what_was_pushed_is_not_read_and_gaps_are(feeding: Feeding) -> None:
    await feeding.fill(1, 12)
    for entry in (0, 1, 2, 6, 7, 11):
        (whole,) = await feeding.source.read(0, entry, entry)
        feeding.pushed.add(0, entry, RecordBatch.parse(memoryview(bytes(whole.header)), header_only=True))
    feeding.ledgers.reads.clear()
    feeding.feed.want(0, 0, 12)
    assert [await feeding.take(0, entry) for entry in range(12)] == list(range(1, 13))
    assert [read[1:] for read in feeding.ledgers.reads] == [(3, 5), (8, 10)]


async def test_pushed_headers_beyond_the_window_are_read_again_in_their_turn(feeding: Feeding) -> None:
    await feeding.fill(1, 2 * WINDOW_ENTRIES)
    for entry in range(2 * WINDOW_ENTRIES):
        (whole,) = await feeding.source.read(0, entry, entry)
        feeding.pushed.add(0, entry, whole)
    feeding.feed.want(0, 0, 2 * WINDOW_ENTRIES)
    assert len(feeding.feed._ready) == WINDOW_ENTRIES
    assert [await feeding.take(0, entry) for entry in range(2 * WINDOW_ENTRIES)] == list(
        range(1, 2 * WINDOW_ENTRIES + 1)
    )


async def test_what_the_metalog_carries_is_not_read(feeding: Feeding) -> None:
    await feeding.fill(1, 4)
    feeding.feed.carried(0, 2, feeding.ledgers[0].entries[2])
    feeding.feed.want(0, 0, 4)
    assert [await feeding.take(0, entry) for entry in range(4)] == [1, 2, 3, 4]
    assert feeding.ledgers.reads == [(0, 0, 1), (0, 3, 3)]


@pytest.mark.parametrize("written", [True, False], ids=["as it is carried", "not at all"])
async def test_what_is_carried_and_nobody_can_read_is_waited_for_and_may_be_given_up(
    feeding: Feeding, written: bool
) -> None:
    await feeding.fill(1, 2)
    assert feeding.feed.carried(0, 2, b"garbage") is None
    if written:
        feeding.ledgers[0].submit(b"garbage")
    feeding.feed.want(0, 2, 1)
    feeding.feed.fetch(blocked=True)
    await feeding.unreadable(2)
    (said,) = feeding.feed.unreadable
    assert "the metalog carries it, but what it carries is no record batch" in said["error"]
    feeding.feed.lost(0, 2, 3)
    await until(lambda: feeding.feed.take_lost(0, 2))
    assert not feeding.feed.unreadable and not feeding.feed._unfit_carried


async def test_what_the_metalog_carries_badly_and_its_ledger_has_well_is_read_there(feeding: Feeding) -> None:
    await feeding.fill(1, 3)
    assert feeding.feed.carried(0, 2, feeding.ledgers[0].entries[2][:-1]) is None
    feeding.feed.want(0, 2, 1)
    assert await feeding.take(0, 2) == 3
    assert not feeding.feed._unfit_carried


@pytest.mark.parametrize("bad", range(4))
async def test_of_entries_that_are_read_together_only_the_bad_one_is_waited_for(feeding: Feeding, bad: int) -> None:
    await feeding.fill(1, 4)
    good, feeding.ledgers[0].entries[bad] = feeding.ledgers[0].entries[bad], b"no batch"
    feeding.feed.want(0, 0, 4)
    assert [await feeding.take(0, entry) for entry in range(bad)] == list(range(1, bad + 1))
    await feeding.unreadable(bad)
    assert [(one["first"], one["last"]) for one in feeding.feed.unreadable] == [(bad, bad)]
    feeding.ledgers[0].entries[bad] = good
    assert [await feeding.take(0, entry) for entry in range(bad, 4)] == list(range(bad + 1, 5))
