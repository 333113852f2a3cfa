"""Whether a bookie may be drained, and what its drain waits for. Pure.

    | refusal               | reason                                                                                             |
    |-----------------------|----------------------------------------------------------------------------------------------------|
    | not ours              | a bookie of Apache's knows no mark and no hold: use its own decommissioning                         |
    | apache's autorecovery | its auditor or workers run: what they copy brings no hold, and may land after the store is empty    |
    | metadata unreadable   | a ledger that cannot be read may name the bookie                                                    |
    | too few bookies       | a fragment names all bookies that could take the place, or ledgers could not be written any more    |
    | last copy             | the bookie is away, and others that are away have the only other copies of an entry                 |
    | not recoverable       | the bookie is away, and with it a ledger that is written could not be recovered                     |
    | no space              | its copies are larger than what is free on the others                                               |

A drain waits for its bookie to refuse adds and to be empty, and for a listing that names it in no fragment with entries. A bookie
that is away for the grace is not waited for; then there is no proof that no old plan names it later. If one does, the ledger
misses a copy, which is made anew at once, since the bookie is retired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from boki_common.bookkeeper.bookie_mark import BookieMark
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.ids import BookieId
from boki_ledger.repair.plan import copies_left, fixed_fragments, missing_bytes, slot_entries
from boki_ledger.rules.write_set import write_sets

NAMED: Final = 5
"""Ledgers that a reason names; the rest is counted."""


class Refusal(Enum):
    """See the module."""

    NOT_OURS = "not ours"
    AUTORECOVERY = "apache's autorecovery"
    UNREADABLE = "metadata unreadable"
    TOO_FEW_BOOKIES = "too few bookies"
    LAST_COPY = "last copy"
    NOT_RECOVERABLE = "not recoverable"
    NO_SPACE = "no space"


class Refused(NamedTuple):
    """One reason why a bookie is not drained."""

    why: Refusal
    text: str
    """For people: expected, found, what to do."""


class DrainCheck(NamedTuple):
    """The facts of one look at the cluster that decide whether a bookie may be drained."""

    bookie: BookieId
    ours: bool
    away: frozenset[BookieId]
    """Bookies that do not answer; the one that is to be drained may be one of them."""
    targets: Mapping[BookieId, int | None]
    """Other bookies of ours that take writes and do not drain, with their free bytes; None if that is not known."""
    autorecovery: str
    """What of Apache's AutoRecovery was found; empty, if nothing."""


def refusals(check: DrainCheck, ledgers: Mapping[int, LedgerMetadata | None]) -> list[Refused]:
    """Return why a bookie is not drained; empty, if it may be. `ledgers`: all of them by id; None is metadata that cannot be read."""
    bookie, found = check.bookie, []
    if not check.ours:
        found.append(
            Refused(
                Refusal.NOT_OURS, f"bookie {bookie} is not one of Boki: decommission it with BookKeeper's own tools"
            )
        )
    if check.autorecovery:
        found.append(
            Refused(
                Refusal.AUTORECOVERY,
                f"Apache's AutoRecovery runs ({check.autorecovery}): its copies bring no holds; stop it on all machines first",
            )
        )
    naming = {
        ledger_id: metadata
        for ledger_id, metadata in ledgers.items()
        if metadata is not None and _names(metadata, bookie)
    }
    found += _unreadable(bookie, [ledger_id for ledger_id, metadata in ledgers.items() if metadata is None])
    found += _unplaced(check, naming)
    if bookie in check.away:
        found += _lost(check, naming)
    found += _unfit(check, naming)
    return found


def _names(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    return any(bookie in bookies for _, bookies in metadata.ensembles)


def _unreadable(bookie: BookieId, ledgers: list[int]) -> Iterator[Refused]:
    if ledgers:
        yield Refused(
            Refusal.UNREADABLE,
            f"the metadata of ledgers {listed(ledgers)} cannot be read: they may name bookie {bookie}",
        )


def _unplaced(check: DrainCheck, naming: Mapping[int, LedgerMetadata]) -> Iterator[Refused]:
    """Too few bookies are left for a fragment, or for what is written."""
    bookie, targets = check.bookie, check.targets
    full = [
        ledger_id
        for ledger_id, metadata in naming.items()
        if any(bookie in bookies and not targets.keys() - set(bookies) for _, bookies in metadata.ensembles)
    ]
    if full:
        yield Refused(
            Refusal.TOO_FEW_BOOKIES,
            f"expected another bookie of Boki that takes writes for each copy, found {len(targets)}, and ledgers {listed(full)} have "
            "copies on all of them: start another bookie first",
        )
    size = max((one.ensemble_size for one in naming.values() if one.state is not LedgerState.CLOSED), default=0)
    if not full and size > len(targets):
        yield Refused(
            Refusal.TOO_FEW_BOOKIES,
            f"ledgers are written with {size} copies, and {len(targets)} other bookies of Boki take writes: start another bookie first",
        )


def _lost(check: DrainCheck, naming: Mapping[int, LedgerMetadata]) -> Iterator[Refused]:
    """The bookie is away: what it has is copied from others, if others have it."""
    lost = [ledger_id for ledger_id, metadata in naming.items() if copies_left(metadata, check.away) < 1]
    if lost:
        yield Refused(
            Refusal.LAST_COPY,
            f"bookie {check.bookie} is away, and so are all others with entries of ledgers {listed(lost)}: bring one of them back",
        )
    stuck = [ledger_id for ledger_id, metadata in naming.items() if not is_recoverable(metadata, check.away)]
    if stuck:
        yield Refused(
            Refusal.NOT_RECOVERABLE,
            f"bookie {check.bookie} is away, and ledgers {listed(stuck)} are written and cannot be recovered from the others: bring one "
            "of their bookies back",
        )


def _unfit(check: DrainCheck, naming: Mapping[int, LedgerMetadata]) -> Iterator[Refused]:
    needed = sum(missing_bytes(metadata, frozenset((check.bookie,))) for metadata in naming.values())
    free = [one for one in check.targets.values() if one is not None]
    if free and needed > sum(free):
        yield Refused(
            Refusal.NO_SPACE,
            f"its copies take about {needed} bytes, and {sum(free)} are free on the others: add disks, or bookies",
        )


def is_recoverable(metadata: LedgerMetadata, away: Iterable[BookieId]) -> bool:
    """Whether recovery of the last fragment reaches, in each write set, a bookie of each possible ack quorum."""
    if metadata.state is LedgerState.CLOSED:
        return True
    gone = frozenset(away)
    bookies = metadata.ensembles[-1][1]
    return all(
        sum(bookies[slot] in gone for slot in slots) < metadata.ack_quorum
        for slots in write_sets(metadata.ensemble_size, metadata.write_quorum)
    )


def has_entries(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Whether a bookie has a place with entries in a fragment with a fixed end."""
    return any(
        slot_entries(metadata, fragment, slot)
        for fragment in fixed_fragments(metadata)
        for slot, member in enumerate(fragment.bookies)
        if member == bookie
    )


def may_get_entries(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Whether a bookie has a place in a fragment that may still get entries."""
    without_end = metadata.ensembles[len(fixed_fragments(metadata)) :]
    return any(bookie in bookies for _, bookies in without_end)


def may_list(mark: BookieMark, away_s: float | None, *, grace_s: float) -> bool:
    """Whether a listing may end the drain now: the bookie refuses and is empty, or it is away for the grace. `away_s`: None if it
    is there."""
    return (mark.refuses and mark.empty) if away_s is None else away_s >= grace_s


def waits_for(
    mark: BookieMark, away_s: float | None, *, grace_s: float, moving: int, written: Iterable[int]
) -> list[str]:
    """Return what a drain waits for, for people; empty, if nothing. `moving`: ledgers whose copies are to be made elsewhere."""
    found = []
    named = sorted({*written})
    if moving:
        found.append(f"{moving} ledgers are to be copied to other bookies")
    if named:
        found.append(f"ledgers {listed(named)} are written still: their writers replace it, or their logs are rolled")
    if away_s is not None:
        if away_s < grace_s:
            found.append(f"it is away for {away_s:.0f} s; after {grace_s:.0f} s it is not waited for")
        return found
    if not mark.refuses:
        found.append("it has not noted yet that it refuses adds: is it of an earlier version?")
    elif mark.in_limbo:
        found.append("it was salvaged and is in limbo, so it drops nothing: `boki ledger repair` ends that; or stop it")
    elif mark.held_for_good:
        found.append(
            f"it keeps {mark.held_for_good} ledgers that were salvaged, since their holds may have been forgotten: stop it, and the "
            "drain ends without its proof"
        )
    elif not mark.empty:
        found.append(
            f"it drops what is closed and lies on other bookies by now: ledgers {listed([*mark.left], mark.ledgers)} are left"
        )
    return found


def listed(ledgers: list[int], total: int = 0) -> str:
    """Return the first of some ledgers, and how many more there are. `total`: of all of them, if these are the first only."""
    count = max(total, len(ledgers))
    more = f" and {count - NAMED} more" if count > NAMED else ""
    return ", ".join(map(str, ledgers[:NAMED])) + more
