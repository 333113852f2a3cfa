"""Answers reads: index → entries → cache or data ledgers → record columns (DESIGN §7).

    look up (`lookup`) → a page, filled with batches as far as they fit (`page`) → its bytes

A read whose position is reached and whose batches are cached is answered at once, without a task (`answer_now`). Otherwise
`answer` waits (`waiting`): for the index to reach the session's token, for a record to appear (blocking reads, woken by the
cut, across terms), for batches from the data ledgers, of at most `ENTRIES_PER_READ` entries a call.

Linearizable range reads that ask at once share a barrier (`barrier_reads`).
What was trimmed is answered as gaps (`gaps`), or raised by a read of many streams. So is what was lost, or nobody can read.

How many reads may wait is bounded; so is how long they wait for their session's position.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from boki_common import limits
from boki_common.engine.engine_protocol import (
    Consistency,
    Direction,
    Query,
    Token,
    encode_found,
    encode_position,
)
from boki_common.engine.read_reply import POINT_TAGS, encode_point
from boki_common.engine.tag_reads import TagRow
from boki_common.errors import (
    CorruptData,
    InvalidArgument,
    Lost,
    TooManyWriters,
    Trimmed,
)
from boki_common.ids import ALL_RECORDS
from boki_common.runtime.ports import Buffer
from boki_logbook.read.barrier_reads import BarrierReads, Requester
from boki_logbook.read.batch_loads import BatchLoads, UnreadableEntry
from boki_logbook.read.cache import BatchCache
from boki_logbook.read.carried_entries import CarriedEntries
from boki_logbook.read.columns import RecordColumns, one_record
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.read.lookup import AUX_REPLY_BYTES, Lookup, Span
from boki_logbook.read.page import Page, reply_of
from boki_logbook.read.parked_reads import Arrival, ParkedReads
from boki_logbook.read.serving import Serving
from boki_logbook.read.waiting import Waiting
from boki_logbook.settings import EngineSettings
from boki_logbook.state.state import DecisionState
from boki_logbook.writers.verdict import BOOK_NAMED_WRITERS
from boki_metalog.entries.loss_evidence import in_short
from boki_metalog.entries.metalog_entry import Trim

ENTRIES_PER_READ: Final = 64
"""Entries that one call reads from data ledgers, at most."""
LOADS_AT_ONCE: Final = 8
"""Of these, how many at the same time."""


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
        self.view_of: Final = serving.view_of
        self.view_after: Final = serving.view_after
        self._cache = cache
        self._loads = BatchLoads(cache=cache, source=source, carried=carried, settings=settings)
        self.use(state)
        parked = ParkedReads(lambda book, tag: self._index.newest(book, tag))
        self._waiting = Waiting(serving, parked, settings, beside=lambda: self._barrier_reads.waiting)
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
        self._lookup = Lookup(state, self._cache, self._loads.unreadable)

    # -- range reads

    def linearizable(self, requester: Requester, token: Token, reads: Sequence[tuple[int, Query]]) -> None:
        """Has the requester answered, by request id, when all that was acknowledged before is applied here. Raises Overloaded."""
        self._waiting.check_room(len(reads))
        self._barrier_reads.add(requester, token, reads)

    def answer_now(self, token: Token, query: Query, rows: Sequence[TagRow] | None = None) -> list[Buffer] | None:
        """The reply, if nothing has to be waited for. `rows`: of a read of several tags."""
        consistency, book = query.consistency, query.book
        if consistency is Consistency.LINEARIZABLE:
            return None
        view = self.view_of(book) if consistency is Consistency.ANY else self.view_after(token, book)
        if view is None:
            return None
        seen, covered = view
        return self.answer_here(query, seen, covered, rows)

    def answer_here(
        self, query: Query, seen: Token, covered: int, rows: Sequence[TagRow] | None = None
    ) -> list[Buffer] | None:
        """The reply, if it can be had of what is applied and cached here, where no more is to be seen. `seen`, `covered`: the
        `view_of` the book, in this turn."""
        if query.max_records == 1 and rows is None:
            reply = self._point(query, seen, covered)
            if reply is None or reply:
                return reply
        found = self._lookup.range(query, rows, covered)
        if found.nothing and _may_wait(query):
            return None
        page = Page(query, found, self._lookup)
        try:
            page.take(self._cache.get(span.place.ledger_id, span.place.entry) for span in page.spans)
        except CorruptData:
            return None
        return None if page.shows_nothing_found else page.encoded(self._cache, seen, covered)

    def _point(self, query: Query, seen: Token, covered: int) -> list[Buffer] | None:
        """The reply of one record and nothing else: it is there and its batch is cached, nobody trimmed the book, nothing was
        lost, and nothing has aux data. None: its batch has to be waited for. Empty: it is looked up as a range of one.

        A form of its own since it takes 10 µs where a page takes 44 (Python 3.11), and most reads are so.
        """
        book, tag, start, stop, _, _, _, direction, _ = query
        index = self._index
        if book in index.book_marks or self._places.passed or self._cache.aux_count:
            return []
        if direction is Direction.NEXT:
            seqnum = index.next(book, tag, start, stop if stop <= covered else covered + 1)
        else:
            seqnum = index.prev(book, tag, start if start <= covered else covered, stop)
        if not seqnum:
            return []
        ledger_id, entry, first_seqnum, _, time_ms = self._places.locate(seqnum)
        batch = self._cache.get(ledger_id, entry)
        if batch is None:
            return None
        try:
            tags, payload = one_record(batch, seqnum - first_seqnum)
        except CorruptData:
            return None
        if len(tags) > 8 * POINT_TAGS:
            return []
        ((log, reached),) = seen.items()
        return encode_point(log, reached, covered, seqnum=seqnum, time_ms=time_ms, tags=tags, payload=payload)

    async def answer(self, token: Token, query: Query, rows: Sequence[TagRow] | None = None) -> list[Buffer]:
        """The reply, after waiting for what it needs. `rows`: of a read of several tags, whose reply has the form of a range's.

        Raises:
            Overloaded: too many reads wait, or the index did not reach the session's position in time.
            LedgerError: entries cannot be read now.
        """
        await self._waiting.see(token, query.book, query.consistency)
        seen, covered = self.view_of(query.book)
        found = self._lookup.range(query, rows, covered)
        if found.nothing and _may_wait(query):
            tags = (query.tag,) if rows is None else [row.tag for row in rows]
            found = await self._waiting.records(query, tags, partial(self._lookup.range, query, rows))
            seen, covered = self.view_of(query.book)
        while True:
            page = Page(query, found, self._lookup)
            try:
                await self._load(page)
            except UnreadableEntry:
                continue  # it is known now, and one more gap
            return page.encoded(self._cache, seen, covered)

    async def _load(self, page: Page) -> None:
        """Fills a page from the cache and from data ledgers. Raises UnreadableEntry: look again. Else as `answer`."""
        while not page.done and page.next < ENTRIES_PER_READ:
            some = page.spans[page.next : min(page.next + LOADS_AT_ONCE, ENTRIES_PER_READ)]
            batches = await self._loads.load_all(span.place for span in some)
            try:
                page.take(batches)
            except CorruptData as error:
                raise self._loads.unreadable_entry(page.spans[page.next].place, error) from error

    # -- other reads

    def _check_marks(self, book: int, queries: Sequence[tuple[int, int]]) -> None:
        for at, (tag, at_most) in enumerate(queries):
            mark = self._index.mark(book, tag)
            if at_most < mark:
                raise Trimmed(f"the stream is trimmed below {mark}: read from there on", mark=mark, index=at)

    async def prev_many(
        self, token: Token, book: int, queries: Sequence[tuple[int, int]], consistency: Consistency
    ) -> list[Buffer]:
        """One row per (tag, at most): the last record at or below.

        Raises:
            Trimmed: one of the bounds lies below its stream's mark, or finds nothing below the book's floor.
            InvalidArgument: too many bytes. Lost: one of the records cannot be had any more. Else as `answer`.
        """
        await self._waiting.see(token, book, consistency)
        self._check_marks(book, queries)
        seen, covered = self.view_of(book)
        found = [self._index.prev(book, tag, min(at_most, covered)) for tag, at_most in queries]
        floor = self._state.verdicts.floor(book)
        for at, (seqnum, (_, at_most)) in enumerate(zip(found, queries, strict=True)):
            if not seqnum and at_most < floor:
                raise Trimmed(f"streams were forgotten up to {floor}: read from there on", mark=floor, index=at)
        while True:
            try:
                return reply_of(self._cache, seen, covered, await self._columns_of_each(found), found)
            except UnreadableEntry:
                continue  # it is known now

    async def _columns_of_each(self, found: Sequence[int]) -> RecordColumns:
        """A row each; seqnum 0: of no record. Raises UnreadableEntry: look again."""
        columns = RecordColumns(limits.ENTRY_BYTES - AUX_REPLY_BYTES)
        fits = not self._cache.aux_count or len(self._cache.within_aux(found, AUX_REPLY_BYTES)) == len(found)
        _, lost = self._lookup.to_be_had(Span(self._places.locate(seqnum), [seqnum]) for seqnum in found if seqnum)
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
                try:
                    columns.add(next(batches), place.first_seqnum, place.time_ms, [seqnum])
                except CorruptData as error:
                    raise self._loads.unreadable_entry(place, error) from error
                if columns.full or not fits:
                    raise InvalidArgument(
                        f"{len(found)} records are more than {limits.ENTRY_BYTES} bytes: ask for fewer at once"
                    )
        return columns

    async def position(self, token: Token, book: int) -> list[Buffer]:
        """What the index covers, once it covers the token."""
        await self._waiting.reach_with_room(token, book)
        return encode_position(*self.view_of(book))

    async def seek(self, token: Token, book: int, time_ms: int, consistency: Consistency) -> list[Buffer]:
        """The first place of the book's log that was ordered at or after a time, or what follows all that there are."""
        await self._waiting.see(token, book, consistency)
        seen, covered = self.view_of(book)
        return encode_found(seen, covered, self._places.seek(book, time_ms) or max(covered + 1, 1))

    async def writer_last(self, token: Token, book: int, writer: bytes) -> list[Buffer]:
        """The last decided number of a named writer, as of now; asked before the first of its appends is numbered. Raises
        TooManyWriters: it would be a new one, and the book has no room. Else as `answer`."""
        await self._waiting.see(token, book, Consistency.LINEARIZABLE)
        if not self._state.verdicts.admits(book, writer):
            raise TooManyWriters(
                f"the book has {BOOK_NAMED_WRITERS} named writers, which is all it may have: use one of them, or let those that "
                "are idle expire (setting writer_retention_s of the engines)",
                found=BOOK_NAMED_WRITERS,
                book=book,
            )
        seen, _ = self.view_of(book)
        return encode_position(seen, self._state.verdicts.last(book, writer))

    # -- changes

    async def trim(self, book: int, pairs: Sequence[tuple[int, int]], *, forget: bool) -> list[Buffer]:
        """Has a trim ordered, and waits until it is applied here. The command says from what age on it forgets (ADR 23). Raises
        TermOver, NetworkError, Overloaded: it may have been ordered; it may be repeated."""
        before_ms = self._serving.forget_before_ms(book) if forget else 0
        command = Trim(book, tuple(pairs), before_ms > 0, before_ms or None)
        log, position = await self._serving.order(book, command)
        await self._waiting.reach_with_room({log: position}, book)
        return encode_position(*self.view_of(book))

    def set_aux(self, book: int, seqnum: int, data: bytes) -> bool:
        """Keeps aux data of a record that is there, as long as there is room: this engine does, for itself."""
        if not self._index.ascending(book, ALL_RECORDS, seqnum, seqnum + 1, 1):
            return False
        return self._cache.put_aux(seqnum, data)

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
