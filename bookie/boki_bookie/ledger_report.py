"""What a bookie tells an operator about the ledgers it holds: plain values for JSON. Pure; it looks at memory only.

The passwords and keys of ledgers are never in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from boki_bookie.ledger_index import NO_ENTRY, Ledger

RANGES_TOLD: Final = 1_000
"""Runs of consecutive entries in the report of one ledger; of more, the first."""


def next_ids(ledger_ids: Iterable[int], *, after: int, limit: int) -> list[int]:
    """The next `limit` ids above `after`, ascending."""
    return heapq.nsmallest(limit, (ledger_id for ledger_id in ledger_ids if ledger_id > after))


def summary(ledger: Ledger, *, limbo: bool) -> dict[str, Any]:
    """One line about a ledger; `limbo`: what it does not hold, this bookie may have lost."""
    stored = int(np.frombuffer(ledger.body_bytes, np.dtype("I")).sum(dtype=np.int64)) if ledger.body_bytes else 0
    cached = [*ledger.fresh.values(), *ledger.flushing.values()]
    return {
        "ledger_id": ledger.ledger_id,
        "entries": len(ledger.entries) + len(cached),
        "bytes": stored + sum(map(len, cached)),
        "last_entry": None if ledger.last_entry == NO_ENTRY else ledger.last_entry,
        "fenced": ledger.fenced,
        "limbo": limbo,
    }


def detail(ledger: Ledger, *, limbo: bool) -> dict[str, Any]:
    """Everything that is known of a ledger without reading the disk."""
    cached = sorted([*ledger.fresh, *ledger.flushing])
    held = np.union1d(np.array(ledger.entries, np.int64), np.array(cached, np.int64))
    starts = np.flatnonzero(np.diff(held, prepend=-2) != 1)
    ends = np.append(starts[1:], len(held))[: len(starts)] - 1
    runs = [
        [int(held[start]), int(held[end])] for start, end in zip(starts[:RANGES_TOLD], ends[:RANGES_TOLD], strict=True)
    ]
    return summary(ledger, limbo=limbo) | {
        "sighted": ledger.sighted,
        "explicit_lac": None if ledger.lac == NO_ENTRY else ledger.lac,
        "cached_entries": len(cached),
        "stored_entries": len(ledger.entries),
        "entry_ranges": runs,
        "entry_ranges_left_out": max(0, len(starts) - RANGES_TOLD),
    }
