"""Closing ledgers of ended shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_logbook.sealer import Sealer, _turn
from boki_logbook.testing import ScriptedLedgers


@pytest.fixture
def ledgers() -> ScriptedLedgers:
    return ScriptedLedgers()


@pytest.fixture
async def sealer(ledgers: ScriptedLedgers) -> AsyncIterator[Sealer]:
    made = Sealer(ledgers, incarnation="one", others_s=0.02, retry_first_s=0.001, retry_limit_s=0.002)
    running = asyncio.ensure_future(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])


async def closed(ledgers: ScriptedLedgers, *ledger_ids: int) -> None:
    async with asyncio.timeout(10):
        while any(ledgers[ledger_id].closed_at is None for ledger_id in ledger_ids):
            await asyncio.sleep(0)


async def test_a_writer_closes_its_own_ledger(ledgers: ScriptedLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    writer.submit(b"x")
    writer.ack()
    sealer.seal(writer.ledger_id, 1, writer)
    await closed(ledgers, writer.ledger_id)
    assert ledgers.recovered == []


async def test_a_writer_that_cannot_is_replaced_by_recovery(ledgers: ScriptedLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    writer.submit(b"x")
    writer.ack()
    writer.fail()
    sealer.seal(writer.ledger_id, 1, writer)
    await closed(ledgers, writer.ledger_id)
    assert ledgers.recovered == [(writer.ledger_id, 1)]


async def test_another_engine_has_the_time_to_close_what_it_wrote(ledgers: ScriptedLedgers, sealer: Sealer) -> None:
    writer = await ledgers.create()
    sealer.seal(writer.ledger_id, 0, None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert sealer.waiting == 1
    await writer.close()
    async with asyncio.timeout(10):
        while sealer.waiting:
            await asyncio.sleep(0)
    assert ledgers.recovered == [], "it was looked at, and closed already"


def test_engines_look_one_after_another_and_not_in_one_order() -> None:
    turns = {one: [_turn(one, ledger_id) for ledger_id in range(100)] for one in ("one", "two", "three")}
    firsts = [min(turns, key=lambda one: turns[one][ledger_id]) for ledger_id in range(100)]
    assert set(firsts) == {"one", "two", "three"}
    assert all(0 <= turn < 1 for of_one in turns.values() for turn in of_one)


async def test_one_that_cannot_be_closed_does_not_hold_up_the_others(ledgers: ScriptedLedgers, sealer: Sealer) -> None:
    lost, fine = await ledgers.create(), await ledgers.create()
    sealer.seal(lost.ledger_id, 1, None)
    sealer.seal(fine.ledger_id, 0, None)
    await closed(ledgers, fine.ledger_id)
    assert lost.closed_at is None
    lost.submit(b"found again")
    await closed(ledgers, lost.ledger_id)
    assert all(reader.closed for reader in ledgers.readers)
