"""Checkpoints: entries leave memory for the entry log, what changed goes into the index, and the journal may be recycled.

The order is the whole point; each step is durable before the next one begins:

    1. cut         all that is fresh is flushing from this moment; note the journal's position
    2. journal     what was appended before the cut is durable there
    3. entry log   the flushing entries, sorted by ledger and entry; stage by stage they are durable and leave memory
    4. index       every ledger that changed: new places, fence, key, validation; also those without a single new entry
    5. mark        the file CHECKPOINT names the journal position and the ends of index and entry log
    6. journal     segments before that position are recycled

Stages are small when adds wait for room, and between two writes whoever asked for it may make it wait for others.

A crash before 5 leaves the old mark: replay repeats what it does not cover, and the next checkpoint overwrites what lies
behind the ends it names. A full disk stops a checkpoint at its step; the next call goes on from there with the same cut.

Deletions and moves of stored entries go into the index of the next checkpoint, or, sooner and with next to no space, by
`persist_index`: steps 4 and 5 with nothing but them, and the journal position as it was. Replay then repeats records of ledgers
that the index has no longer, up to those that deleted them.

Index files that the mark does not name are left over from a crash. They go after the first mark of this process: the one that
was read may have been renamed and not yet be durable, so that a power cut brings back the one before it, and its index file.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from boki_bookie.entries.entry_log import EntryLog, EntryLogEnd, file_name
from boki_bookie.entries.ledger_index import LEDGER_ENCODED_BYTES, PLACE_ENCODED_BYTES, Columns, Ledger, LedgerIndex
from boki_bookie.entries.ledger_index_format import (
    CheckpointMark,
    decode_blocks,
    decode_mark,
    encode_blocks,
    encode_mark,
    owner_of,
)
from boki_bookie.entries.places import file_numbers
from boki_bookie.entries.tombstones import Run
from boki_bookie.formats.entry_log_format import PAGE_BYTES, check_file_header
from boki_bookie.formats.journal_format import REMEDY
from boki_bookie.journal.journal import JournalPosition
from boki_bookie.open_files import opened
from boki_bookie.settings import BookieSettings
from boki_common.errors import CorruptData
from boki_common.limits import MIB
from boki_common.runtime.ports import Disk

MARK_NAME: Final = "CHECKPOINT"
INDEX_FOLDER: Final = "index"
INDEX_SLACK_BYTES: Final = 1 * MIB
"""An index file is rewritten when it is twice what the index needs, and this much more."""
STAGE_BYTES: Final = 4 * MIB
"""So much of the entry log is flushed at once and leaves memory."""
SMALL_STAGE_BYTES: Final = 2 * MIB
"""The same while room is wanted: smaller ones cost a tenth of the rate in flushes."""
_NOTHING: Final[Columns] = ((), (), ())


_Change = tuple[Ledger, Columns]
"""What became of a ledger: its flags as they are, and these rows of it."""


class JournalSource(Protocol):
    """What a checkpoint needs of the journal; while the journal is replayed, of the replay."""

    @property
    def position(self) -> JournalPosition: ...

    async def flushed(self) -> None: ...

    async def release(self, generation: int) -> None: ...


class Stages(Protocol):
    """Who follows a checkpoint from write to write."""

    @property
    def room_is_wanted(self) -> bool:
        """Whether the next stage should be a small one."""

    async def wrote(self, seconds: float) -> None:
        """One write to the entry log, and what was committed behind it, took so long; the next one begins on return."""


_Stage = list[tuple[Ledger, Sequence[int], Sequence[int]]]
"""Entries that were appended and not committed: ledger, ids, locations."""


class _Cut:
    """One checkpoint under way: `columns` of what is stored, which with `is_stored` is everything."""

    def __init__(self, position: JournalPosition, index: LedgerIndex) -> None:
        self.position = position
        self.removals, self.moved = index.take_changes()
        self.ledgers = index.cut()
        self.columns: list[_Change] = []
        self.is_stored = False


def index_name(number: int) -> str:
    return f"{INDEX_FOLDER}/{number:010d}.index"


class Checkpointer:
    """Owns the checkpoint mark. One call at a time. Make it with `load`."""

    def __init__(self, disk: Disk, index: LedgerIndex, entry_log: EntryLog, mark: CheckpointMark) -> None:
        self.mark = mark
        self.index = index
        self.entry_log = entry_log
        self._disk = disk
        self._cut: _Cut | None = None
        self._leftovers: list[str] = []
        """Index files that the mark does not name."""

    @staticmethod
    async def format(disk: Disk, bookie_id: bytes) -> None:
        """Lays down the first mark: nothing stored, journal from generation 1."""
        await (await disk.open(index_name(1), create=True)).close()
        await disk.replace_all(MARK_NAME, encode_mark(CheckpointMark(1, 0, 0, bookie_id, 1, 0, 1, 0)))

    @classmethod
    async def load(cls, disk: Disk, bookie_id: bytes, settings: BookieSettings) -> Checkpointer:
        """Reads mark and index. Raises CorruptData: absent, damaged or another bookie's. VersionMismatch."""
        name = disk.describe(MARK_NAME)
        mark = decode_mark(await disk.read_all(MARK_NAME), name=name)
        if mark.bookie_id != bookie_id:
            raise CorruptData(
                f"{name}: expected the checkpoint of bookie {bookie_id.hex()}, found that of {mark.bookie_id.hex()}: "
                f"files of two bookies are mixed; {REMEDY}",
                path=name,
                offset=0,
            )
        index = LedgerIndex()
        await _load_index(disk, mark, index)
        await _check_entry_files(disk, mark, index)
        checkpointer = cls.resume(disk, index, mark, settings)
        checkpointer._leftovers = [f"{INDEX_FOLDER}/{other}" for other in await disk.names(INDEX_FOLDER)]
        return checkpointer

    @classmethod
    def resume(cls, disk: Disk, index: LedgerIndex, mark: CheckpointMark, settings: BookieSettings) -> Checkpointer:
        """Goes on after a mark, with an index that says what lies before it."""
        entry_log = EntryLog(
            disk,
            bookie_id=mark.bookie_id,
            end=EntryLogEnd(mark.entry_file, mark.entry_bytes),
            file_bytes=settings.entry_log_bytes,
            open_files=settings.entry_log_open_files,
        )
        return cls(disk, index, entry_log, mark)

    async def run(self, journal: JournalSource, *, everything: bool = False, stages: Stages | None = None) -> None:
        """One checkpoint, or the rest of the one that a full disk stopped; with `everything` into a new index file.

        Without `stages` it goes on as fast as the disk can.

        Raises:
            DiskFull, DiskFailed.
        """
        if self._cut is None:
            self._cut = _Cut(journal.position, self.index)
        cut = self._cut
        await journal.flushed()
        if not cut.is_stored:
            await self._store_entries(cut, stages)
        number = self.mark.number + 1
        changes = [*cut.moved, *cut.columns]
        index_file, index_bytes = await self._write_index(cut.removals, changes, number, everything=everything)
        self._leftovers.append(index_name(self.mark.index_file))
        mark = CheckpointMark(
            generation=cut.position.generation,
            group=cut.position.group,
            number=number,
            bookie_id=self.mark.bookie_id,
            index_file=index_file,
            index_bytes=index_bytes,
            entry_file=self.entry_log.tail.committed.file_number,
            entry_bytes=self.entry_log.tail.committed.offset,
        )
        assert mark[:2] >= self.mark[:2], "the mark never goes back"
        await self._disk.replace_all(MARK_NAME, encode_mark(mark))
        self.mark = mark
        self._cut = None
        self.entry_log.tail.release()
        await self._remove_leftovers()
        await journal.release(cut.position.generation)

    async def _remove_leftovers(self) -> None:
        leftovers, self._leftovers = self._leftovers, []
        for name in dict.fromkeys(leftovers):
            if name != index_name(self.mark.index_file):
                await self._disk.remove(name)

    async def persist_index(self) -> None:
        """Deletions and moves so far become durable, the journal stays as it is; what deleted must be durable there.

        Not while `run` runs. What an unfinished checkpoint has taken is written now and again by it, and what came after
        it now and again by the one after it: the ledgers that it writes were there before they were deleted.

        Raises:
            DiskFull, DiskFailed: it can be tried again.
        """
        removals, moved = self.index.take_changes()
        cut = self._cut
        all_removals = removals if cut is None else [*cut.removals, *removals]
        all_moved = moved if cut is None else [*cut.moved, *moved]
        if not all_removals and not all_moved:
            return
        number = self.mark.number + 1
        persisted = False
        try:
            index_bytes = await self._append_blocks(
                self.mark.index_file, self.mark.index_bytes, all_removals, all_moved, number
            )
            mark = self.mark._replace(number=number, index_bytes=index_bytes)
            await self._disk.replace_all(MARK_NAME, encode_mark(mark))
            self.mark = mark
            persisted = True
        finally:
            if not persisted or cut is not None:
                self.index.give_back_changes(removals, moved)

    async def _store_entries(self, cut: _Cut, stages: Stages | None) -> None:
        log, loop = self.entry_log.tail, asyncio.get_running_loop()
        log.begin()
        stage: _Stage = []
        for ledger in cut.ledgers:
            order = sorted(ledger.flushing)
            locations: array[int] = array("Q")
            staged = 0
            while len(locations) < len(order):
                begun, before = loop.time(), log.uncommitted_bytes
                small = stages is not None and stages.room_is_wanted
                stage_bytes = SMALL_STAGE_BYTES if small else STAGE_BYTES
                await log.append_some(ledger.ledger_id, ledger.flushing, order, locations, stage_bytes, ledger.sums)
                if log.uncommitted_bytes == before:
                    continue  # not enough for a write
                if log.uncommitted_bytes >= stage_bytes:
                    stage.append((ledger, order[staged : len(locations)], locations[staged:]))
                    staged = len(locations)
                    await self._commit(cut, stage)
                if stages is not None:
                    await stages.wrote(loop.time() - begun)
            stage.append((ledger, order[staged:], locations[staged:]))
        await self._commit(cut, stage)
        stored = dict.fromkeys(ledger for ledger, _ in cut.columns)
        cut.columns += [(ledger, _NOTHING) for ledger in cut.ledgers if ledger not in stored]
        assert not self.index.flushing_bytes, self.index.flushing_bytes
        cut.is_stored = True

    async def _commit(self, cut: _Cut, stage: _Stage) -> None:
        """What was appended is durable: it leaves memory, and `stage`."""
        await self.entry_log.tail.commit()
        for ledger, entry_ids, locations in stage:
            if locations:
                cut.columns.append((ledger, self.index.store(ledger, entry_ids, locations)))
        stage.clear()

    async def _write_index(
        self, removals: Sequence[Run | Ledger], changes: list[_Change], number: int, *, everything: bool
    ) -> tuple[int, int]:
        """Appends the changes, or begins a new file with everything; returns file and its bytes."""
        index_file, offset = self.mark.index_file, self.mark.index_bytes
        added = (
            sum(len(columns[0]) for _, columns in changes) * PLACE_ENCODED_BYTES + len(changes) * LEDGER_ENCODED_BYTES
        )
        if everything or offset + added > 2 * self.index.encoded_bytes + INDEX_SLACK_BYTES:
            index_file, offset = index_file + 1, 0
            ledgers = sorted(self.index.ledgers.items())
            removals = list(self.index.tombstones.runs())
            columns = ((ledger, ledger.places.columns()) for _, ledger in ledgers)  # one at a time: they are large
            return index_file, await self._append_blocks(index_file, offset, removals, columns, number)
        return index_file, await self._append_blocks(index_file, offset, removals, changes, number)

    async def _append_blocks(
        self,
        index_file: int,
        offset: int,
        removals: Sequence[Run | Ledger],
        changes: Iterable[_Change],
        number: int,
    ) -> int:
        """Returns where the file then ends."""
        async with opened(self._disk, index_name(index_file), create=True) as file:
            owner = owner_of(self.mark.bookie_id, index_file)
            for block in encode_blocks(changes, number, owner=owner, removals=removals):
                await file.write(offset, [block], durable=False)
                offset += len(block)
            await file.sync()
        return offset


async def _load_index(disk: Disk, mark: CheckpointMark, index: LedgerIndex) -> None:
    async with opened(disk, index_name(mark.index_file)) as file:
        data = memoryview(await file.read(0, mark.index_bytes))
    name = disk.describe(index_name(mark.index_file))
    if len(data) != mark.index_bytes:
        raise CorruptData(
            f"{name}: expected {mark.index_bytes} bytes, as the checkpoint says, found {len(data)}: the file was cut; "
            f"{REMEDY}",
            path=name,
            offset=len(data),
        )
    for update in decode_blocks(data, owner=owner_of(mark.bookie_id, mark.index_file), name=name):
        index.restore_update(update)
    index.take_changes()  # they are durable


async def _check_entry_files(disk: Disk, mark: CheckpointMark, index: LedgerIndex) -> None:
    """Every entry log file that the index names must be there, this bookie's, and as long as was committed.

    A file that is gone would only make its entries unreadable; but the one that is written would be made anew without its
    header, and a disk that lost a file has lost more than what is looked for today.
    """
    numbers = {mark.entry_file} if mark.entry_bytes else set()
    for ledger in index.ledgers.values():
        for piece in ledger.places.pieces():
            numbers.update(file_numbers(piece))
    for number in sorted(numbers):
        name = disk.describe(file_name(number))
        try:
            async with opened(disk, file_name(number)) as file:
                page, size = await file.read(0, PAGE_BYTES), await file.size()
        except CorruptData as error:
            raise CorruptData(f"expected the file {name}, found none; {REMEDY}", path=name, offset=0) from error
        try:
            check_file_header(page, file_number=number, bookie_id=mark.bookie_id, name=name)
        except CorruptData as error:
            raise CorruptData(f"{error}; {REMEDY}", **error.facts) from error
        if number == mark.entry_file and size < mark.entry_bytes:
            raise CorruptData(
                f"{name}: expected {mark.entry_bytes} bytes, as the checkpoint says, found {size}: the file was cut; {REMEDY}",
                path=name,
                offset=size,
            )
