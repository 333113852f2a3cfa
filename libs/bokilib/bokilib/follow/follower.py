"""A follower: all streams that a process follows, over one cursor for each 255 of them.

    async with Follower(log, failed) as follower:
        follower.add(tag, start, deliver)          # deliver(Read | boki.Gap), at once and in order, from `start` on
        follower.discard(tag)

- `deliver` is called in the event loop and must not block. A subscriber that has to wait puts its items into a bounded queue of its own.
- A subscription is to one tag, from a start on. It gets each record and each gap of its tag from there on, once and in order. Records
  that are read twice, because a tag was added or a cursor was opened again, are not delivered twice.
- A record is delivered to the subscriptions of all its tags, since each folds its own. A gap of lost records concerns all tags.
- A discarded subscription gets nothing more, even if its records were read already.
- A cursor that fails with a retryable error is opened again where each subscription was.
- A cursor that fails for good (another error of the log, or of a subscriber) ends its subscriptions, and `failed(error)` is called: a
  process that does not hear its streams has to say so, and to leave its work to others.
- `follower.current(tag, within_s=…)` tells whether a read of this session would return no more than was delivered (`boki.Cursor.current`).
- A record that cannot be decoded (no library wrote it, its hook is missing) is delivered as the error, and following continues. So is one
  whose events a subscriber cannot decode (a later version wrote it): the subscriber raises the error, and gets it delivered.

`Subscription` and `Subscriptions` are pure.
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
from boki_common.logs import NAMED, get_logger
from bokilib.append.log import Log, Read
from bokilib.pauses import pauses
from bokilib.ports import CursorPort
from bokilib.stacks import described, stack_of

Deliver: TypeAlias = Callable[[Read | boki.Gap | BokiError], None]

D = TypeVar("D")

CURSOR_TAGS: Final = RECORD_TAGS

log = get_logger(__name__)


class Subscription(Generic[D]):
    """A followed tag. `next` is the seqnum below which everything was delivered."""

    __slots__ = ("deliver", "next", "tag")

    def __init__(self, tag: str, start: int, deliver: D) -> None:
        self.tag: Final = tag
        self.next = start
        self.deliver: Final = deliver


class Subscriptions(Generic[D]):
    """The subscriptions of one cursor, by tag.

    Invariant: every record of a subscription's tag from its start up to below its `next` was delivered, or lies in a gap that was.
    """

    def __init__(self) -> None:
        self._by_tag: dict[str, Subscription[D]] = {}

    def __len__(self) -> int:
        return len(self._by_tag)

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    @property
    def full(self) -> bool:
        """True if the cursor cannot read another tag."""
        return len(self._by_tag) >= CURSOR_TAGS

    def add(self, tag: str, start: int, deliver: D) -> None:
        """Add a subscription.

        Raises:
            InvalidArgument: the tag is followed already, or `start` is less than 1.
        """
        if start < 1:
            raise InvalidArgument(f"expected a start of at least 1, so that what is missing is reported, found {start}")
        if tag in self._by_tag:
            raise InvalidArgument(f"{tag!r} is followed already", found=tag)
        assert not self.full, "another cursor has room"
        self._by_tag[tag] = Subscription(tag, start, deliver)

    def discard(self, tag: str) -> None:
        """Remove the subscription of a tag, if there is one."""
        self._by_tag.pop(tag, None)

    def starts(self) -> list[tuple[str, int]]:
        """Return each tag with the seqnum to read it from, for a new cursor."""
        return [(one.tag, one.next) for one in self._by_tag.values()]

    def of_record(self, tags: Iterable[str | int], seqnum: int) -> list[D]:
        """Return the receivers of a record, and count it as delivered to them."""
        found = []
        for tag in tags:
            one = self._by_tag.get(tag) if isinstance(tag, str) else None
            if one is not None and seqnum >= one.next:
                one.next = seqnum + 1
                found.append(one.deliver)
        return found

    def of_gap(self, tag: str | int | None, first: int, last: int) -> list[D]:
        """Return the receivers of a gap, and count it as delivered to them if it is of one tag.

        Args:
            tag: of the trimmed stream, or None for lost records, which may have had any tag.
            first: the first seqnum of the gap.
            last: the last seqnum of the gap.
        """
        found = []
        for one in self._by_tag.values():
            if tag in (None, one.tag) and last >= one.next:
                one.next = max(one.next, last + 1) if tag is not None else one.next
                found.append(one.deliver)
        return found


class _FollowedCursor:
    """A cursor, the task that reads it, and its subscriptions."""

    def __init__(self, opened: Log, failed: Callable[[_FollowedCursor, Exception], None]) -> None:
        self.subscriptions: Final[Subscriptions[Deliver]] = Subscriptions()
        self._log = opened
        self._failed: Final = failed
        self._cursor: CursorPort | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = 0
        """The seqnum of the record that is being decoded, 0 if none is."""
        self._reached = 0

    @property
    def position(self) -> int:
        """The seqnum up to which everything was delivered. It never decreases."""
        if self._cursor is not None:
            reached = self._cursor.position if not self._held else min(self._cursor.position, self._held - 1)
            self._reached = max(self._reached, reached)
        return self._reached

    def current(self, within_s: float) -> int:
        """Return the position as of which the delivered records are complete, as `Follower.current` does."""
        cursor = self._cursor
        return self.position if cursor is not None and not self._held and cursor.current(within_s=within_s) else 0

    def refresh(self) -> None:
        """Query for new records now instead of waiting for them."""
        if self._cursor is not None:
            self._cursor.refresh()

    def add(self, tag: str, start: int, deliver: Deliver) -> None:
        """Add a subscription. A cursor that has read a record and not given it may not have asked for older ones of the new stream.

        Such a record would be delivered to the new stream first, and the older ones would count as delivered then: a new cursor asks for
        them.
        """
        self.subscriptions.add(tag, start, deliver)
        if self._cursor is not None and (self._held or self._cursor.ready):
            assert self._task is not None
            self._task.cancel()
            self._cursor, self._held = None, 0
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="bokilib follower")
        elif self._cursor is not None:
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

    def stop(self) -> asyncio.Task[None] | None:
        """Read nothing more; return the task that ends."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _follow(self) -> None:
        pause = pauses()
        while True:
            try:
                await self._read(pause)
            except ClosedError as error:  # the program closed its client
                self._cursor = None
                self._failed(self, error)
                return
            except Exception as error:  # noqa: BLE001 - `failed` gets it
                self._cursor = None
                if not isinstance(error, BokiError) or not error.retryable:
                    self._end(error)
                    return
                log.warning("cursor failed: the follower opens it again", error=str(error))
            if self._task is not asyncio.current_task():
                return  # `add` has opened a second cursor
            self._cursor, self._held = None, 0
            await asyncio.sleep(pause.next())

    def _end(self, error: Exception) -> None:
        log.error(
            "follower ended: its cursor failed, its streams are not followed any more",
            tags=[tag for tag, _ in self.subscriptions.starts()][:NAMED],
            count=len(self.subscriptions),
            error=described(error),
            stack="" if isinstance(error, BokiError) else stack_of(error),
        )
        self._failed(self, error)

    async def _read(self, pause: Backoff) -> None:
        (first, start), *others = self.subscriptions.starts()
        cursor = self._log.book.read(tags=[first], start=start, follow=True)
        for tag, begin in others:
            cursor.add(tag, begin)
        self._cursor = cursor
        async for item in cursor:
            if self._cursor is not cursor:
                return
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
                }  # an error of a hook does not name the record; subscribers need its seqnum
                found = error
            if self._cursor is not cursor:
                return
            self._held = 0
            for deliver in self.subscriptions.of_record(item.tags, item.seqnum):
                _deliver(deliver, found, item.seqnum)


def _deliver(deliver: Deliver, found: Read | BokiError, seqnum: int) -> None:
    """Deliver a record. If the subscriber cannot decode its events, deliver that error: the other streams are followed on."""
    try:
        deliver(found)
    except BokiError as error:
        if isinstance(found, BokiError):
            raise
        error.facts = {**error.facts, "seqnum": seqnum}
        log.error("record not decoded: what it says is not known here", record=seqnum, error=str(error))
        deliver(error)


class Follower:
    """Subscriptions to many streams of one log. Close it, or use it in `async with`, to end its tasks."""

    def __init__(self, opened: Log, failed: Callable[[Exception], None]) -> None:
        """Follow nothing yet.

        Args:
            opened: the log of the book.
            failed: called in the event loop with the error after which some streams are not followed any more. They may be added again.
        """
        self._log = opened
        self._failed: Final = failed
        self._cursors: list[_FollowedCursor] = []
        self._by_tag: dict[str, _FollowedCursor] = {}

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel all cursors. Nothing is delivered any more."""
        cursors, self._cursors, self._by_tag = self._cursors, [], {}
        ending = [task for cursor in cursors if (task := cursor.stop()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)

    def _cursor_failed(self, cursor: _FollowedCursor, error: Exception) -> None:
        """Forget the subscriptions of a cursor that ended, and report its error."""
        if cursor not in self._cursors:  # this follower is being closed
            return
        self._cursors.remove(cursor)
        for tag in [tag for tag, one in self._by_tag.items() if one is cursor]:
            del self._by_tag[tag]
        self._failed(error)

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    @property
    def cursors(self) -> int:
        """The number of cursors in use."""
        return len(self._cursors)

    @property
    def position(self) -> int:
        """The seqnum up to which all followed streams were delivered. It advances at least once a minute, also without new records."""
        return min((cursor.position for cursor in self._cursors), default=0)

    def current(self, tag: str, *, within_s: float) -> int:
        """Return the position as of which a read of the stream in this session would return no more than was delivered.

        Args:
            tag: of the stream.
            within_s: the greatest age of the cursor's last answer.

        Returns:
            The position, or 0 if the session has seen newer records, the last answer is older, or the stream is not followed.
        """
        cursor = self._by_tag.get(tag)
        return cursor.current(within_s) if cursor is not None else 0

    def refresh(self, tag: str) -> None:
        """Query for new records of a stream now instead of waiting for them, so that the stream becomes `current`."""
        cursor = self._by_tag.get(tag)
        if cursor is not None:
            cursor.refresh()

    def add(self, tag: str, start: int, deliver: Deliver) -> None:
        """Follow a stream.

        Args:
            tag: of the stream.
            start: the seqnum to read from, at least 1, so that trimmed records are reported as a gap.
            deliver: called in the event loop with each record, gap or error.

        Raises:
            InvalidArgument: the stream is followed already, or `start` is less than 1.
        """
        cursor = self._by_tag.get(tag) or next((one for one in self._cursors if not one.subscriptions.full), None)
        cursor = cursor or _FollowedCursor(self._log, self._cursor_failed)
        cursor.add(tag, start, deliver)
        self._by_tag[tag] = cursor
        if cursor not in self._cursors:
            self._cursors.append(cursor)

    def discard(self, tag: str) -> None:
        """Unfollow a stream. Nothing of it is delivered after this call."""
        cursor = self._by_tag.pop(tag, None)
        if cursor is None:
            return
        cursor.discard(tag)
        if not cursor.subscriptions:
            self._cursors.remove(cursor)
