"""The result of one look at all ledgers and bookies: which copies are missing or leave, and which of them are due. Pure, for JSON too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata
from boki_common.ids import BookieId
from boki_ledger.repair.drain_rules import may_get_entries
from boki_ledger.repair.plan import (
    FOR_GOOD,
    Blocker,
    Urgency,
    copies_left,
    is_mass_outage,
    lost_bookies,
    missing_bytes,
    missing_entries,
    plan_ledger,
    urgency,
)

LISTED: Final = 100
"""Ledgers that a report names, the most urgent ones."""


class MissingCopies(NamedTuple):
    """One ledger of which bookies that are away have copies."""

    urgency: Urgency
    entries: int
    """Copies of entries that are missing while these bookies are away."""
    away: tuple[BookieId, ...]
    due: frozenset[BookieId]
    """Those of them that count as lost: their copies are to be made anew."""
    written: bool
    """Whether its writer, or recovery, replaces one of them: its last fragment is not closed."""


@dataclass(frozen=True, slots=True)
class Audit:
    """See the module."""

    ledgers: int
    unreadable: tuple[int, ...]
    """Ledgers whose metadata cannot be read."""
    bookies: int
    """With a cookie."""
    away: Mapping[BookieId, float]
    mass_outage: bool
    missing: tuple[MissingCopies, ...] = field(default=())
    """Most urgent first."""
    leaving: tuple[MissingCopies, ...] = field(default=())
    """Ledgers with a place on bookies that drain; `away` and `due` are these bookies."""

    @property
    def due(self) -> list[MissingCopies]:
        """Those with copies to be made anew, most urgent first: those of bookies that drain last, and not in a mass outage."""
        lost = [one for one in self.missing if one.due and (one.entries or not one.written)]
        known = {one.urgency.ledger_id for one in lost}
        leaving = [
            one
            for one in self.leaving
            if one.urgency.ledger_id not in known and (one.entries or not one.written) and not self.mass_outage
        ]
        return lost + leaving


def look_at(
    ledger_id: int, metadata: LedgerMetadata, away: Mapping[BookieId, float], due: frozenset[BookieId]
) -> MissingCopies | None:
    """What a ledger misses; None if nothing. `due`: who is lost to it."""
    gone = frozenset(bookie for _, bookies in metadata.ensembles for bookie in bookies if bookie in away)
    if not gone:
        return None
    blockers = plan_ledger(metadata, gone, ()).blockers
    written = any(why in (Blocker.OPEN, Blocker.IN_RECOVERY) for _, why in blockers)
    missing = missing_entries(metadata, gone)
    return MissingCopies(urgency(ledger_id, metadata, gone), missing, tuple(sorted(gone)), due, written)


def look_at_leaving(
    ledger_id: int, metadata: LedgerMetadata, away: Mapping[BookieId, float], draining: frozenset[BookieId]
) -> MissingCopies | None:
    """Return the copies that bookies which drain have of a ledger; None if they have no place in it."""
    leaving = frozenset(bookie for _, bookies in metadata.ensembles for bookie in bookies if bookie in draining)
    if not leaving:
        return None
    written = any(may_get_entries(metadata, bookie) for bookie in leaving)
    first = Urgency(copies_left(metadata, away), missing_bytes(metadata, leaving), ledger_id)
    return MissingCopies(first, missing_entries(metadata, leaving), tuple(sorted(leaving)), leaving, written)


def audit_of(
    ledgers: Mapping[int, LedgerMetadata | None],
    away: Mapping[BookieId, float],
    bookies: int,
    *,
    grace_s: float,
    draining: frozenset[BookieId] = frozenset(),
) -> Audit:
    """The audit of ledgers, by id; None is metadata that cannot be read. `draining`: bookies that are drained."""
    mass_outage = is_mass_outage(away, bookies)
    found, leaving = [], []
    for ledger_id, metadata in ledgers.items():
        if metadata is not None:
            leaves = look_at_leaving(ledger_id, metadata, away, draining)
            if leaves is not None:
                leaving.append(leaves)
            due = lost_bookies(metadata, away, grace_s=grace_s, mass_outage=mass_outage)
            missing = look_at(ledger_id, metadata, away, due)
            if missing is not None:
                found.append(missing)
    unreadable = tuple(ledger_id for ledger_id, metadata in ledgers.items() if metadata is None)
    return Audit(len(ledgers), unreadable, bookies, away, mass_outage, tuple(sorted(found)), tuple(sorted(leaving)))


def describe(audit: Audit) -> dict[str, Any]:
    """Return an audit as JSON, with the bookies that are away and the most urgent ledgers."""
    return {
        "ledgers": audit.ledgers,
        "unreadable_ledgers": list(audit.unreadable[:LISTED]),
        "bookies": audit.bookies,
        "mass_outage": audit.mass_outage,
        "away": [_describe_away(bookie, away_s) for bookie, away_s in audit.away.items()],
        "ledgers_by_copies_left": _by_copies_left(audit.missing),
        "missing_ledgers": len(audit.missing),
        "missing_entries": sum(one.entries for one in audit.missing),
        "missing_bytes": _bytes(audit.missing),
        "leaving_ledgers": len(audit.leaving),
        "leaving_bytes": _bytes(audit.leaving),
        "due_ledgers": len(audit.due),
        "due_bytes": _bytes(audit.due),
        "most_urgent": [_describe_ledger(one) for one in audit.missing[:LISTED]],
    }


def _describe_away(bookie: BookieId, away_s: float) -> dict[str, Any]:
    """Return a bookie that is away as JSON; a retired one has no time since which it is away."""
    retired = away_s == FOR_GOOD
    return {"bookie": bookie, "retired": retired, "away_s": None if retired else round(away_s, 1)}


def _describe_ledger(one: MissingCopies) -> dict[str, Any]:
    """Return a ledger that misses copies as JSON."""
    return {
        "ledger_id": one.urgency.ledger_id,
        "copies_left": one.urgency.copies_left,
        "missing_entries": one.entries,
        "missing_bytes": one.urgency.missing_bytes,
        "away": list(one.away),
        "due": sorted(one.due),
        "written": one.written,
    }


def _by_copies_left(ledgers: Iterable[MissingCopies]) -> dict[str, int]:
    """Count ledgers by the copies that their worst entry has left; the keys are text, for JSON."""
    counts: dict[str, int] = {}
    for one in ledgers:
        left = str(one.urgency.copies_left)
        counts[left] = counts.get(left, 0) + 1
    return counts


def _bytes(ledgers: Iterable[MissingCopies]) -> int:
    return sum(one.urgency.missing_bytes for one in ledgers)
