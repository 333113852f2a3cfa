"""Reading the journal at start: first all of it is checked, then what the checkpoint does not cover is handed out.

Nothing is applied from a journal that is refused, and a refusal names the file and the offset (`journal_format` tells a
torn end from damage). Before anything is answered for, the end is made certain (`repair_end`):

- The last whole group is written again where it lies, and flushed. It may be in the system's memory alone: its writer was
  killed before the flush, or the flush failed, after which the system calls pages clean that are not on the disk, and a
  flush of them reports success. Groups before it were flushed before it was begun.
- A torn group is erased, so that the journal may go on, in this segment or another.
- Segments behind it that hold no group are spares again: so restarts on a full disk use up nothing.

None of this needs space. Hence a torn group is never followed by another, and at most the last segment with records is torn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from boki_bookie.formats.journal_format import PAGE_BYTES, REMEDY, Group, SegmentEnd, SegmentScan
from boki_bookie.journal.journal_segments import SegmentFiles, segment_name
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Disk


class JournalEnd(NamedTuple):
    """What `verify` found."""

    next_group: int
    """Number of the first group to be written."""
    generation: int
    """The segment with the last group, or the checkpoint's if there is none behind that."""
    torn: str
    """What an incomplete last group looks like, for a log line; empty if the journal ends cleanly."""
    offset: int = PAGE_BYTES
    """Where the next group would be in that segment."""
    last: range = range(0)
    """Where the last whole group lies in it; empty if it has none."""
    empty: tuple[int, ...] = ()
    """Segments behind it, ascending: they hold no group."""


class JournalReplay:
    """Reads the journal from a checkpoint mark on.

    Args:
        disk: for names in messages.
        generations: those that exist, ascending.
        first_generation: where the mark is; it must exist.
        first_group: number of the first group that the checkpoint does not cover.
    """

    def __init__(
        self, disk: Disk, files: SegmentFiles, generations: list[int], *, first_generation: int, first_group: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._first_group = first_group
        self._generations = [generation for generation in generations if generation >= first_generation]
        expected = list(range(first_generation, first_generation + len(self._generations)))
        if not expected or self._generations != expected:
            missing = sorted(set(expected or [first_generation]) - set(self._generations))[0]
            name = disk.describe(segment_name(missing))
            raise CorruptData(
                f"expected the journal segment {name}, found none, though the checkpoint or a later segment needs it: {REMEDY}",
                path=name,
                offset=0,
            )

    async def verify(self) -> JournalEnd:
        """Reads and checks everything. Raises CorruptData: acknowledged records are damaged or missing; names file and
        offset."""
        expected: int | None = None
        last: tuple[int, SegmentEnd] | None = None
        place = range(0)
        for generation in self._generations:
            scan = await self._scan(generation)
            first: int | None = None
            found = range(0)
            for group in scan.groups():
                first = group.number if first is None else first
                found = range(group.offset, group.end)
            assert scan.end is not None
            if first is None and scan.end.torn:
                first = scan.end.next_number
            if first is not None:
                if last is not None and (first != expected or last[1].torn):
                    raise self._ends_early(*last, expected, first, generation)
                if last is None and first > self._first_group:
                    raise self._lost_start(generation, first)
                expected = scan.end.next_number
                last, place = (generation, scan.end), found
        if last is None:
            first_generation, *empty = self._generations
            return JournalEnd(self._first_group, first_generation, "", empty=tuple(empty))
        assert expected is not None
        generation, end = last
        if expected < self._first_group:
            raise self._ends_early(generation, end, expected, self._first_group, generation)
        empty = [one for one in self._generations if one > generation]
        return JournalEnd(expected, generation, end.fault if end.torn else "", end.offset, place, tuple(empty))

    async def repair_end(self, end: JournalEnd) -> None:
        """What `verify` found to be the end is durable, and nothing incomplete is behind it. Raises DiskFailed, DiskFull."""
        if end.torn:
            await self._files.erase(end.generation, end.offset)
        elif end.last:
            await self._files.rewrite(end.generation, end.last)
        for generation in reversed(end.empty):
            await self._files.take_back(generation)
        self._generations = [one for one in self._generations if one <= end.generation]

    async def segments(self) -> AsyncIterator[tuple[int, list[Group]]]:
        """After `verify`: each generation with those of its groups that are to be replayed."""
        for generation in self._generations:
            scan = await self._scan(generation)
            yield generation, [group for group in scan.groups() if group.number >= self._first_group]

    async def _scan(self, generation: int) -> SegmentScan:
        header, data = await self._files.load(generation)
        return SegmentScan(data, header, name=self._disk.describe(segment_name(generation)))

    def _ends_early(
        self, generation: int, end: SegmentEnd, expected: int | None, found: int, found_in: int
    ) -> CorruptData:
        name = self._disk.describe(segment_name(generation))
        return CorruptData(
            f"{name} at byte {end.offset}: expected journal group {expected}, found {end.fault or 'its end'}, "
            f"though group {found} of segment {found_in} was written after it. Acknowledged entries are damaged: {REMEDY}",
            path=name,
            offset=end.offset,
        )

    def _lost_start(self, generation: int, first: int) -> CorruptData:
        name = self._disk.describe(segment_name(generation))
        return CorruptData(
            f"{name}: expected journal group {self._first_group}, where the last checkpoint ended, found group {first} "
            f"first: the checkpoint is older than the journal; {REMEDY}",
            path=name,
            offset=0,
        )
