"""What `book.read` gives: an iterator over the pages of a stream; or a cursor, for several tags.

A read that names where it begins gets to know what was trimmed there: a point read raises, an iterator gives a `Gap`, once. One
that names nothing begins at what is live. Behind its beginning an iterator has seen everything up to the position of the
last page, so what is trimmed later is a gap only where it had not looked yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from boki import _arguments as arguments
from boki._arguments import ConsistencyName, Tag
from boki._cursor import Cursor
from boki._reader import Page, Reader, busy, later, next_query
from boki._record import Gap, Record
from boki_common import limits
from boki_common.engine.engine_protocol import GapKind, Query
from boki_common.errors import BokiError, ClosedError
from boki_common.ids import ALL_RECORDS, SEQNUM_MAX


def read(
    reader: Reader,
    tag: Tag | None,
    tags: Sequence[Tag] | None,
    *,
    start: int | None,
    stop: int | None,
    follow: bool,
    limit: int | None,
    consistency: ConsistencyName,
    timeout_s: float,
) -> RecordIterator | Cursor:
    """See `Book.read`. Raises InvalidArgument, InvalidTag."""
    follow = arguments.check_flag(follow, "follow")
    left = arguments.check_limit(limit)
    begin = arguments.check_bound(start, "start", 0)
    end = arguments.check_bound(stop, "stop", SEQNUM_MAX + 1)
    chosen = arguments.at_snapshot(arguments.check_consistency(consistency), end - 1, reader.view.position)
    number = arguments.stream_number(tag) if tags is None else ALL_RECORDS
    query = next_query(reader.view.book, number, begin, end, chosen, max_records=min(left, limits.READ_RECORDS))
    if tags is None:
        return RecordIterator(reader, query, tag, follow=follow, timeout_s=timeout_s, bounded=bool(start), left=left)
    named = arguments.check_read_tags(tags, tag)
    return Cursor(reader, query, named, start=begin, follow=follow, timeout_s=timeout_s, left=left)


class RecordIterator(AsyncIterator[Record | Gap]):
    """What `book.read(...)` returns: records in order, in batches underneath, one batch read ahead.

    Without `follow` it ends at what the first batch saw as the end of the book; records appended later do not make it
    endless. It holds nothing that must be closed: dropping it in mid-course is fine. One task at a time may wait for its next
    record; another gets IteratorBusy.
    """

    def __init__(
        self, reader: Reader, query: Query, tag: Tag | None, *, follow: bool, timeout_s: float, bounded: bool, left: int
    ) -> None:
        self._reader = reader
        self._query = query
        self._tag = tag
        self._follow = follow
        self._timeout_s = timeout_s
        self._bounded = bounded
        self._left = left
        """Records still wanted."""
        self._items: list[Record | Gap] = []
        self._index = 0
        self._first = True
        self._ended = False
        self._ahead: asyncio.Future[memoryview] | None = None
        self._asking = False

    def __aiter__(self) -> RecordIterator:
        return self

    async def __anext__(self) -> Record | Gap:
        index = self._index
        if index >= len(self._items):
            self._items = await self.next_batch()
            if not self._items:
                raise StopAsyncIteration
            index = 0
        self._index = index + 1
        return self._items[index]

    async def next_batch(self) -> list[Record | Gap]:
        """The next records and gaps that are there, at least one; none at the end of the range. Waits when following.

        Raises:
            IteratorBusy: somebody else waits for them. Else as a read of one record.
        """
        if self._asking:
            raise busy()
        self._asking = True
        try:
            return await self._next_batch()
        finally:
            self._asking = False

    async def _next_batch(self) -> list[Record | Gap]:
        while not self._ended:
            page = await self._next_page()
            query = self._query._replace(start=page.next, consistency=later(self._query.consistency))
            if self._first and not self._follow and page.position:
                query = query._replace(stop=min(query.stop, page.position + 1))
            self._left -= len(page.records)
            self._query = query = query._replace(max_records=min(self._left, limits.READ_RECORDS))
            self._first = False
            if query.start >= query.stop or not self._left or not (page.more or self._follow):
                self._ended = True
            elif page.more and page.records:
                self._ahead = self._reader.start_page(query)
            items = self._merged(page)
            self._bounded = True
            if items:
                return items
        return []

    def _merged(self, page: Page) -> list[Record | Gap]:
        """Records and gaps in order."""
        gaps = [gap for gap in page.gaps if self._bounded or gap.kind != GapKind.TRIMMED]
        if not gaps:
            return [*page.records]
        items: list[Record | Gap] = []
        for record in page.records:
            while gaps and gaps[0].first <= record.seqnum:
                items.append(gaps.pop(0))
            items.append(record)
        return items + gaps

    async def _next_page(self) -> Page:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await ahead
                return self._reader.finish_page(answer, self._query, self._tag)
            except ClosedError:
                raise
            except (BokiError, TimeoutError):
                pass  # asked again below, where failures are retried and named
        # When following, the request may be parked: records are wanted as soon as there are some.
        query = self._query._replace(wait_ms=limits.READ_WAIT_MS) if self._follow else self._query
        return await self._reader.page(query, self._tag, timeout_s=self._timeout_s)
