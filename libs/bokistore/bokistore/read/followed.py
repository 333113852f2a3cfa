"""Followed views: objects that are read often are read from memory, with `StoreSettings(followed_objects=255)`.

A read with session consistency is answered from memory if the delivered records are all that a read of this session would return
(`boki.Cursor.current`): they contain everything that the session has seen (its own appends, its reads of any book, tokens that it was
given), and a request that was sent within `within_s` found nothing more. Otherwise the log is read; the cursor sends a request too, for
everything that it follows, and later reads are answered from memory again.

- A followed view is folded from delivered records only; it begins behind the view that was read.
- A gap (a checkpoint has overtaken the cursor) or an unreadable record ends this: the next read goes to the log.
- A cursor that fails begins again and is not current before it has; a cursor that ended never is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags
from bokilib.records.events import Envelope
from bokistore.model.events import PICKER, AnyEvent
from bokistore.model.fold import View, after_record
from bokistore.read.follow_choice import FollowChoice
from bokistore.read.view_cache import ViewCache

REFRESH_S: Final = 0.02
"""Between two requests of a cursor: a session that appends all the time is never current for long."""


class FromMemory(NamedTuple):
    """Views from memory, all as of one place."""

    place: int
    views: list[View]


class FollowedViews:
    """Views that a process follows; see the module. Belongs to one event loop."""

    def __init__(
        self,
        log: Log,
        cache: ViewCache,
        *,
        limit: int,
        within_s: float,
        changed: Callable[[View], None],
        read: Callable[[str, boki.Record, Envelope, Sequence[AnyEvent]], None],
    ) -> None:
        """Follow nothing yet.

        Args:
            log: the log of the store.
            cache: is given each view that was folded.
            limit: how many objects may be followed.
            within_s: how long ago the request was sent that found nothing more.
            changed: called with each view that was folded.
            read: called with each record that is folded, for the name of its object.
        """
        self._log = log
        self._cache = cache
        self._within_s = within_s
        self._changed = changed
        self._on_read = read
        self._choice: Final = FollowChoice(limit)
        self._follower: Final = Follower(log)
        self._views: dict[str, View] = {}
        self._refreshed_s = float("-inf")
        self._clock = asyncio.get_running_loop().time
        self.served = 0
        """Reads that were answered from memory so far."""

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def read(self, names: Sequence[str]) -> FromMemory | None:
        """Read objects as of one place from memory; return None if memory may be older than a read of the session."""
        found: list[View] = []
        place = 0
        for name in names:
            view = self._views.get(name)
            if view is None:
                return None
            current = self._follower.current(tags.store_object(name), within_s=self._within_s)
            if not current:
                self._refresh(name)
                return None
            place = min(place, current) if found else current
            found.append(view)
        if not found or place < (self._log.book.position or 0) or any(view.seen > place for view in found):
            return None
        now_s = self._clock()
        for name in names:
            self._choice.read(name, now_s)
        self.served += 1
        return FromMemory(place, found)

    def read_from_log(self, views: Iterable[View]) -> None:
        """Note views that were read from the log and are its newest; those that are read often are followed from here on."""
        now_s = self._clock()
        for view in views:
            if view.seen and self._choice.read_from_log(view.name, now_s):
                self._follow(view, now_s)

    async def close(self) -> None:
        """Stop following; all reads go to the log from now on."""
        self._views.clear()
        await self._follower.close()

    def _follow(self, view: View, now_s: float) -> None:
        tag = tags.store_object(view.name)
        there, longest = self._choice.room(now_s)
        if not there or tag in self._follower:  # names that are very long may share a stream
            return
        if longest is not None:
            self._unfollow(longest)
        self._views[view.name] = view
        self._choice.read(view.name, now_s)
        self._follower.add(tag, view.seen + 1, partial(self._deliver, view.name))
        self._follower.refresh(tag)

    def _unfollow(self, name: str) -> None:
        if self._views.pop(name, None) is not None:
            self._choice.drop(name)
            self._follower.discard(tags.store_object(name))

    def _deliver(self, name: str, item: Read | boki.Gap | BokiError) -> None:
        view = self._views.get(name)
        if view is None:
            return
        if not isinstance(item, Read) or self._choice.idle(name, self._clock()):
            self._unfollow(name)
            return
        seqnum = item.record.seqnum
        if seqnum <= view.seen:
            return
        known = self._cache.get(name)  # of one place all views are equal, but for what was counted again
        if known is not None and known.view.seen == seqnum:
            self._views[name] = known.view
            return
        if known is not None and known.view.seen == view.seen:
            view = known.view
        try:
            events = PICKER.of(seqnum, item.envelope, name)
            view = after_record(view, seqnum, events)
        except BokiError:
            self._unfollow(name)
            return
        self._views[name] = view
        self._cache.put(view)
        self._changed(view)
        self._on_read(name, item.record, item.envelope, events)

    def _refresh(self, name: str) -> None:
        now_s = self._clock()
        if now_s - self._refreshed_s >= REFRESH_S:
            self._refreshed_s = now_s
            self._follower.refresh(tags.store_object(name))
