"""Deferred sync: what is acknowledged is not yet durable, and LAC stays where the last force on all bookies put it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.entry_body import verify_body
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import ClosedError, LedgerError
from boki_ledger.testing.ledgers import QUICK, Ledgers, deliver, turns, until
from boki_ledger.write.writer import LedgerWriter


async def deferred(ledgers: Ledgers, entries: int = 0) -> LedgerWriter:
    writer = await ledgers.client.create(deferred_sync=True)
    for _ in range(entries):
        await writer.append(b"x")
    return writer


async def test_the_lac_stays_until_a_force_and_rides_in_later_entries(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 3)
    assert (writer.last_acked, writer.lac) == (2, -1)
    assert ledgers.bookies["b1"].unsynced[writer.ledger_id] == {0: None, 1: None, 2: None}
    assert await writer.force() == 2 == writer.lac
    assert ledgers.bookies["b1"].unsynced == {}
    await writer.append(b"x")
    body = ledgers.bookies["b1"].entries[writer.ledger_id][3]
    assert verify_body(memoryview(body), writer.ledger_id, 3, CRC32C)[0].lac == 2


async def test_a_force_needs_every_bookie_of_the_ensemble(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 2)
    held = ledgers.bookies.hold(kind="force", bookie="b3")
    force = asyncio.ensure_future(writer.force())
    await turns()
    assert not force.done() and writer.lac == -1
    held.release()
    assert await force == 1
    await writer.append(b"x")
    stop = ledgers.bookies.answer(V2Status.IO_ERROR, kind="force", bookie="b2")
    with pytest.raises(LedgerError, match="IO_ERROR of bookie b2"):
        await writer.force()
    assert writer.lac == 1
    stop()
    assert await writer.force() == 2, "nothing was lost by asking again"


async def test_a_force_covers_only_what_was_acknowledged_before_it(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 2)
    held = ledgers.bookies.hold(kind="add")
    writer.submit(b"in flight")
    forced = ledgers.bookies.hold(kind="force")
    force = asyncio.ensure_future(writer.force())
    await turns()
    await deliver(held)
    assert writer.last_acked == 2
    forced.release()
    assert await force == 1 == writer.lac


async def test_closing_ends_the_ledger_at_the_last_force(ledgers: Ledgers) -> None:
    never, once = await deferred(ledgers, 3), await deferred(ledgers, 3)
    await once.force()
    await once.append(b"lost")
    assert await never.close() == -1
    assert await once.close() == 2
    assert (await ledgers.metadata(never.ledger_id)).length == 0
    assert (await ledgers.metadata(once.ledger_id)).length == 3
    with pytest.raises(ClosedError):
        await once.force()


async def test_a_bookie_that_fails_while_entries_are_not_forced_fails_the_writer(ledgers: Ledgers) -> None:
    """A spare bookie is there, but what the lost one acknowledged may be gone: no change of the ensemble can mend that."""
    ledgers.bookies.register("b1", "b2", "b3")
    writer = await deferred(ledgers, 2)
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    ledgers.bookies.crash("b1", loses_unsynced=True)
    await turns()
    with pytest.raises(LedgerError, match="b1 failed while entries 0 … 1"):
        await writer.append(b"x")
    ledgers.bookies.restart("b1")
    with pytest.raises(LedgerError):
        await writer.force()
    assert len((await ledgers.metadata(writer.ledger_id)).ensembles) == 1


async def test_a_force_that_a_lost_bookie_answers_after_its_return_does_not_count(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 2)
    held = ledgers.bookies.hold(kind="force", bookie="b1")
    force = asyncio.ensure_future(writer.force())
    await turns()
    ledgers.bookies.crash("b1", loses_unsynced=True)
    ledgers.bookies.restart("b1")
    held.release()
    with pytest.raises(LedgerError):
        await force
    assert writer.lac == -1


async def test_a_bookie_that_was_away_while_all_was_forced_costs_nothing(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 2)
    await writer.force()
    ledgers.bookies.crash("b1", loses_unsynced=True)
    await turns()
    ledgers.bookies.restart("b1")
    await turns()
    assert await writer.append(b"x") == 2
    assert await writer.force() == 2


async def test_what_was_forced_survives_every_bookie_losing_all_else(ledgers: Ledgers) -> None:
    writer = await deferred(ledgers, 5)
    await writer.force()
    await writer.append(b"not forced")
    for bookie in ("b1", "b2", "b3"):
        ledgers.bookies.crash(bookie, loses_unsynced=True)
        ledgers.bookies.restart(bookie)
    reader = await ledgers.client.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 4


async def test_a_forced_lac_is_sent_by_itself_and_one_not_forced_is_not(ledgers: Ledgers) -> None:
    client = await ledgers.other_client(replace(QUICK, explicit_lac_ms=1.0))
    writer = await client.create(deferred_sync=True)
    await writer.append(b"0")
    assert writer._explicit_lac._timer is None
    await writer.force()
    reader = await ledgers.client.open(writer.ledger_id, recover=False)
    await until(lambda: writer.ledger_id in ledgers.bookies["b3"].lacs.explicit)
    assert await reader.read_lac() == 0


async def test_without_deferred_sync_everything_acknowledged_is_forced_already(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    await writer.append(b"0")
    assert await writer.force() == 0 == writer.lac
    assert not any(message.kind == "force" for message in ledgers.bookies.seen)
    assert ledgers.bookies["b1"].unsynced == {}
