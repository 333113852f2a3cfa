"""The second form of a read (`snapshot_reads`): views that this process keeps (`view_cache`), brought up to a place.

One query for all wanted objects returns the records that are new since each was seen; known records are not sent again. An object that is
not kept, or kept as of a later place, is read from its checkpoint and kept. The records of this process bring its views up without a query.

- The cache changes nothing but time: each view says up to where it has seen the object, and holds.
- A view whose new records are trimmed is dropped, and the object is read from its checkpoint.
- A query without a place is of one moment, which its answer names: a caller that needs a snapshot gets it with its first read.
- A new record by which another process claims an object is reported (`turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import boki
from boki_common.errors import Lost, Trimmed
from boki_common.limits import READ_TAGS
from bokilib.append.log import Log, Read
from bokilib.follow.news import NewRecords, News
from bokilib.ports import ConsistencyName, Tag
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokistore.model import fold
from bokistore.model.events import AnyEvent, needed_ms
from bokistore.model.fold import View
from bokistore.read.checkpoint_reads import CheckpointReads, after_read
from bokistore.read.view_cache import KnownView, ViewCache

NAMES_AT_ONCE: Final = 1_024
"""Objects of one query; each has two streams."""


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


class CachedViews:
    """Views of this process, and reads that bring them up to date; see the module. Belongs to one event loop.

    Attributes:
        cache: the views.
        claimed: called with an object, a record by which another process claims it, and for how many seconds.
    """

    def __init__(
        self, log: Log, cache: ViewCache, checkpoints: CheckpointReads, *, changed: Callable[[View], None]
    ) -> None:
        """Read nothing yet.

        Args:
            log: the log of the store.
            cache: keeps the views.
            checkpoints: reads what is not kept.
            changed: called with each view that has changed.
        """
        self.cache: Final = cache
        self.claimed: Callable[[str, boki.Record, float], None] | None = None
        self._log: Final = log
        self._checkpoints: Final = checkpoints
        self._changed: Final = changed
        self._running: Final = RunningReads(cache)
        self._news: Final = News(log.book)

    async def read(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName, *, placed: bool
    ) -> tuple[int, list[View]]:
        """Return the place of a read and the views, in the order of the names. The place may be 0 unless `at` or `placed` is given.

        Raises:
            Trimmed: as `CheckpointReads.objects`, also where a read of now has to begin again.
            HistoryMissing, Lost: as `CheckpointReads.objects`.
        """
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
            for start in range(0, len(kept), READ_TAGS):
                at, views, gone = await self._brought_up(kept[start : start + READ_TAGS], at, consistency)
                found |= {view.name: view for view in views}
                new += gone
            if at is None and (placed or len(new) > NAMES_AT_ONCE):
                at = await self._log.book.now(consistency=consistency)
            for start in range(0, len(new), NAMES_AT_ONCE):
                for known in await self._checkpoints.objects(new[start : start + NAMES_AT_ONCE], at, consistency):
                    found[known.view.name] = known.view
                    if known.view.seen:  # 0: nothing was found, and the log did not say as of which place
                        self.cache.put(known.view, upto=known.upto, proven=known.upto > 0)
        return at or 0, [found[name] for name in names]

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
        opened: dict[int, Read] = {}
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
        place, records = await self._log.book.read_since(seen, consistency=consistency)
        return NewRecords(place, {stream: [one for one in records if stream in one.tags] for stream in seen})

    async def _with_news(
        self, known: KnownView, records: Sequence[boki.Record], opened: dict[int, Read], at: int | None, place: int
    ) -> View:
        """Return a cached view with the new records of its stream applied, as of `at`, or of the place where these are all records."""
        view, before, folded, last, then = known.view, known.beyond, 0, None, None
        for record in records:
            if record.seqnum <= before:
                continue
            if then is None and at is not None and record.seqnum > at:
                then = view
            if record.seqnum not in opened:
                opened[record.seqnum] = Read(record, await self._log.open(record))
            view, folded, last = self.after(view, opened[record.seqnum]), folded + 1, record
        self.cache.put(view, upto=place, steady=not folded)
        if last is not None:
            await self._checkpoints.leave(view, folded, last)
            self._changed(view)
        return view if then is None else then

    def after(self, view: View, read: Read) -> View:
        """Return a view after the next record of the object; report the record if another process claims the object by it."""
        after, events = after_read(view, read)
        needs_ms = needed_ms(events, read.envelope)
        if needs_ms and self.claimed is not None and read.envelope.by != self._log.by:
            self.claimed(view.name, read.record, needs_ms / 1_000)
        return after

    # -- without a query

    def keep(self, view: View) -> None:
        """Keep a view that has changed, and is known without a read of this form."""
        self.cache.put(view)
        self._changed(view)

    def appended(self, base: View, seqnum: int, events: Sequence[AnyEvent]) -> None:
        """Bring a view up to a record of this process, which is the next one of the object."""
        self.keep(fold.after_record(self.cache.counted(base), seqnum, events))

    def committed(self, seqnum: int, part: Contribution, events: Sequence[AnyEvent], bases: Iterable[View]) -> None:
        """Bring views up to a record of this process, of the objects that it expected unchanged.

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
            if stream in joined:
                self.appended(base, seqnum, events)
            else:
                self.cache.put(self.cache.counted(base), upto=seqnum)
