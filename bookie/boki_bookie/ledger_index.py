"""What the bookie holds of each ledger, in memory: flags, cached bodies, and where stored entries lie. No IO.

An entry is in exactly one place: `fresh` (in the journal and here), `flushing` (being written to the entry log) or the
three columns (stored in the entry log). `cut` moves all fresh entries to flushing at one moment; `store` moves a ledger's
flushing entries to its columns.

The columns of a ledger are parallel arrays in ascending order of entry, 20 B an entry. Entries nearly always come in
order, so they are appended; one that comes late (a recovery add) is merged in.

*Dirty* ledgers are those of which anything changed since the last cut: entries, fence, key or sight. The next checkpoint
takes every one of them, with or without entries, so that no fence is ever left behind (Apache BookKeeper's PR #4843).

Hot path: `storage` writes `fresh`, `last_entry` and the byte count itself, one dict entry per add.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

NO_ENTRY: Final = -1
CACHED_OVERHEAD_BYTES: Final = 200
"""Memory of one cached entry besides its body: dict slot, number, view."""
LEDGER_ENCODED_BYTES: Final = 48
PLACE_ENCODED_BYTES: Final = 20


class Place(NamedTuple):
    """Where a stored entry lies; `location` as in `entry_log_format`, `body_bytes` without the stored header."""

    entry_id: int
    location: int
    body_bytes: int


class Ledger:
    """One ledger on this bookie. `fenced` never goes back to False; `last_entry` and `lac` never fall."""

    __slots__ = (
        "body_bytes",
        "dirty",
        "entries",
        "explicit_lac",
        "fenced",
        "flushing",
        "fresh",
        "last_entry",
        "ledger_id",
        "locations",
        "master_key",
        "sighted",
    )

    def __init__(self, ledger_id: int, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.fenced = False
        self.sighted = False
        self.dirty = False
        self.last_entry = NO_ENTRY
        self.fresh: dict[int, memoryview] = {}
        self.flushing: dict[int, memoryview] = {}
        self.entries = array("q")
        self.locations = array("Q")
        self.body_bytes = array("I")
        self.explicit_lac = b""

    @property
    def lac(self) -> int:
        """The highest LAC that was written by itself; -1 for none. Its body is `explicit_lac`, empty for none."""
        return int.from_bytes(self.explicit_lac[8:16], "big", signed=True) if self.explicit_lac else NO_ENTRY

    def note_lac(self, body: bytes) -> bool:
        """Keeps the body of an explicit LAC, unless one as high is held."""
        if int.from_bytes(body[8:16], "big", signed=True) <= self.lac:
            return False
        self.explicit_lac = body
        return True

    def cached(self, entry_id: int) -> memoryview | None:
        """The body, if it is in memory."""
        body = self.fresh.get(entry_id)
        return body if body is not None else self.flushing.get(entry_id)

    def place(self, entry_id: int) -> Place | None:
        """Where the entry is stored, if it is."""
        at = bisect_left(self.entries, entry_id)
        if at == len(self.entries) or self.entries[at] != entry_id:
            return None
        return Place(entry_id, self.locations[at], self.body_bytes[at])

    def holds(self, entry_id: int) -> bool:
        if entry_id > self.last_entry:
            return False
        return entry_id in self.fresh or entry_id in self.flushing or self.place(entry_id) is not None

    def add_places(self, entries: Sequence[int], locations: Sequence[int], body_bytes: Sequence[int]) -> None:
        """Adds stored entries, ascending; a place that is known already is replaced."""
        if not entries:
            return
        if not self.entries or entries[0] > self.entries[-1]:
            self.entries.extend(entries)
            self.locations.extend(locations)
            self.body_bytes.extend(body_bytes)
        else:
            merged = dict(zip(self.entries, zip(self.locations, self.body_bytes, strict=True), strict=True))
            merged.update(zip(entries, zip(locations, body_bytes, strict=True), strict=True))
            ordered = sorted(merged)
            self.entries = array("q", ordered)
            self.locations = array("Q", [merged[entry][0] for entry in ordered])
            self.body_bytes = array("I", [merged[entry][1] for entry in ordered])
        self.last_entry = max(self.last_entry, self.entries[-1])

    def check_invariants(self) -> None:
        """Asserts what the class and the module promise."""
        assert len(self.entries) == len(self.locations) == len(self.body_bytes)
        assert all(a < b for a, b in itertools.pairwise(self.entries))
        assert not self.fresh.keys() & self.flushing.keys()
        held = [*self.fresh, *self.flushing, *self.entries[-1:]]
        assert self.last_entry == max(held, default=NO_ENTRY)
        assert self.dirty or not self.fresh


class LedgerIndex:
    """All ledgers of the bookie."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.fresh_bytes = 0
        self.flushing_bytes = 0
        self.stored_entries = 0
        self._dirty: list[Ledger] = []

    @property
    def cached_bytes(self) -> int:
        return self.fresh_bytes + self.flushing_bytes

    @property
    def encoded_bytes(self) -> int:
        """About what all ledgers take on disk (`ledger_index_format`)."""
        return LEDGER_ENCODED_BYTES * len(self.ledgers) + PLACE_ENCODED_BYTES * self.stored_entries

    def restore(self, ledger_id: int, master_key: bytes) -> Ledger:
        """A ledger that a checkpoint knew: not dirty."""
        ledger = self.ledgers[ledger_id] = Ledger(ledger_id, master_key)
        return ledger

    def restore_places(
        self, ledger: Ledger, entries: Sequence[int], locations: Sequence[int], body_bytes: Sequence[int]
    ) -> None:
        before = len(ledger.entries)
        ledger.add_places(entries, locations, body_bytes)
        self.stored_entries += len(ledger.entries) - before

    def create(self, ledger_id: int, master_key: bytes) -> Ledger:
        assert ledger_id not in self.ledgers, ledger_id
        ledger = self.ledgers[ledger_id] = Ledger(ledger_id, master_key)
        self.touch(ledger)
        return ledger

    def touch(self, ledger: Ledger) -> None:
        """Something of the ledger changed: the next checkpoint takes it."""
        if not ledger.dirty:
            ledger.dirty = True
            self._dirty.append(ledger)

    def put(self, ledger: Ledger, entry_id: int, body: memoryview) -> None:
        """Caches an entry that is not held yet."""
        self.touch(ledger)
        ledger.fresh[entry_id] = body
        if entry_id > ledger.last_entry:
            ledger.last_entry = entry_id
        self.fresh_bytes += len(body) + CACHED_OVERHEAD_BYTES

    def cut(self) -> list[Ledger]:
        """All that is dirty, sorted by ledger: their fresh entries are flushing from now on."""
        assert not self.flushing_bytes, "one checkpoint at a time"
        dirty, self._dirty = sorted(self._dirty, key=lambda ledger: ledger.ledger_id), []
        for ledger in dirty:
            assert not ledger.flushing
            ledger.dirty = False
            ledger.flushing, ledger.fresh = ledger.fresh, {}
        self.flushing_bytes, self.fresh_bytes = self.fresh_bytes, 0
        return dirty

    def store(self, ledger: Ledger, locations: Sequence[int]) -> tuple[array[int], array[int], array[int]]:
        """The flushing entries of a ledger are at these locations, in ascending order; returns the new columns."""
        ordered = sorted(ledger.flushing)
        columns = (
            array("q", ordered),
            array("Q", locations),
            array("I", [len(ledger.flushing[entry_id]) for entry_id in ordered]),
        )
        self.restore_places(ledger, *columns)
        ledger.flushing = {}
        return columns

    def cut_is_stored(self) -> None:
        """Every ledger of the cut went through `store`."""
        self.flushing_bytes = 0
