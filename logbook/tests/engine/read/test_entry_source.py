"""Reading entries of any ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_common.errors import CorruptData, NoSuchEntry, NoSuchLedger
from boki_ledger.testing.model_ledgers import ModelLedger, ModelLedgers
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch, model_ledgers


@pytest.fixture
def ledgers() -> ModelLedgers:
    return model_ledgers()


@pytest.fixture
async def source(ledgers: ModelLedgers) -> AsyncIterator[EntrySource]:
    made = EntrySource(ledgers, readers_limit=2)
    yield made
    await made.close()
    assert all(reader.ended for reader in ledgers.readers)


async def filled(ledgers: ModelLedgers, entries: int = 3) -> ModelLedger:
    ledger = await ledgers.create()
    for entry in range(entries):
        ledger.submit(make_batch(RunSpec(1, bytes(16), 1 + entry, (RecordSpec(),)))._view)
    return ledger


async def test_a_span_of_entries(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    batches = await source.read(ledger.ledger_id, 1, 2)
    assert [batch.runs[0].first for batch in batches] == [2, 3]


async def test_a_ledger_is_opened_once_for_many_reads(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    await asyncio.gather(*(source.read(ledger.ledger_id, entry, entry) for entry in (0, 1, 2, 0)))
    assert len(ledgers.readers) == 1


async def test_few_ledgers_stay_open(ledgers: ModelLedgers, source: EntrySource) -> None:
    made = [await filled(ledgers) for _ in range(5)]
    for ledger in made:
        await source.read(ledger.ledger_id, 0, 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [reader.ended for reader in ledgers.readers] == [True, True, True, False, False]


async def test_a_failed_reader_is_replaced(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    ledgers.missing[ledger.ledger_id, 0] = None
    with pytest.raises(NoSuchEntry):
        await source.read(ledger.ledger_id, 0, 0)
    ledgers.missing.clear()
    assert len(await source.read(ledger.ledger_id, 0, 0)) == 1
    assert len(ledgers.readers) == 2


async def test_a_ledger_that_does_not_exist(source: EntrySource) -> None:
    with pytest.raises(NoSuchLedger):
        await source.read(99, 0, 0)


async def test_an_entry_that_is_no_batch_is_named(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    ledger.entries[1] = b"something else"
    with pytest.raises(CorruptData, match=f"data ledger {ledger.ledger_id} holds no record batch"):
        await source.read(ledger.ledger_id, 0, 2)


async def test_a_reader_in_use_is_closed_after_its_use(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    gate = ledgers.gates[ledger.ledger_id, 0] = asyncio.Event()
    reading = asyncio.ensure_future(source.read(ledger.ledger_id, 0, 0))
    while not ledgers.reads:
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(source.close())
    await asyncio.sleep(0)
    gate.set()
    assert len(await reading) == 1
    await closing


async def test_a_ledger_that_is_over_is_let_go_after_its_use(ledgers: ModelLedgers, source: EntrySource) -> None:
    ledger = await filled(ledgers)
    await source.read(ledger.ledger_id, 0, 0)
    gate = ledgers.gates[ledger.ledger_id, 1] = asyncio.Event()
    reading = asyncio.ensure_future(source.read(ledger.ledger_id, 1, 1))
    await asyncio.sleep(0)
    source.over(ledger.ledger_id)
    source.over(ledger.ledger_id)
    assert not ledgers.readers[0].ended
    gate.set()
    await reading
    for _ in range(5):
        await asyncio.sleep(0)
    assert ledgers.readers[0].ended
    await source.read(ledger.ledger_id, 0, 0)
    assert len(ledgers.readers) == 2
