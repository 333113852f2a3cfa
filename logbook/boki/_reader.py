"""Reads of one book: pages of a range, and the iterator over them.

A *page* is the answer of one request: up to 4,096 records or 1 MiB. A read by tag name drops records of the same stream
that do not carry the name (two names with one hash), and goes on behind them.

A read that names where it begins hears of what was trimmed there: a point read raises, an iterator gives a `Gap`, once. One
that names nothing begins at what is live. Behind its beginning an iterator has seen everything up to the position of the
last page, so what is trimmed later is a gap only where it had not looked yet.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from boki._arguments import Tag, carries
from boki._followed import Answer
from boki._record import Gap, Record, decode_columns, decode_gaps, gap_of, open_payload
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, Query, Token, make_query
from boki_common.engine.read_reply import ReadReply, decode_nothing, decode_point, decode_read_reply
from boki_common.engine.tag_reads import TagRow, encode_tag_read
from boki_common.errors import (
    BokiError,
    ClosedError,
    CorruptData,
    InvalidArgument,
    IteratorBusy,
    Trimmed,
    VersionMismatch,
)
from boki_common.ids import SEQNUM_MAX, Position
from boki_common.runtime.ports import Buffer

if TYPE_CHECKING:
    from boki._connection import Connection
    from boki._session import BookView


class Page(NamedTuple):
    """One answer: matching records and gaps, where the next page starts, and whether it would have some at once."""

    records: list[Record]
    gaps: list[Gap]
    next: int
    more: bool
    position: int


class Asked(NamedTuple):
    """A request: what the session had seen when it left, and when that was, on a clock that runs on while the machine sleeps."""

    positions: dict[int, Position]
    at_s: float


class Reader:
    """Requests of one book in one session."""

    __slots__ = ("_connection", "_view", "book")

    def __init__(self, connection: Connection, view: BookView, book: str | int) -> None:
        self.book: Final = book
        self._connection = connection
        self._view = view

    async def page(self, query: Query, tag: Tag | None, *, timeout_s: float) -> Page:
        """Reads one page."""
        answer = await self._connection.call(wire.OP_READ, self._encode(query), timeout_s + query.wait_ms / 1000)
        return self._page(decode_read_reply(answer), query, tag)

    def start_page(self, query: Query) -> asyncio.Future[memoryview] | None:
        """Requests a page ahead of time; None when there is no connection."""
        return self._connection.start_call(wire.OP_READ, self._encode(query))

    def finish_page(self, answer: memoryview, query: Query, tag: Tag | None) -> Page:
        """The page whose answer came."""
        return self._page(decode_read_reply(answer), query, tag)

    async def one(
        self, query: Query, tag: Tag | None, *, wait_s: float, timeout_s: float, bounded: bool = True
    ) -> Record | None:
        """The first record of a range; waits up to `wait_s` for one.

        Args:
            bounded: the caller named where the range begins. If it is trimmed there, this raises Trimmed.

        Raises:
            Trimmed, Lost: what would be the first may be gone. Else as `Connection.call`.
        """
        view, connection, wait_ms = self._view, self._connection, 0
        deadline = connection.now() + wait_s if wait_s else 0.0
        while True:
            if wait_s:
                left_s = min(max(deadline - connection.now(), 0), limits.READ_WAIT_MS / 1000)
                wait_ms = math.ceil(left_s * 1000)
                query = query._replace(wait_ms=wait_ms)
            request = view.session.packed(), wire.encode_query(*query)
            together = request if query.consistency is Consistency.LINEARIZABLE else None
            answer = await connection.call(wire.OP_READ, request, timeout_s + wait_ms / 1000, together=together)
            point = decode_point(answer)
            if point is not None:
                log, reached, position, seqnum, time_ms, numbers, payload = point
                view.saw_one(log, reached, position)
                try:
                    tags, data = open_payload(seqnum, numbers, payload)
                except CorruptData as error:
                    raise gap_of(seqnum, error, self.book).error() from error
                if tag is None or type(tag) is int or tag in tags:
                    return Record(seqnum, tags, data, None, self.book, time_ms)
            page = self._page(decode_read_reply(answer), query, tag)
            if page.gaps:
                gap = next((gap for gap in page.gaps if bounded or gap.kind != GapKind.TRIMMED), None)
                if gap is not None:
                    raise gap.error()
            if page.records:
                return page.records[0]
            query = query._replace(start=page.next, consistency=later(query.consistency))
            if page.more:  # a record without the name: go on behind it
                bounded = bounded and query.direction == Direction.NEXT
            elif not wait_s or connection.now() >= deadline or query.start >= query.stop:
                return None

    async def tag_page(self, query: Query, cursor: int, rows: Sequence[TagRow], *, timeout_s: float) -> memoryview:
        """What answers a read of several tags. Raises VersionMismatch: the engine knows of no such read."""
        connection = self._connection
        while self._view.book not in connection.together.of_tags:
            together = connection.together
            probe = next_query(self._view.book, 0, SEQNUM_MAX, SEQNUM_MAX + 1, Consistency.ANY)
            if not decode_read_reply(await connection.call(wire.OP_READ, self._encode(probe), timeout_s)).takes_tags:
                raise VersionMismatch(
                    "the engine of this book knows of no reads of several tags: upgrade it, or read one tag at a time"
                )
            together.of_tags.add(self._view.book)
        body = encode_tag_read(self._view.session.packed(), query, cursor, rows)
        return await connection.call(wire.OP_READ_TAGS, body, timeout_s + query.wait_ms / 1000)

    def start_tag_page(self, query: Query, rows: Sequence[TagRow]) -> asyncio.Future[memoryview] | None:
        """Requests one ahead of time; None when there is no connection."""
        body = encode_tag_read(self._view.session.packed(), query, 0, rows)
        return self._connection.start_call(wire.OP_READ_TAGS, body)

    def new_cursor(self) -> int:
        """The number of one who follows several tags."""
        return self._connection.new_cursor()

    def nothing(self, body: memoryview) -> int | None:
        """The position of an answer that has nothing; None: it has something, or another form."""
        found = decode_nothing(body)
        if found is None:
            return None
        self._view.saw_one(*found)
        return found.position

    def open_tag_page(self, body: memoryview) -> Answer:
        """What the answer says. Raises ProtocolError."""
        reply = decode_read_reply(body)
        self._saw(reply)
        found = decode_columns(reply.records, self.book, reply.aux)
        return Answer(
            [record for record in found if type(record) is Record],
            reply.gaps,
            [gap for gap in found if type(gap) is Gap],
            reply.more,
            reply.position,
            int(reply.records.seqnums[len(found) - 1]) if found else 0,
            reply.token,
        )

    def asking(self) -> Asked:
        """What a request that leaves now asks for at least, and when that is."""
        return Asked(dict(self._view.session.positions), self._connection.elapsed())

    def covered_by(self, token: Token, asked_s: float, within_s: float) -> bool:
        """Whether the session has seen no more than this, which was asked for in the last so many seconds."""
        return self._connection.elapsed() - asked_s <= within_s and self._view.session.covered_by(token)

    async def prev_many(
        self,
        queries: list[tuple[int, int]],
        tags: list[Tag | None],
        *,
        consistency: Consistency,
        timeout_s: float,
    ) -> list[Record | None]:
        """For each (tag, at most) the newest record at or below it. An engine waits for nothing without a token."""
        view = self._view
        body = wire.encode_prev_many(view.session.positions, view.book, queries, consistency)
        try:
            reply = decode_read_reply(await self._connection.call(wire.OP_READ_PREV_MANY, body, timeout_s))
        except Trimmed as error:
            index = error.facts.get("index", 0)
            raise Trimmed(
                f"in query {index}: {error}", **{**error.facts, "book": self.book, "tag": tags[index]}
            ) from error
        except InvalidArgument:
            if len(queries) == 1:
                raise
            half = len(queries) // 2  # arguments were checked: the records do not fit one answer
            parts = ((queries[:half], tags[:half]), (queries[half:], tags[half:]))
            return [
                record
                for pairs, names in parts
                for record in await self.prev_many(pairs, names, consistency=consistency, timeout_s=timeout_s)
            ]
        self._saw(reply)
        found: list[Record | None] = []
        records = decode_columns(reply.records, self.book, reply.aux)
        for record, tag, (number, _) in zip(records, tags, queries, strict=True):
            if isinstance(record, Gap):
                raise record.error()
            if record is not None and not carries(tag, record.tags):
                older = prev_query(view.book, number, record.seqnum - 1, later(consistency))
                record = await self.one(older, tag, wait_s=0, timeout_s=timeout_s, bounded=False)
            found.append(record)
        return found

    async def refresh(self, timeout_s: float) -> int:
        """Asks for the position of the book as this session sees it now."""
        body = wire.encode_position(self._view.session.positions, self._view.book)
        token, position = wire.decode_position(await self._connection.call(wire.OP_POSITION, body, timeout_s))
        self._view.saw(token, position)
        return position

    async def now(self, consistency: Consistency, timeout_s: float) -> None:
        """Has the session see the book as it is now, by a question that finds nothing and leaves with others of its turn."""
        query = next_query(self._view.book, 0, SEQNUM_MAX, SEQNUM_MAX + 1, consistency)
        await self.one(query, None, wait_s=0.0, timeout_s=timeout_s, bounded=False)

    async def seek(self, time_ms: int, consistency: Consistency, timeout_s: float) -> int:
        """The first place that was ordered at or after a time, or what follows all that there are."""
        body = wire.encode_seek(self._view.session.positions, self._view.book, time_ms, consistency)
        token, position, seqnum = wire.decode_found(await self._connection.call(wire.OP_SEEK, body, timeout_s))
        self._view.saw(token, position)
        return seqnum

    async def trim(self, pairs: list[tuple[int, int]], *, forget: bool, timeout_s: float) -> None:
        """Has a trim ordered. Repeated when its outcome is unknown: the same marks twice are the same as once."""
        body = wire.encode_trim(self._view.session.positions, self._view.book, pairs, forget=forget)
        token, position = wire.decode_position(await self._connection.call(wire.OP_TRIM, body, timeout_s))
        self._view.saw(token, position)

    async def set_aux(self, seqnum: int, data: bytes, timeout_s: float) -> bool:
        """Leaves aux data with the engine; whether it took it."""
        body = wire.encode_set_aux(self._view.book, seqnum, data)
        return bytes(await self._connection.call(wire.OP_SET_AUX, body, timeout_s)) == b"\x01"

    async def writer_last(self, writer: bytes, timeout_s: float) -> int:
        """The last decided number of a writer."""
        body = wire.encode_writer(self._view.session.positions, self._view.book, writer)
        token, last = wire.decode_position(await self._connection.call(wire.OP_WRITER, body, timeout_s))
        self._view.session.merge(token)
        return last

    def _encode(self, query: Query) -> list[Buffer]:
        return [self._view.session.packed() + wire.encode_query(*query)]

    def _saw(self, reply: ReadReply) -> None:
        self._view.saw(reply.token, reply.position)

    def _page(self, reply: ReadReply, query: Query, tag: Tag | None) -> Page:
        self._saw(reply)
        found = decode_columns(reply.records, self.book, reply.aux)
        records = [record for record in found if type(record) is Record]
        whole = len(records)
        following = query.start
        if found:
            step = 1 if query.direction == Direction.NEXT else -1
            following = int(reply.records.seqnums[len(found) - 1]) + step
        if query.direction == Direction.NEXT and reply.gaps:
            following = max(following, reply.gaps[-1].last + 1)
        if query.direction == Direction.NEXT and not reply.more:
            following = max(following, reply.position + 1)  # up to there nothing else can ever come
        if isinstance(tag, str):
            records = [record for record in records if tag in record.tags]
        gaps = decode_gaps(reply.gaps, self.book) if reply.gaps else []
        if whole < len(found):
            unreadable = [gap for gap in found if type(gap) is Gap]
            gaps = sorted(gaps + unreadable, key=lambda gap: gap.first)
        return Page(records, gaps, following, reply.more, reply.position)


def later(consistency: Consistency) -> Consistency:
    """Of the requests after the first of a read: what was there when it began, a session's view includes."""
    return Consistency.SESSION if consistency == Consistency.LINEARIZABLE else consistency


def next_query(book: int, tag: int, start: int, stop: int, consistency: Consistency, *, max_records: int = 1) -> Query:
    """Upwards from `start` (inclusive) to `stop` (exclusive)."""
    return make_query((book, tag, start, stop, max_records, limits.READ_BYTES, 0, Direction.NEXT, consistency))


def prev_query(book: int, tag: int, start: int, consistency: Consistency) -> Query:
    """Downwards from `start` (inclusive)."""
    return make_query((book, tag, start, 0, 1, limits.READ_BYTES, 0, Direction.PREV, consistency))


def busy() -> IteratorBusy:
    """The error of a second one who asks an iterator at once."""
    return IteratorBusy(
        "another task or thread waits for the next record of this iterator: each needs an iterator of its own, "
        "`book.read(...)`, or one that hands out what it reads"
    )


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
        return await self._reader.page(self._waiting_query(), self._tag, timeout_s=self._timeout_s)

    def _waiting_query(self) -> Query:
        """When following, the request may be parked: records are wanted as soon as there are some."""
        return self._query._replace(wait_ms=limits.READ_WAIT_MS) if self._follow else self._query
