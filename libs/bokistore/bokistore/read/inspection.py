"""Versions of an object, the changes between two places of the log, and each change as it happens.

All of them begin with a view, and take each further state from `CheckpointReads.each`.

A watcher that is overtaken by a trim (it was away for longer than replaced records are kept) gets one change with `resync`, from the last
known state to the current one. States that it computes from changes stay right, and it knows that some changes are not separate.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec

import boki
from boki_common.errors import InvalidArgument, Trimmed
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.iteration import Iteration
from bokilib.ports import ConsistencyName
from bokilib.records import tags
from bokilib.records.codec import JsonObject
from bokistore.model import fold
from bokistore.model.directory_rules import Subject, subjects_of
from bokistore.model.events import PICKER, AnyEvent, Commit, Deleted, Expires, Ops
from bokistore.model.operations import AnyOperation, Change, differences
from bokistore.read.checkpoint_reads import Step, view_in
from bokistore.read.snapshot_reads import Views, whole_value

STEPS: Final = 1_000
"""Of a history, so many records are looked up one by one, to fold none before them."""
KINDS: Final = {Ops: "operations", Commit: "transaction", Deleted: "deleted", Expires: "expires"}


class Version(NamedTuple):
    """A version of an object, made by one record.

    Attributes:
        seqnum: the record's place in the log.
        time_ms: when the record was ordered.
        by: the incarnation that wrote it.
        kind: "operations", "transaction", "deleted" or "expires"; "checkpoint" where older records are trimmed.
        operations: the operations of the record.
        value: the object after it, None if it does not exist then.
    """

    seqnum: int
    time_ms: int
    by: str
    kind: str
    operations: tuple[AnyOperation, ...]
    value: JsonObject | None


class Watched(NamedTuple):
    """A change of a watched object.

    Attributes:
        seqnum: up to where the object was seen.
        before: the object before the change, None if it did not exist.
        after: the object after the change, None if it does not exist.
        changes: the difference.
        resync: several changes in one; the records between are trimmed.
    """

    seqnum: int
    before: JsonObject | None
    after: JsonObject | None
    changes: list[Change]
    resync: bool


async def history(
    views: Views, name: str, start: int | None, stop: int | None, limit: int | None, consistency: ConsistencyName
) -> list[Version]:
    """Return the versions of an object. See `StoreObject.history`."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(f"expected limit= to be at least 1, found {limit!r}", found=limit)
    now = await views.log.book.now(consistency=consistency)
    last = now if stop is None else min(now, stop - 1)
    found: list[Version] = []

    async def oldest(view: fold.View) -> fold.View | None:
        known = await _oldest(views, name, now)
        if known is None:
            return None
        found.append(known[0])
        return known[1]

    base = await _base(views, name, last, limit)
    async for _, after, events, read in views.checkpoints.each(base, base.seen + 1, oldest, stop=last + 1):
        mine = [event for event in events if _changes(event, name)]
        if read is not None and mine and read.record.seqnum >= (start or 0):
            record, kind = read.record, KINDS[type(mine[-1])]
            version = Version(
                record.seqnum, record.time_ms, read.envelope.by, kind, _operations(mine), whole_value(after)
            )
            found.append(version)
    found = [version for version in found if version.seqnum >= (start or 0)]
    return found if limit is None else found[-limit:]


async def _base(views: Views, name: str, last: int, limit: int | None) -> fold.View:
    """Return the object before the newest `limit` records up to `last`; from the beginning if that is cheaper, or the only way."""
    if limit is None or limit > STEPS or last < 1:
        return fold.gone(name, 0)
    before, left = last, limit
    try:
        for _ in range(STEPS):
            record = await views.log.book.read_prev(tags.store_object(name), at_most=before)
            if record is None:
                return fold.gone(name, 0)
            before = record.seqnum - 1
            events = PICKER.of(record.seqnum, await views.log.open(record), name)
            left -= any(_changes(event, name) for event in events)
            if not left:
                break
        else:
            return fold.gone(name, 0)
        view = await views.one(name, before) if before else fold.gone(name, 0)
    except (Trimmed, InvalidArgument):
        return fold.gone(name, 0)
    return msgspec.structs.replace(view, seen=max(view.seen, before))


async def names(views: Views, at: int | None, consistency: ConsistencyName) -> list[str]:
    """Return the names of existing objects. See `BokiStore.names`.

    Every existing object has a live record or checkpoint, so its name is in the book.
    """
    known = await views.check_at(at)
    now = await views.log.book.now(consistency=consistency)
    found: dict[str, None] = {}
    async for item in views.log.book.read(start=1, stop=now + 1):
        if isinstance(item, boki.Gap):
            continue
        try:
            events = PICKER.of(item.seqnum, await views.log.open(item))
        except (ForeignRecord, UnknownEvent):
            continue  # of a program that shares the book
        found |= {subject.name: None for subject in subjects_of(events) if not subject.collection}
    return sorted(view.name for view in await views.many(list(found), known or now) if view.exists)


async def _oldest(views: Views, name: str, now: int) -> tuple[Version, fold.View] | None:
    """Return the version and the view of the oldest checkpoint that is kept: versions above it are separate."""
    oldest = None
    newest = await views.log.book.read_prev(tags.store_checkpoint(name), at_most=now)
    async for whole in views.checkpoints.wholes(Subject(name), newest):
        oldest = whole
    if oldest is None:
        return None
    view = view_in(name, oldest)
    return Version(oldest.covers, oldest.time_ms, "", "checkpoint", (), whole_value(view)), view


async def diff(views: Views, name: str, before: int, after: int | None, consistency: ConsistencyName) -> list[Change]:
    """Return the changes of an object between two places. See `StoreObject.diff`."""
    old = await views.one(name, before, consistency)
    new = await views.one(name, after, consistency)
    return differences(old.content, new.content)


def watch(views: Views, name: str, start: int | None) -> Iteration[Watched]:
    """Return an iterator over the changes of an object. See `StoreObject.watch`."""
    watcher = _Watcher(views, name, start)
    return Iteration(watcher.more, release=watcher.release)


class _Watcher:
    """The place from which an object is watched, which a call that is cancelled does not move, and its changes from there on."""

    def __init__(self, views: Views, name: str, start: int | None) -> None:
        self._views = views
        self._name = name
        self._start = start
        self._now: asyncio.Task[int] | None = None
        self._steps: Iteration[Step] | None = None

    async def more(self) -> list[Watched]:
        """Wait for the next record of the object; return its change, if it changes the object."""
        if self._steps is None:
            snapshot = await self._snapshot()
            base = await self._views.one(self._name, snapshot) if snapshot else fold.gone(self._name, 0)
            self._steps = self._views.checkpoints.each(base, snapshot + 1, self._current, follow=True)
        before, after, _, read = await anext(self._steps)
        if (after.exists, after.value) == (before.exists, before.value):
            return []
        changes = differences(before.content, after.content)
        return [Watched(after.seen, whole_value(before), whole_value(after), changes, resync=read is None)]

    async def _snapshot(self) -> int:
        """Return the place below the first change. It is asked for once, also if the first calls are cancelled."""
        if self._start is not None:
            return max(self._start - 1, 0)
        if self._now is None or (self._now.done() and (self._now.cancelled() or self._now.exception() is not None)):
            self._now = asyncio.get_running_loop().create_task(self._views.log.book.now())
        return await asyncio.shield(self._now)

    async def _current(self, view: fold.View) -> fold.View | None:
        newest = await self._views.one(self._name)
        return newest if newest.seen > view.seen else None

    def release(self) -> None:
        """Cancel the question for the place."""
        if self._now is not None:
            self._now.cancel()


def _changes(event: AnyEvent, name: str) -> bool:
    """Return whether an event belongs to the history of an object. A claim (`events`) does not: it changes nothing."""
    if not isinstance(event, (Ops, Commit, Deleted, Expires)) or event.name != name:
        return False
    return not isinstance(event, Commit) or bool(event.operations)


def _operations(events: list[AnyEvent]) -> tuple[AnyOperation, ...]:
    return tuple(one for event in events if isinstance(event, (Ops, Commit)) for one in event.operations)
