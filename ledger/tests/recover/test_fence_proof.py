"""Recovery on Apache's bookies: whose denials end a ledger, message by message (`fence_proof`, `member_trust`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.recover.recoveries import NAMES, recovered, written

from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import LedgerFenced, RecoveryFailed
from boki_common.ids import BookieId
from boki_common.metadata.memory import Fault
from boki_ledger.testing.ledgers import QUICK, Ledgers, make_cookie
from boki_ledger.transport import Outcome


@pytest.fixture
async def apache(ledgers: Ledgers) -> Ledgers:
    """A cluster all of whose bookies are Apache's."""
    for name in NAMES:
        await make_cookie(ledgers.store, name, ours=False)
    return ledgers


def forces(ledgers: Ledgers) -> list[str]:
    return [message.bookie for message in ledgers.bookies.seen if message.kind == "force" and not message.answer]


async def state(ledgers: Ledgers, ledger_id: int) -> LedgerState:
    return (await ledgers.metadata(ledger_id)).state


@pytest.mark.parametrize("entries", [0, 1, 3, 40])
async def test_a_ledger_on_apaches_bookies_ends_where_it_did_once_their_fences_are_forced(
    apache: Ledgers, entries: int
) -> None:
    writer = await written(apache, *[b"x"] * entries)
    reader = await recovered(apache, writer.ledger_id)
    assert reader.last_entry == entries - 1
    assert len(set(forces(apache))) >= 2, "(Qw - Qa) + 1 denials count, each after a force"
    assert len(forces(apache)) == len(set(forces(apache))), "one force a bookie"


async def test_our_bookies_are_asked_for_no_force(ledgers: Ledgers) -> None:
    writer = await written(ledgers, *[b"x"] * 2)
    await recovered(ledgers, writer.ledger_id)
    assert forces(ledgers) == []


async def test_denials_do_not_count_while_the_force_fails(apache: Ledgers) -> None:
    writer = await written(apache, *[b"x"] * 2)
    ends = [apache.bookies.answer(V2Status.IO_ERROR, bookie=name, kind="force") for name in ("b1", "b2")]
    asked = len(apache.bookies.seen)
    with pytest.raises(RecoveryFailed, match="too few bookies"):
        await recovered(apache, writer.ledger_id)
    assert len(apache.bookies.seen) - asked < 1_000, (
        "it gives up when the last proof came to nothing, not at a time-out"
    )
    assert await state(apache, writer.ledger_id) is LedgerState.IN_RECOVERY
    for end in ends:
        end()
    assert (await recovered(apache, writer.ledger_id)).last_entry == 1


async def test_a_bookie_that_forgot_the_fence_between_denial_and_force_is_not_believed(
    apache: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The force of a process that was never asked to fence succeeds, and says nothing."""
    writer = await written(apache, *[b"x"] * 1)
    bookies = apache.bookies
    bookies.crash("b3")
    restarted: list[BookieId] = []
    force = bookies.force

    def after_a_restart(bookie: BookieId, ledger_id: int) -> asyncio.Future[Outcome]:
        if bookie not in restarted:
            restarted.append(bookie)
            bookies.crash(bookie)
            bookies[bookie].fenced.clear()
            bookies.restart(bookie)
        return force(bookie, ledger_id)

    monkeypatch.setattr(bookies, "force", after_a_restart)
    client = await apache.other_client(replace(QUICK, retry_for_s=5.0))
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 0
    assert sorted(forces(apache)) == ["b1", "b1", "b2", "b2"], "the first proof of each was void"


async def test_a_bookie_formatted_anew_under_its_id_is_never_believed(apache: Ledgers) -> None:
    """Both that held the acknowledged entry: they deny it, and nothing may be closed."""
    writer = await written(apache, *[b"x"] * 1)
    ledger_id = writer.ledger_id
    for name in ("b1", "b2"):
        apache.bookies[name].entries.clear()
        await make_cookie(apache.store, name, ours=False)
    apache.bookies.crash("b3")
    with pytest.raises(RecoveryFailed, match="b1, b2 may have been formatted anew"):
        await recovered(apache, ledger_id)
    assert await state(apache, ledger_id) is LedgerState.IN_RECOVERY
    apache.bookies.restart("b3")
    with pytest.raises(RecoveryFailed):
        await recovered(apache, ledger_id)
    assert "b1" not in forces(apache)


async def test_one_bookie_formatted_anew_does_not_hinder_the_others(apache: Ledgers) -> None:
    writer = await written(apache, *[b"x"] * 2)
    apache.bookies["b1"].entries.clear()
    await make_cookie(apache.store, "b1", ours=False)
    assert (await recovered(apache, writer.ledger_id)).last_entry == 1


async def test_a_bookie_formatted_anew_amid_the_recovery_is_noticed_before_the_close(apache: Ledgers) -> None:
    writer = await written(apache, *[b"x"] * 1)
    store = await apache.other_client()
    assert store is not None
    looks = 0
    swapped = apache.stores[-1]

    def plan(operation: str, path: str) -> Fault:
        nonlocal looks
        if operation == "created" and path.endswith("b1"):
            looks += 1
            if looks == 2:
                cookie = swapped.tree.get(path)
                swapped.tree.delete(path, cookie.version)
                swapped.tree.create(path, cookie.value, 0)
        return Fault.NONE

    swapped.faults = plan
    with pytest.raises(RecoveryFailed, match="new cookies of b1"):
        await store.open(writer.ledger_id, recover=True)
    assert await state(apache, writer.ledger_id) is LedgerState.IN_RECOVERY


async def test_a_bookie_that_lost_its_disk_amid_a_recovery_is_noticed_before_the_close(
    ledgers: Ledgers,
) -> None:
    """What was made in its place denies everything, and answers at its address until its registration expires."""
    writer = await written(ledgers, *[b"x"] * 1)
    store = await ledgers.other_client()
    assert store is not None
    swapped = ledgers.stores[-1]
    looks = 0

    def plan(operation: str, path: str) -> Fault:
        nonlocal looks
        if operation == "get" and path == "/ledgers/cookies/b1":
            looks += 1
            if looks == 2:
                swapped.tree.delete(path, swapped.tree.get(path).version)
        return Fault.NONE

    swapped.faults = plan
    with pytest.raises(RecoveryFailed, match="new cookies of b1"):
        await store.open(writer.ledger_id, recover=True)
    assert await state(ledgers, writer.ledger_id) is LedgerState.IN_RECOVERY
    assert (await store.open(writer.ledger_id, recover=True)).last_entry == 0, "the others suffice"


async def test_a_bookie_without_a_cookie_is_not_believed(ledgers: Ledgers) -> None:
    writer = await written(ledgers, *[b"x"] * 1)
    for name in ("b1", "b2"):
        await make_cookie(ledgers.store, name, ours=False)
        path = f"/ledgers/cookies/{name}"
        await ledgers.store.delete(path, version=0)
    with pytest.raises(RecoveryFailed, match="too few bookies"):
        await recovered(ledgers, writer.ledger_id)


async def test_the_writer_is_fenced_by_then(apache: Ledgers) -> None:
    writer = await written(apache, *[b"x"] * 1)
    await recovered(apache, writer.ledger_id)
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")
