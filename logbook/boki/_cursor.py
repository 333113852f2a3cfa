"""What `book.read(tags=[…])` returns: one iterator over the records that have any of several tags.

`_followed` decides what is asked for and given; this does the asking: one request at a time, which the engine keeps while there is
nothing, and a page ahead where there is more. Tags that come or go meanwhile end the request that waits, for another.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from boki import _arguments as arguments
from boki._arguments import Tag
from boki._followed import Answer, Followed, Request
from boki._reader import Asked, Reader, busy, later
from boki._record import Gap, Record
from boki_common import limits
from boki_common.engine.engine_protocol import Consistency, Query, merge_tokens
from boki_common.errors import BokiError, ClosedError, InvalidArgument

NEVER_ASKED: Final = Asked({}, -math.inf)


class Cursor(AsyncIterator[Record | Gap]):
    """Records of several tags in one order, each once however many of the tags it has. Made by `book.read(tags=[…])`.

    One task at a time may wait for its next record. It holds nothing that must be closed.
    """

    def __init__(
        self,
        reader: Reader,
        query: Query,
        tags: Sequence[Tag],
        *,
        start: int,
        follow: bool,
        timeout_s: float,
        left: int,
    ) -> None:
        self._reader = reader
        self._query = query
        """How to ask; from where and for what, `_followed` says."""
        self._followed = Followed(reader.book, start)
        for tag in tags:
            self._add(tag, start)
        self._follow = follow
        self._timeout_s = timeout_s
        self._left = left
        """Records still wanted."""
        self._items: deque[Record | Gap] = deque()
        """Read, and not handed out."""
        self._position = self._followed.position
        self._behind: tuple[Tag, ...] = ()
        self._number = 0
        self._ended = False
        self._filling = False
        self._call: asyncio.Task[memoryview] | None = None
        self._ahead: tuple[Request, Asked, asyncio.Future[memoryview]] | None = None
        self._asked = self._covered = NEVER_ASKED
        """What the request that is under way asked for; and what the last answer that left nothing out covers."""
        self._at_once = False
        """The next request is not to wait."""

    def __repr__(self) -> str:
        return f"<boki.Cursor of {len(self._followed)} tags of {self._reader.book!r}>"

    # -- what it has seen

    @property
    def position(self) -> int:
        """Everything of its tags at or below this was given, or lies in a gap that was; from its start on.

        It never falls, and moves on at least every minute while nothing comes. Of a tag that was added it speaks from the moment
        that it is not `behind` any more.
        """
        if self._items:
            self._position = max(self._position, min(self._followed.position, place(self._items[0]) - 1))
        else:
            self._position = self._followed.position
        return self._position

    @property
    def tags(self) -> tuple[Tag, ...]:
        """Those it reads, in the order they came."""
        return self._followed.tags

    @property
    def behind(self) -> tuple[Tag, ...]:
        """Tags that were added, and whose backlog was not given yet."""
        return self._behind if self._items else self._followed.behind

    def current(self, *, within_s: float) -> bool:
        """Whether whoever has all that it gave knows of its tags what a read of this session would give: all that the session has
        seen is in it, and a question that was asked in the last so many seconds found nothing more.

        So a state that is computed from it may be returned without asking: it is not older than anything that this session has read or
        appended, or knows by a token, and no older than a read that began so many seconds ago.
        """
        covered = self._covered
        return not self._items and self._reader.covered_by(covered.positions, covered.at_s, within_s)

    def refresh(self) -> None:
        """Asks now what there is, instead of waiting for something to come, so that it becomes `current` if nothing is new.

        Who waits for its next record goes on waiting.
        """
        if not self._at_once:
            self._at_once = True
            self._changed()

    # -- which tags

    def add(self, tag: Tag, start: int | None = None) -> None:
        """Reads one more tag from here on, and what it has first, from `start` on: also what another tag gave before.

        An answer that is under way is asked for again, so that none of its records comes before older ones of this tag.

        Args:
            start: as of `read`: from 1 on, what is missing is reported; None: what lives.

        Raises:
            InvalidArgument: it is read already, or they are too many. InvalidTag.
        """
        if len(self._followed) >= limits.READ_TAGS:
            raise InvalidArgument(f"expected at most {limits.READ_TAGS} tags, found another: {tag!r}")
        self._add(tag, arguments.check_bound(start, "start", 0))
        self._changed()

    def discard(self, tag: Tag) -> None:
        """Reads one tag no more; does nothing where it does not. What only this tag would give is not given any more."""
        self._followed.discard(arguments.tag_number(tag))
        self._items = deque(item for item in self._items if self._followed.wanted(item))
        self._changed()

    def _add(self, tag: Tag, start: int) -> None:
        self._covered = NEVER_ASKED
        number = arguments.tag_number(tag)
        if number in self._followed:
            raise InvalidArgument(f"a tag is read once, by its name or its number: {tag!r} is given twice", found=tag)
        self._followed.add(tag, number, start)

    def _changed(self) -> None:
        self._ahead = None
        if self._call is not None:
            self._call.cancel()

    # -- reading

    def __aiter__(self) -> Cursor:
        return self

    async def __anext__(self) -> Record | Gap:
        if not self._items and not await self.fill():
            raise StopAsyncIteration
        return self.pop()

    def pop(self) -> Record | Gap:
        """For the SDK: the next of those that are here."""
        return self._items.popleft()

    @property
    def ready(self) -> bool:
        """For the SDK: whether there are some."""
        return bool(self._items)

    async def next_batch(self) -> list[Record | Gap]:
        """The next records and gaps that are there, at least one; none at the end of the range. Waits when following.

        Raises:
            As `fill`.
        """
        if not self._items:
            await self.fill()
        items, self._items = self._items, deque()
        return list(items)

    async def fill(self) -> bool:
        """For the SDK: waits until some are here; False at the end of the range.

        Raises:
            IteratorBusy: somebody else waits for them. VersionMismatch: the engine is of a version that has no such reads. Else as
            `book.read_next`.
        """
        if self._filling:
            raise busy()
        self._filling = True
        try:
            return await self._fill()
        finally:
            self._filling = False

    async def _fill(self) -> bool:
        while not self._ended:
            request = self._followed.request()
            query = self._query._replace(start=request.start)
            if query.start >= query.stop:
                break
            body = await self._answer(request, query)
            if body is None:
                continue  # other tags are read since
            answer = self._reader.open_tag_page(body)
            if not self._follow and answer.position:
                query = query._replace(stop=min(query.stop, answer.position + 1))
            self._behind, self._position = self._followed.behind, max(self._position, self._followed.position)
            items = self._followed.take(request, answer, query.stop)
            self._note(answer)
            self._left -= sum(type(item) is Record for item in items)
            query = query._replace(
                consistency=later(query.consistency), max_records=min(self._left, limits.READ_RECORDS)
            )
            self._query = query
            following = self._followed.request()
            if not self._left or not (answer.more or self._follow):
                self._ended = True
            elif answer.more and answer.records and following.start < query.stop:
                self._ask_ahead(following, query._replace(start=following.start))
            if items:
                self._items = deque(items)
                return True
        return False

    def _note(self, answer: Answer) -> None:
        """What an answer covers: what was asked for, and what the engine had beyond that; nothing, if something is left to read."""
        if answer.more or self._followed.behind or self._followed.position < answer.position:
            self._covered = NEVER_ASKED
            return
        waited = self._query.consistency is not Consistency.ANY
        positions = dict(self._asked.positions) if waited else {}
        merge_tokens(positions, answer.token)
        self._covered = self._asked._replace(positions=positions)

    def _ask_ahead(self, request: Request, query: Query) -> None:
        asked = self._reader.asking()
        future = self._reader.start_tag_page(query, request.rows)
        if future is not None:
            self._ahead = request, asked, future

    async def _answer_ahead(self, request: Request) -> memoryview | None:
        """What was asked for ahead, if it answers the request; None: it has to be asked, where failures are retried and named."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != request:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                self._asked = ahead[1]
                answer = await ahead[2]
        except ClosedError:
            raise
        except (BokiError, TimeoutError):
            return None
        return answer if request.added == self._followed.added else None

    async def _answer(self, request: Request, query: Query) -> memoryview | None:
        """What answers the request; None if its tags are not those that are read any more."""
        answer = await self._answer_ahead(request)
        if answer is not None or request.added != self._followed.added:
            return answer
        if self._follow:
            query = query._replace(wait_ms=0 if self._at_once else limits.FOLLOW_IDLE_MS)
            self._number = self._number or self._reader.new_cursor()
        at_once, self._asked = self._at_once, self._reader.asking()
        asking = self._reader.tag_page(query, self._number, request.rows, timeout_s=self._timeout_s)
        call = self._call = asyncio.ensure_future(asking)
        try:
            await asyncio.wait((call,))
        finally:
            self._call = None
            if not call.cancel() and not call.cancelled():
                call.exception()  # raised below, unless who asked was cancelled
        if call.cancelled() or request.added != self._followed.added:
            return None
        self._at_once = self._at_once and not at_once
        return call.result()


def place(item: Record | Gap) -> int:
    return item.first if isinstance(item, Gap) else item.seqnum
