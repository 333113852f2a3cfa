"""The report of a bookie about the ledgers it holds: plain values for JSON. Pure; it looks at memory only.

The passwords and keys of ledgers are never in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

from boki_bookie.entries.ledger_index import NO_ENTRY, NO_HOLD, Ledger
from boki_bookie.entries.places import joined_runs

RANGES_LISTED: Final = 1_000
"""Runs of consecutive entries in the report of one ledger; of more, the first."""


def next_ids(ledger_ids: Iterable[int], *, after: int, limit: int) -> list[int]:
    """The next `limit` ids above `after`, ascending."""
    return heapq.nsmallest(limit, (ledger_id for ledger_id in ledger_ids if ledger_id > after))


def summary(ledger: Ledger, *, limbo: bool) -> dict[str, Any]:
    """One line about a ledger; `limbo`: what it does not hold, this bookie may have lost."""
    cached = [*ledger.fresh.values(), *ledger.flushing.values()]
    return {
        "ledger_id": ledger.ledger_id,
        "entries": len(ledger.places) + len(cached),
        "bytes": ledger.places.body_bytes() + sum(map(len, cached)),
        "last_entry": None if ledger.last_entry == NO_ENTRY else ledger.last_entry,
        "fenced": ledger.fenced,
        "limbo": limbo,
    }


def detail(ledger: Ledger, *, limbo: bool) -> dict[str, Any]:
    """Everything that is known of a ledger without reading the disk."""
    cached = sorted([*ledger.fresh, *ledger.flushing])
    in_memory = ((entry_id, entry_id) for entry_id in cached)
    runs = [list(run) for run in joined_runs(heapq.merge(ledger.places.runs(), in_memory))]
    return summary(ledger, limbo=limbo) | {
        "validated": ledger.validated,
        "hold": None if ledger.hold == NO_HOLD else ledger.hold,
        "explicit_lac": None if ledger.lac == NO_ENTRY else ledger.lac,
        "cached_entries": len(cached),
        "stored_entries": len(ledger.places),
        "entry_ranges": runs[:RANGES_LISTED],
        "entry_ranges_left_out": max(0, len(runs) - RANGES_LISTED),
    }
