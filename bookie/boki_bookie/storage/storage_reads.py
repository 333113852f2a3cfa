"""What a store knows of entries, and their bodies: out of the write cache, the system's cache, or the disk. Reads alone.

Three steps, so that what is in memory costs no task: `look_up` says where an entry is, without touching the disk; `at_hand`
gives its body where no waiting is needed; `load` waits for the disk. A batch goes the same way as one run, and many reads of one
entry each take the first two steps at once (`bodies_at_hand`).

Rules:
- A negative answer is certain: the entry was never stored here. In limbo none is given (`doubts`).
- An entry that is stored and cannot be read is a StorageError, never absent.
- What compaction moved since it was looked up is read where it is now.

It changes nothing; `storage` does, and is one of these.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_bookie.entries.entry_log import EntryLog
from boki_bookie.entries.ledger_index import NO_ENTRY, Extent, LedgerIndex, Place, RunPart
from boki_bookie.storage.limbo import Limbo
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import StorageError
from boki_common.logs import get_logger

LOADS_AT_ONCE: Final = 4
"""Parts of one batch of single reads that wait for the disk at the same time: the disk port has as many threads."""

_log = get_logger("bookie")


class Found(NamedTuple):
    """What is known of an entry without touching the disk: a body, a place to read, or neither with the status."""

    status: V2Status
    body: memoryview | None
    place: Place | None


class FoundRun(NamedTuple):
    """What is known of entries that follow one another; with no parts the status says what is known of the first."""

    status: V2Status
    parts: list[RunPart]


class StorageReads:
    """See the module."""

    def __init__(self, index: LedgerIndex, entry_log: EntryLog, limbo: Limbo | None) -> None:
        self.limbo: Limbo | None = limbo
        """Of a store that was salvaged."""
        self._index = index
        self._entry_log = entry_log
        self._ledgers = index.ledgers

    def look_up(self, ledger_id: int, entry_id: int) -> Found:
        """Where an entry is; -1 means the last one held. Negative answers are certain; in limbo they are not given."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return Found(V2Status.UNKNOWN_LEDGER_STATE if self.doubts(ledger_id) else V2Status.NO_LEDGER, None, None)
        if entry_id < 0:
            if entry_id != NO_ENTRY:
                return Found(V2Status.BAD_REQUEST, None, None)
            if self.doubts(ledger_id):
                return Found(V2Status.UNKNOWN_LEDGER_STATE, None, None)
            entry_id = ledger.last_entry
        body = ledger.cached(entry_id)
        if body is not None:
            return Found(V2Status.OK, body, None)
        place = ledger.place(entry_id)
        if place is not None:
            return Found(V2Status.OK, None, place)
        return Found(V2Status.UNKNOWN_LEDGER_STATE if self.doubts(ledger_id) else V2Status.NO_ENTRY, None, None)

    def look_up_run(self, ledger_id: int, first: int, *, count: int, room: int, overhead: int) -> FoundRun:
        """`look_up` for a batch, from `first` on without a gap; see `Ledger.find_run` for what bounds it."""
        ledger = self._ledgers.get(ledger_id)
        parts = ledger.find_run(first, count, room, overhead=overhead) if ledger is not None and first >= 0 else []
        if parts:
            return FoundRun(V2Status.OK, parts)
        return FoundRun(V2Status.BAD_REQUEST if first < 0 else self.look_up(ledger_id, first).status, parts)

    def bodies_at_hand(self, wanted: Sequence[tuple[int, int]], room: int) -> list[memoryview | None]:
        """Bodies of entries, (ledger, entry), that can be read without waiting, in order, up to `room` bytes.

        None says nothing: `look_up` does. What the list is too short for was not looked at.
        """
        ledgers, at_hand = self._ledgers, self._entry_log.at_hand
        bodies: list[memoryview | None] = []
        for ledger_id, entry_id in wanted:
            if room <= 0:
                break
            body: memoryview | None = None
            ledger = ledgers.get(ledger_id)
            if ledger is not None:
                body = ledger.cached(entry_id)
                if body is None and (place := ledger.place(entry_id)) is not None:
                    body = at_hand(ledger_id, place)
            bodies.append(body)
            if body is not None:
                room -= len(body)
        return bodies

    def at_hand(self, ledger_id: int, place: Place) -> memoryview | None:
        """The body of a stored entry, if it can be had without waiting and is sound; else `load` it."""
        return self._entry_log.at_hand(ledger_id, place)

    def run_at_hand(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview] | None:
        """All bodies of a run, if they can be had without waiting and are sound; else `load_run` it."""
        bodies: list[memoryview] = []
        for part in parts:
            found = self._entry_log.extent_at_hand(ledger_id, part) if isinstance(part, Extent) else part
            if found is None:
                return None
            bodies += found
        return bodies

    async def load_run(self, ledger_id: int, parts: Sequence[RunPart]) -> list[memoryview]:
        """Bodies of a run, up to the first that cannot be read (it exists, content unknown); perhaps none."""
        bodies: list[memoryview] = []
        pending = deque(parts)
        while pending:
            part = pending.popleft()
            if not isinstance(part, Extent):
                bodies += part
                continue
            found = await self._entry_log.read_extent(ledger_id, part)
            bodies += found
            if (at := len(found)) == len(part.locations):
                continue
            place = Place(part.first + at, part.locations[at], part.body_bytes[at])
            body = (await self.load([(ledger_id, place)]))[0]
            if isinstance(body, StorageError):
                break
            bodies.append(body)  # compaction moved it meanwhile, and so, perhaps, what follows
            ledger, left = self._ledgers.get(ledger_id), len(part.locations) - at - 1
            rest = [] if ledger is None else ledger.find_run(place.entry_id + 1, left, sys.maxsize, overhead=0)
            if sum(len(one.locations) if isinstance(one, Extent) else len(one) for one in rest) < left:
                pending.clear()  # nothing may follow what is missing
            pending.extendleft(reversed(rest))
        return bodies

    def doubts(self, ledger_id: int) -> bool:
        """Whether this store is in limbo about a ledger: what it does not hold it may have lost."""
        if self.limbo is None:
            return False
        ledger = self._ledgers.get(ledger_id)
        return self.limbo.doubts(ledger_id, validated=ledger is not None and ledger.validated)

    def entry_ids(self, ledger_id: int) -> list[int] | None:
        """Every entry held, ascending; None for an unknown ledger."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        if not ledger.fresh and not ledger.flushing:
            return ledger.places.entries()
        return sorted([*ledger.places.entries(), *ledger.flushing, *ledger.fresh])

    async def load(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]:
        """Bodies of stored entries, in order; a StorageError for one that cannot be read: it exists, content unknown.

        An entry that compaction moved since its place was looked up is read where it is now. Many are read in a few parts
        at the same time: one behind the other, each would wait for the disk by itself.
        """
        if len(wanted) <= 1:
            return await self._load_part(wanted)
        size = -(-len(wanted) // LOADS_AT_ONCE)
        parts = [wanted[at : at + size] for at in range(0, len(wanted), size)]
        loaded = await asyncio.gather(*(self._load_part(part) for part in parts))
        return list(itertools.chain.from_iterable(loaded))

    async def _load_part(self, wanted: Sequence[tuple[int, Place]]) -> list[memoryview | StorageError]:
        bodies = await self._entry_log.read(wanted)
        for at, body in enumerate(bodies):
            if isinstance(body, StorageError):
                bodies[at] = await self._load_moved(*wanted[at], body)
        return bodies

    async def _load_moved(
        self, ledger_id: int, place: Place, body: memoryview | StorageError
    ) -> memoryview | StorageError:
        while isinstance(body, StorageError):
            ledger = self._ledgers.get(ledger_id)
            now = None if ledger is None else ledger.place(place.entry_id)
            if now is None or now == place:
                _log.error("a stored entry cannot be read", error=body)
                break
            place = now
            body = (await self._entry_log.read([(ledger_id, place)]))[0]
        return body
