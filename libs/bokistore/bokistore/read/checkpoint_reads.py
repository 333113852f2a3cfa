"""Reads of checkpoints of objects and buckets, and of the records above them: where a fold begins, and whether it is complete.

- The newest complete checkpoint at or below a record counts (`bokilib.retention.checkpoint_rules`).
- A fold names its start and ends at a live record or at the place of its query: only then does the log report missing records (a stream
  without a live record below the end of the range may have been forgotten since).
- A fold above a checkpoint with a state starts behind what it covers. Above a checkpoint that says that there is nothing it starts at 1,
  since the stream may have been forgotten and a start above 1 would be a gap; records missing below `covers` are not needed.
- Missing records count as replaced only when their replacement is *seen*: a newer checkpoint, or that the subject was forgotten and
  perhaps written again. Then `Trimmed` is raised, and the read is retried or its snapshot is too old. Otherwise the history is lost:
  `HistoryMissing`, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import Trimmed
from bokilib.append.log import Log, Read
from bokilib.ports import ConsistencyName
from bokilib.retention.checkpoint_rules import CheckpointPart, WholeCheckpoint, newest_first
from bokistore.errors import HistoryMissing
from bokistore.model.directory_rules import Subject, parts_of
from bokistore.model.events import PICKER


class NewestRecords(NamedTuple):
    """The newest record of a subject's stream, and of its checkpoint stream."""

    record: boki.Record | None
    checkpoint: boki.Record | None

    @property
    def nothing(self) -> bool:
        """True if there is neither."""
        return self.record is None and self.checkpoint is None

    @property
    def places(self) -> tuple[int, int]:
        """Seqnums of the record and of the checkpoint, 0 for none. They differ once a subject was checkpointed, forgotten or changed."""
        return (
            self.record.seqnum if self.record is not None else 0,
            self.checkpoint.seqnum if self.checkpoint is not None else 0,
        )


class CheckpointReads:
    """Reads of checkpoints and of the records above them; see the module."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log

    async def newest(
        self, subjects: Sequence[Subject], at: int | None, consistency: ConsistencyName
    ) -> list[NewestRecords]:
        """Read the newest record and checkpoint of each, all of one moment. Raises Trimmed: `at` is older than what is kept."""
        try:
            return await self._newest(subjects, at, consistency)
        except Trimmed:
            if len(subjects) > 1:  # as of a place they may be read apart
                each = await asyncio.gather(*(self.newest([subject], at, consistency) for subject in subjects))
                return [one for found in each for one in found]
            return [await self._without_checkpoint(subjects[0], at, consistency)]

    async def _newest(
        self, subjects: Sequence[Subject], at: int | None, consistency: ConsistencyName
    ) -> list[NewestRecords]:
        queries: list[tuple[str | int | None, int | None]] = [
            (tag, at) for subject in subjects for tag in (subject.stream, subject.checkpoints)
        ]
        found = await self._log.book.read_prev_many(queries, consistency=consistency)
        return [NewestRecords(*found[index : index + 2]) for index in range(0, len(found), 2)]

    async def _without_checkpoint(
        self, subject: Subject, at: int | None, consistency: ConsistencyName
    ) -> NewestRecords:
        """Read the newest record where it is not known whether there was a checkpoint as of `at`.

        A fold of all records needs none, and finds out whether all are there. Raises Trimmed: there is no record.
        """
        record = await self._log.book.read_prev(subject.stream, at_most=at, consistency=consistency)
        if record is None:
            raise Trimmed(f"what {subject.name!r} was as of {at} is not kept any more", mark=at, object=subject.name)
        return NewestRecords(record, None)

    async def whole(self, subject: Subject, newest: boki.Record | None) -> WholeCheckpoint | None:
        """Return the newest complete checkpoint at or below a record of the checkpoint stream."""
        async for whole in self.wholes(subject, newest):
            return whole
        return None

    async def wholes(self, subject: Subject, newest: boki.Record | None) -> AsyncIterator[WholeCheckpoint]:
        """Yield the complete checkpoints at or below a record, newest first, as far as they are kept."""
        parts: list[CheckpointPart] = []
        given = 0
        record = newest
        while record is not None:
            envelope = await self._log.open(record)
            events = PICKER.of(record.seqnum, envelope, subject.name)
            parts += parts_of(subject, record.seqnum, record.time_ms, envelope.by, events)
            wholes = newest_first(parts)
            for whole in wholes[given:]:
                yield whole
            given = len(wholes)
            try:
                record = await self._log.book.read_prev(subject.checkpoints, at_most=record.seqnum - 1)
            except Trimmed:
                return

    async def kept(
        self, subjects: Sequence[Subject], at: int | None = None, *, most: int = 2
    ) -> list[tuple[list[WholeCheckpoint], int]]:
        """Return of each its `most` newest checkpoints, and the seqnum of the newest record of its stream (0: none lives)."""
        newest = await self.newest(subjects, at, "session")

        async def some(subject: Subject, one: NewestRecords) -> tuple[list[WholeCheckpoint], int]:
            found: list[WholeCheckpoint] = []
            async for whole in self.wholes(subject, one.checkpoint):
                found.append(whole)
                if len(found) == most:
                    break
            return found, one.record.seqnum if one.record is not None else 0

        return await asyncio.gather(*(some(*pair) for pair in zip(subjects, newest, strict=True)))

    async def above(
        self, subject: Subject, newest: NewestRecords, covers: int, last: int, *, empty: bool
    ) -> AsyncIterator[Read]:
        """Yield the records of a subject above `covers` up to `last`.

        Args:
            subject: an object or a bucket.
            newest: as it was read before; a replacement of missing records is newer.
            covers: the place of the checkpoint below, 0 where there is none.
            last: the newest record, or the place of the query.
            empty: whether the checkpoint says that there is nothing.

        Raises:
            Trimmed: a newer checkpoint has replaced some of them, or all were forgotten.
            HistoryMissing: records are missing that nothing has replaced.
            Lost: the log has lost some of them.
        """
        start = 1 if empty else covers + 1
        async for item in self._log.book.read(subject.stream, start=start, stop=max(last, covers) + 1):
            if not isinstance(item, boki.Gap):
                if item.seqnum > covers:
                    yield Read(item, await self._log.open(item))
            elif item.last > covers:
                error = item.error()
                if isinstance(error, Trimmed):
                    await self._check_replaced(subject, newest, start, covers, error)
                raise error

    async def check_nothing(self, subject: Subject, at: int) -> None:
        """Check that a subject had nothing as of a place where neither a record nor a checkpoint was found. Raises Trimmed.

        Finding nothing does not prove it: records up to the place may be trimmed, and the checkpoint that has replaced them lies
        above the place. A read that names its start says so. What was lost is not taken for a record of the subject.
        """
        async for item in self._log.book.read(subject.stream, start=1, stop=at + 1):
            if isinstance(item, boki.Gap) and isinstance(error := item.error(), Trimmed):
                raise error

    async def _check_replaced(
        self, subject: Subject, before: NewestRecords, start: int, covers: int, trimmed: Trimmed
    ) -> None:
        """Look for what replaced the records that a read missed. Raises HistoryMissing: nothing did.

        A subject that was forgotten and written again since has no newer checkpoint, and is whole as it is now. What is missing of that
        may have been replaced since `now`: it counts as missing only if nothing is newer afterwards.
        """
        (now,) = await self.newest([subject], None, "session")
        if now.nothing or now.places[1] > before.places[1]:
            return
        if now.checkpoint is None:
            start, covers = 1, 0
        if now.record is not None:
            if not await self._misses(subject, start, covers, now.record.seqnum):
                return
            (after,) = await self.newest([subject], None, "session")
            if after.places != now.places:
                return
        what = (
            f"bucket {subject.bucket} of the collection {subject.collection!r}" if subject.collection else subject.name
        )
        raise HistoryMissing(
            f"expected all records of {what!r} or a checkpoint of them, found that what is below {trimmed.mark} was trimmed and no "
            "checkpoint has it. A store never trims so: something else trimmed its streams. Delete the object in a transaction that "
            "does not read it, and write it again",
            object=subject.name,
            mark=trimmed.mark,
        ) from trimmed

    async def _misses(self, subject: Subject, start: int, covers: int, last: int) -> bool:
        """Return whether records of a subject above `covers` are trimmed in [start, last]."""
        async for item in self._log.book.read(subject.stream, start=start, stop=last + 1):
            if isinstance(item, boki.Gap) and item.last > covers and isinstance(item.error(), Trimmed):
                return True
        return False
