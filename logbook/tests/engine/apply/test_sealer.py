"""Closing ledgers of ended shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.engine.scripted import until

from boki_common.backoff import Backoff
from boki_ledger.testing.model_ledgers import ModelLedger, ModelLedgers
from boki_logbook.apply.sealer import Sealer, _turn
from boki_logbook.index.places import ShardPlace
from boki_logbook.read.carried_entries import CarriedEntries, Metalog
from boki_logbook.testing.cluster import ScriptedLog, model_ledgers
from boki_metalog.entries.progress import CutBuilder


@pytest.fixture
def ledgers() -> ModelLedgers:
    return model_ledgers()


@pytest.fixture
def log(ledgers: ModelLedgers) -> ScriptedLog:
    made = ScriptedLog()
    ledgers.entries_elsewhere = made.metalog
    return made


OTHERS_S = 0.2
"""Long beside what a busy machine takes for a few turns of the loop."""


@pytest.fixture
async def sealer(ledgers: ModelLedgers, log: ScriptedLog) -> AsyncIterator[Sealer]:
    carried = CarriedEntries(
        ledgers, metalog=lambda term: Metalog(1_000 + term, len(log.history[term])), shards=lambda _: {}
    )
    made = Sealer(ledgers, carried, incarnation="one", others_s=OTHERS_S, backoff=lambda: Backoff(0.001, 0.002))
    running = asyncio.ensure_future(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])


def ended(writer: ModelLedger, entries: int) -> ShardPlace:
    """A shard of that ledger, of which so many entries are ordered."""
    shard = ShardPlace(1, 0, writer.ledger_id, "")
    shard.cut(entries, entries)
    return shard


async def closed(ledgers: ModelLedgers, *ledger_ids: int) -> None:
    await until(lambda: all(ledgers[ledger_id].closed_at is not None for ledger_id in ledger_ids))


async def test_a_writer_closes_its_own_ledger(ledgers: ModelLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    writer.submit(b"x")
    writer.ack()
    sealer.seal(ended(writer, 1), writer)
    await closed(ledgers, writer.ledger_id)
    assert ledgers.recovered == []


async def test_a_writer_that_cannot_is_replaced_by_recovery(ledgers: ModelLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    writer.submit(b"x")
    writer.ack()
    writer.fail()
    sealer.seal(ended(writer, 1), writer)
    await closed(ledgers, writer.ledger_id)
    assert ledgers.recovered == [(writer.ledger_id, 1)]


async def test_another_engine_has_the_time_to_close_what_it_wrote(ledgers: ModelLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    sealer.seal(ended(writer, 0), None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert sealer.waiting == 1
    await writer.close()
    await until(lambda: not sealer.waiting)
    assert ledgers.recovered == [], "it was looked at, and closed already"


def test_engines_look_one_after_another_and_not_in_one_order() -> None:
    turns = {one: [_turn(one, ledger_id) for ledger_id in range(100)] for one in ("one", "two", "three")}
    firsts = [min(turns, key=lambda one: turns[one][ledger_id]) for ledger_id in range(100)]
    assert set(firsts) == {"one", "two", "three"}
    assert all(0 <= turn < 1 for of_one in turns.values() for turn in of_one)


async def test_one_that_cannot_be_closed_does_not_hold_up_the_others(ledgers: ModelLedgers, sealer: Sealer) -> None:
    lost, fine = await ledgers.create(), await ledgers.create()
    sealer.seal(ended(lost, 1), None)
    sealer.seal(ended(fine, 0), None)
    await closed(ledgers, fine.ledger_id)
    assert lost.closed_at is None
    lost.submit(b"found again")
    await closed(ledgers, lost.ledger_id)
    assert all(reader.closed for reader in ledgers.readers)


def carries(log: ScriptedLog, *bodies: bytes) -> None:
    """A metalog that orders one entry of a shard, and then carries some."""
    builder = CutBuilder()
    builder.open("1" * 32, 0)
    entries = [builder.take(1)]
    builder.report(0, 1, 1)
    for end, body in enumerate(bodies, 2):
        builder.carry(0, end, end, body)
        entries.append(builder.take(end))
    log.history[1] = [entry for entry in entries if entry is not None]


async def test_what_the_metalog_carries_completes_a_ledger(
    ledgers: ModelLedgers, log: ScriptedLog, sealer: Sealer
) -> None:
    writer = await ledgers.create()
    for payload in (b"first", b"second"):
        writer.submit(payload)
    carries(log, b"second", b"third", b"fourth")
    sealer.seal(ended(writer, 4), None)
    await closed(ledgers, writer.ledger_id)
    assert writer.entries == [b"first", b"second", b"third", b"fourth"]
    assert ledgers.recovered == [(writer.ledger_id, 4)]


async def test_a_metalog_that_cannot_be_read_keeps_a_ledger_open(
    ledgers: ModelLedgers, log: ScriptedLog, sealer: Sealer
) -> None:
    writer = await ledgers.create()
    writer.submit(b"first")
    carries(log, b"second")
    ledgers.missing[1_001, 1] = None
    sealer.seal(ended(writer, 2), None)
    await until(lambda: ledgers.refusals >= 2)
    assert writer.closed_at is None
    ledgers.missing.clear()
    await closed(ledgers, writer.ledger_id)
    assert writer.entries == [b"first", b"second"]


async def test_a_writer_closes_when_all_that_is_ordered_is_acknowledged(ledgers: ModelLedgers, sealer: Sealer) -> None:
    ledgers.hold_acks = True
    writer = await ledgers.create()
    for _ in range(3):
        writer.submit(b"x")
    writer.ack(1)
    sealer.seal(ended(writer, 2), writer)
    for _ in range(10):
        await asyncio.sleep(0)
    assert writer.closed_at is None
    writer.ack(2)
    await closed(ledgers, writer.ledger_id)
    assert writer.closed_at == 2
    assert ledgers.recovered == []


async def test_a_writer_that_is_not_acknowledged_in_time_is_replaced_by_recovery(
    ledgers: ModelLedgers, sealer: Sealer
) -> None:
    ledgers.hold_acks = True
    writer = await ledgers.create()
    writer.submit(b"x")
    sealer.seal(ended(writer, 1), writer)
    await closed(ledgers, writer.ledger_id)
    assert writer.abandoned
    assert ledgers.recovered == [(writer.ledger_id, 1)]
