"""The first form of a read (`snapshot_reads`): from the newest checkpoint at or below a place, and the records up to it.

One query finds the newest record and checkpoint of all wanted objects or buckets, as of one moment; one more for each that has to be folded
reads the records above its base. An object's base may be nearer than its checkpoint: a view in the aux data of one of its newest records.

- The newest complete checkpoint at or below a record counts (`bokilib.retention.checkpoint_rules`).
- A fold names its start and ends at a live record or at the place of its query: only then does the log report missing records (a stream
  without a live record below the end of the range may have been forgotten since).
- A fold above a checkpoint with a state starts behind what it covers. Above a checkpoint that says that there is nothing it starts at 1,
  since the stream may have been forgotten and a start above 1 would be a gap; records missing below `covers` are not needed.
- Finding neither a record nor a checkpoint as of a place proves nothing: the subject is then read from its beginning. A missing object is
  known as of a place (`fold.gone`), never as of all places before it.
- Missing records count as replaced only when their replacement is *seen*: a newer checkpoint, or that the subject was forgotten and
  perhaps written again. Then `Trimmed` is raised, and the read is retried or its snapshot is too old. Otherwise the history is lost:
  `HistoryMissing`, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

import boki
from boki_common.errors import BokiError, Trimmed
from bokilib.append.log import Log, Read
from bokilib.iteration import Iteration, of_records
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.retention.checkpoint_rules import CheckpointPart, WholeCheckpoint, newest_first
from bokistore.errors import HistoryMissing
from bokistore.model import directory_rules, fold
from bokistore.model.directory_rules import Directory, Subject, parts_of
from bokistore.model.events import PICKER, AnyEvent
from bokistore.model.fold import View
from bokistore.read.view_cache import KnownView

AUX_RECORDS: Final = 4
"""A process that folded this many records stores the view as aux data; without a cache, one record suffices."""
WALKED_RECORDS: Final = 32
"""How many records are walked back for a view, a round trip each; beyond that the range is read from the checkpoint."""
FIRST: Final = 1
"""A place below every record: nothing is there as of it."""

T = TypeVar("T")


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


class Step(NamedTuple):
    """An object before and after one record of its stream; without a record, after several that are trimmed."""

    before: View
    after: View
    events: Sequence[AnyEvent]
    read: Read | None


def after_read(view: View, read: Read) -> tuple[View, list[AnyEvent]]:
    """Return a view after the next record of the object's stream, and the events of the record: the step of all forms."""
    events = PICKER.of(read.record.seqnum, read.envelope, view.name)
    return fold.after_record(view, read.record.seqnum, events), events


def view_in(name: str, whole: WholeCheckpoint | None) -> View:
    """Return the view in a checkpoint, or of an object of which nothing was read yet. Raises CorruptData."""
    if whole is None:
        return fold.gone(name, 0)
    if whole.ended_ms is not None:
        return fold.gone(name, whole.covers)
    return fold.from_checkpoint(name, whole.covers, whole.data)


def directory_in(subject: Subject, whole: WholeCheckpoint | None) -> Directory:
    """Return the bucket in a checkpoint, or one of which nothing was read yet. Raises CorruptData."""
    if whole is None or whole.ended_ms is not None:
        return Directory(subject.collection, subject.bucket, whole.covers if whole is not None else 0)
    return directory_rules.from_checkpoint(subject.collection, subject.bucket, whole.covers, whole.data)


async def _together(reads: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Await several reads at once; a single one needs no task."""
    return [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)


class CheckpointReads:
    """Reads of objects and buckets from checkpoints and the records above them; see the module.

    Attributes:
        folded: how many records were folded so far, also by other forms.
    """

    def __init__(self, log: Log, *, aux: bool, keeps: bool, changed: Callable[[View], None]) -> None:
        """Read nothing yet.

        Args:
            log: the log of the store.
            aux: whether views are read from aux data, and stored there.
            keeps: whether this process caches views.
            changed: called with each object that was folded, but for those that are counted again.
        """
        self.folded = 0
        self._log: Final = log
        self._aux: Final = aux
        self._keeps: Final = keeps
        self._changed: Final = changed

    # -- objects and buckets

    async def objects(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName = "session", *, counted: bool = False
    ) -> list[KnownView]:
        """Return objects as of a place or of one moment, and up to where each is known to hold.

        Args:
            names: of objects, few enough for one query.
            at: the place; None: now.
            consistency: how recent "now" is.
            counted: whether to fold from checkpoints alone, so that what lies above them is counted again.

        Raises:
            Trimmed: the history of an object at the place is no longer kept, or a checkpoint came between the queries. Its `object` is
                the name, its `mark` the place from which on the object is kept.
            HistoryMissing: records of an object are trimmed without a checkpoint.
            Lost: the log has lost records of an object.
        """
        seen = at or (0 if consistency == "any" else self._log.book.position or FIRST)
        newest = await self.newest([Subject(name) for name in names], at, consistency)
        found: list[KnownView | None] = []
        folds: list[Coroutine[None, None, View]] = []
        for name, one in zip(names, newest, strict=True):
            if one.nothing and at is None:  # a read of now finds a record or a checkpoint of every existing object
                found.append(KnownView(fold.gone(name, seen), upto=0))
                continue
            view = None if counted else self._in_aux_data(name, one.record)
            if view is None:
                folds.append(self._naming(Subject(name), at, self._object(name, one, at, counted=counted)))
            found.append(KnownView(view, max(view.seen, seen)) if view is not None else None)
        folded = (KnownView(view, max(view.seen, seen)) for view in await _together(folds))
        return [known if known is not None else next(folded) for known in found]

    async def buckets(self, subjects: Sequence[Subject], at: int, consistency: ConsistencyName) -> list[Directory]:
        """Return buckets of directories as of a place. Raises as `objects`."""
        newest = await self.newest(subjects, at, consistency)
        pairs = zip(subjects, newest, strict=True)
        return await _together([self._naming(subject, at, self._bucket(subject, one, at)) for subject, one in pairs])

    def each(
        self,
        view: View,
        start: int,
        missed: Callable[[View], Awaitable[View | None]],
        *,
        stop: int | None = None,
        follow: bool = False,
    ) -> Iteration[Step]:
        """Return an iterator over an object before and after each of its records.

        Args:
            view: the object below the first record.
            start: the first seqnum to read.
            missed: called with the newest view where records are missing; it returns a view of behind them, or None to continue without.
            stop: the first seqnum to leave out.
            follow: whether to wait for records to come.
        """

        async def steps_of(item: boki.Record | boki.Gap) -> list[Step]:
            nonlocal view
            if isinstance(item, boki.Gap):
                after = await missed(view)
                if after is None:
                    return []
                step = Step(view, after, (), None)
            elif item.seqnum > view.seen:
                read = Read(item, await self._log.open(item))
                step = Step(view, *after_read(view, read), read)
            else:
                return []
            view = step.after
            return [step]

        records = self._log.book.read(tags.store_object(view.name), start=start, stop=stop, follow=follow)
        return of_records(records, steps_of)

    async def _object(self, name: str, newest: NewestRecords, at: int | None, *, counted: bool) -> View:
        """Return the view folded from the nearest base."""
        subject, last = Subject(name), newest.record
        if newest.nothing:
            assert at is not None, "of now it is known to be missing"
            await self.check_nothing(Subject(name), at)
            return fold.gone(name, at)
        base = view_in(name, await self.whole(subject, newest.checkpoint))
        # Where views are kept, those of other processes are worth round trips only if a history is long.
        walks = self._aux and not counted and (newest.checkpoint is not None or not self._keeps)
        nearer, passed = await self._walk_back(name, last, base) if walks and last is not None else (None, [])
        if nearer is not None:
            view, reads = nearer, self._opened(passed)
        else:
            place = last.seqnum if last is not None else at or max(self._log.book.position or 0, base.seen + 1)
            view, reads = base, self.above(subject, newest, base.seen, place, empty=not base.exists)
        count = 0
        async for read in reads:
            if last is None:
                break  # it came after the query that found none: the checkpoint has all of the object
            view, count = after_read(view, read)[0], count + 1
        if last is not None:
            await self.leave(view, count, last)
        if not counted:
            self._changed(view)
        return view

    async def _bucket(self, subject: Subject, newest: NewestRecords, at: int) -> Directory:
        base = directory_in(subject, await self.whole(subject, newest.checkpoint))
        if newest.nothing:
            await self.check_nothing(subject, at)
            return base
        records: list[tuple[int, list[AnyEvent]]] = []
        async for read in self.above(subject, newest, base.seen, at, empty=not base.ids):
            records.append((read.record.seqnum, PICKER.of(read.record.seqnum, read.envelope, subject.collection)))
        self.folded += len(records)
        return directory_rules.after_records(base, records)

    # -- aux data

    async def leave(self, view: View, records: int, newest: boki.Record) -> None:
        """Count records that were folded into a view; after many, store it as aux data of the newest, for other processes."""
        self.folded += records
        if self._aux and records >= (AUX_RECORDS if self._keeps else 1):
            data = fold.aux_data(view, newest.aux_data)
            if data is not None:
                await self._log.book.set_aux_data(view.seen, data)

    def _in_aux_data(self, name: str, record: boki.Record | None) -> View | None:
        """Return the view in the aux data of a record, if there is one."""
        return fold.from_aux_data(name, record.seqnum, record.aux_data) if record is not None and self._aux else None

    async def _walk_back(self, name: str, last: boki.Record, base: View) -> tuple[View | None, list[boki.Record]]:
        """Return the nearest view below a record, and the records above it, in order; None if it is too far.

        Such a view lies behind every write that is nearer than a checkpoint. A step that finds nothing does not prove that nothing was
        there: a later checkpoint may have trimmed it. Only a fold that names its start proves it.
        """
        passed: list[boki.Record] = []
        record: boki.Record | None = last
        while record is not None and record.seqnum > base.seen:
            view = self._in_aux_data(name, record)
            if view is not None:
                return view, passed[::-1]
            passed.append(record)
            if len(passed) > WALKED_RECORDS:
                return None, []
            try:
                record = await self._log.book.read_prev(tags.store_object(name), at_most=record.seqnum - 1)
            except Trimmed:
                return None, []
        return (base, passed[::-1]) if record is not None else (None, [])

    async def _opened(self, records: Iterable[boki.Record]) -> AsyncIterator[Read]:
        for record in records:
            yield Read(record, await self._log.open(record))

    # -- checkpoints

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
            (subject,) = subjects
            return [await self._naming(subject, at, self._without_checkpoint(subject, at, consistency))]

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
            raise Trimmed(f"neither a record nor a checkpoint of {subject.text} is kept as of {at}", mark=at)
        return NewestRecords(record, None)

    async def _naming(self, subject: Subject, at: int | None, read: Awaitable[T]) -> T:
        """Await a read of a subject. Raises Trimmed with the subject's name, and the place from which on it is kept."""
        try:
            return await read
        except Trimmed as trimmed:
            facts = {**trimmed.facts, "object": subject.name}
            if at is None:
                text = f"expected {subject.text} as of now, found that its records were replaced while they were read: read it again"
                raise Trimmed(text, **facts) from trimmed
            kept = await self._kept_from(subject)
            if kept is None:
                text = (
                    f"expected {subject.text} as of {at}, found that nothing is kept of it: if it existed, it was deleted since, and "
                    "that was forgotten. Read it as of now"
                )
                raise Trimmed(text, **facts) from trimmed
            seqnum, time_ms = kept
            since = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
            text = (
                f"expected {subject.text} as of {at}, found that it is kept from {seqnum} on, which was ordered at {since}. A checkpoint "
                f"has replaced what it was before. Read it at {seqnum} or later. The setting `grace_ms` of the programs of a store says "
                "for how long snapshots stay readable"
            )
            raise Trimmed(text, **{**facts, "mark": seqnum, "time_ms": time_ms}) from trimmed

    async def _kept_from(self, subject: Subject) -> tuple[int, int] | None:
        """Return the place from which on a subject can be read, and when that was ordered; None if nothing is kept or that is unknown."""
        try:
            (newest,) = await self._newest([subject], None, "session")
            oldest: WholeCheckpoint | None = None
            async for whole in self.wholes(subject, newest.checkpoint):
                oldest = whole
            if oldest is not None:
                return oldest.seqnum, oldest.time_ms
            async for item in self._log.book.read(subject.stream):
                if isinstance(item, boki.Record):
                    return item.seqnum, item.time_ms
        except BokiError:
            pass  # the caller says what is known without it
        return None

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
        raise HistoryMissing(
            f"expected all records of {subject.text} or a checkpoint of them, found that what is below {trimmed.mark} was trimmed and no "
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
