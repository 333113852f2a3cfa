"""Answers reads: index → entries → cache or data ledgers → record columns (DESIGN §7).

A read whose position is reached and whose batches are cached is answered at once, without a task (`answer_now`). Otherwise
`answer` waits: for the index to reach the session's token, for a record to appear (blocking reads, woken by the cut, across
terms), for batches from the data ledgers. A reply may hold fewer records than asked for and say that more follow at once; so
one call reads at most `ENTRIES_PER_READ` entries that are not cached.

A linearizable read first has the book's sequencer prove that its term is not over, by a *barrier*, and waits for what was ordered
when it asked: a sequencer that was fenced cannot (DESIGN §7, ADR 22). Range reads that ask at once share it (`barrier_reads`).
What was trimmed is told as gaps (`gaps`), or raised by a read of many streams.

How many reads may wait is bounded; so is how long they wait for their session's position.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

from boki_common import limits
from boki_common.engine_protocol import (
    Consistency,
    Direction,
    GapKind,
    GapRow,
    Query,
    Token,
    encode_found,
    encode_position,
    merge_tokens,
)
from boki_common.errors import (
    BokiError,
    InvalidArgument,
    Lost,
    Overloaded,
    TooManyWriters,
    Trimmed,
)
from boki_common.ids import ALL_RECORDS, Position
from boki_common.read_reply import POINT_TAGS, encode_point, encode_read_reply
from boki_common.runtime.ports import Buffer
from boki_logbook.barrier_reads import Asker, BarrierReads
from boki_logbook.batch_loads import BatchLoads
from boki_logbook.cache import BatchCache
from boki_logbook.carried_entries import CarriedEntries
from boki_logbook.columns import RecordColumns, one_record
from boki_logbook.entry_source import EntrySource
from boki_logbook.gaps import gaps_before, gaps_of
from boki_logbook.places import EntryPlace
from boki_logbook.serving import Serving
from boki_logbook.settings import EngineSettings
from boki_logbook.state import DecisionState
from boki_logbook.verdict import BOOK_NAMED_WRITERS
from boki_metalog.metalog_entry import Trim

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
        self._parked = 0
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
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._positions: dict[asyncio.Future[None], tuple[Token, int | None]] = {}
        self._arrivals: dict[int, dict[asyncio.Future[None], tuple[int, int]]] = {}
        self._barrier_reads = BarrierReads(self)

    @property
    def parked(self) -> int:
        """Reads that wait."""
        return self._parked + self._barrier_reads.waiting

    def awaited(self) -> dict[int, Position]:
        """The highest position of each log that reads wait for, and that is not applied here."""
        found: dict[int, Position] = {}
        for token, _ in self._positions.values():
            merge_tokens(found, token)
        applied = self._serving.positions
        return {log: found[log] for log in sorted(found) if found[log] > applied.get(log, Position(0, 0))}

    def use(self, state: DecisionState) -> None:
        """Answers from another state, which was loaded; before anything is answered."""
        self._state, self._index, self._places = state, state.index, state.places

    # -- range reads

    def linearizable(self, asker: Asker, token: Token, reads: Sequence[tuple[int, Query]]) -> None:
        """Has the asker answered, by request id, when all that was acknowledged before is applied here. Raises Overloaded."""
        self._check_room(len(reads))
        self._barrier_reads.add(asker, token, reads)

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

        Most reads are of one record and nothing else: the record is there and its batch is cached, nobody trimmed the book,
        nothing was lost, and nothing has aux data. Others are looked up the long way.

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
        tags, payload = one_record(batch, seqnum - first_seqnum)
        if len(tags) > 8 * POINT_TAGS:
            return self._answer_columns(query, seen, covered)
        ((log, reached),) = seen.items()
        return encode_point(log, reached, covered, seqnum=seqnum, time_ms=time_ms, tags=tags, payload=payload)

    def _answer_columns(self, query: Query, seen: Token, covered: int) -> list[Buffer] | None:
        """Any reply, column by column; None if something has to be waited for."""
        gaps = self._gaps(query, query.start, covered)
        seqnums, found_more = self._find(query, covered)
        if not seqnums and not gaps and _may_wait(query):
            return None
        columns = RecordColumns(query.max_bytes)
        whole = True
        for span in self._spans(seqnums):
            batch = self._cache.get(span.place.ledger_id, span.place.entry)
            if batch is None or columns.full:
                whole = False
                break
            columns.add(batch, span.place.first_seqnum, span.place.time_ms, span.seqnums)
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
        await self._see(token, query.book, query.consistency)
        covered = self._serving.covered(query.book)
        gaps = self._gaps(query, query.start, covered)
        seqnums, found_more = self._find(query, covered)
        if not seqnums and not gaps and _may_wait(query):
            (seqnums, found_more), gaps = await self._await_records(query)
        seen = self._seen(query.book)
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
                    columns.add(batch, span.place.first_seqnum, span.place.time_ms, span.seqnums)
        more = not whole or columns.full or found_more
        if more and gaps:
            horizon = seqnums[columns.count - 1] if columns.count else last_found
            gaps = gaps_before(gaps, query.direction, horizon)
        return self._reply(seen, columns, seqnums, more=more, gaps=gaps)

    def _find(self, query: Query, covered: int) -> _Found:
        """Rows of a cut that is passed: a reply does not claim the rows of half a cut, so it must not show them."""
        most = query.max_records
        if query.direction is Direction.NEXT:
            stop = min(query.stop, covered + 1)
            found = self._index.ascending(query.book, query.tag, query.start, stop, most)
        else:
            start = min(query.start, covered)
            found = self._index.descending(query.book, query.tag, start, query.stop, most)
        more = len(found) == most
        if self._cache.aux_count:
            fitting = self._cache.within_aux(found, AUX_REPLY_BYTES)
            return list(fitting), more or len(fitting) < len(found)
        return found, more

    def _gaps(self, query: Query, looked: int, covered: int) -> list[GapRow]:
        """Of what is trimmed; and, upwards, of what was lost before it was indexed: it may have been of any stream."""
        mark = self._index.mark(query.book, query.tag)
        lost: list[tuple[int, int]] = []
        if self._places.passed and query.direction is Direction.NEXT:
            stop = min(query.stop, covered + 1)
            lost = self._places.lost_spans(query.book, looked, stop)
        return gaps_of(query, looked, mark, lost) if mark or lost else []

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
        """The spans that can be had, and gaps where entries were declared lost and are not in memory either."""
        kept: list[_Span] = []
        gaps: list[GapRow] = []
        for span in spans:
            place = span.place
            if self._places.evidence(place.first_seqnum) is None or self._cache.get(place.ledger_id, place.entry):
                kept.append(span)
            else:
                gaps.append(GapRow(min(span.seqnums), max(span.seqnums), GapKind.LOST))
        return kept, gaps

    def _reply(
        self, seen: _Seen, columns: RecordColumns, seqnums: Sequence[int], *, more: bool, gaps: Sequence[GapRow] = ()
    ) -> list[Buffer]:
        aux = self._cache.aux_rows(seqnums[: columns.count]) if self._cache.aux_count else {}
        more = more and (columns.count > 0 or any(gap.kind is GapKind.LOST for gap in gaps))
        return encode_read_reply(seen.token, seen.position, more=more, records=columns.finish(), gaps=gaps, aux=aux)

    def _seen(self, book: int) -> _Seen:
        return _Seen(*self._serving.view_of(book))

    # -- other reads

    async def prev_many(
        self, token: Token, book: int, queries: Sequence[tuple[int, int]], consistency: Consistency
    ) -> list[Buffer]:
        """One row per (tag, at most): the last record at or below.

        Raises:
            Trimmed: one of the bounds lies below its stream's mark. InvalidArgument: too many bytes. Else as `answer`.
        """
        await self._see(token, book, consistency)
        for at, (tag, at_most) in enumerate(queries):
            mark = self._state.mark(book, tag)
            if at_most < mark:
                raise Trimmed(f"the stream is trimmed below {mark}: read from there on", mark=mark, index=at)
        seen = self._seen(book)
        found = [self._index.prev(book, tag, min(at_most, seen.position)) for tag, at_most in queries]
        columns = RecordColumns(limits.ENTRY_BYTES - AUX_REPLY_BYTES)
        fits = not self._cache.aux_count or len(self._cache.within_aux(found, AUX_REPLY_BYTES)) == len(found)
        _, lost = self._without_lost(_Span(self._places.locate(seqnum), [seqnum]) for seqnum in found if seqnum)
        if lost:
            raise Lost(f"record {lost[0].first} was declared lost", first=lost[0].first, last=lost[0].last)
        for start in range(0, len(found), LOADS_AT_ONCE):
            some = found[start : start + LOADS_AT_ONCE]
            places = [self._places.locate(seqnum) if seqnum else None for seqnum in some]
            batches = iter(await self._loads.load_all(place for place in places if place is not None))
            for seqnum, place in zip(some, places, strict=True):
                if place is None:
                    columns.add_nothing()
                    continue
                columns.add(next(batches), place.first_seqnum, place.time_ms, [seqnum])
                if columns.full or not fits:
                    raise InvalidArgument(
                        f"{len(queries)} records are more than {limits.ENTRY_BYTES} bytes: ask for fewer at once"
                    )
        return self._reply(seen, columns, found, more=False)

    async def position(self, token: Token, book: int) -> list[Buffer]:
        """What the index covers, once it covers the token."""
        await self._reach(token, book)
        return encode_position(*self._seen(book))

    async def seek(self, token: Token, book: int, time_ms: int, consistency: Consistency) -> list[Buffer]:
        """The first place of the book's log that was ordered at or after a time, or what follows all that there are."""
        await self._see(token, book, consistency)
        seen = self._seen(book)
        return encode_found(*seen, self._places.seek(book, time_ms) or max(seen.position + 1, 1))

    async def writer_last(self, token: Token, book: int, writer: bytes) -> list[Buffer]:
        """The last decided number of a named writer, as of now; asked before the first of its appends is numbered.

        Raises:
            TooManyWriters: it would be a new one, and the book has no room. Else as `answer`.
        """
        await self._see(token, book, Consistency.LINEARIZABLE)
        if not self._state.verdicts.admits(book, writer):
            raise TooManyWriters(
                f"the book has {BOOK_NAMED_WRITERS} named writers, which is all it may have: use one of them, or let those that "
                "are idle expire (setting writer_retention_s of the engines)",
                found=BOOK_NAMED_WRITERS,
                book=book,
            )
        return encode_position(self._serving.seen(book), self._state.writer_last(book, writer))

    # -- trim, aux data

    async def trim(self, book: int, pairs: Sequence[tuple[int, int]], *, forget: bool) -> list[Buffer]:
        """Has a trim ordered, and waits until it is applied here.

        Raises:
            TermOver, NetworkError, Overloaded: it may have been ordered; it may be repeated.
        """
        log, position = await self._serving.order(book, Trim(book, tuple(pairs), forget))
        await self._reach({log: position}, book)
        return encode_position(*self._seen(book))

    def set_aux(self, book: int, seqnum: int, data: bytes) -> bool:
        """Keeps aux data of a record that is there, as long as there is room."""
        if not self._index.ascending(book, ALL_RECORDS, seqnum, seqnum + 1, 1):
            return False
        return self._cache.put_aux(seqnum, data)

    async def caught_up(self) -> None:
        """Waits, as long as it takes, until the index has what was ordered before this engine started."""
        while not self._serving.ready:
            future: asyncio.Future[None] = self._loop.create_future()
            self._positions[future] = {}, None
            try:
                await future
            finally:
                del self._positions[future]

    # -- waiting

    def advanced(self, books: Iterable[int]) -> None:
        """The index moved; these books have new records. Nobody looks at them while nobody waits."""
        if self._positions:
            for future, (token, of_book) in self._positions.items():
                if not future.done() and self._serving.reached(token, of_book):
                    future.set_result(None)
        if not self._arrivals:
            return
        for book in dict.fromkeys(books):
            for future, (tag, start) in self._arrivals.get(book, {}).items():
                if not future.done() and self._index.newest(book, tag) >= start:
                    future.set_result(None)

    async def _see(self, token: Token, book: int, consistency: Consistency) -> None:
        """Waits until the view that a read asks for is reached here."""
        if consistency is Consistency.ANY:
            return
        if consistency is Consistency.LINEARIZABLE:
            async with self._parking():
                log, position = await self.barrier(book)
            token = dict(token)
            merge_tokens(token, {log: position})
        await self._reach(token, book)

    async def barrier(self, book: int) -> tuple[int, Position]:
        """A position that covers all that was acknowledged before; asked again while terms end."""
        pause_s = self._settings.retry_first_s
        last: BokiError | None = None
        try:
            async with asyncio.timeout(self._settings.position_wait_s):
                while True:
                    try:
                        return await self._serving.barrier(book)
                    except BokiError as error:
                        if not error.retryable:
                            raise
                        last = error
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, self._settings.retry_limit_s)
        except TimeoutError as error:
            raise Overloaded(
                f"no sequencer of the book's log answered within {self._settings.position_wait_s} s ({last}): "
                "try again, or read with another consistency"
            ) from error

    async def _reach(self, token: Token, book: int) -> None:
        if not self._serving.reached(token, book):
            async with self._parking():
                await self.reach(token, book)

    async def reach(self, token: Token, book: int) -> None:
        """Waits until a position is applied here. Raises Overloaded."""
        if self._serving.reached(token, book):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._positions[future] = token, book
        try:
            async with asyncio.timeout(self._settings.position_wait_s):
                await future
        except TimeoutError as error:
            waited = "the session's position" if self._serving.ready else "the log's end: is its sequencer up?"
            raise Overloaded(
                f"the index of this engine is at {_readable(self._serving.positions)} and did not reach {waited} "
                f"({_readable(token)}) within {self._settings.position_wait_s} s: try again, or another engine"
            ) from error
        finally:
            del self._positions[future]

    async def _await_records(self, query: Query) -> tuple[_Found, list[GapRow]]:
        """Waits until the stream has a record in the range, is trimmed beyond what was looked at, or the time is over."""
        looked = query.start
        try:
            async with self._parking(), asyncio.timeout(query.wait_ms / 1000):
                while True:
                    looked = max(looked, self._serving.covered(query.book) + 1)
                    await self._await_arrival(query)
                    covered = self._serving.covered(query.book)
                    found, gaps = self._find(query, covered), self._gaps(query, looked, covered)
                    if found[0] or gaps:
                        return found, gaps
        except TimeoutError:
            covered = self._serving.covered(query.book)  # something may have come in the turn of the time-out
            return self._find(query, covered), self._gaps(query, looked, covered)

    async def _await_arrival(self, query: Query) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        # Whatever is newer than all that is shown may be in the range; what is shown is not.
        start = max(query.start, self._serving.covered(query.book) + 1)
        waiting = self._arrivals.setdefault(query.book, {})
        waiting[future] = query.tag, start
        try:
            await future
        finally:
            del waiting[future]
            if not waiting and self._arrivals.get(query.book) is waiting:
                del self._arrivals[query.book]

    @asynccontextmanager
    async def _parking(self) -> AsyncIterator[None]:
        self._check_room()
        self._parked += 1
        try:
            yield
        finally:
            self._parked -= 1

    def _check_room(self, reads: int = 1) -> None:
        parked = self._parked + self._barrier_reads.waiting
        if parked + reads > self._settings.parked_reads:
            raise Overloaded(f"{parked} reads wait in this engine already: try again later", found=parked)

    async def close(self) -> None:
        """Ends all loads and barriers; reads that still wait are cancelled by whoever started them."""
        await self._barrier_reads.close()
        await self._loads.close()


def _may_wait(query: Query) -> bool:
    return bool(query.wait_ms) and query.direction is Direction.NEXT


def _readable(token: Token) -> str:
    return (
        ", ".join(f"log {log}: term {term} entry {entry}" for log, (term, entry) in sorted(token.items())) or "nothing"
    )
