"""The last-add-confirmed (LAC) that the bookie answers for each ledger: the one in the header of the last entry that it stores.

A writer puts its LAC into every entry and never lowers it, so no add has to note anything: a request looks at the last
entry. Of a ledger whose last entry is on disk, the LAC is remembered once it was read; what is remembered belongs to that
entry alone, so it cannot be stale. A LAC that is too low is always safe: readers then see less.

A writer that is idle sends its LAC by itself; `Ledger.explicit_lac` stores that, durably. The higher one is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from boki_bookie.entries.ledger_index import NO_ENTRY
from boki_common import limits

_LAC_START: Final = 16
_LAC_END: Final = 24


def lac_of(body: memoryview) -> int:
    """The LAC in the header of an entry's body."""
    return int.from_bytes(body[_LAC_START:_LAC_END], "big", signed=True)


def explicit_lac_of(body: bytes) -> int:
    """The LAC in a body that a writer sent by itself: ledger, LAC, digest; -1 where there is none."""
    return int.from_bytes(body[8:16], "big", signed=True) if body else NO_ENTRY


class StoredLacs:
    """LACs of last entries that are on disk; the oldest are forgotten over `limits.BOOKIE_LEDGERS_REMEMBERED`."""

    def __init__(self) -> None:
        self._lacs: dict[int, tuple[int, int]] = {}

    def of(self, ledger_id: int, last_entry: int) -> int | None:
        """The LAC that this entry carries, if it was read before."""
        known = self._lacs.get(ledger_id)
        return known[1] if known is not None and known[0] == last_entry else None

    def remember(self, ledger_id: int, last_entry: int, body: memoryview) -> int:
        """Notes the LAC that this last entry carries, and returns it."""
        self._lacs.pop(ledger_id, None)
        if len(self._lacs) >= limits.BOOKIE_LEDGERS_REMEMBERED:
            del self._lacs[next(iter(self._lacs))]
        lac = lac_of(body)
        self._lacs[ledger_id] = (last_entry, lac)
        return lac


class LacWatchers:
    """Waiters for the LAC of a ledger to advance, or for its fence. `look(fenced)` is called each time."""

    def __init__(self) -> None:
        self.looks: dict[int, dict[Callable[[bool], None], None]] = {}
        """Who watches which ledger; to look at only."""
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit of watchers is reached; the caller has to refuse."""
        return self._count >= limits.BOOKIE_LAC_WAITERS

    def __bool__(self) -> bool:
        return bool(self.looks)

    def watch(self, ledger_id: int, look: Callable[[bool], None]) -> None:
        looks = self.looks.setdefault(ledger_id, {})
        if look not in looks:
            looks[look] = None
            self._count += 1

    def forget(self, ledger_id: int, look: Callable[[bool], None]) -> None:
        looks = self.looks.get(ledger_id)
        if looks is not None and look in looks:
            del looks[look]
            self._count -= 1
            if not looks:
                del self.looks[ledger_id]

    def changed(self, ledger_id: int, *, fenced: bool = False) -> None:
        """An entry or a LAC of this ledger was taken, or its fence is durable."""
        for look in list(self.looks.get(ledger_id, ())):
            look(fenced)
