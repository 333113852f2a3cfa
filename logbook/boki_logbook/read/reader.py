"""Answers reads: index → entries → cache or data ledgers → record columns (DESIGN §7).

A read whose position is reached and whose batches are cached is answered at once, without a task (`answer_now`). Otherwise
`answer` and `tags` wait (`waiting`): for the index to reach the session's token, for a record to appear (blocking reads, woken by the
cut, across terms), for batches from the data ledgers. A reply may hold fewer records than asked for and say that more follow at once; so
one call reads at most `ENTRIES_PER_READ` entries that are not cached.

Linearizable range reads that ask at once share a barrier (`barrier_reads`).
What was trimmed is told as gaps (`gaps`), or raised by a read of many streams. So is what was lost, or nobody can read.

How many reads may wait is bounded; so is how long they wait for their session's position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from boki_common import limits
from boki_common.engine.engine_protocol import (
    Consistency,
    Direction,
    GapKind,
    GapRow,
    Query,
    Token,
    encode_found,
    encode_position,
)
from boki_common.engine.read_reply import POINT_TAGS, encode_point, encode_read_reply
from boki_common.engine.tag_reads import TagRead, TagRow
from boki_common.errors import (
    CorruptData,
    InvalidArgument,
    Lost,
    TooManyWriters,
    Trimmed,
)
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_logbook.index.places import EntryPlace
from boki_logbook.read.barrier_reads import BarrierReads, Requester
from boki_logbook.read.batch_loads import BatchLoads, UnreadableEntry
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.carried_entries import CarriedEntries
from boki_logbook.read.changes import Changes
from boki_logbook.read.columns import RecordColumns, one_record
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.read.gaps import gaps_before, gaps_of
from boki_logbook.read.parked_reads import Arrival, ParkedReads
from boki_logbook.read.serving import Serving
from boki_logbook.read.tag_lookup import missing_until, trimmed_rows, union
from boki_logbook.read.waiting import Waiting
from boki_logbook.settings import EngineSettings
from boki_logbook.state.state import DecisionState
from boki_logbook.writers.verdict import BOOK_NAMED_WRITERS
from boki_metalog.entries.loss_evidence import in_short

ENTRIES_PER_READ: Final = 64
"""Entries that one call reads from data ledgers, at most."""
LOADS_AT_ONCE: Final = 8
"""Of these, how many at the same time."""
AUX_REPLY_BYTES: Final = limits.AUX_BYTES
"""Aux data of one reply, at most; the first record's is always taken."""


class _Span(NamedTuple):
    """Records of one entry, in the order of the reply."""

    place: EntryPlace
    seqnums: list[int]


_Found: TypeAlias = tuple[list[int], bool]
"""Seqnums of a range, and whether it may have more."""


class _Seen(NamedTuple):
    """What the index covered when it was searched. A reply must not claim more: what came later was not looked at."""

    token: Token
    position: int


class Reader:
    """See the module."""

    def __init__(
        self,
        *,
        serving: Serving,
        state: DecisionState,
        cache: BatchCache,
        source: EntrySource,
        carried: CarriedEntries,
        settings: EngineSettings,
    ) -> None:
        self._serving = serving
        self.log_of: Final = serving.log_of
        self.link_of: Final = serving.link_of
        self.reached: Final = serving.reached
        self.view_of: Final = serving.view_of
        self._state = state
        self._index = state.index
        self._places = state.places
        self._cache = cache
        self._loads = BatchLoads(cache=cache, source=source, carried=carried, settings=settings)
        parked = ParkedReads(lambda book, tag: self._index.newest(book, tag))
        self._waiting = Waiting(serving, parked, settings, beside=lambda: self._barrier_reads.waiting)
        self.changes: Final = Changes(serving, self._waiting, lambda: self._state, cache)
        self.barrier: Final = self._waiting.barrier
        self.reach: Final = self._waiting.reach
        self.awaited: Final = self._waiting.awaited
        self.caught_up: Final = self._waiting.caught_up
        self._barrier_reads = BarrierReads(self)

    @property
    def parked(self) -> int:
        """Reads that wait."""
        return self._waiting.all

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """Entries that nobody can make sense of, of those that were read lately, as plain values."""
        return [
            {"ledger_id": ledger_id, "entry": entry, "error": error}
            for (ledger_id, entry), error in self._loads.unreadable.items()
        ]

    def use(self, state: DecisionState) -> None:
        """Answers from another state, which was loaded; before anything is answered."""
        self._state, self._index, self._places = state, state.index, state.places

    # -- range reads

    def linearizable(self, requester: Requester, token: Token, reads: Sequence[tuple[int, Query]]) -> None:
        """Has the requester answered, by request id, when all that was acknowledged before is applied here. Raises Overloaded."""
        self._waiting.check_room(len(reads))
        self._barrier_reads.add(requester, token, reads)

    def answer_now(self, token: Token, query: Query) -> list[Buffer] | None:
        """The reply, if nothing has to be waited for."""
        consistency = query.consistency
        if consistency is not Consistency.ANY:
            if consistency is Consistency.LINEARIZABLE:
                return None
            if not self.reached(token, query.book):
                return None
        seen, covered = self.view_of(query.book)
        return self.answer_here(query, seen, covered)

    def answer_here(self, query: Query, seen: Token, covered: int) -> list[Buffer] | None:
        """The reply, if it can be had of what is applied and cached here, where no more is to be seen.

        A form of its own since it takes 10 µs where columns take 44 and `answer` in a task 129 (a cached record, Python 3.11).
        Most reads are of one record and nothing else: it is there and its batch is cached, nobody trimmed the book, nothing was
        lost, and nothing has aux data. Others are looked up the long way.

        Args:
            seen, covered: the `view_of` the book, in this turn.
        """
        book, tag, start, stop, most, _, _, direction, _ = query
        index = self._index
        if most != 1 or book in index.book_marks or self._places.passed or self._cache.aux_count:
            return self._answer_columns(query, seen, covered)
        if direction is Direction.NEXT:
            seqnum = index.next(book, tag, start, stop if stop <= covered else covered + 1)
        else:
            seqnum = index.prev(book, tag, start if start <= covered else covered, stop)
        if not seqnum:
            return self._answer_columns(query, seen, covered)
        ledger_id, entry, first_seqnum, _, time_ms = self._places.locate(seqnum)
        batch = self._cache.get(ledger_id, entry)
        if batch is None:
            return None
        try:
            tags, payload = one_record(batch, seqnum - first_seqnum)
        except CorruptData:
            return None
        if len(tags) > 8 * POINT_TAGS:
            return self._answer_columns(query, seen, covered)
        ((log, reached),) = seen.items()
        return encode_point(log, reached, covered, seqnum=seqnum, time_ms=time_ms, tags=tags, payload=payload)

    def tags_now(self, token: Token, read: TagRead) -> list[Buffer] | None:
        """The reply to a read of several tags that waits for no records, if nothing else has to be waited for."""
        query = read.query
        consistency = query.consistency
        if query.wait_ms or consistency is Consistency.LINEARIZABLE:
            return None
        if consistency is Consistency.SESSION and not self.reached(token, query.book):
            return None
        return self._answer_columns(query, *self.view_of(query.book), read.rows)

    def _answer_columns(
        self, query: Query, seen: Token, covered: int, rows: Sequence[TagRow] | None = None
    ) -> list[Buffer] | None:
        """Any reply, column by column; None if something has to be waited for."""
        (seqnums, found_more), gaps = self._look(query, rows, covered, looked=query.start, lost_from=query.start)
        if not seqnums and not gaps and _may_wait(query):
            return None
        columns = RecordColumns(query.max_bytes)
        whole = True
        for span in self._spans(seqnums):
            batch = self._cache.get(span.place.ledger_id, span.place.entry)
            if batch is None or columns.full:
                whole = False
                break
            try:
                columns.add(batch, span.place.first_seqnum, span.place.time_ms, span.seqnums)
            except CorruptData:
                return None
        if seqnums and not columns.count:
            return None
        more = not whole or columns.full or found_more
        if more and gaps:
            gaps = gaps_before(gaps, query.direction, seqnums[columns.count - 1])
        return self._reply(_Seen(seen, covered), columns, seqnums, more=more, gaps=gaps)

    async def answer(self, token: Token, query: Query) -> list[Buffer]:
        """The reply, after waiting for what it needs.

        Raises:
            Overloaded: too many reads wait, or the index did not reach the session's position in time.
            LedgerError: entries cannot be read now.
        """
        await self._waiting.see(token, query.book, query.consistency)
        return await self._answer_from(query, None)

    async def tags(self, token: Token, read: TagRead) -> list[Buffer]:
        """The reply to a read of several tags, in the form of one of a range. As `answer`."""
        await self._waiting.see(token, read.query.book, read.query.consistency)
        return await self._answer_from(read.query, read.rows)

    async def _answer_from(self, query: Query, rows: Sequence[TagRow] | None) -> list[Buffer]:
        covered = self._serving.covered(query.book)
        (seqnums, found_more), gaps = self._look(query, rows, covered, looked=query.start, lost_from=query.start)
        if not seqnums and not gaps and _may_wait(query):
            tags = (query.tag,) if rows is None else [row.tag for row in rows]
            look = partial(self._look, query, rows)
            (seqnums, found_more), gaps = await self._waiting.records(query, tags, look)
        seen = self._seen(query.book)
        while True:
            try:
                return await self._reply_with(query, seen, seqnums, found_more=found_more, gaps=gaps)
            except UnreadableEntry:
                continue  # it is known now, and one more gap

    async def _reply_with(
        self, query: Query, seen: _Seen, seqnums: Sequence[int], *, found_more: bool, gaps: list[GapRow]
    ) -> list[Buffer]:
        """The reply that has the records found, as many as fit. Raises UnreadableEntry: look again. Else as `answer`."""
        columns = RecordColumns(query.max_bytes)
        spans, lost = self._without_lost(self._spans(seqnums))
        last_found = seqnums[-1] if seqnums else 0
        if lost:
            gaps = sorted([*gaps, *lost])
            seqnums = [seqnum for span in spans for seqnum in span.seqnums]
        whole = len(spans) <= ENTRIES_PER_READ
        for start in range(0, min(len(spans), ENTRIES_PER_READ), LOADS_AT_ONCE):
            if columns.full:
                break
            some = spans[start : start + LOADS_AT_ONCE]
            for span, batch in zip(some, await self._loads.load_all(span.place for span in some), strict=True):
                if not columns.full:
                    self._add(columns, batch, span.place, span.seqnums)
        more = not whole or columns.full or found_more
        if more and gaps:
            horizon = seqnums[columns.count - 1] if columns.count else last_found
            gaps = gaps_before(gaps, query.direction, horizon)
        return self._reply(seen, columns, seqnums, more=more, gaps=gaps)

    def _add(self, columns: RecordColumns, batch: RecordBatch, place: EntryPlace, seqnums: list[int]) -> None:
        """Raises UnreadableEntry: the data of the batch cannot be decompressed."""
        try:
            columns.add(batch, place.first_seqnum, place.time_ms, seqnums)
        except CorruptData as error:
            self._loads.is_unreadable(place, error)
            raise UnreadableEntry(str(error), ledger_id=place.ledger_id, entry=place.entry) from error

    def _look(
        self, query: Query, rows: Sequence[TagRow] | None, covered: int, *, looked: int, lost_from: int
    ) -> tuple[_Found, list[GapRow]]:
        """Records and gaps of a range, of one stream or of those that the rows name.

        Args:
            looked: below, all of the streams was looked at, so what is trimmed there is no gap.
            lost_from: as much, for what was lost before it was indexed: nobody is woken by it.
        """
        found = self._find(query, rows, covered)
        gaps = self._gaps(query, rows, covered, looked=looked, lost_from=lost_from)
        if not found[0] and not gaps:
            gaps = self._forgotten(query)
        return found, gaps

    def _find(self, query: Query, rows: Sequence[TagRow] | None, covered: int) -> _Found:
        """Rows of a cut that is passed: a reply does not claim the rows of half a cut, so it must not show them."""
        most = query.max_records
        if query.direction is Direction.NEXT:
            stop = min(query.stop, covered + 1)
            if rows is None:
                found = self._index.ascending(query.book, query.tag, query.start, stop, most)
                more = len(found) == most
            else:
                found, more = union(self._index, query.book, rows, start=query.start, stop=stop, limit=most)
        else:
            start = min(query.start, covered)
            found = self._index.descending(query.book, query.tag, start, query.stop, most)
            more = len(found) == most
        if self._cache.aux_count:
            fitting = self._cache.within_aux(found, AUX_REPLY_BYTES)
            return list(fitting), more or len(fitting) < len(found)
        return found, more

    def _gaps(
        self, query: Query, rows: Sequence[TagRow] | None, covered: int, *, looked: int, lost_from: int
    ) -> list[GapRow]:
        """Of what is trimmed; and, upwards, of what was lost before it was indexed: it may have been of any stream."""
        book, index = query.book, self._index
        if query.direction is not Direction.NEXT:
            mark = index.mark(book, query.tag)
            return gaps_of(query, looked, mark) if mark else []
        lost: list[tuple[int, int]] = []
        if self._places.passed:
            lost = self._places.lost_spans(book, lost_from, min(query.stop, covered + 1))
        if book not in index.book_marks and not lost:
            return []  # nothing of the book was ever trimmed
        floor = self._state.floor(book)
        if rows is None:
            until = missing_until(index, floor, book, query.tag, looked=looked, stop=query.stop)
            return gaps_of(query, looked, until, lost, lost_from=lost_from)
        trimmed = trimmed_rows(index, floor, book, rows, looked=looked, stop=query.stop)
        return sorted(trimmed + gaps_of(query, looked, 0, lost, lost_from=lost_from))

    def _forgotten(self, query: Query) -> list[GapRow]:
        """Downwards from below what the book has forgotten, nothing found is no answer: marks went with the streams."""
        floor = self._state.floor(query.book) if query.direction is Direction.PREV else 0
        return [GapRow(query.stop, floor - 1, GapKind.TRIMMED)] if query.start < floor else []

    def _spans(self, seqnums: Sequence[int]) -> Iterator[_Span]:
        """Groups neighbouring seqnums by their entry."""
        ascending = len(seqnums) < 2 or seqnums[0] < seqnums[-1]
        at = 0
        while at < len(seqnums):
            place = self._places.locate(seqnums[at])
            if ascending:
                stop = bisect_left(seqnums, place.stop_seqnum, at)
            else:
                stop = at + 1
                while stop < len(seqnums) and seqnums[stop] >= place.first_seqnum:
                    stop += 1
            yield _Span(place, list(seqnums[at:stop]))
            at = stop

    def _without_lost(self, spans: Iterable[_Span]) -> tuple[list[_Span], list[GapRow]]:
        """The spans that can be had, and gaps where entries were declared lost and are not in memory either, or nobody can read
        them."""
        kept: list[_Span] = []
        gaps: list[GapRow] = []
        for span in spans:
            place = span.place
            unreadable = bool(self._loads.unreadable) and (place.ledger_id, place.entry) in self._loads.unreadable
            if not unreadable and (
                self._places.evidence(place.first_seqnum) is None or self._cache.get(place.ledger_id, place.entry)
            ):
                kept.append(span)
            else:
                gaps.append(GapRow(min(span.seqnums), max(span.seqnums), GapKind.LOST))
        return kept, gaps

    def _reply(
        self, seen: _Seen, columns: RecordColumns, seqnums: Sequence[int], *, more: bool, gaps: Sequence[GapRow] = ()
    ) -> list[Buffer]:
        aux = self._cache.aux_rows(seqnums[: columns.count]) if self._cache.aux_count else {}
        more = more and (columns.count > 0 or any(gap.kind is GapKind.LOST for gap in gaps))
        takes_tags = not columns.count
        return encode_read_reply(
            seen.token,
            seen.position,
            more=more,
            records=columns.finish(),
            gaps=gaps,
            aux=aux,
            takes_tags=takes_tags,
        )

    def _seen(self, book: int) -> _Seen:
        return _Seen(*self._serving.view_of(book))

    # -- other reads

    async def prev_many(
        self, token: Token, book: int, queries: Sequence[tuple[int, int]], consistency: Consistency
    ) -> list[Buffer]:
        """One row per (tag, at most): the last record at or below.

        Raises:
            Trimmed: one of the bounds lies below its stream's mark, or finds nothing below the book's floor.
            InvalidArgument: too many bytes. Lost: one of the records cannot be had any more. Else as `answer`.
        """
        await self._waiting.see(token, book, consistency)
        for at, (tag, at_most) in enumerate(queries):
            mark = self._state.mark(book, tag)
            if at_most < mark:
                raise Trimmed(f"the stream is trimmed below {mark}: read from there on", mark=mark, index=at)
        seen = self._seen(book)
        found = [self._index.prev(book, tag, min(at_most, seen.position)) for tag, at_most in queries]
        floor = self._state.floor(book)
        for at, (seqnum, (_, at_most)) in enumerate(zip(found, queries, strict=True)):
            if not seqnum and at_most < floor:
                raise Trimmed(f"streams were forgotten up to {floor}: read from there on", mark=floor, index=at)
        while True:
            try:
                return await self._reply_with_each(seen, found, len(queries))
            except UnreadableEntry:
                continue  # it is known now

    async def _reply_with_each(self, seen: _Seen, found: Sequence[int], queries: int) -> list[Buffer]:
        """Raises UnreadableEntry: look again."""
        columns = RecordColumns(limits.ENTRY_BYTES - AUX_REPLY_BYTES)
        fits = not self._cache.aux_count or len(self._cache.within_aux(found, AUX_REPLY_BYTES)) == len(found)
        _, lost = self._without_lost(_Span(self._places.locate(seqnum), [seqnum]) for seqnum in found if seqnum)
        if lost:
            why = in_short(self._places.evidence(lost[0].first) or b"")
            raise Lost(
                f"record {lost[0].first} was declared lost, or is stored so that nobody can read it{why and f' ({why})'}",
                first=lost[0].first,
                last=lost[0].last,
            )
        for start in range(0, len(found), LOADS_AT_ONCE):
            some = found[start : start + LOADS_AT_ONCE]
            places = [self._places.locate(seqnum) if seqnum else None for seqnum in some]
            batches = iter(await self._loads.load_all(place for place in places if place is not None))
            for seqnum, place in zip(some, places, strict=True):
                if place is None:
                    columns.add_nothing()
                    continue
                self._add(columns, next(batches), place, [seqnum])
                if columns.full or not fits:
                    raise InvalidArgument(
                        f"{queries} records are more than {limits.ENTRY_BYTES} bytes: ask for fewer at once"
                    )
        return self._reply(seen, columns, found, more=False)

    async def position(self, token: Token, book: int) -> list[Buffer]:
        """What the index covers, once it covers the token."""
        await self._waiting.reach_with_room(token, book)
        return encode_position(*self._seen(book))

    async def seek(self, token: Token, book: int, time_ms: int, consistency: Consistency) -> list[Buffer]:
        """The first place of the book's log that was ordered at or after a time, or what follows all that there are."""
        await self._waiting.see(token, book, consistency)
        seen = self._seen(book)
        return encode_found(*seen, self._places.seek(book, time_ms) or max(seen.position + 1, 1))

    async def writer_last(self, token: Token, book: int, writer: bytes) -> list[Buffer]:
        """The last decided number of a named writer, as of now; asked before the first of its appends is numbered.

        Raises:
            TooManyWriters: it would be a new one, and the book has no room. Else as `answer`.
        """
        await self._waiting.see(token, book, Consistency.LINEARIZABLE)
        if not self._state.verdicts.admits(book, writer):
            raise TooManyWriters(
                f"the book has {BOOK_NAMED_WRITERS} named writers, which is all it may have: use one of them, or let those that "
                "are idle expire (setting writer_retention_s of the engines)",
                found=BOOK_NAMED_WRITERS,
                book=book,
            )
        return encode_position(self._serving.seen(book), self._state.writer_last(book, writer))

    # -- waiting

    def advanced(self, arrived: Sequence[Arrival]) -> None:
        """The index moved, by these batches among others."""
        self._waiting.advanced(arrived)

    async def close(self) -> None:
        """Ends all loads and barriers; reads that still wait are cancelled by whoever started them."""
        await self._barrier_reads.close()
        await self._loads.close()


def _may_wait(query: Query) -> bool:
    return query.wait_ms > 0 and query.direction is Direction.NEXT
