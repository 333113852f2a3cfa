"""Several processes change the metadata of one ledger at once: writer, recovery, repair, and a second failure meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import LedgerFenced, RecoveryFailed
from boki_common.ids import BookieId
from boki_ledger.testing.ledgers import Ledgers, deliver, submit, turns
from boki_ledger.testing.scripted_bookies import ScriptedBookie
from boki_ledger.write.writer import LedgerWriter


async def changed(ledgers: Ledgers, ledger_id: int, change: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
    """What another process does to the metadata, with a store of its own."""
    client = await ledgers.other_client()
    await client._updates.change(ledger_id, change)


async def repaired(ledgers: Ledgers, ledger_id: int, fragment: int, old: str, new: str) -> None:
    """What repair does: copies what a bookie of a fragment should hold to another, then names that one in its place."""
    metadata = await ledgers.metadata(ledger_id)
    first, _ = metadata.ensembles[fragment]
    end = metadata.ensembles[fragment + 1][0] if fragment + 1 < len(metadata.ensembles) else 1_000
    held = ledgers.bookies["b2"].entries.get(ledger_id, {})
    copies = ledgers.bookies[new].entries.setdefault(ledger_id, {})
    copies.update({entry_id: body for entry_id, body in held.items() if first <= entry_id < end})

    def swapped(current: LedgerMetadata) -> LedgerMetadata:
        at, members = current.ensembles[fragment]
        named = tuple(BookieId(new) if member == old else member for member in members)
        fragments = (*current.ensembles[:fragment], (at, named), *current.ensembles[fragment + 1 :])
        return replace(current, ensembles=fragments)

    await changed(ledgers, ledger_id, swapped)


async def two_fragments(ledgers: Ledgers) -> LedgerWriter:
    """Entry 0 on b1, b2, b3, from entry 1 on b4 instead of b1; b1 is gone for good, b5 is free, entry 1 is acknowledged."""
    writer = await ledgers.client.create()
    await writer.append(b"0")
    await turns()
    ledgers.bookies.crash("b1")
    ledgers.bookies.register("b2", "b3", "b4")
    await next_entry(ledgers, writer)
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b2", "b3")), (1, ("b4", "b2", "b3")))
    return writer


async def next_entry(ledgers: Ledgers, writer: LedgerWriter) -> None:
    """Another entry, whose acks come when the change that it sets off is committed, or waits at the gate."""
    held = ledgers.bookies.hold(kind="add", answer=True)
    await submit(writer, b"%d" % (writer.last_submitted + 1))
    await deliver(held)


async def all_held(ledgers: Ledgers, writer: LedgerWriter) -> None:
    metadata = await ledgers.metadata(writer.ledger_id)
    for entry_id in range(writer.last_acked + 1):
        assert len(ledgers.copies(writer.ledger_id, metadata, entry_id)) == 3, entry_id


async def test_a_repair_and_an_ensemble_change_of_one_ledger_both_land(ledgers: Ledgers) -> None:
    """§9b 31, `testMetadataConflictWithRecovery`: the repair's swap wins the race against that of the writer."""
    writer = await two_fragments(ledgers)
    ledgers.store.gate.clear()
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    ledgers.bookies.crash("b4")
    await next_entry(ledgers, writer)
    await repaired(ledgers, writer.ledger_id, 0, "b1", "b5")
    ledgers.store.gate.set()
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles == ((0, ("b5", "b2", "b3")), (1, ("b4", "b2", "b3")), (2, ("b5", "b2", "b3")))
    assert writer.failed is None and writer.last_acked == 2
    ledgers.bookies.restart("b4")
    await all_held(ledgers, writer)


async def test_a_second_failure_during_a_conflict_takes_its_own_slot(ledgers: Ledgers) -> None:
    """apache/bookkeeper#1886: two failures around a conflicting write put a bookie into a slot twice, or lost a write."""
    writer = await two_fragments(ledgers)
    ledgers.store.gate.clear()
    ledgers.bookies.bookies[BookieId("b6")] = ScriptedBookie(BookieId("b6"))
    ledgers.bookies.register("b2", "b3", "b4", "b5", "b6")
    ledgers.bookies.crash("b4")
    await next_entry(ledgers, writer)
    ledgers.bookies.crash("b3")
    await repaired(ledgers, writer.ledger_id, 0, "b1", "b5")
    await turns()
    assert writer.last_acked == 1
    ledgers.store.gate.set()
    await turns()
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.ensembles[0] == (0, ("b5", "b2", "b3")), "what the other process wrote is still there"
    first, members = metadata.ensembles[-1]
    assert first == 2 and set(members) == {"b2", "b5", "b6"}
    assert len(metadata.ensembles) == 3 and ledgers.store.swaps == 4, "one write for each failure, one lost race"
    assert writer.failed is None and writer.last_acked == 2
    assert len(ledgers.copies(writer.ledger_id, metadata, 2)) == 3
    writer.abandon()


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
async def test_a_change_that_meets_a_recovery_or_the_close_on_its_way_fails_the_writer(
    ledgers: Ledgers, state: LedgerState
) -> None:
    """§9b 16, `testMetadataSetTo{Closed,InRecovery}DuringFailureHandler`: nothing that waited for the change is acknowledged."""
    writer = await ledgers.client.create()
    ledgers.store.gate.clear()
    ledgers.bookies.register("b1", "b2", "b3", "b4")
    held = ledgers.bookies.hold(bookie="b3", kind="add", answer=True)
    writer.submit(b"0")
    ledgers.bookies.crash("b1")
    await turns()
    await changed(ledgers, writer.ledger_id, lambda current: replace(current, state=state))
    await deliver(held)
    ledgers.store.gate.set()
    await turns()
    assert isinstance(writer.failed, LedgerFenced)
    assert writer.last_acked == -1
    assert (await ledgers.metadata(writer.ledger_id)).ensembles == ((0, ("b1", "b2", "b3")),)


async def test_a_repair_during_a_recovery_makes_it_fail_cleanly_and_the_next_one_succeed(ledgers: Ledgers) -> None:
    """§9b 31: the recovery read by the fragments as they were, so it may not write over new ones."""
    writer = await two_fragments(ledgers)
    held = ledgers.bookies.hold(kind="add", recovery=True, answer=True)
    client = await ledgers.other_client()
    opening = asyncio.ensure_future(client.open(writer.ledger_id, recover=True))
    await turns()
    await repaired(ledgers, writer.ledger_id, 0, "b1", "b5")
    held.release()
    with pytest.raises(RecoveryFailed):
        await opening
    metadata = await ledgers.metadata(writer.ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 1
    assert reader.metadata.ensembles[0] == (0, ("b5", "b2", "b3"))
    assert [bytes(one) for one in await reader.read(0, 1)] == [b"0", b"1"]
