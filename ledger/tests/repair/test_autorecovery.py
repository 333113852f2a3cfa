"""What the nodes of Apache's AutoRecovery show is read, and nothing of it is changed."""

from __future__ import annotations

from boki_common.metadata.store import ensure_path
from boki_ledger.repair.autorecovery import (
    APACHES_ELECTION,
    APACHES_LOCKS,
    APACHES_MARKS,
    APACHES_SWITCH,
    MARKED_LIMIT,
    AutoRecovery,
    read_autorecovery,
)
from boki_ledger.repair.settings import Mode, RepairLimits
from boki_ledger.testing.ledgers import Ledgers


def mark_path(ledger_id: int) -> str:
    """As its manager makes it: each group is 16 bits of the id."""
    groups = "/".join(f"{ledger_id >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
    return f"{APACHES_MARKS}/{groups}/urL{ledger_id:010d}"


async def test_a_cluster_without_it_shows_nothing(ledgers: Ledgers) -> None:
    assert await read_autorecovery(ledgers.store) == AutoRecovery()
    assert AutoRecovery().runs == ""


async def test_marks_locks_election_and_switch_are_read(ledgers: Ledgers) -> None:
    for ledger_id in (7, 70_000, 2**40):
        await ensure_path(ledgers.store, mark_path(ledger_id))
    await ensure_path(ledgers.store, f"{APACHES_LOCKS}/urL0000000007")
    await ensure_path(ledgers.store, f"{APACHES_MARKS}/0000/0000/0000/0007/another")
    found = await read_autorecovery(ledgers.store)
    assert found == AutoRecovery(False, False, (7,), (7, 70_000, 2**40))
    assert found.runs == "it has 1 ledgers locked"
    await ensure_path(ledgers.store, f"{APACHES_ELECTION}/V_0000000001")
    await ensure_path(ledgers.store, APACHES_SWITCH)
    found = await read_autorecovery(ledgers.store)
    assert (found.elected, found.disabled, found.runs) == (True, True, "its auditor is elected")
    auditor = ledgers.client.auditor(RepairLimits())
    await auditor.round(Mode.OURS)
    shown = auditor.status()["apaches_autorecovery"]
    assert (shown["elected"], shown["marked_ledgers"], shown["locked_ledgers"]) == (True, 3, [7])
    assert await read_autorecovery(ledgers.store) == found


async def test_only_so_many_marks_are_looked_for(ledgers: Ledgers) -> None:
    for ledger_id in range(MARKED_LIMIT + 20):
        await ensure_path(ledgers.store, mark_path(ledger_id))
    assert len((await read_autorecovery(ledgers.store)).marked) == MARKED_LIMIT
