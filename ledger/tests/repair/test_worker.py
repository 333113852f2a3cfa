"""Repair of one ledger on scripted bookies: stopped anywhere, raced by others, and refused; no copy that the metadata names is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import MetadataUnavailable
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault
from boki_ledger.client import LedgerClient
from boki_ledger.repair.worker import Outcome, Repaired
from boki_ledger.testing.held_messages import Message
from boki_ledger.testing.ledgers import QUICK, Ledgers, make_cookie, turns

COUNT: Final = 5
STEPS: Final = 400
"""Turns of the loop in which a repair of a few entries is surely over."""


async def lost_first(ledgers: Ledgers, *targets: str) -> int:
    """A closed ledger on b1, b2 and b3, of which b1 is gone."""
    ledger_id = await ledgers.closed(*(b"entry %d" % number for number in range(COUNT)), password=b"secret")
    ledgers.bookies.crash("b1")
    ledgers.bookies.register("b2", "b3", *targets)
    return ledger_id


def lost(*bookies: str) -> Callable[[LedgerMetadata], frozenset[BookieId]]:
    return lambda _: frozenset(map(BookieId, bookies))


async def repair(ledgers: Ledgers, ledger_id: int, *gone: str, client: LedgerClient | None = None) -> Repaired:
    return (
        await (client or ledgers.client)
        .repairer()
        .repair(ledger_id, lost(*gone or ("b1",)), ledgers.bookies.writable())
    )


async def check_named_copies(ledgers: Ledgers, ledger_id: int, *gone: str) -> None:
    """Each bookie that the metadata names, and that is there, has the entries, behind a hold if it was a target."""
    metadata = await ledgers.metadata(ledger_id)
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, COUNT - 1)
    for bookie in metadata.ensembles[0][1]:
        if bookie not in gone:
            assert ledgers.bookies.stored(bookie, ledger_id) == list(range(COUNT)), bookie


async def members(ledgers: Ledgers, ledger_id: int) -> list[str]:
    return list((await ledgers.metadata(ledger_id)).ensembles[0][1])


def asked(ledgers: Ledgers, *kinds: str) -> list[Message]:
    return [one for one in ledgers.bookies.seen if one.kind in kinds and not one.answer]


async def test_a_closed_ledger_gets_its_copies_back_behind_a_hold(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    before = await ledgers.client._updates.read(ledger_id)
    done = await repair(ledgers, ledger_id)
    assert (done.outcome, done.moved, done.copied, done.faults) == (Outcome.REPAIRED, 1, COUNT, [])
    assert await members(ledgers, ledger_id) == ["b4", "b2", "b3"]
    await check_named_copies(ledgers, ledger_id)
    writes = [(one.bookie, one.kind) for one in asked(ledgers, "hold", "add")]
    assert writes == [("b4", "hold"), *[("b4", "add")] * COUNT]
    assert ledgers.bookies["b4"].holds == {ledger_id: before.version}
    assert {one.bookie for one in asked(ledgers, "list")} == {"b2", "b3", "b4"}, "all members list what they have"
    assert not any(one.fence for one in ledgers.bookies.seen)
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.NOTHING


async def test_a_ledger_without_entries_changes_hands_without_a_copy(ledgers: Ledgers) -> None:
    ledger_id = await ledgers.closed()
    ledgers.bookies.crash("b1")
    ledgers.bookies.register("b2", "b3", "b4")
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.REPAIRED
    assert await members(ledgers, ledger_id) == ["b4", "b2", "b3"]
    assert not asked(ledgers, "add", "read")


@pytest.mark.parametrize("first", range(0, STEPS, 40))
async def test_a_worker_that_is_stopped_anywhere_is_followed_by_another(first: int) -> None:
    for stop in range(first, first + 40):
        ledgers = Ledgers()
        await ledgers.start()
        ledger_id = await lost_first(ledgers, "b4", "b5")
        other = await ledgers.other_client()
        begun = asyncio.create_task(repair(ledgers, ledger_id))
        await turns(stop)
        is_over = begun.done()
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
        await check_named_copies(ledgers, ledger_id, "b1")
        done = await repair(ledgers, ledger_id, client=other)
        assert done.outcome in (Outcome.REPAIRED, Outcome.NOTHING)
        assert "b1" not in await members(ledgers, ledger_id)
        await check_named_copies(ledgers, ledger_id)
        await ledgers.close()
        if is_over:
            return


async def test_a_zombie_that_swaps_late_meets_the_version_of_another_worker(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    other = await ledgers.other_client()
    ledgers.store.gate.clear()
    zombie = asyncio.create_task(repair(ledgers, ledger_id))
    await turns(STEPS)
    assert ledgers.bookies.stored("b4", ledger_id) == list(range(COUNT)), "it copied, and is about to swap"
    ledgers.bookies.register("b2", "b3", "b5")
    assert (await repair(ledgers, ledger_id, client=other)).outcome is Outcome.REPAIRED
    ledgers.store.gate.set()
    assert (await zombie).outcome is Outcome.NOTHING
    assert await members(ledgers, ledger_id) == ["b5", "b2", "b3"]
    await check_named_copies(ledgers, ledger_id)


async def test_a_conflict_begins_anew_and_copies_nothing_twice(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    ledgers.store.gate.clear()
    other = await ledgers.other_client()
    begun = asyncio.create_task(repair(ledgers, ledger_id))
    await turns(STEPS)
    metadata = await ledgers.metadata(ledger_id)
    await other._updates.change(ledger_id, lambda seen: replace(seen, custom=(("touched", b""),)))
    ledgers.store.gate.set()
    done = await begun
    assert (done.outcome, done.copied) == (Outcome.REPAIRED, COUNT)
    after = await ledgers.client._updates.read(ledger_id)
    assert dict(after.metadata.custom) == {**dict(metadata.custom), "touched": b""}, "the other's change is there still"
    assert ledgers.bookies["b4"].holds[ledger_id] == after.version - 1, "a hold of the version that was swapped"


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DELAYED])
async def test_a_swap_of_unknown_outcome_is_settled(ledgers: Ledgers, fault: Fault) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    begun = asyncio.create_task(repair(ledgers, ledger_id))
    ledgers.store.gate.clear()
    await turns(STEPS)
    ledgers.store.fail_next_write(fault)
    ledgers.store.gate.set()
    assert (await begun).outcome is Outcome.REPAIRED
    ledgers.tree.deliver_delayed()
    assert await members(ledgers, ledger_id) == ["b4", "b2", "b3"]
    await check_named_copies(ledgers, ledger_id)


async def test_a_store_that_is_away_is_reported_and_the_copies_are_found_later(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    ledgers.store.gate.clear()
    begun = asyncio.create_task(repair(ledgers, ledger_id))
    await turns(STEPS)
    ledgers.store.fail_next_write(Fault.UNAVAILABLE)
    ledgers.store.gate.set()
    with pytest.raises(MetadataUnavailable):
        await begun
    assert await members(ledgers, ledger_id) == ["b1", "b2", "b3"]
    done = await repair(ledgers, ledger_id)
    assert (done.outcome, done.copied) == (Outcome.REPAIRED, 0)


async def test_a_second_loss_during_a_repair_is_repaired_from_the_last_copy(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4", "b5")
    kept = ledgers.bookies.hold(bookie="b2", kind="read")
    gone = ["b1"]
    begun = asyncio.create_task(
        ledgers.client.repairer().repair(
            ledger_id, lambda _: frozenset(map(BookieId, gone)), ledgers.bookies.writable()
        )
    )
    await turns()
    assert len(kept), "it reads from b2"
    ledgers.bookies.crash("b2")
    ledgers.bookies.register("b3", "b4", "b5")
    gone.append("b2")
    done = await begun
    assert done.moved == 1
    done = await repair(ledgers, ledger_id, "b1", "b2")
    assert (done.outcome, done.moved) == (Outcome.REPAIRED, 1)
    assert sorted(await members(ledgers, ledger_id)) == ["b3", "b4", "b5"]
    await check_named_copies(ledgers, ledger_id)


async def test_without_a_target_nothing_moves_and_the_reason_is_told(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers)
    done = await repair(ledgers, ledger_id)
    assert (done.outcome, done.moved) == (Outcome.BLOCKED, 0)
    assert "bookie b1 is not replaced: no bookie can take it" in done.faults[0]
    assert not asked(ledgers, "hold", "add")


async def test_a_bookie_of_apache_is_no_target(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    await make_cookie(ledgers.store, "b4", ours=False)
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.BLOCKED
    assert not asked(ledgers, "hold", "add"), "it knows no hold"


async def test_a_target_that_refuses_the_hold_gets_no_copy_and_another_one_does(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4", "b5")
    ledgers.bookies.answer(V2Status.BAD_REQUEST, bookie="b4", kind="hold")
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.REPAIRED
    assert await members(ledgers, ledger_id) == ["b5", "b2", "b3"]
    assert ledgers.bookies.stored("b4", ledger_id) == []


async def test_a_target_that_dies_is_replaced_by_another(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4", "b5")
    ledgers.bookies.hold(bookie="b4", kind="add")
    begun = asyncio.create_task(repair(ledgers, ledger_id))
    await turns()
    ledgers.bookies.answer(V2Status.UNAUTHORIZED, bookie="b4", kind="add")
    ledgers.bookies.reconnect("b4")
    for hold in ledgers.bookies._holds:
        hold.release()
    assert (await begun).outcome is Outcome.REPAIRED
    assert await members(ledgers, ledger_id) == ["b5", "b2", "b3"]
    await check_named_copies(ledgers, ledger_id)


async def test_a_damaged_source_is_passed_over_and_where_all_are_nothing_moves(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    ledgers.bookies.damage("b2", ledger_id, 1, 3)
    ledgers.bookies.damage("b3", ledger_id, 3)
    done = await repair(ledgers, ledger_id)
    assert (done.outcome, done.moved) == (Outcome.BLOCKED, 0)
    assert await members(ledgers, ledger_id) == ["b1", "b2", "b3"], "b1 may come back with the last good copy"
    assert ledgers.bookies.stored("b4", ledger_id) == [0, 1, 2, 4]
    ledgers.bookies.restart("b1")
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.REPAIRED
    assert ledgers.bookies["b4"].entries[ledger_id] == ledgers.bookies["b1"].entries[ledger_id]


async def test_another_member_that_lacks_an_entry_gets_it(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    del ledgers.bookies["b3"].entries[ledger_id][2]
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.REPAIRED
    await check_named_copies(ledgers, ledger_id)


async def test_a_target_in_limbo_is_sent_all_since_a_read_proves_no_durable_copy(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    ledgers.bookies["b4"].entries[ledger_id] = dict(ledgers.bookies["b2"].entries[ledger_id])
    ledgers.bookies.answer(V2Status.UNKNOWN_LEDGER_STATE, bookie="b4", kind="list")
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.REPAIRED
    assert [one.entry_id for one in asked(ledgers, "add") if one.bookie == "b4"] == list(range(COUNT))


async def test_the_last_fragment_of_an_open_ledger_is_its_writers(ledgers: Ledgers) -> None:
    writer = await ledgers.client.create()
    await writer.append(b"one")
    ledgers.bookies.crash("b1")
    ledgers.bookies.register("b2", "b3", "b4", "b5")
    before = await ledgers.client._updates.read(writer.ledger_id)
    assert (await repair(ledgers, writer.ledger_id)).outcome is Outcome.NOTHING
    assert await ledgers.client._updates.read(writer.ledger_id) == before
    for payload in (b"two", b"three"):
        await writer.append(payload)
    await turns()
    seen = await ledgers.metadata(writer.ledger_id)
    assert len(seen.ensembles) == 2, "the writer replaced it from the next entry on"
    assert (await repair(ledgers, writer.ledger_id)).outcome is Outcome.REPAIRED
    after = await ledgers.metadata(writer.ledger_id)
    assert "b1" not in after.ensembles[0][1]
    assert after.ensembles[1] == seen.ensembles[1]
    assert await writer.append(b"four") == 3, "the writer goes on"
    ledgers.bookies.crash(seen.ensembles[1][1][0])
    await writer.append(b"five")
    assert await writer.close() == 4
    reader = await (await ledgers.other_client(QUICK)).open(writer.ledger_id, recover=False)
    assert [bytes(one) for one in await reader.read(0, 4)] == [b"one", b"two", b"three", b"four", b"five"]


async def test_a_deleted_ledger_is_over(ledgers: Ledgers) -> None:
    ledger_id = await lost_first(ledgers, "b4")
    await ledgers.client.delete(ledger_id)
    assert (await repair(ledgers, ledger_id)).outcome is Outcome.GONE
