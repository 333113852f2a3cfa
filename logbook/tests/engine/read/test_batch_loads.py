"""Batches that reads need: once for all who ask, looked for again, and given up by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.engine.scripted import until

from boki_common.errors import DigestMismatch, EntryUnknown
from boki_common.ids import seqnum
from boki_common.records.record_batch import RecordBatch
from boki_logbook.index.places import EntryPlace, ShardPlace
from boki_logbook.read.batch_loads import LOAD_TRIES, BatchLoads
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.carried_entries import CarriedEntries, Metalog
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.settings import EngineSettings
from boki_logbook.testing.cluster import RunSpec, ScriptedLog, make_batch, model_ledgers, plain_records
from boki_metalog.entries.progress import CutBuilder

QUICK = EngineSettings(retry_first_s=0.001, retry_limit_s=0.002)


class Loads:
    """Loads from one ledger of three entries."""

    def __init__(self) -> None:
        self.ledgers = model_ledgers()
        self.cache = BatchCache(1_000_000)
        self.source = EntrySource(self.ledgers)
        self.log = ScriptedLog()
        self.ledgers.entries_elsewhere = self.log.metalog
        self.carried = CarriedEntries(self.ledgers, metalog=lambda _: Metalog(1_001, 2), shards=lambda _: self.shards)
        self.shards: dict[int, ShardPlace] = {}
        self.loads = BatchLoads(cache=self.cache, source=self.source, carried=self.carried, settings=QUICK)
        self.ledger_id = -1

    async def fill(self) -> None:
        ledger = await self.ledgers.create()
        self.ledger_id = ledger.ledger_id
        for entry in range(3):
            ledger.submit(make_batch(RunSpec(1, bytes(16), 1 + entry, plain_records("x")))._view)

    async def load(self, *entries: int) -> list[RecordBatch]:
        return await self.loads.load_all(EntryPlace(self.ledger_id, entry, 1, 2, 0) for entry in entries)

    @property
    def reads(self) -> list[int]:
        return [first for _, first, _ in self.ledgers.reads]


@pytest.fixture
async def made() -> AsyncIterator[Loads]:
    loads = Loads()
    await loads.fill()
    yield loads
    await loads.loads.close()
    await loads.source.close()


async def test_batches_come_in_the_order_asked_for_and_stay_in_the_cache(made: Loads) -> None:
    assert [batch.runs[0].first for batch in await made.load(2, 0)] == [3, 1]
    assert sorted(made.reads) == [0, 2]
    await made.load(0, 2)
    assert len(made.reads) == 2


async def test_an_entry_is_read_once_however_many_ask(made: Loads) -> None:
    found = await asyncio.gather(*(made.load(1) for _ in range(10)))
    assert made.reads == [1]
    assert all(batches[0] is found[0][0] for batches in found)


async def test_what_is_not_found_yet_is_looked_for_again(made: Loads) -> None:
    made.ledgers.missing[made.ledger_id, 1] = None
    loading = asyncio.ensure_future(made.load(1))
    await until(lambda: made.reads)
    del made.ledgers.missing[made.ledger_id, 1]
    assert [batch.runs[0].first for batch in await loading] == [2]


async def test_what_cannot_be_read_fails_after_some_tries_and_delays_no_other(made: Loads) -> None:
    made.ledgers.unknown[made.ledger_id, 1] = None
    with pytest.raises(
        EntryUnknown, match=f"entry 1 of data ledger {made.ledger_id} is ordered, but cannot be read now"
    ):
        await made.load(0, 1)
    assert made.reads.count(1) == LOAD_TRIES
    del made.ledgers.unknown[made.ledger_id, 1]
    assert len(await made.load(0, 1)) == 2


async def test_what_only_the_metalog_has_is_taken_from_there(made: Loads) -> None:
    body = b"".join(make_batch(RunSpec(1, bytes(16), 4, plain_records("x"))).at(1, 0, 3))
    made.shards[0] = ShardPlace(1, 0, made.ledger_id, "")
    builder = CutBuilder()
    builder.open("1" * 32, made.ledger_id)
    entries = [builder.take(1)]
    builder.report(0, 3, 3)
    builder.carry(0, 4, 4, body)
    entries.append(builder.take(2))
    made.log.history[1] = [entry for entry in entries if entry is not None]
    place = EntryPlace(made.ledger_id, 3, seqnum(1, 3), seqnum(1, 4), 0)
    (batch,) = await made.loads.load_all([place])
    assert batch.runs[0].first == 4
    assert made.cache.get(made.ledger_id, 3) is batch
    made.ledgers.damaged[made.ledger_id, 3] = None
    made.ledgers.damaged[made.ledger_id, 2] = None
    made.ledgers[made.ledger_id].entries.append(body)
    made.cache.limit_bytes = 0
    made.cache.put(made.ledger_id, 3, batch)
    assert [one.runs[0].first for one in await made.loads.load_all([place])] == [4]
    with pytest.raises(DigestMismatch):
        await made.load(2)


async def test_closing_ends_what_is_under_way(made: Loads) -> None:
    made.ledgers.gates[made.ledger_id, 1] = asyncio.Event()
    loading = asyncio.ensure_future(made.load(1))
    await until(lambda: made.reads)
    await made.loads.close()
    with pytest.raises(asyncio.CancelledError):
        await loading
