"""Reads of one book: pages of a range (`_iterator` goes over them), single records, and what else is asked of a book.

A *page* is the answer of one request: up to 4,096 records or 1 MiB. A read by tag name drops records of the same stream
that do not carry the name (two names with one hash), and goes on behind them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from boki._arguments import Tag, carries, stream_number
from boki._followed import Answer
from boki._record import Gap, Record, decode_columns, decode_gaps, gap_of, open_payload
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Consistency, Direction, GapKind, Query, Token, make_query
from boki_common.engine.read_reply import Point, ReadReply, decode_nothing, decode_point, decode_read_reply
from boki_common.engine.tag_reads import TagRow, encode_tag_read
from boki_common.errors import (
    CorruptData,
    InvalidArgument,
    IteratorBusy,
    Trimmed,
    VersionMismatch,
)
from boki_common.ids import SEQNUM_MAX, Position

if TYPE_CHECKING:
    from boki._connection import Connection
    from boki._session import BookView

BEFORE_ALL: Final = 1
"""A seqnum below every record's, since the first term is 1: the snapshot of a log that has none."""


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

    __slots__ = ("_connection", "book", "view")

    def __init__(self, connection: Connection, view: BookView, book: str | int) -> None:
        self.book: Final = book
        self._connection = connection
        self.view = view

    async def page(self, query: Query, tag: Tag | None, *, timeout_s: float) -> Page:
        """Reads one page."""
        answer = await self._connection.calls.call(wire.OP_READ, self._encode(query), timeout_s + query.wait_ms / 1000)
        return self._page(decode_read_reply(answer), query, tag)

    def start_page(self, query: Query) -> asyncio.Future[memoryview] | None:
        """Requests a page ahead of time; None when there is no connection."""
        return self._connection.calls.start(wire.OP_READ, self._encode(query))

    def finish_page(self, answer: memoryview, query: Query, tag: Tag | None) -> Page:
        """The page whose answer came."""
        return self._page(decode_read_reply(answer), query, tag)

    async def one(
        self,
        tag: Tag | None,
        start: int,
        consistency: Consistency,
        *,
        stop: int = SEQNUM_MAX + 1,
        downwards: bool = False,
        wait_s: float = 0.0,
        timeout_s: float,
        bounded: bool = True,
    ) -> Record | None:
        """The first record of a stream from `start` on, inclusive; waits up to `wait_s` for one.

        Args:
            stop: exclusive; of a read upwards.
            bounded: the caller named where the range begins. If it is trimmed there, this raises Trimmed.

        Raises:
            InvalidTag. Trimmed, Lost: what would be the first may be gone. Else as `Calls.call`.
        """
        connection, stream, wait_ms = self._connection, stream_number(tag), 0
        direction, stop = (Direction.PREV, 0) if downwards else (Direction.NEXT, stop)
        query = make_query((self.view.book, stream, start, stop, 1, limits.READ_BYTES, wait_ms, direction, consistency))
        deadline = connection.now() + wait_s if wait_s else 0.0
        while True:
            if wait_s:
                left_s = min(max(deadline - connection.now(), 0), limits.READ_WAIT_MS / 1000)
                wait_ms = math.ceil(left_s * 1000)
                query = query._replace(wait_ms=wait_ms)
            request = self._encode(query)
            together = request if query.consistency is Consistency.LINEARIZABLE else None
            answer = await connection.calls.call(wire.OP_READ, request, timeout_s + wait_ms / 1000, together=together)
            point = decode_point(answer)
            if point is not None:
                record = self._opened(point)
                if tag is None or type(tag) is int or tag in record.tags:
                    return record
            page = self._page(decode_read_reply(answer), query, tag)
            if page.gaps:
                gap = next((gap for gap in page.gaps if bounded or gap.kind != GapKind.TRIMMED), None)
                if gap is not None:
                    raise gap.error()
            if page.records:
                return page.records[0]
            query = query._replace(start=page.next, consistency=later(query.consistency))
            if page.more:  # a record without the name: go on behind it
                bounded = bounded and not downwards
            elif not wait_s or connection.now() >= deadline or query.start >= query.stop:
                return None

    async def tag_page(self, query: Query, cursor: int, rows: Sequence[TagRow], *, timeout_s: float) -> memoryview:
        """What answers a read of several tags. Raises VersionMismatch: the engine knows of no such read."""
        calls = self._connection.calls
        while self.view.book not in calls.together.of_tags:
            together = calls.together
            probe = next_query(self.view.book, 0, SEQNUM_MAX, SEQNUM_MAX + 1, Consistency.ANY)
            if not decode_read_reply(await calls.call(wire.OP_READ, self._encode(probe), timeout_s)).takes_tags:
                raise VersionMismatch(
                    "the engine of this book knows of no reads of several tags: upgrade it, or read one tag at a time"
                )
            together.of_tags.add(self.view.book)
        body = encode_tag_read(self.view.session.packed(), query, cursor, rows)
        return await calls.call(wire.OP_READ_TAGS, body, timeout_s + query.wait_ms / 1000)

    def start_tag_page(self, query: Query, rows: Sequence[TagRow]) -> asyncio.Future[memoryview] | None:
        """Requests one ahead of time; None when there is no connection."""
        body = encode_tag_read(self.view.session.packed(), query, 0, rows)
        return self._connection.calls.start(wire.OP_READ_TAGS, body)

    def new_cursor(self) -> int:
        """The number of one who follows several tags."""
        return self._connection.new_cursor()

    def nothing(self, body: memoryview) -> int | None:
        """The position of an answer that has nothing; None: it has something, or another form."""
        found = decode_nothing(body)
        if found is None:
            return None
        self.view.saw_one(*found)
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
        return Asked(dict(self.view.session.positions), self._connection.elapsed())

    def covered_by(self, token: Token, asked_s: float, within_s: float) -> bool:
        """Whether the session has seen no more than this, which was asked for in the last so many seconds."""
        return self._connection.elapsed() - asked_s <= within_s and self.view.session.covered_by(token)

    async def prev_many(
        self,
        queries: list[tuple[int, int]],
        tags: list[Tag | None],
        *,
        consistency: Consistency,
        timeout_s: float,
    ) -> list[Record | None]:
        """For each (tag, at most) the newest record at or below it. An engine waits for nothing without a token."""
        view = self.view
        body = wire.encode_prev_many(view.session.positions, view.book, queries, consistency)
        try:
            reply = decode_read_reply(await self._connection.calls.call(wire.OP_READ_PREV_MANY, body, timeout_s))
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
        for record, tag in zip(records, tags, strict=True):
            if isinstance(record, Gap):
                raise record.error()
            if record is not None and not carries(tag, record.tags):
                older, chosen = record.seqnum - 1, later(consistency)
                record = await self.one(tag, older, chosen, downwards=True, timeout_s=timeout_s, bounded=False)
            found.append(record)
        return found

    async def refresh(self, timeout_s: float) -> int:
        """Asks for the position of the book as this session sees it now."""
        body = wire.encode_position(self.view.session.positions, self.view.book)
        token, position = wire.decode_position(await self._connection.calls.call(wire.OP_POSITION, body, timeout_s))
        self.view.saw(token, position)
        return position

    async def now(self, consistency: Consistency, timeout_s: float) -> int:
        """Has the session see the book as it is now, by a question that finds nothing and leaves with others of its turn; its
        position then. ANY asks nobody."""
        if consistency is not Consistency.ANY:
            await self.one(None, SEQNUM_MAX, consistency, timeout_s=timeout_s, bounded=False)
        self.view.reached(BEFORE_ALL)
        return self.view.position

    async def seek(self, time_ms: int, consistency: Consistency, timeout_s: float) -> int:
        """The first place that was ordered at or after a time, or what follows all that there are."""
        body = wire.encode_seek(self.view.session.positions, self.view.book, time_ms, consistency)
        token, position, seqnum = wire.decode_found(await self._connection.calls.call(wire.OP_SEEK, body, timeout_s))
        self.view.saw(token, position)
        return seqnum

    async def trim(self, pairs: list[tuple[int, int]], *, forget: bool, timeout_s: float) -> None:
        """Has a trim ordered. Repeated when its outcome is unknown: the same marks twice are the same as once."""
        body = wire.encode_trim(self.view.session.positions, self.view.book, pairs, forget=forget)
        token, position = wire.decode_position(await self._connection.calls.call(wire.OP_TRIM, body, timeout_s))
        self.view.saw(token, position)

    async def set_aux(self, seqnum: int, data: bytes, timeout_s: float) -> bool:
        """Leaves aux data with the engine; whether it took it."""
        body = wire.encode_set_aux(self.view.book, seqnum, data)
        return bytes(await self._connection.calls.call(wire.OP_SET_AUX, body, timeout_s)) == b"\x01"

    async def writer_last(self, writer: bytes, timeout_s: float) -> int:
        """The last decided number of a writer."""
        body = wire.encode_writer(self.view.session.positions, self.view.book, writer)
        token, last = wire.decode_position(await self._connection.calls.call(wire.OP_WRITER, body, timeout_s))
        self.view.session.merge(token)
        return last

    def _encode(self, query: Query) -> tuple[bytes, bytes]:
        return self.view.session.packed(), wire.encode_query(*query)

    def _opened(self, point: Point) -> Record:
        """The record that an answer is. Raises CorruptData."""
        log, reached, position, seqnum, time_ms, numbers, payload = point
        self.view.saw_one(log, reached, position)
        try:
            tags, data = open_payload(seqnum, numbers, payload)
        except CorruptData as error:
            raise gap_of(seqnum, error, self.book).error() from error
        return Record(seqnum, tags, data, None, self.book, time_ms)

    def _saw(self, reply: ReadReply) -> None:
        self.view.saw(reply.token, reply.position)

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


def busy() -> IteratorBusy:
    """The error of a second one who asks an iterator at once."""
    return IteratorBusy(
        "another task or thread waits for the next record of this iterator: each needs an iterator of its own, "
        "`book.read(...)`, or one that hands out what it reads"
    )
