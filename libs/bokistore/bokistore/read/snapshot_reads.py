"""Reads of objects and directories as of a snapshot; they append nothing.

A cached view is brought up to date: one query for all of them returns the new records since each was seen; known records are not sent
again. Otherwise a view begins at the nearest base below the snapshot: the aux data of one of the object's newest records, its newest
checkpoint, or the beginning. The records above the base are then folded. That takes one query (the newest record and checkpoint of all
wanted objects, as of one moment), and one more for each object that has to be folded.

Objects that are read often may be followed, and are then read from memory while that is as new as the log (`followed`).

- Absence at a place proves nothing: a fold names its start and its end (`checkpoint_reads`), and an object without a record is read from
  its beginning. If a checkpoint came between two queries, a read of now begins again; a snapshot that a user holds is too old.
- A missing object is known as of a place (`fold.gone`), never as of all places before it.
- Cache and aux data change nothing but time: each view says up to where it has seen the object, and holds (`view_cache`).
- A query without a place is of one moment, which its answer names: a caller that needs a snapshot gets it with its first read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import boki
from boki_common.errors import InvalidArgument, Lost, Trimmed
from boki_common.limits import READ_TAGS
from bokilib.append.log import Log
from bokilib.follow.news import NewRecords, News
from bokilib.ports import ConsistencyName, Tag
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Envelope
from bokistore.model import directory_rules, fold, view_format
from bokistore.model.directory_rules import Directory, Subject, of_bucket
from bokistore.model.events import PICKER, AnyEvent, needed_ms
from bokistore.model.fold import View
from bokistore.read.checkpoint_reads import CheckpointReads, NewestRecords
from bokistore.read.followed import FollowedViews
from bokistore.read.view_cache import CACHED_VIEWS, KnownView, ViewCache

NAMES_AT_ONCE: Final = 1_024
"""Objects of one query; each has two streams."""
REREADS: Final = 8
"""How often a read of now begins again because a checkpoint and its trim came between its queries."""
AUX_RECORDS: Final = 4
"""A process that folded this many records stores the view as aux data; without a cache, one record suffices."""
WALKED_RECORDS: Final = 32
"""How many records are walked back for a view, a round trip each; beyond that the range is read from the checkpoint."""
FIRST: Final = 1
"""A place below every record: nothing is there as of it."""


class RunningReads:
    """Reads of objects that run now: a task waits for another task's read of an object instead of sending a second one.

    A new object that many tasks want at once (the newest posts of a timeline) is then folded once. A task that reads waits for no other
    task, so nothing can deadlock. Whether the other read helped, the cache shows afterwards: it may have failed, or be of another place.
    """

    def __init__(self, cache: ViewCache) -> None:
        self._cache = cache
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def ended(self, names: Sequence[str]) -> None:
        """Wait until no other task reads any of these objects that the cache lacks."""
        for _ in names:  # a round for each: another task may have begun with a further one meanwhile
            ends = {self._ends[name] for name in names if name in self._ends and self._cache.get(name) is None}
            if not ends:
                return
            await asyncio.wait(ends)

    @contextmanager
    def reading(self, names: Sequence[str]) -> Iterator[None]:
        """Let other tasks wait for these objects until the block is left, except for objects that are being read already."""
        mine = [name for name in names if self._cache.keeps and name not in self._ends]
        if not mine:
            yield
            return
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.update(dict.fromkeys(mine, end))
        try:
            yield
        finally:
            for name in mine:
                del self._ends[name]
            end.set_result(None)


class Views:
    """Reads of a store's objects; see the module.

    Attributes:
        log: the log of the store.
        bases: reads of checkpoints.
        cache: cached views.
        folded: how many records were folded so far.
        due: called with each object view that was folded.
        due_directory: called with each directory that was folded.
    """

    def __init__(
        self,
        log: Log,
        *,
        cached: int = CACHED_VIEWS,
        aux: bool = True,
        followed: int = 0,
        followed_within_s: float = 1.0,
    ) -> None:
        """Read nothing yet.

        Args:
            log: the log of the store.
            cached: see `StoreSettings.cached_views`.
            aux: see `StoreSettings.aux_data`.
            followed: see `StoreSettings.followed_objects`.
            followed_within_s: see `StoreSettings`.
        """
        self.log: Final = log
        self.bases: Final = CheckpointReads(log)
        self._follows = 0 if log.always_replay else followed, followed_within_s
        self._followed: FollowedViews | None = None
        self.cache: Final = ViewCache(0 if log.always_replay else cached)
        self._running = RunningReads(self.cache)
        self._news = News(log.book)
        self.folded = 0
        """Records that were folded so far."""
        self._aux = aux and not log.always_replay
        self.due: Callable[[View], None] | None = None
        self.due_directory: Callable[[Directory], None] | None = None
        self.claimed: Callable[[str, boki.Record, float], None] | None = None
        """Called with an object, a record by which another process claims it, and for how many seconds."""

    async def check_at(self, at: int | None) -> int | None:
        """Check that a place that a user names is not above what the session has seen; return it. Raises InvalidArgument."""
        if at is None:
            return None
        if type(at) is not int or at < 1:
            raise InvalidArgument(f"expected at= to be a seqnum, found {at!r}")
        if at > (self.log.book.position or 0):
            position = await self.log.book.now()
            if at > position:
                raise InvalidArgument(
                    f"expected at= in what this session has seen (up to {position}), found {at}",
                    expected=position,
                    found=at,
                )
        return at

    async def one(self, name: str, at: int | None = None, consistency: ConsistencyName = "session") -> View:
        """Return an object as of a snapshot, or of now."""
        (view,) = await self.many([name], at, consistency)
        return view

    async def many(
        self, names: Sequence[str], at: int | None = None, consistency: ConsistencyName = "session"
    ) -> list[View]:
        """Return objects, all as of one snapshot, in the order of the names.

        Raises:
            Trimmed: the history at the snapshot is no longer kept.
            HistoryMissing: records of an object are trimmed without a checkpoint.
            Lost: the log has lost records of an object.
            InvalidArgument: the snapshot is no place that the session has seen.
        """
        await self.check_at(at)
        return (await self._retried(names, at, consistency, placed=False))[1]

    async def as_of(self, names: Sequence[str], consistency: ConsistencyName = "session") -> tuple[int, list[View]]:
        """Return objects and the snapshot at which they were read, as recent as the consistency says. Raises as `many`."""
        return await self._retried(names, None, consistency, placed=True)

    async def refresh(self, names: Sequence[str]) -> None:
        """Read objects for transactions that begin next, which treat them as steady (`view_cache`)."""
        if self.cache.keeps:
            place, views = await self.as_of(names)
            for view in views:
                self.cache.put(view, upto=place, steady=True)

    async def _retried(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName, *, placed: bool
    ) -> tuple[int, list[View]]:
        for again in range(REREADS):
            try:
                return await self._many(names, at, consistency, placed=placed)
            except Trimmed:
                if at is not None or again == REREADS - 1:
                    raise
        raise AssertionError("it returns or raises")

    async def _many(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName, *, placed: bool
    ) -> tuple[int, list[View]]:
        """Return the place (0 unless `placed`) and the views, from memory where that is as recent as the log."""
        followed = self._following() if at is None else None
        if followed is None:
            return await self._from_log(names, at, consistency, placed=placed)
        answer = followed.read(names) if consistency != "linearizable" else None
        if answer is not None:
            await asyncio.sleep(0)  # a loop of reads leaves time to other tasks, and to the cursor that follows
            return answer
        place, views = await self._from_log(names, at, consistency, placed=placed)
        followed.read_from_log(views)
        return place, views

    def _following(self) -> FollowedViews | None:
        limit, within_s = self._follows
        if limit and self._followed is None:
            self._followed = FollowedViews(
                self.log,
                self.cache,
                limit=limit,
                within_s=within_s,
                changed=self._changed,
                read=self._look_for_claim,
            )
        return self._followed

    def learned(self, view: View) -> None:
        """Note a view that is known without a read."""
        self.cache.put(view)
        self._changed(view)

    def _changed(self, view: View) -> None:
        if self.due is not None:
            self.due(view)

    async def close(self) -> None:
        """Stop following objects."""
        followed, self._followed, self._follows = self._followed, None, (0, 0.0)
        if followed is not None:
            await followed.close()

    async def _from_log(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName, *, placed: bool
    ) -> tuple[int, list[View]]:
        """Return the place and the views as `_many`, from the log."""
        found: dict[str, View] = {}
        kept: list[KnownView] = []
        new: list[str] = []
        await self._running.ended(names)
        for name in dict.fromkeys(names):
            known = self.cache.get(name)
            if known is None or (at is not None and known.view.seen > at):
                new.append(name)
            elif at is not None and known.holds_at(at):
                found[name] = known.view
            else:
                kept.append(known)
        with self._running.reading(new):
            at = await self._read(kept, new, found, at, consistency, placed=placed)
        return at or 0, [found[name] for name in names]

    async def _read(
        self,
        kept: Sequence[KnownView],
        new: list[str],
        found: dict[str, View],
        at: int | None,
        consistency: ConsistencyName,
        *,
        placed: bool,
    ) -> int | None:
        """Update cached views and read new ones into `found`; return their place, if there is one."""
        for start in range(0, len(kept), READ_TAGS):
            at, views, gone = await self._brought_up(kept[start : start + READ_TAGS], at, consistency)
            found |= {view.name: view for view in views}
            new += gone
        if at is None and (placed or len(new) > NAMES_AT_ONCE):
            at = await self.log.book.now(consistency=consistency)
        for start in range(0, len(new), NAMES_AT_ONCE):
            for view in await self._read_uncached(new[start : start + NAMES_AT_ONCE], at, consistency):
                found[view.name] = view
        return at

    async def _brought_up(
        self, kept: Sequence[KnownView], at: int | None, consistency: ConsistencyName
    ) -> tuple[int, list[View], list[str]]:
        """Update cached views to a place; return the place, the views, and the names that have to be read from the beginning."""
        streams: dict[Tag, list[KnownView]] = {}
        for known in kept:  # two names may share a stream
            streams.setdefault(tags.store_object(known.view.name), []).append(known)
        gone: list[str] = []
        if at is not None:
            consistency = "session"  # what it has seen, `at` among it, does not change any more
        while True:
            seen = {stream: min(known.beyond for known in some) for stream, some in streams.items()}
            try:
                place, records = await self._since(seen, consistency)
            except (Trimmed, Lost) as error:  # a checkpoint came between; or what was lost may have been of any
                stream = error.facts.get("tag")
                for concerned in [stream] if stream in streams else list(streams):
                    for known in streams.pop(concerned):
                        self.cache.drop(known.view.name)
                        gone.append(known.view.name)
                continue
            if place >= max([at or 0, *seen.values()]):
                break
            consistency = "session"  # an engine that is behind what was seen before
        held = []
        opened: dict[int, Envelope] = {}
        for stream, some in streams.items():
            news = records.get(stream, ())
            for known in some:
                if news:
                    held.append(await self._with_news(known, news, opened, at, place))
                else:
                    self.cache.put(known.view, upto=place, steady=True)
                    held.append(known.view)
        return at or place, held, gone

    async def _since(self, seen: Mapping[Tag, int], consistency: ConsistencyName) -> NewRecords:
        if consistency == "session":
            return await self._news.since(seen)
        place, records = await self.log.book.read_since(seen, consistency=consistency)
        return NewRecords(place, {stream: [one for one in records if stream in one.tags] for stream in seen})

    async def _with_news(
        self, known: KnownView, records: Sequence[boki.Record], opened: dict[int, Envelope], at: int | None, place: int
    ) -> View:
        """Return a cached view with the new records of its stream applied, as of `at`, or of the place where these are all records."""
        view, before, folded, last, then = known.view, known.beyond, 0, None, None
        for record in records:
            if record.seqnum <= before:
                continue
            if then is None and at is not None and record.seqnum > at:
                then = view
            if record.seqnum not in opened:
                opened[record.seqnum] = await self.log.open(record)
            events = PICKER.of(record.seqnum, opened[record.seqnum], view.name)
            self._look_for_claim(view.name, record, opened[record.seqnum], events)
            view, folded, last = fold.after_record(view, record.seqnum, events), folded + 1, record
        self.cache.put(view, upto=place, steady=not folded)
        if last is not None:
            self.folded += folded
            if self._aux and folded >= AUX_RECORDS:
                await self._leave(view, last.aux_data)
            self._changed(view)
        return view if then is None else then

    def _look_for_claim(self, name: str, record: boki.Record, envelope: Envelope, events: Sequence[AnyEvent]) -> None:
        """Report a new record of an object if another process claims the object by it (`turns`)."""
        needs_ms = needed_ms(events, envelope)
        if needs_ms and self.claimed is not None and envelope.by != self.log.by:
            self.claimed(name, record, needs_ms / 1_000)

    async def _read_uncached(self, names: Sequence[str], at: int | None, consistency: ConsistencyName) -> list[View]:
        """Return views of objects of which nothing recent enough is cached."""
        seen = at or (0 if consistency == "any" else self.log.book.position or FIRST)
        newest = await self.bases.newest([Subject(name) for name in names], at, consistency)
        views: list[View | None] = []
        folds: list[Coroutine[None, None, View]] = []
        for name, one in zip(names, newest, strict=True):
            view = None
            if not one.nothing:
                view = self._left(name, one)
                if view is None:
                    folds.append(self._folded(name, one, at))
            elif at is not None:
                folds.append(self._absent(name, at))
            else:  # a read of now finds a record or a checkpoint of every existing object
                view = fold.gone(name, seen)
            views.append(view)
        missing = iter([await folds[0]] if len(folds) == 1 else await asyncio.gather(*folds))
        found = [next(missing) if view is None else view for view in views]
        for view, one in zip(found, newest, strict=True):
            if not one.nothing:
                self.cache.put(view, upto=seen)
            elif seen:
                self.cache.put(view, upto=seen, proven=at is not None)
        return found

    async def _absent(self, name: str, at: int) -> View:
        """Return the view of an object of which nothing was found as of a place. Raises Trimmed."""
        await self.bases.check_nothing(Subject(name), at)
        return fold.gone(name, at)

    def _left(self, name: str, newest: NewestRecords) -> View | None:
        """Return the view in the aux data of the newest record, if there is one."""
        if newest.record is not None and self._aux:
            return view_format.view_of(name, newest.record.seqnum, newest.record.aux_data)
        return None

    def committed(self, seqnum: int, part: Contribution, events: Sequence[AnyEvent], bases: Iterable[View]) -> None:
        """Note that a record of this process is in the log: objects that it expected unchanged are known at its place.

        Args:
            seqnum: the record's place.
            part: the whole record.
            events: events of this library, in order.
            bases: views of objects at or above the places that the record expected of them.
        """
        joined = set(part.tags)
        for base in bases:
            stream = tags.store_object(base.name)
            if stream not in part.expect:
                continue
            known = self.cache.get(base.name)
            if known is not None and known.view.seen == base.seen:
                base = known.view  # it may have been counted again
            view = fold.after_record(base, seqnum, events) if stream in joined else base
            self.cache.put(view, upto=seqnum)
            if view is not base:
                self._changed(view)

    async def recounted(self, name: str, snapshot: int) -> View:
        """Fold an object from its newest checkpoint, ignoring the cache, to count again what lies above the checkpoint."""
        subject = Subject(name)
        (newest,) = await self.bases.newest([subject], snapshot, "session")
        if newest.nothing:
            return await self._absent(name, snapshot)
        return await self._folded(name, newest, snapshot, counted=True)

    async def _folded(self, name: str, newest: NewestRecords, at: int | None, *, counted: bool = False) -> View:
        """Return the view folded from the nearest base; `counted`: the base is a checkpoint."""
        view = base = await self.checkpoint(name, newest.checkpoint) or fold.gone(name, 0)
        if newest.record is None:
            await self._check_whole(base, newest, at)
        else:
            # Where views are kept, those of other processes are worth round trips only if a history is long.
            walk = not counted and (newest.checkpoint is not None or not self.cache.keeps)
            view, folded = await self._up_to(newest, base, newest.record, walk=walk)
            self.folded += folded
            if self._aux and folded >= (AUX_RECORDS if self.cache.keeps else 1):
                await self._leave(view, newest.record.aux_data)
        if not counted:
            self._changed(view)
        return view

    async def _up_to(self, newest: NewestRecords, base: View, last: boki.Record, *, walk: bool) -> tuple[View, int]:
        """Return the view as of the newest record, and how many records were folded for it.

        With `walk` it first walks back for a view in aux data, which lies behind every write that is nearer than a checkpoint.
        """
        name = base.name
        found, passed = await self._walk_back(name, last, base) if walk and self._aux else (None, [])
        if found is not None:
            view = found
            for record in reversed(passed):
                view = fold.after_record(
                    view, record.seqnum, PICKER.of(record.seqnum, await self.log.open(record), name)
                )
            return view, len(passed)
        view, folded = base, 0
        async for read in self.bases.above(Subject(name), newest, base.seen, last.seqnum, empty=not base.exists):
            seqnum = read.record.seqnum
            view, folded = fold.after_record(view, seqnum, PICKER.of(seqnum, read.envelope, name)), folded + 1
        return view, folded

    async def _walk_back(self, name: str, last: boki.Record, base: View) -> tuple[View | None, list[boki.Record]]:
        """Return the nearest view below a record, and the records above it, newest first; None if it is too far.

        A step that finds nothing does not prove that nothing was there: a later checkpoint may have trimmed it. Only a fold that
        names its start proves it.
        """
        passed: list[boki.Record] = []
        record: boki.Record | None = last
        while record is not None and record.seqnum > base.seen:
            view = view_format.view_of(name, record.seqnum, record.aux_data)
            if view is not None:
                return view, passed
            passed.append(record)
            if len(passed) > WALKED_RECORDS:
                return None, []
            try:
                record = await self.log.book.read_prev(tags.store_object(name), at_most=record.seqnum - 1)
            except Trimmed:
                return None, []
        return (base, passed) if record is not None else (None, [])

    async def _check_whole(self, base: View, newest: NewestRecords, at: int | None) -> None:
        """Check that a checkpoint has all of an object whose stream is empty. Raises as `CheckpointReads.above`."""
        place = at or max(self.log.book.position or 0, base.seen + 1)
        async for _ in self.bases.above(Subject(base.name), newest, base.seen, place, empty=not base.exists):
            return  # it came after the query that found none

    async def _leave(self, view: View, aux: bytes | None) -> None:
        """Store a view in the aux data of its record, for other processes."""
        data = view_format.with_view(view, aux)
        if data is not None:
            await self.log.book.set_aux_data(view.seen, data)

    # -- checkpoints

    async def checkpoint(self, name: str, newest: boki.Record | None) -> View | None:
        """Return the view in the newest complete checkpoint at or below a record."""
        whole = await self.bases.whole(Subject(name), newest)
        if whole is None:
            return None
        if whole.ended_ms is not None:
            return fold.gone(name, whole.covers)
        return fold.from_checkpoint(name, whole.covers, whole.data)

    # -- directories

    async def directories(
        self, collection: str, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> list[Directory]:
        """Return the 16 buckets of a collection as of one snapshot."""
        await self.check_at(at)
        for again in range(REREADS):
            try:
                snapshot = at or await self.log.book.now(consistency=consistency)
                subjects = [of_bucket(collection, bucket) for bucket in range(tags.DIRECTORY_BUCKETS)]
                newest = await self.bases.newest(subjects, snapshot, consistency)
                found = await asyncio.gather(
                    *(self._directory(*pair, snapshot) for pair in zip(subjects, newest, strict=True))
                )
                if self.due_directory is not None:
                    for directory in found:
                        self.due_directory(directory)
                return found
            except Trimmed:
                if at is not None or again == REREADS - 1:
                    raise
        raise AssertionError("it returns or raises")

    async def directory(self, subject: Subject, at: int) -> Directory:
        """Return one bucket as of a snapshot."""
        (newest,) = await self.bases.newest([subject], at, "session")
        return await self._directory(subject, newest, at)

    async def _directory(self, subject: Subject, newest: NewestRecords, at: int) -> Directory:
        base = Directory(subject.collection, subject.bucket)
        whole = await self.bases.whole(subject, newest.checkpoint)
        if whole is not None and whole.ended_ms is not None:
            base = Directory(subject.collection, subject.bucket, whole.covers)
        elif whole is not None:
            base = directory_rules.from_checkpoint(subject.collection, subject.bucket, whole.covers, whole.data)
        if newest.nothing:
            await self.bases.check_nothing(subject, at)
            return base
        records: list[tuple[int, list[AnyEvent]]] = []
        async for read in self.bases.above(subject, newest, base.seen, at, empty=not base.ids):
            records.append((read.record.seqnum, PICKER.of(read.record.seqnum, read.envelope, subject.collection)))
        self.folded += len(records)
        return directory_rules.after_records(base, records)
