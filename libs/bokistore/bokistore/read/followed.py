"""The third form of a read (`snapshot_reads`): from memory, of objects that are read often, with `StoreSettings(followed_objects=255)`.

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
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import boki
from boki_common.errors import BokiError
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.records import tags
from bokistore.model.fold import View
from bokistore.read.cached import CachedViews

REFRESH_S: Final = 0.02
"""Between two requests of a cursor: a session that appends all the time is never current for long."""
AGAIN_S: Final = 60.0
"""An object that is read again within this time is followed, if there is a place."""
IDLE_S: Final = 30.0
"""An object that was not read for this long is dropped for a new one, or when it changes."""


class FollowChoice:
    """Choice of the objects that a process follows, because it reads them often. Pure.

        read once                       a candidate; there are at most as many candidates as followed objects
        read again within `AGAIN_S`     followed, if there is a place
        no place                        the longest unread object gives up its place, if it was not read for `IDLE_S`

    A process that reads more objects in turn than it may follow therefore does not exchange them all the time: each exchange costs the
    engine too. Time alone ends nothing: an object that is no longer read is followed until it changes (`idle`).

    Invariant: at most `limit` are chosen, and as many are candidates.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._read: OrderedDict[str, float] = OrderedDict()
        """Objects that are followed, and when each was read last."""
        self._candidates: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._read

    def read(self, name: str, now_s: float) -> None:
        """Note a read of an object that is followed."""
        self._read[name] = now_s
        self._read.move_to_end(name)

    def read_from_log(self, name: str, now_s: float) -> bool:
        """Note a read from the log; return whether to follow the object from now on, if there is a place (`room`)."""
        if name in self._read:
            self.read(name, now_s)
            return False
        before = self._candidates.pop(name, None)
        if before is not None and now_s - before <= AGAIN_S:
            return True
        self._candidates[name] = now_s
        if len(self._candidates) > self._limit:
            self._candidates.popitem(last=False)
        return False

    def room(self, now_s: float) -> tuple[bool, str | None]:
        """Return whether there is a place for one more object, and which object is dropped for it."""
        if len(self._read) < self._limit:
            return True, None
        longest = next(iter(self._read), None)
        if longest is None or now_s - self._read[longest] < IDLE_S:
            return False, None
        return True, longest

    def idle(self, name: str, now_s: float) -> bool:
        """Return whether an object was not read for `IDLE_S`."""
        return now_s - self._read[name] >= IDLE_S

    def drop(self, name: str) -> None:
        """Stop following an object."""
        self._read.pop(name, None)


class FollowedViews:
    """Views that a process follows; see the module. Belongs to one event loop."""

    def __init__(self, log: Log, cached: CachedViews, *, limit: int, within_s: float) -> None:
        """Follow nothing yet.

        Args:
            log: the log of the store.
            cached: keeps each view that was folded.
            limit: how many objects may be followed.
            within_s: how long ago the request was sent that found nothing more.
        """
        self._log = log
        self._cached = cached
        self._within_s = within_s
        self._choice: Final = FollowChoice(limit)
        self._follower: Final = Follower(log, self._lost)
        self._views: dict[str, View] = {}
        self._refreshed_s = float("-inf")
        self._clock = asyncio.get_running_loop().time
        self.served = 0
        """Reads that were answered from memory so far."""

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def read(self, names: Sequence[str]) -> tuple[int, list[View]] | None:
        """Return a place and the objects as of it, from memory; None if memory may be older than a read of the session."""
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
        return place, found

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

    def _lost(self, error: Exception) -> None:
        """Read all objects from the log again, since some are not followed any more."""
        for name in list(self._views):
            self._unfollow(name)

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
        known = self._cached.cache.get(name)
        if known is not None and known.view.seen == seqnum:  # of one place all views are equal
            self._views[name] = known.view
            return
        try:
            view = self._cached.after(self._cached.cache.counted(view), item)
        except BokiError:
            self._unfollow(name)
            return
        self._views[name] = view
        self._cached.keep(view)

    def _refresh(self, name: str) -> None:
        now_s = self._clock()
        if now_s - self._refreshed_s >= REFRESH_S:
            self._refreshed_s = now_s
            self._follower.refresh(tags.store_object(name))
