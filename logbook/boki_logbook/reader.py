"""Answers reads: index → entries → cache or data ledgers → record columns (DESIGN §7).

A read whose position is reached and whose batches are cached is answered at once, without a task (`answer_now`). Otherwise
`answer` waits: for the index to reach the session's token, for a record to appear (blocking reads, woken by the cut, across
terms), for batches from the data ledgers. A reply may hold fewer records than asked for and say that more follow at once; so
one call reads at most `ENTRIES_PER_READ` entries that are not cached.

How many reads may wait is bounded; so is how long they wait for their session's position.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from boki_common import limits
from boki_common.engine_protocol import (
    Consistency,
    Direction,
    Query,
    Token,
    encode_position,
    encode_read_reply,
)
from boki_common.errors import EntryUnknown, InvalidArgument, NetworkError, NoSuchEntry, NoSuchLedger, Overloaded
from boki_common.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_logbook.cache import BatchCache, EntryKey
from boki_logbook.columns import RecordColumns
from boki_logbook.entry_source import EntrySource
from boki_logbook.indexer import Indexer
from boki_logbook.places import EntryPlace
from boki_logbook.settings import EngineSettings

ENTRIES_PER_READ: Final = 64
"""Entries that one call reads from data ledgers, at most."""
LOADS_AT_ONCE: Final = 8
"""Of these, how many at the same time."""
LOAD_TRIES: Final = 3
"""How often an entry that must be there is looked for before the caller hears that it cannot be read now."""


class _Span(NamedTuple):
    """Records of one entry, in the order of the reply."""

    place: EntryPlace
    seqnums: list[int]


class _Seen(NamedTuple):
    """What the index covered when it was searched. A reply must not claim more: what came later was not looked at."""

    token: Token
    position: int


class Reader:
    """See the module."""

    def __init__(
        self, *, indexer: Indexer, cache: BatchCache, source: EntrySource, settings: EngineSettings, log: int
    ) -> None:
        self.parked = 0
        self._indexer = indexer
        self._index = indexer.index
        self._cache = cache
        self._source = source
        self._settings = settings
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._positions: dict[asyncio.Future[None], Token] = {}
        self._arrivals: dict[int, dict[asyncio.Future[None], tuple[int, int]]] = {}
        self._loading: dict[EntryKey, asyncio.Task[RecordBatch]] = {}

    # -- range reads

    def answer_now(self, token: Token, query: Query) -> list[Buffer] | None:
        """The reply, if nothing has to be waited for."""
        if query.consistency is Consistency.SESSION and not self._indexer.reached(token):
            return None
        seqnums = self._find(query)
        if not seqnums and _may_wait(query):
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
        more = not whole or columns.full or len(seqnums) == query.max_records
        return self._reply(self._seen(), columns, more=more)

    async def answer(self, token: Token, query: Query) -> list[Buffer]:
        """The reply, after waiting for what it needs.

        Raises:
            Overloaded: too many reads wait, or the index did not reach the session's position in time.
            LedgerError: entries cannot be read now.
        """
        if query.consistency is Consistency.SESSION:
            await self._reach(token)
        seqnums = self._find(query)
        if not seqnums and _may_wait(query):
            seqnums = await self._await_records(query)
        seen = self._seen()
        columns = RecordColumns(query.max_bytes)
        spans = list(self._spans(seqnums))
        whole = len(spans) <= ENTRIES_PER_READ
        for start in range(0, min(len(spans), ENTRIES_PER_READ), LOADS_AT_ONCE):
            if columns.full:
                break
            some = spans[start : start + LOADS_AT_ONCE]
            for span, batch in zip(some, await self._load_all(span.place for span in some), strict=True):
                if not columns.full:
                    columns.add(batch, span.place.first_seqnum, span.place.time_ms, span.seqnums)
        more = not whole or columns.full or len(seqnums) == query.max_records
        return self._reply(seen, columns, more=more)

    def _find(self, query: Query) -> list[int]:
        if query.direction is Direction.NEXT:
            return self._index.ascending(query.book, query.tag, query.start, query.stop, query.max_records)
        return self._index.descending(query.book, query.tag, query.start, query.stop, query.max_records)

    def _spans(self, seqnums: Sequence[int]) -> Iterator[_Span]:
        """Groups neighbouring seqnums by their entry."""
        ascending = len(seqnums) < 2 or seqnums[0] < seqnums[-1]
        at = 0
        while at < len(seqnums):
            place = self._indexer.places.locate(seqnums[at])
            if ascending:
                stop = bisect_left(seqnums, place.stop_seqnum, at)
            else:
                stop = at + 1
                while stop < len(seqnums) and seqnums[stop] >= place.first_seqnum:
                    stop += 1
            yield _Span(place, list(seqnums[at:stop]))
            at = stop

    def _reply(self, seen: _Seen, columns: RecordColumns, *, more: bool) -> list[Buffer]:
        return encode_read_reply(seen.token, seen.position, more=more and columns.count > 0, records=columns.finish())

    def _seen(self) -> _Seen:
        return _Seen(dict(self._indexer.positions), self._indexer.covered.get(self._log, 0))

    # -- other reads

    async def prev_many(self, token: Token, book: int, queries: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One row per (tag, at most): the last record at or below. Raises as `answer`; InvalidArgument: too many bytes."""
        await self._reach(token)
        found = [self._index.prev(book, tag, at_most) for tag, at_most in queries]
        seen = self._seen()
        columns = RecordColumns(limits.ENTRY_BYTES)
        for start in range(0, len(found), LOADS_AT_ONCE):
            some = found[start : start + LOADS_AT_ONCE]
            places = [self._indexer.places.locate(seqnum) if seqnum else None for seqnum in some]
            batches = iter(await self._load_all(place for place in places if place is not None))
            for seqnum, place in zip(some, places, strict=True):
                if place is None:
                    columns.add_nothing()
                    continue
                columns.add(next(batches), place.first_seqnum, place.time_ms, [seqnum])
                if columns.full:
                    raise InvalidArgument(
                        f"{len(queries)} records are more than {limits.ENTRY_BYTES} bytes: ask for fewer at once"
                    )
        return self._reply(seen, columns, more=False)

    async def position(self, token: Token) -> list[Buffer]:
        """What the index covers, once it covers the token."""
        await self._reach(token)
        return encode_position(*self._seen())

    async def caught_up(self) -> None:
        """Waits, as long as it takes, until the index has what was ordered before this engine started."""
        while not self._indexer.ready:
            future: asyncio.Future[None] = self._loop.create_future()
            self._positions[future] = {}
            try:
                await future
            finally:
                del self._positions[future]

    # -- batches

    async def _load_all(self, places: Iterable[EntryPlace]) -> list[RecordBatch]:
        """The batches of some entries, from the cache or all at once from their ledgers."""
        batches: list[RecordBatch | asyncio.Task[RecordBatch]] = []
        for place in places:
            key = place.ledger_id, place.entry
            batch = self._cache.get(*key)
            batches.append(batch if batch is not None else self._loading.get(key) or self._start_loading(key))
        waiting = [task for task in batches if isinstance(task, asyncio.Task)]
        if waiting:
            await asyncio.wait(waiting)
        return [task.result() if isinstance(task, asyncio.Task) else task for task in batches]

    def _start_loading(self, key: EntryKey) -> asyncio.Task[RecordBatch]:
        task = self._loading[key] = asyncio.ensure_future(self._load(key))
        task.add_done_callback(lambda done: self._loaded(key, done))
        return task

    def _loaded(self, key: EntryKey, task: asyncio.Task[RecordBatch]) -> None:
        del self._loading[key]
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it; those who gave up need no warning

    async def _load(self, key: EntryKey) -> RecordBatch:
        """Reads an entry that a cut covers: "no such entry" only means that it is not found yet."""
        ledger_id, entry = key
        pause_s = self._settings.retry_first_s
        for tried in range(1, LOAD_TRIES + 1):
            try:
                (batch,) = await self._source.read(ledger_id, entry, entry)
            except (NoSuchEntry, NoSuchLedger, EntryUnknown, NetworkError) as error:
                if tried == LOAD_TRIES:
                    raise EntryUnknown(
                        f"entry {entry} of data ledger {ledger_id} is ordered, but cannot be read now: {error}; "
                        "try again when its bookies are back",
                        ledger_id=ledger_id,
                        entry=entry,
                    ) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._settings.retry_limit_s)
            else:
                self._cache.put(ledger_id, entry, batch)
                return batch
        raise AssertionError("the last try returns or raises")

    # -- waiting

    def advanced(self, books: Iterable[int]) -> None:
        """The index moved; these books have new records."""
        for future, token in self._positions.items():
            if not future.done() and self._indexer.reached(token):
                future.set_result(None)
        if not self._arrivals:
            return
        for book in books:
            for future, (tag, start) in self._arrivals.get(book, {}).items():
                if not future.done() and self._index.newest(book, tag) >= start:
                    future.set_result(None)

    async def _reach(self, token: Token) -> None:
        if self._indexer.reached(token):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        async with self._parking():
            self._positions[future] = token
            try:
                async with asyncio.timeout(self._settings.position_wait_s):
                    await future
            except TimeoutError as error:
                waited = "the session's position" if self._indexer.ready else "the log's end: is its sequencer up?"
                raise Overloaded(
                    f"the index of this engine is at {_readable(self._indexer.positions)} and did not reach {waited} "
                    f"({_readable(token)}) within {self._settings.position_wait_s} s: try again, or another engine"
                ) from error
            finally:
                del self._positions[future]

    async def _await_records(self, query: Query) -> list[int]:
        """Waits until the stream has a record in the range, or the time is over."""
        try:
            async with self._parking(), asyncio.timeout(query.wait_ms / 1000):
                while True:
                    found = self._find(query)
                    if found:
                        return found
                    await self._await_arrival(query)
        except TimeoutError:
            return []

    async def _await_arrival(self, query: Query) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        # Whatever is newer than all that is there may be in the range; what is there is not.
        start = max(query.start, self._index.newest(query.book, query.tag) + 1)
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
        if self.parked >= self._settings.parked_reads:
            raise Overloaded(f"{self.parked} reads wait in this engine already: try again later", found=self.parked)
        self.parked += 1
        try:
            yield
        finally:
            self.parked -= 1

    async def close(self) -> None:
        """Ends all loads; reads that still wait are cancelled by whoever started them."""
        for task in list(self._loading.values()):
            task.cancel()
        while self._loading:
            await asyncio.wait(list(self._loading.values()))


def _may_wait(query: Query) -> bool:
    return bool(query.wait_ms) and query.direction is Direction.NEXT


def _readable(token: Token) -> str:
    return (
        ", ".join(f"log {log}: term {term} entry {entry}" for log, (term, entry) in sorted(token.items())) or "nothing"
    )
