"""All streams that a process follows, over few cursors: one for up to 255 of them, however many subscriptions come and go.

    async with Follower(log) as follower:
        follower.add(tag, start, deliver)          # deliver(Read | boki.Gap), at once and in order, from `start` on
        follower.discard(tag)

- `deliver` is called in the event loop and must not wait; who has to, puts what he is given into a queue of his own, with a bound.
- Reading begins anew, from where each subscription was, when a cursor fails for a while: nothing is left out or given twice.
- `follower.current(tag, within_s=…)`: whether what was delivered is all that a read of this session would return (`boki.Cursor.current`).
- What cannot be opened (no library wrote it, its hook is missing) is given as the error that says so, and following goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Generic, TypeAlias, TypeVar

import boki
from boki_common.backoff import Backoff
from boki_common.errors import BokiError, ClosedError, InvalidArgument
from boki_common.limits import RECORD_TAGS
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.pauses import pauses
from bokilib.ports import CursorPort

Deliver: TypeAlias = Callable[[Read | boki.Gap | BokiError], None]

D = TypeVar("D")

CURSOR_TAGS: Final = RECORD_TAGS

log = get_logger(__name__)


class Subscription(Generic[D]):
    """One tag that is followed. `next`: what lies below was given."""

    __slots__ = ("deliver", "next", "tag")

    def __init__(self, tag: str, start: int, deliver: D) -> None:
        self.tag: Final = tag
        self.next = start
        self.deliver: Final = deliver


class Subscriptions(Generic[D]):
    """Those of one cursor, by tag. See the module."""

    def __init__(self) -> None:
        self._by_tag: dict[str, Subscription[D]] = {}

    def __len__(self) -> int:
        return len(self._by_tag)

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    @property
    def full(self) -> bool:
        """Whether no tag more may be read by this cursor."""
        return len(self._by_tag) >= CURSOR_TAGS

    def add(self, tag: str, start: int, deliver: D) -> None:
        """Follows one more. Raises InvalidArgument."""
        if start < 1:
            raise InvalidArgument(f"expected a start of at least 1, so that what is missing is reported, found {start}")
        if tag in self._by_tag:
            raise InvalidArgument(f"{tag!r} is followed already", found=tag)
        assert not self.full, "another cursor has room"
        self._by_tag[tag] = Subscription(tag, start, deliver)

    def discard(self, tag: str) -> None:
        """Follows one no more."""
        self._by_tag.pop(tag, None)

    def starts(self) -> list[tuple[str, int]]:
        """(tag, where to read it from), for a cursor that begins anew."""
        return [(one.tag, one.next) for one in self._by_tag.values()]

    def of_record(self, tags: Iterable[str | int], seqnum: int) -> list[D]:
        """Who is given a record; it counts as given."""
        found = []
        for tag in tags:
            one = self._by_tag.get(tag) if isinstance(tag, str) else None
            if one is not None and seqnum >= one.next:
                one.next = seqnum + 1
                found.append(one.deliver)
        return found

    def of_gap(self, tag: str | int | None, first: int, last: int) -> list[D]:
        """Who is given a gap; None: of all tags."""
        found = []
        for one in self._by_tag.values():
            if tag in (None, one.tag) and last >= one.next:
                one.next = max(one.next, last + 1) if tag is not None else one.next
                found.append(one.deliver)
        return found


class _FollowedCursor:
    """One cursor, and the subscriptions that are followed by it."""

    def __init__(self, opened: Log) -> None:
        self.subscriptions: Final[Subscriptions[Deliver]] = Subscriptions()
        self._log = opened
        self._cursor: CursorPort | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = 0
        """What was read, and is being opened."""
        self._reached = 0

    @property
    def position(self) -> int:
        """All at or below it was delivered. It never falls."""
        if self._cursor is not None:
            reached = self._cursor.position if not self._held else min(self._cursor.position, self._held - 1)
            self._reached = max(self._reached, reached)
        return self._reached

    def current(self, within_s: float) -> int:
        """The place as of which all that was delivered is what a read would return; 0: it may not be."""
        cursor = self._cursor
        return self.position if cursor is not None and not self._held and cursor.current(within_s=within_s) else 0

    def refresh(self) -> None:
        """Asks whether there is something, instead of waiting for it."""
        if self._cursor is not None:
            self._cursor.refresh()

    def add(self, tag: str, start: int, deliver: Deliver) -> None:
        self.subscriptions.add(tag, start, deliver)
        if self._cursor is not None:
            self._cursor.add(tag, start)
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="bokilib follower")

    def discard(self, tag: str) -> None:
        self.subscriptions.discard(tag)
        if self._cursor is not None:
            self._cursor.discard(tag)
        if not self.subscriptions and self._task is not None:
            self._task.cancel()
            self._task = self._cursor = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        pause = pauses()
        while True:
            try:
                await self._read(pause)
            except ClosedError:
                self._cursor = None
                return  # the session is closed: nobody reads any more
            except BokiError as error:
                self._cursor = None
                if not error.retryable:
                    log.error("a follower ended", error=str(error))
                    return
                log.warning("a follower begins anew", error=str(error))
            self._cursor, self._held = None, 0
            await asyncio.sleep(pause.next())

    async def _read(self, pause: Backoff) -> None:
        (first, start), *others = self.subscriptions.starts()
        cursor = self._log.book.read(tags=[first], start=start, follow=True)
        for tag, begin in others:
            cursor.add(tag, begin)
        self._cursor = cursor
        async for item in cursor:
            pause.reset()
            if isinstance(item, boki.Gap):
                for deliver in self.subscriptions.of_gap(item.tag, item.first, item.last):
                    deliver(item)
                continue
            self._held = item.seqnum
            try:
                found: Read | BokiError = Read(item, await self._log.open(item))
            except BokiError as error:
                if error.retryable:
                    raise
                error.facts = {
                    **error.facts,
                    "seqnum": item.seqnum,
                }  # whatever a hook raised: who follows is to know which
                found = error
            self._held = 0
            for deliver in self.subscriptions.of_record(item.tags, item.seqnum):
                deliver(found)


class Follower:
    """See the module."""

    def __init__(self, opened: Log) -> None:
        self._log = opened
        self._cursors: list[_FollowedCursor] = []
        self._by_tag: dict[str, _FollowedCursor] = {}

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends following."""
        cursors, self._cursors, self._by_tag = self._cursors, [], {}
        for cursor in cursors:
            await cursor.close()

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    @property
    def cursors(self) -> int:
        """How many cursors are read."""
        return len(self._cursors)

    @property
    def position(self) -> int:
        """All of what is followed at or below it was delivered; it moves on at least every minute, while nothing comes."""
        return min((cursor.position for cursor in self._cursors), default=0)

    def current(self, tag: str, *, within_s: float) -> int:
        """Whether all that was delivered of a stream is what a read of this session would return.

        Returns:
            The place as of which it is; 0: the session has seen more, or no answer is as young as `within_s`, or it is not followed.
        """
        cursor = self._by_tag.get(tag)
        return cursor.current(within_s) if cursor is not None else 0

    def refresh(self, tag: str) -> None:
        """Asks whether there is something of a stream, instead of waiting for it: so it may become `current`."""
        cursor = self._by_tag.get(tag)
        if cursor is not None:
            cursor.refresh()

    def add(self, tag: str, start: int, deliver: Deliver) -> None:
        """Follows one stream more, from `start` on. Raises InvalidArgument: it is followed already."""
        cursor = self._by_tag.get(tag) or next((one for one in self._cursors if not one.subscriptions.full), None)
        cursor = cursor or _FollowedCursor(self._log)
        cursor.add(tag, start, deliver)
        self._by_tag[tag] = cursor
        if cursor not in self._cursors:
            self._cursors.append(cursor)

    def discard(self, tag: str) -> None:
        """Follows one no more: from now on nothing of it is delivered, though it was read."""
        cursor = self._by_tag.pop(tag, None)
        if cursor is None:
            return
        cursor.discard(tag)
        if not cursor.subscriptions:
            self._cursors.remove(cursor)
