"""Reading the journal at start: first all of it is checked, then what the checkpoint does not cover is handed out.

Nothing is applied from a journal that is refused, and a refusal names the file and the offset (`journal_format` tells a
torn end from damage). After replay the bookie checkpoints before it appends, in a new segment: so a segment with a torn
end is never followed by one with records, and at most the last segment with records may be torn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from boki_bookie.journal_format import REMEDY, Group, SegmentEnd, SegmentScan
from boki_bookie.journal_segments import SegmentFiles, segment_name
from boki_common.errors import CorruptData
from boki_common.runtime.ports import Disk


class JournalEnd(NamedTuple):
    """What `verify` found."""

    next_group: int
    """Number of the first group to be written."""
    generation: int
    """The highest generation in use."""
    torn: str
    """What an incomplete last group looks like, for a log line; empty if the journal ends cleanly."""


class JournalReplay:
    """Reads the journal from a checkpoint mark on.

    Args:
        disk: for names in messages.
        files: where the segments are.
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
        """Reads and checks everything.

        Raises:
            CorruptData: acknowledged records are damaged or missing; names file and offset.
        """
        expected: int | None = None
        last: tuple[int, SegmentEnd] | None = None
        for generation in self._generations:
            scan = await self._scan(generation)
            first: int | None = None
            for group in scan.groups():
                first = group.number if first is None else first
            assert scan.end is not None
            if first is None and scan.end.torn:
                first = scan.end.next_number
            if first is not None:
                if last is not None and (first != expected or last[1].torn):
                    raise self._ends_early(*last, expected, first, generation)
                if last is None and first > self._first_group:
                    raise self._lost_start(generation, first)
                expected = scan.end.next_number
                last = generation, scan.end
        if last is None:
            return JournalEnd(self._first_group, self._generations[-1], "")
        assert expected is not None
        if expected < self._first_group:
            raise self._ends_early(*last, expected, self._first_group, last[0])
        return JournalEnd(expected, self._generations[-1], last[1].fault if last[1].torn else "")

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
