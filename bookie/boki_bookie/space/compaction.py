"""Which entry log files are worth their space, and copying what lives in one of them, so that it can go.

What lives in a file is what the index says, never what the file says. Copies are checked against their checksums on the
way, made durable, and only then does the index name them; a reader that asked before finds the entry at either place. The
file itself is removed by whoever made the index durable afterwards. So a crash at any step leaves every entry where the
index has it, and at most a copy that nothing names, which is a dead file like any other.

An entry that cannot be read ends the compaction of its file: it stays, is reported, and the file is left until the next start.

All work is cut into slices after which the loop is free; copying is paced, and pauses while `is_busy`.
"""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

from boki_bookie.entries.entry_log import EntryLog, EntryWriter
from boki_bookie.entries.ledger_index import Ledger, LedgerIndex
from boki_bookie.entries.places import Even, Piece, Place
from boki_bookie.formats.entry_log_format import ENTRY_HEADER_BYTES, OFFSET_BITS
from boki_bookie.space.gc_rules import FileUse
from boki_common.errors import StorageError
from boki_common.limits import KIB, MIB
from boki_common.logs import get_logger

SLICE_BYTES: Final = 256 * KIB
SLICE_ENTRIES: Final = 512
"""What is copied between two turns of the loop: below 2 ms of CPU."""
SCAN_ENTRIES: Final = 20_000
"""What is looked at of the index between two turns of the loop: about 3 ms of CPU."""
LEDGER_WEIGHT: Final = 100
"""What looking at a ledger costs, in entries."""
PIECE_WEIGHT: Final = 50
"""What looking at an even piece costs."""
MOVE_LEDGERS: Final = 100
"""Ledgers whose places are updated between two turns of the loop."""
COMMIT_BYTES: Final = 16 * MIB
"""Copies are made durable, and the index is updated, at least this often: bounds memory."""
BUSY_PAUSE_S: Final = 0.05

_log = get_logger("bookie")


class Copied(NamedTuple):
    """How the compaction of a file ended."""

    entries: int
    copied_bytes: int
    is_whole: bool
    """Whether everything that lived in it was copied; False when an entry could not be read."""


class _Batch(NamedTuple):
    """Entries of some ledgers that lie in the file: parallel lists."""

    ledgers: list[Ledger]
    places: list[Place]


async def file_use(index: LedgerIndex, entry_log: EntryLog) -> list[FileUse]:
    """Size and live bytes of every finished file. What is dead when this begins is counted as dead; what dies meanwhile may
    be counted as live, never the other way round: no entry is ever put into a finished file."""
    finished = entry_log.finished()
    live = dict.fromkeys(finished, 0)
    async for _, piece in _slowly(index):
        for number, rows in _by_file(piece):
            if number in live:
                live[number] += rows.body_bytes() + ENTRY_HEADER_BYTES * len(rows.entries)
    return [FileUse(number, size, live[number]) for number, size in finished.items()]


def _by_file(piece: Piece) -> Iterator[tuple[int, Piece]]:
    """The rows in parts that lie in one file each, with its number; a file may come several times."""
    if isinstance(piece, Even):
        yield piece.locations[0] >> OFFSET_BITS, piece
        return
    start = 0
    for number, locations in itertools.groupby(piece.locations, lambda location: location >> OFFSET_BITS):
        stop = start + sum(1 for _ in locations)
        yield number, piece.part(start, stop)
        start = stop


async def _slowly(index: LedgerIndex) -> AsyncIterator[tuple[Ledger, Piece]]:
    """All stored entries of the ledgers that are there now, ascending, with turns of the loop in between.

    Nothing is missed: of each ledger the entries it stores when it is visited.
    """
    looked_at = 0
    for ledger_id in sorted(index.ledgers):
        ledger = index.ledgers.get(ledger_id)
        if ledger is None:
            continue
        looked_at += LEDGER_WEIGHT
        for piece in ledger.places.pieces():
            looked_at += PIECE_WEIGHT if isinstance(piece, Even) else len(piece.entries)
            if looked_at > SCAN_ENTRIES:
                looked_at = 0
                await asyncio.sleep(0)
            yield ledger, piece


class Compactor:
    """Copies files, one at a time. What was copied is in the index at once, and durable there when its owner says so."""

    def __init__(
        self, index: LedgerIndex, entry_log: EntryLog, *, bytes_per_s: int, is_busy: Callable[[], bool]
    ) -> None:
        self.damaged: dict[int, None] = {}
        """Files with an entry that cannot be read."""
        self._index = index
        self._entry_log = entry_log
        self._bytes_per_s = bytes_per_s
        self._is_busy = is_busy
        self._output: EntryWriter | None = None
        self._copies: list[tuple[Ledger, array[int], array[int], array[int]]] = []
        """Ledger, entries, old and new locations of what was copied and not committed."""
        self._uncommitted_bytes = 0

    async def compact(self, number: int) -> Copied:
        """Copies what lives in a finished file. Raises DiskFull, DiskFailed: nothing of it counts that is not committed."""
        entries = size = 0
        whole = True
        try:
            async for batch in self._batches(number):
                while self._is_busy():  # noqa: ASYNC110  load has no event that says it is over
                    await asyncio.sleep(BUSY_PAUSE_S)
                copied = await self._copy(batch)
                if copied is None:
                    whole = False
                    self.damaged[number] = None
                    break
                entries += len(batch.places)
                size += copied
                if self._uncommitted_bytes >= COMMIT_BYTES:
                    await self._commit()
                await asyncio.sleep(copied / self._bytes_per_s)
            await self._commit()
        except BaseException:
            self._give_up()
            raise
        return Copied(entries, size, whole)

    def close(self) -> None:
        """Ends the file that is being filled; the next one begins another."""
        if self._output is not None:
            self._entry_log.close_output(self._output)
            self._output = None

    def _give_up(self) -> None:
        self._copies = []
        self._uncommitted_bytes = 0
        self.close()

    # -- what lives in the file

    async def _batches(self, number: int) -> AsyncIterator[_Batch]:
        batch = _Batch([], [])
        size = 0
        async for ledger, piece in _slowly(self._index):
            for file, rows in _by_file(piece):
                if file != number:
                    continue
                for place in map(Place, rows.entries, rows.locations, rows.sizes(0, len(rows.entries))):
                    batch.ledgers.append(ledger)
                    batch.places.append(place)
                    size += place.body_bytes + ENTRY_HEADER_BYTES
                    if size >= SLICE_BYTES or len(batch.places) >= SLICE_ENTRIES:
                        yield batch
                        batch, size = _Batch([], []), 0
        if batch.places:
            yield batch

    # -- copying

    async def _copy(self, batch: _Batch) -> int | None:
        """Appends a batch to the output; returns its bytes, None for an entry that lives and cannot be read."""
        wanted = [(ledger.ledger_id, place) for ledger, place in zip(batch.ledgers, batch.places, strict=True)]
        bodies = await self._entry_log.read(wanted)
        output = self._output
        if output is None:
            output = self._output = self._entry_log.open_output()
        size = at = 0
        while at < len(wanted):
            ledger = batch.ledgers[at]
            kept: dict[int, memoryview] = {}
            old: array[int] = array("Q")
            while at < len(wanted) and batch.ledgers[at] is ledger:
                place, body = batch.places[at], bodies[at]
                at += 1
                if not isinstance(body, StorageError):
                    kept[place.entry_id] = body
                    old.append(place.location)
                    size += place.body_bytes + ENTRY_HEADER_BYTES
                elif self._index.ledgers.get(ledger.ledger_id) is ledger and ledger.place(place.entry_id) == place:
                    _log.error("a stored entry cannot be read: its file is kept as it is", error=body)
                    return None
            if kept:
                entries = array("q", kept)
                new = await output.append(ledger.ledger_id, kept, entries)
                self._copies.append((ledger, entries, old, new))
        self._uncommitted_bytes += size
        return size

    async def _commit(self) -> None:
        """The copies are durable and the index names them."""
        if self._output is None:
            return
        await self._output.commit()
        copies, self._copies = self._copies, []
        self._uncommitted_bytes = 0
        for count, (ledger, entries, old, new) in enumerate(copies, 1):
            self._index.move(ledger, entries, old, new)
            if count % MOVE_LEDGERS == 0:
                await asyncio.sleep(0)
        self._output.release()
        if self._output.committed.offset >= self._entry_log.file_bytes:
            self.close()
