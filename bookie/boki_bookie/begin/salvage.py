"""A store made again from what can be read of a damaged one: afterwards it opens like any other.

    1. keys      ledgers and their master keys, from the index as far as it reads, then from the metadata
    2. entries   every entry log file of this bookie, page by page: an entry counts when its checksum does
    3. journal   every whole group of every segment whose header is this bookie's, also behind damage
    4. store     a new index file, entry log file and journal segment, whose numbers nothing had before
    5. mark      the file CHECKPOINT names those: from here on the store is whole, with what was found

Nothing old is changed before step 5, so a crash means another try. What is not found is simply not held: the caller has put
the store in limbo before, which makes those negatives *unknown*. Nothing counts as validated, and every ledger is fenced but
those that the caller names: a fence may be among what was lost.

Reads everything once; memory holds 30 B an entry besides the journal. Does not know the metadata.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple

from boki_bookie.begin.journal_apply import Replayed, apply
from boki_bookie.entries.checkpoint import INDEX_FOLDER, MARK_NAME, Checkpointer, index_name
from boki_bookie.entries.entry_log import FOLDER as ENTRIES_FOLDER
from boki_bookie.entries.entry_log import file_name
from boki_bookie.entries.ledger_index import LedgerIndex, Place
from boki_bookie.entries.ledger_index_format import CheckpointMark, LedgerUpdate, decode_blocks, decode_mark, owner_of
from boki_bookie.entries.tombstones import Run
from boki_bookie.formats.entry_log_format import PAGE_BYTES, check_file_header, pack_location, stored_entries
from boki_bookie.formats.journal_format import (
    Group,
    RecordKind,
    SegmentScan,
    decode_segment_header,
    entry_ids,
)
from boki_bookie.journal.journal import JournalPosition
from boki_bookie.journal.journal_segments import FOLDER as JOURNAL_FOLDER
from boki_bookie.journal.journal_segments import SegmentFiles
from boki_bookie.open_files import opened
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, StorageError
from boki_common.limits import FRAME_BYTES, MIB
from boki_common.logs import get_logger
from boki_common.runtime.ports import Disk, Random

SCAN_BYTES: Final = 4 * MIB
"""Of an entry log file, read at a time; and as much again as one entry may have."""

_ADDS: Final = frozenset({RecordKind.ENTRY, RecordKind.REPLACED, RecordKind.LAC})
_ADVICE: Final = frozenset({RecordKind.LEDGER, RecordKind.TOMBSTONE})

_log = get_logger("bookie")

Places = dict[int, tuple[int, int]]
"""Entry → location, body bytes."""


class Salvaged(NamedTuple):
    """What was found, for a log line."""

    ledgers: int
    entries: int
    unreadable: int
    """Files and stretches that could not be used."""


class Salvage:
    """One attempt; call `run`."""

    def __init__(
        self,
        disk: Disk,
        bookie_id: bytes,
        *,
        rng: Random,
        settings: BookieSettings,
        keys: Mapping[int, bytes],
        may_stay_open: Callable[[int], bool],
    ) -> None:
        """Of a locked disk; files of other bookies are left aside. `keys`: master keys of ledgers whose own are lost.
        `may_stay_open`: whether a ledger is not fenced."""
        self._disk = disk
        self._bookie_id = bookie_id
        self._files = SegmentFiles(disk, rng, bookie_id, settings)
        self._settings = settings
        self._keys = keys
        self._may_stay_open = may_stay_open
        self._index = LedgerIndex()
        self._named: dict[int, Places] = {}
        """Where the old index says that entries lie."""
        self._unreadable = 0

    async def run(self) -> Salvaged:
        """Raises DiskFull, DiskFailed while it writes; what cannot be read is left out."""
        mark = await self._mark()
        await self._read_index(mark)
        await self._read_entries()
        last_group = await self._read_journal()
        for ledger in self._index.ledgers.values():
            self._index.distrust(ledger, fenced=not self._may_stay_open(ledger.ledger_id))
        await self._write(mark, last_group)
        return Salvaged(len(self._index.ledgers), self._index.stored_entries, self._unreadable)

    def _skip(self, what: str, error: BokiError) -> None:
        self._unreadable += 1
        _log.warning("left out what cannot be read", what=what, error=error)

    # -- reading

    async def _mark(self) -> CheckpointMark:
        """The last mark, or one that says nothing."""
        try:
            mark = decode_mark(await self._disk.read_all(MARK_NAME), name=self._disk.describe(MARK_NAME))
            if mark.bookie_id == self._bookie_id:
                return mark
        except BokiError as error:
            self._skip(MARK_NAME, error)
        return self._no_mark()

    def _no_mark(self) -> CheckpointMark:
        return CheckpointMark(0, 0, 0, self._bookie_id, 0, 2**63, 0, 0)

    async def _highest(self, folder: str) -> int:
        """The highest number in the names of a folder."""
        stems = [name.partition(".")[0] for name in await self._disk.names(folder)]
        return max((int(stem) for stem in stems if stem.isdigit()), default=0)

    async def _read_index(self, mark: CheckpointMark) -> None:
        """Keys, LACs, and where entries lie: that is for what the entry log does not say itself.

        Every index file is read: the newest may be what an attempt before this one left.
        """
        for number in range(1, await self._highest(INDEX_FOLDER) + 1):
            name = index_name(number)
            if not await self._disk.exists(name):
                continue
            try:
                data = memoryview(await self._contents(name))
                if number == mark.index_file:
                    data = data[: mark.index_bytes]
                for update in decode_blocks(data, owner=owner_of(self._bookie_id, number), name=name):
                    if isinstance(update, Run):
                        self._bury(update)
                    else:
                        self._take(update)
            except BokiError as error:
                self._skip(name, error)

    def _take(self, update: LedgerUpdate) -> None:
        ledger = self._index.ledgers.get(update.ledger_id)
        if ledger is None:
            ledger = self._index.create(update.ledger_id, update.master_key)
        if update.explicit_lac:
            ledger.note_lac(update.explicit_lac)
        places = zip(update.locations, update.body_bytes, strict=True)
        self._named.setdefault(update.ledger_id, {}).update(zip(update.entries, places, strict=True))

    def _bury(self, run: Run) -> None:
        """Deleted ledgers stay deleted, also where their entries are still found."""
        self._index.delete(run)
        for ledger_id in [known for known in self._named if run.first <= known <= run.last]:
            del self._named[ledger_id]

    async def _read_entries(self) -> None:
        found: dict[int, Places] = {}
        for number in range(1, await self._highest(ENTRIES_FOLDER) + 1):
            name = file_name(number)
            if not await self._disk.exists(name):
                continue
            try:
                async for ledger_id, entry_id, offset, size in self._stored(number):
                    found.setdefault(ledger_id, {})[entry_id] = pack_location(number, offset), size
            except StorageError as error:
                self._skip(name, error)
        await self._find_named(found)
        for ledger_id, places in sorted(found.items()):
            if self._knows(ledger_id):
                ordered = sorted(places)
                columns = [places[entry] for entry in ordered]
                ledger = self._index.ledgers[ledger_id]
                self._index.restore_places(ledger, ordered, [at for at, _ in columns], [size for _, size in columns])

    async def _find_named(self, found: dict[int, Places]) -> None:
        """Adds what lies behind damage, where only the index leads."""
        entry_log = Checkpointer.resume(self._disk, self._index, self._no_mark(), self._settings).entry_log
        try:
            for ledger_id, places in sorted(self._named.items()):
                if not self._knows(ledger_id):
                    continue  # deleted since
                have = found.setdefault(ledger_id, {})
                for entry_id in sorted(places.keys() - have.keys()):
                    body = (await entry_log.read([(ledger_id, Place(entry_id, *places[entry_id]))]))[0]
                    if isinstance(body, StorageError):
                        self._skip(f"entry {entry_id} of ledger {ledger_id}", body)
                    else:
                        have[entry_id] = places[entry_id]
        finally:
            await entry_log.close()

    async def _stored(self, number: int) -> AsyncIterator[tuple[int, int, int, int]]:
        """Ledger, entry, offset and body bytes of every entry of a file. Raises StorageError."""
        async with opened(self._disk, file_name(number)) as file:
            name = self._disk.describe(file_name(number))
            page = await file.read(0, PAGE_BYTES)
            check_file_header(page, file_number=number, bookie_id=self._bookie_id, name=name)
            offset, end = PAGE_BYTES, await file.size()
            while offset < end:
                data = memoryview(await file.read(offset, SCAN_BYTES + FRAME_BYTES))
                next_at = SCAN_BYTES
                for found in stored_entries(data, base=offset, limit=SCAN_BYTES):
                    yield found.ledger_id, found.entry_id, offset + found.start, found.body_bytes
                    next_at = max(next_at, found.end)
                offset += next_at

    async def _read_journal(self) -> int:
        """Applies every whole group; returns the highest group number."""
        segments: list[tuple[int, SegmentScan]] = []
        for name in await self._disk.names(JOURNAL_FOLDER):
            path = f"{JOURNAL_FOLDER}/{name}"
            if not name.endswith(".segment"):
                continue
            try:
                data = memoryview(await self._contents(path))
                header = decode_segment_header(data[:PAGE_BYTES], name=self._disk.describe(path))
            except BokiError as error:
                self._skip(path, error)
                continue
            if header.bookie_id == self._bookie_id:
                segments.append((header.generation, SegmentScan(data, header, name=path)))
        last = 0
        for _, scan in sorted(segments, key=lambda segment: segment[0]):
            for group in scan.readable_groups():
                last = max(last, group.number)
                self._apply(group)
        return last

    def _apply(self, group: Group) -> None:
        """Whatever adds to what is held. Fences are all set in the end, and what was dropped may come back: it is true."""
        for kind, body in zip(group.kinds, group.bodies, strict=True):
            if self._knows(entry_ids(body)[0]) if kind in _ADDS else kind in _ADVICE:
                apply(self._index, kind, body)

    def _knows(self, ledger_id: int) -> bool:
        """Whether the ledger has a key. One without is no ledger of the metadata either, so nobody reads it."""
        if ledger_id in self._index.ledgers:
            return True
        if ledger_id not in self._keys:
            return False
        self._index.create(ledger_id, self._keys[ledger_id])
        return True

    async def _contents(self, name: str) -> bytes:
        async with opened(self._disk, name) as file:
            return await file.read(0, await file.size())

    # -- writing

    async def _write(self, mark: CheckpointMark, last_group: int) -> None:
        generation = 1 + max(mark.generation, await self._highest(JOURNAL_FOLDER))
        group = 1 + max(mark.group, last_group)
        await self._files.find()
        await (await self._files.prepare(generation)).file.close()
        start = mark._replace(
            generation=generation,
            group=group,
            index_file=max(mark.index_file, await self._highest(INDEX_FOLDER)),
            index_bytes=0,
            entry_file=1 + max(mark.entry_file, await self._highest(ENTRIES_FOLDER)),
            entry_bytes=0,
        )
        checkpointer = Checkpointer.resume(self._disk, self._index, start, self._settings)
        try:
            await checkpointer.run(Replayed(JournalPosition(generation, group)), everything=True)
        finally:
            await checkpointer.entry_log.close()
