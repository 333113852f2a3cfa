"""What the bookie holds of each ledger, in memory: flags, cached bodies, and where stored entries lie. No IO.

An entry is in exactly one place: `fresh` (in the journal and here), `flushing` (being written to the entry log) or the
`places` (stored in the entry log). `cut` moves all fresh entries to flushing at one moment; `store` moves flushing entries
of a ledger to its places, stage by stage.

*Dirty* ledgers are those of which anything changed since the last cut: entries, fence, key or validation. The next checkpoint
takes every one of them, with or without entries, so that no fence is ever left behind (Apache BookKeeper's PR #4843).

Hot path: `storage` writes `fresh`, `last_entry` and the byte count itself, one dict entry per add.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_bookie.entries.places import Arrays, Places
from boki_bookie.entries.places import Columns as Columns
from boki_bookie.entries.places import Extent as Extent
from boki_bookie.entries.places import Place as Place
from boki_bookie.entries.tombstones import Run, Tombstones

NO_ENTRY: Final = -1
NO_HOLD: Final = -1
HELD_FOR_GOOD: Final = 2**32 - 2
"""A hold above every version: holds of the ledger may have been forgotten."""
CACHED_OVERHEAD_BYTES: Final = 200
"""Memory of one cached entry besides its body: dict slot, number, view."""
LEDGER_ENCODED_BYTES: Final = 48
PLACE_ENCODED_BYTES: Final = 20


class LedgerUpdate(NamedTuple):
    """What an index file holds of one ledger; the columns are added to those of earlier blocks."""

    ledger_id: int
    fenced: bool
    validated: bool
    master_key: bytes
    entries: array[int]
    locations: array[int]
    body_bytes: array[int]
    explicit_lac: bytes = b""
    emptied: bool = False
    """Columns of earlier blocks do not count."""
    hold: int = NO_HOLD


RunPart = Extent | list[memoryview]
"""Entries that follow one another: stored, or bodies in memory."""


class Ledger:
    """One ledger on this bookie. `fenced` never goes back to False; `last_entry`, `lac` and `hold` never fall."""

    __slots__ = (
        "changed",
        "explicit_lac",
        "fenced",
        "flushing",
        "fresh",
        "hold",
        "last_entry",
        "ledger_id",
        "master_key",
        "places",
        "repeats",
        "validated",
        "sums",
    )

    def __init__(self, ledger_id: int, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.fenced = False
        self.validated = False
        self.changed = False
        self.last_entry = NO_ENTRY
        self.fresh: dict[int, memoryview] = {}
        self.flushing: dict[int, memoryview] = {}
        self.sums: dict[int, int] = {}
        """crc32c of bodies in memory, of those of which it is known."""
        self.places = Places()
        self.explicit_lac = b""
        self.hold = NO_HOLD
        """The highest version of its metadata at which a repair counts on what is held here."""
        self.repeats = 0
        """Adds since the start of entries that were held already."""

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
        return self.places.find(entry_id)

    def find_run(self, first: int, count: int, room: int, *, overhead: int) -> list[RunPart]:
        """What is held without a gap from `first` on: at most `count` entries, whose bodies, each with `overhead` bytes
        more, fit `room`; the first one in any case. Empty when `first` is not held."""
        parts: list[RunPart] = []
        entry_id, stop = first, first + count
        while entry_id < stop:
            part: RunPart | None = self.places.extent(entry_id, stop - entry_id)
            sizes: Sequence[int]
            if isinstance(part, Extent):
                sizes = part.body_bytes
            else:
                part = self._cached_run(entry_id, stop - entry_id)
                sizes = [len(body) for body in part]
            fitting = max(_fitting(sizes, room, overhead), 0 if parts else min(len(sizes), 1))
            if fitting < len(sizes):
                part = part[:fitting] if isinstance(part, list) else _cut(part, fitting)
            if fitting:
                parts.append(part)
            if fitting < len(sizes) or not sizes:
                break
            entry_id += fitting
            room -= sum(sizes) + overhead * fitting
        return parts

    def _cached_run(self, first: int, count: int) -> list[memoryview]:
        fresh, flushing = self.fresh, self.flushing
        bodies: list[memoryview] = []
        for entry_id in range(first, first + count):
            body = fresh.get(entry_id)
            if body is None:
                body = flushing.get(entry_id)
                if body is None:
                    break
            bodies.append(body)
        return bodies

    @property
    def entry_count(self) -> int:
        """How many entries are held."""
        return len(self.places) + len(self.flushing) + len(self.fresh)

    def holds(self, entry_id: int) -> bool:
        if entry_id > self.last_entry:
            return False
        return entry_id in self.fresh or entry_id in self.flushing or self.place(entry_id) is not None

    def empty(self) -> None:
        """Its stored entries are no longer its business, and normal adds never again."""
        assert not self.fresh and not self.flushing
        self.places = Places()
        self.last_entry = NO_ENTRY
        self.fenced = True

    def check_invariants(self) -> None:
        """Asserts what the class and the module promise."""
        self.places.check_invariants()
        assert not self.fresh.keys() & self.flushing.keys()
        assert self.sums.keys() <= self.fresh.keys() | self.flushing.keys()
        entries = [*self.fresh, *self.flushing, self.places.last]
        assert self.last_entry == max(entries)
        assert self.changed or not self.fresh


def _fitting(sizes: Sequence[int], room: int, overhead: int) -> int:
    """How many of the first fit."""
    if sum(sizes) + overhead * len(sizes) <= room:
        return len(sizes)
    for index, size in enumerate(sizes):
        room -= size + overhead
        if room < 0:
            return index
    return len(sizes)


def _cut(extent: Extent, count: int) -> Extent:
    return Extent(extent.first, extent.locations[:count], extent.body_bytes[:count])


class LedgerIndex:
    """All ledgers of the bookie, and which were deleted."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.fresh_bytes = 0
        self.cached_bytes = 0
        """Fresh and flushing."""
        self.freed_bytes = 0
        """Of entries that have left memory since the start."""
        self.stored_entries = 0
        self.tombstones = Tombstones()
        self._changed: list[Ledger] = []
        self._removals: list[Run | Ledger] = []
        self._moved: dict[Ledger, list[Columns]] = {}

    @property
    def flushing_bytes(self) -> int:
        return self.cached_bytes - self.fresh_bytes

    @property
    def encoded_bytes(self) -> int:
        """About what all ledgers take on disk (`ledger_index_format`)."""
        runs = sum(1 for _ in self.tombstones.runs())
        return LEDGER_ENCODED_BYTES * (len(self.ledgers) + runs) + PLACE_ENCODED_BYTES * self.stored_entries

    def restore_places(
        self, ledger: Ledger, entries: Sequence[int], locations: Sequence[int], body_bytes: Sequence[int]
    ) -> None:
        """Adds stored entries, ascending; a place that is known already is replaced."""
        before = len(ledger.places)
        ledger.places.add(entries, locations, body_bytes)
        ledger.last_entry = max(ledger.last_entry, ledger.places.last)
        self.stored_entries += len(ledger.places) - before

    def restore_update(self, update: LedgerUpdate | Run) -> None:
        """What an index file says of a ledger, or of deleted ones."""
        if isinstance(update, Run):
            self.delete(update)
            return
        ledger = self.ledgers.get(update.ledger_id)
        if ledger is None:
            self.tombstones.discard(update.ledger_id)
            ledger = self.ledgers[update.ledger_id] = Ledger(update.ledger_id, update.master_key)  # not changed since
        if update.emptied:
            self.stored_entries -= len(ledger.places)
            ledger.empty()
        ledger.fenced |= update.fenced
        ledger.validated |= update.validated
        ledger.hold = max(ledger.hold, update.hold)
        if update.explicit_lac:
            ledger.note_lac(update.explicit_lac)
        self.restore_places(ledger, update.entries, update.locations, update.body_bytes)

    def create(self, ledger_id: int, master_key: bytes, *, validated: bool = False) -> Ledger:
        assert ledger_id not in self.ledgers, ledger_id
        ledger = self.ledgers[ledger_id] = Ledger(ledger_id, master_key)
        ledger.validated = validated
        self.touch(ledger)
        return ledger

    def fence(self, ledger: Ledger) -> None:
        """It takes no normal add any more."""
        ledger.fenced = True
        self.touch(ledger)

    def validate(self, ledger: Ledger) -> None:
        """Its metadata names this bookie: it takes normal adds without asking again."""
        ledger.validated = True
        self.touch(ledger)

    def distrust(self, ledger: Ledger, *, fenced: bool) -> None:
        """What was known beside its entries is lost: it is validated again, `fenced` by what others know, and held for good."""
        ledger.validated, ledger.fenced, ledger.hold = False, fenced, HELD_FOR_GOOD
        self.touch(ledger)

    def hold(self, ledger: Ledger, version: int) -> None:
        """A repair that read the metadata at `version` counts on what is held of the ledger."""
        if version > ledger.hold:
            ledger.hold = version
            self.touch(ledger)

    def note_lac(self, ledger: Ledger, body: bytes) -> None:
        """Keeps the body of an explicit LAC, unless one as high is there."""
        if ledger.note_lac(body):
            self.touch(ledger)

    def touch(self, ledger: Ledger) -> None:
        """Something of the ledger changed: the next checkpoint takes it."""
        if not ledger.changed:
            ledger.changed = True
            self._changed.append(ledger)

    def put(self, ledger: Ledger, entry_id: int, body: memoryview) -> None:
        """Caches an entry that is not held yet."""
        self.touch(ledger)
        ledger.fresh[entry_id] = body
        if entry_id > ledger.last_entry:
            ledger.last_entry = entry_id
        size = len(body) + CACHED_OVERHEAD_BYTES
        self.fresh_bytes += size
        self.cached_bytes += size

    def replace(self, ledger: Ledger, entry_id: int, body: memoryview) -> None:
        """`put` for an entry whose stored copy, if there is one, is of no use: the next checkpoint names the new place."""
        self.stored_entries -= ledger.places.forget(entry_id)
        ledger.sums.pop(entry_id, None)
        self.put(ledger, entry_id, body)

    def put_run(self, ledger: Ledger, entry_ids: Sequence[int], bodies: Sequence[memoryview], size: int) -> None:
        """`put` for ascending entries above all that are held; `size` counts each one's `CACHED_OVERHEAD_BYTES`."""
        assert entry_ids[0] > ledger.last_entry
        if not ledger.changed:
            self.touch(ledger)
        first, last = entry_ids[0], entry_ids[-1]
        if first == last:
            ledger.fresh[first] = bodies[0]
        else:
            ledger.fresh.update(zip(entry_ids, bodies, strict=True))
        ledger.last_entry = last
        self.fresh_bytes += size
        self.cached_bytes += size

    def cut(self) -> list[Ledger]:
        """All that changed since the last checkpoint, sorted by ledger: their fresh entries are flushing from now on."""
        assert not self.flushing_bytes, "one checkpoint at a time"
        changed = [ledger for ledger in self._changed if self.ledgers.get(ledger.ledger_id) is ledger]
        changed.sort(key=lambda ledger: ledger.ledger_id)
        self._changed = []
        for ledger in changed:
            assert not ledger.flushing
            ledger.changed = False
            ledger.flushing, ledger.fresh = ledger.fresh, {}
        self.fresh_bytes = 0
        return changed

    def store(self, ledger: Ledger, entry_ids: Sequence[int], locations: Sequence[int]) -> Arrays:
        """These flushing entries of a ledger, ascending, are at these locations; returns the new columns."""
        flushing = ledger.flushing
        sizes = list(map(len, map(flushing.pop, entry_ids)))
        if ledger.sums:
            for entry_id in entry_ids:
                ledger.sums.pop(entry_id, None)
        if not flushing:
            ledger.flushing = {}  # an emptied dict keeps its table
        columns = array("q", entry_ids), array("Q", locations), array("I", sizes)
        self.restore_places(ledger, *columns)
        freed = sum(sizes) + CACHED_OVERHEAD_BYTES * len(sizes)
        self.cached_bytes -= freed
        self.freed_bytes += freed
        return columns

    # -- deletion and compaction

    def delete(self, run: Run) -> None:
        """Removes these ledgers, which count as never stored here, for good. None may be flushing."""
        for ledger_id in self._ledgers_in(run):
            ledger = self.ledgers.pop(ledger_id, None)
            if ledger is not None:
                assert not ledger.flushing, ledger_id
                freed = sum(len(body) + CACHED_OVERHEAD_BYTES for body in ledger.fresh.values())
                self.fresh_bytes -= freed
                self.cached_bytes -= freed
                self.freed_bytes += freed
                self.stored_entries -= len(ledger.places)
                self._moved.pop(ledger, None)
        self.tombstones.add(run)
        self._removals.append(run)

    def _ledgers_in(self, run: Run) -> list[int]:
        if run.last - run.first < len(self.ledgers):
            return [ledger_id for ledger_id in range(run.first, run.last + 1) if ledger_id in self.ledgers]
        return [ledger_id for ledger_id in self.ledgers if run.first <= ledger_id <= run.last]

    def empty(self, ledger: Ledger) -> None:
        """Forgets its stored entries and fences it. It may have no others."""
        self.stored_entries -= len(ledger.places)
        ledger.empty()
        self._moved.pop(ledger, None)
        self._removals.append(ledger)
        self.touch(ledger)

    def move(self, ledger: Ledger, entries: array[int], old: array[int], new: array[int]) -> int:
        """What is left of the ledger lies at `new` instead of `old`; returns how many entries that are."""
        if self.ledgers.get(ledger.ledger_id) is not ledger:
            return 0
        columns = ledger.places.move(entries, old, new)
        if columns[0]:
            self._moved.setdefault(ledger, []).append(columns)
        return len(columns[0])

    def take_changes(self) -> tuple[list[Run | Ledger], list[tuple[Ledger, Columns]]]:
        """Removals and moves since the last call, for whoever makes them durable."""
        removals, self._removals = self._removals, []
        moved, self._moved = self._moved, {}
        return removals, [(ledger, columns) for ledger, moves in moved.items() for columns in moves]

    def give_back_changes(self, removals: list[Run | Ledger], moved: list[tuple[Ledger, Columns]]) -> None:
        """They could not be made durable; what was deleted or emptied meanwhile has not moved."""
        self._removals[:0] = removals
        newer, self._moved = self._moved, {}
        for ledger, columns in [*moved, *((ledger, columns) for ledger, moves in newer.items() for columns in moves)]:
            if self.ledgers.get(ledger.ledger_id) is ledger and ledger.places:
                self._moved.setdefault(ledger, []).append(columns)
