"""Reads of objects and directories as of a snapshot; they append nothing. A state comes from the log in one of three forms.

    form         a state is                                                           entry
    checkpoint   the newest checkpoint at or below a place, and the records up to it  `CheckpointReads.objects`; of directories, `buckets`
    cached       a view that this process keeps, and the records that are new since   `CachedViews.read`
    followed     a view that delivered records keep up to date: no query is sent      `FollowedViews.read`

`Views` chooses for objects, snapshots and transactions: the followed form for reads of now, where it is as new as the log; otherwise the
cached one, which reads what it does not keep from checkpoints. Directories and new checkpoints are always read from checkpoints. Histories
and watches begin with such a view, and get each state above it from `CheckpointReads.each`.

As of one place all forms give equal views, so the choice changes nothing but time. If a checkpoint came between two queries, a read of now
begins again; a snapshot that a user holds is too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, overload

from boki_common.errors import InvalidArgument, Trimmed
from bokilib.append.log import Log
from bokilib.errors import NotEncodable
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import Json, JsonObject, copy_json, from_json
from bokistore.model import directory_rules
from bokistore.model.directory_rules import Directory, Subject, of_bucket
from bokistore.model.fold import View
from bokistore.model.operations import Missing, look, parse
from bokistore.read.cached import CachedViews
from bokistore.read.checkpoint_reads import CheckpointReads
from bokistore.read.followed import FollowedViews
from bokistore.read.view_cache import CACHED_VIEWS, ViewCache

REREADS: Final = 8
"""How often a read of now begins again because a checkpoint and its trim came between its queries."""

T = TypeVar("T")


class Views:
    """Reads of a store's objects; see the module.

    Attributes:
        log: the log of the store.
        cache: cached views.
        checkpoints: the first form.
        cached: the second form.
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
        self.cache: Final = ViewCache(0 if log.always_replay else cached)
        self.checkpoints: Final = CheckpointReads(
            log, aux=aux and not log.always_replay, keeps=self.cache.keeps, changed=self._changed
        )
        self.cached: Final = CachedViews(log, self.cache, self.checkpoints, changed=self._changed)
        self._follows = 0 if log.always_replay else followed, followed_within_s
        self._followed: FollowedViews | None = None
        self.due: Callable[[View], None] | None = None
        self.due_directory: Callable[[Directory], None] | None = None

    # -- objects

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
            Trimmed: the history at the snapshot is no longer kept of an object, which `error.object` names.
            HistoryMissing: records of an object are trimmed without a checkpoint.
            Lost: the log has lost records of an object.
            InvalidArgument: the snapshot is no place that the session has seen.
        """
        await self.check_at(at)
        return (await _retried(lambda: self._read(names, at, consistency, placed=False), at))[1]

    async def as_of(self, names: Sequence[str], consistency: ConsistencyName = "session") -> tuple[int, list[View]]:
        """Return objects and the snapshot at which they were read, as recent as the consistency says. Raises as `many`."""
        return await _retried(lambda: self._read(names, None, consistency, placed=True), None)

    async def refresh(self, names: Sequence[str]) -> None:
        """Read objects for transactions that begin next, which treat them as steady (`view_cache`)."""
        if self.cache.keeps:
            place, views = await self.as_of(names)
            for view in views:
                self.cache.put(view, upto=place, steady=True)

    async def _read(
        self, names: Sequence[str], at: int | None, consistency: ConsistencyName, *, placed: bool
    ) -> tuple[int, list[View]]:
        """Return the place (0 unless `placed`) and the views, from memory where that is as recent as the log."""
        followed = self._following() if at is None else None
        if followed is None:
            return await self.cached.read(names, at, consistency, placed=placed)
        answer = followed.read(names) if consistency != "linearizable" else None
        if answer is not None:
            await asyncio.sleep(0)  # a loop of reads leaves time to other tasks, and to the cursor that follows
            return answer
        place, views = await self.cached.read(names, at, consistency, placed=placed)
        followed.read_from_log(views)
        return place, views

    def _following(self) -> FollowedViews | None:
        limit, within_s = self._follows
        if limit and self._followed is None:
            self._followed = FollowedViews(self.log, self.cached, limit=limit, within_s=within_s)
        return self._followed

    def _changed(self, view: View) -> None:
        if self.due is not None:
            self.due(view)

    async def close(self) -> None:
        """Stop following objects."""
        followed, self._followed, self._follows = self._followed, None, (0, 0.0)
        if followed is not None:
            await followed.close()

    # -- directories

    async def directories(
        self, collection: str, at: int | None = None, consistency: ConsistencyName = "session"
    ) -> list[Directory]:
        """Return the 16 buckets of a collection as of one snapshot."""
        await self.check_at(at)
        subjects = [of_bucket(collection, bucket) for bucket in range(tags.DIRECTORY_BUCKETS)]

        async def read() -> list[Directory]:
            snapshot = at or await self.log.book.now(consistency=consistency)
            return await self.checkpoints.buckets(subjects, snapshot, consistency)

        found = await _retried(read, at)
        if self.due_directory is not None:
            for directory in found:
                self.due_directory(directory)
        return found

    async def directory(self, subject: Subject, at: int) -> Directory:
        """Return one bucket as of a snapshot."""
        (directory,) = await self.checkpoints.buckets([subject], at, "session")
        return directory


async def _retried(read: Callable[[], Awaitable[T]], at: int | None) -> T:
    """Begin a read of now again while checkpoints come between its queries."""
    for again in range(REREADS):
        try:
            return await read()
        except Trimmed:
            if at is not None or again == REREADS - 1:
                raise
    raise AssertionError("it returns or raises")


def value_at(view: View, path: str, default: Any, kind: type[Any] | None) -> Any:
    """Return a copy of the value at a path, of a type if one is given, or the default.

    Null is returned as None where the default is None; otherwise the type must admit it.

    Raises:
        NotEncodable: the value does not fit the type.
    """
    found = look(view.content, parse(path))
    if isinstance(found, Missing):
        return default
    if kind is None or (found is None and default is None):
        return copy_json(found)
    try:
        return from_json(kind, found)
    except NotEncodable as error:
        message = f"object {view.name!r}, path {path!r}: {error}"
        raise NotEncodable(message, **{**error.facts, "object": view.name, "path": path}) from error


def whole_value(view: View) -> JsonObject | None:
    """Return a copy of an object, or None if it does not exist."""
    return copy_json(view.value) if view.exists else None


class Snapshot:
    """A consistent view of the whole store: `async with store.snapshot() as then`. It appends nothing and never conflicts.

    Attributes:
        at: the seqnum at which it reads.
    """

    def __init__(self, views: Views, at: int, had: Iterable[View] = ()) -> None:
        """Open a snapshot.

        Args:
            views: cached reads of objects.
            at: the seqnum at which it reads.
            had: views at this place that are known already.
        """
        self.at: Final = at
        self._views = views
        self._had = {view.name: view for view in had}

    @overload
    async def get(self, name: str, path: str = "", default: Json = None) -> Json: ...

    @overload
    async def get(self, name: str, path: str = "", default: None = None, *, type: type[T]) -> T | None: ...

    @overload
    async def get(self, name: str, path: str, default: T, *, type: type[T]) -> T: ...

    async def get(self, name: str, path: str = "", default: Any = None, *, type: type[Any] | None = None) -> Any:
        """Return the value at a path of an object, or the default. With `type`, as `StoreObject.get`."""
        return value_at(await self._one(name), path, default, type)

    async def value(self, name: str) -> JsonObject | None:
        """Return an object, or None if it does not exist."""
        return whole_value(await self._one(name))

    async def values(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Return many objects, in one or two round trips."""
        return [whole_value(view) for view in await self._views.many(names, self.at)]

    async def _one(self, name: str) -> View:
        return self._had.get(name) or await self._views.one(name, self.at)

    async def ids(self, collection: str) -> list[str]:
        """Return the ids of a collection, in order."""
        directories = await self._views.directories(directory_rules.check_collection(collection), self.at)
        return sorted(id for directory in directories for id in directory.ids)
