"""A LogBook: append to it, read it.

Every call checks its arguments first: what could be refused is refused before it has a number or leaves this process.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, overload

from boki import _arguments as arguments
from boki._append import Within, append, submit
from boki._append_many import append_many
from boki._appends import Appends
from boki._arguments import ConsistencyName, Data, Expect, Tag, TrimPairs
from boki._connection import Connection
from boki._cursor import Cursor
from boki._iterator import RecordIterator, read
from boki._numbers import Numbers
from boki._outcome import Why
from boki._reader import Reader
from boki._record import Record
from boki._since import Since, check_seen, read_since
from boki._ticket import Ticket
from boki._writer import Writer
from boki_common.engine.engine_protocol import Consistency
from boki_common.errors import InvalidArgument
from boki_common.ids import SEQNUM_MAX
from boki_common.unpickled import Unpickled

WRITERS: Final = 1_024
"""Named writers of one book in one session."""


class Book(Unpickled):
    """One LogBook in one session: a totally ordered log of records with tags. Made by `client.book(...)`.

    Seqnums are ints, increasing along the book, not dense. A stream is the records of the book that carry a tag; tag
    None (or 0) is all of them.
    """

    __slots__ = ("__weakref__", "_appends", "_numbers", "_own_reader", "_writers", "name")

    def __init__(self, appends: Appends, numbers: Numbers, name: str | int) -> None:
        self.name: Final = name
        """As given to `client.book`."""
        self._appends = appends
        self._numbers = numbers
        """Of the session's own writer; they are also what the session sees of the book."""
        self._own_reader: Reader | None = None
        self._writers: dict[str, Writer] | None = None

    @property
    def id(self) -> int:
        """The number of the book: itself, or xxh3-64 of its name."""
        return self._numbers.book

    @property
    def cluster(self) -> str | None:
        """The cluster of the book, as `boki.Client.cluster` names it. Cluster and `id` together identify the book in all clients."""
        cluster = self.home.cluster
        return None if cluster is None else f"{cluster:016x}"

    @property
    def home(self) -> Connection:
        """For the SDK: where its tickets are decided."""
        return self._appends.connection

    @property
    def _reader(self) -> Reader:
        """Made when the book is first read: a program may have 100,000 books that it only appends to."""
        if self._own_reader is None:
            self._own_reader = Reader(self.home, self._numbers, self.name)
        return self._own_reader

    def __repr__(self) -> str:
        return f"<boki.Book {self.name!r}>"

    @property
    def position(self) -> int | None:
        """The highest seqnum that this session's view of the book's log covers, or None before anything was seen.

        Everything of the book at or below it is visible to the session. It may be used in `expect=`.
        """
        return self._numbers.position or None

    @property
    def idle(self) -> bool:
        """Whether no append of this book and session is undecided, under its own writer or a named one."""
        return self._numbers.oldest is None and all(writer.idle for writer in (self._writers or {}).values())

    # -- appending

    def append(
        self,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        writer: tuple[str, int] | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Appends one record; returns its seqnum once it is durable and ordered.

        Waits for a place while `limits.WINDOW_RECORDS` records of this book are undecided. A lost connection is made
        again and the record sent again under its number: it is applied once.

        Args:
            data: the record's bytes, up to 1 MiB. A bytearray, like a list of tags, is copied by the call, before it is awaited.
            tags: up to 255 names (1 to 255 bytes of UTF-8) or numbers (1 to 2**64-2), each once; the streams it joins.
            expect: {tag: s}: append only if the stream has no record newer than seqnum s, or none at all, ever, for
                None. Up to 256; the tags need not be among `tags`; 0 is the whole book. A seqnum must lie in what the
                session has seen: a record it read or appended, or a `position`.
            writer: (name, number): append under this number of a named writer; numbers begin at 1 and have no holes. Repeated,
                by any process, also while it is under way, it is applied once and returns the same. See `writer()`.
            timeout: seconds until the call gives up waiting, by default what `connect` was given.

        Raises:
            Conflict: an expectation fails. The record joined no stream and never will.
            OutcomeUnknown: given up after it was sent: it may or may not be in the log.
            Unreachable: given up before it was sent. CallTimeout: with `writer`, no answer about it; the number may have been sent
                before. WindowFull: no place became free in time. DiskFull: too few bookies take writes; it has no number.
            InvalidArgument, InvalidTag, RecordTooLarge, WrongLoop, ClosedError: nothing was sent.
            NumberReused, AnswerForgotten, WriterForgotten: of a named writer.

        Source: DESIGN §6; Boki (SOSP 2021) §3, `logAppend`, and Halfmoon's conditional append.
        """
        if type(data) is not bytes or tags or expect:
            data, tags, expect = arguments.taken(data, tags, expect)
        if writer is not None:
            return self._append_named(writer, data, tags, expect, timeout)
        return append(self._appends, self._numbers, self, data, tags, expect, timeout)

    async def _append_named(
        self, writer: tuple[str, int], data: Data, tags: Sequence[Tag], expect: Expect | None, timeout: float | None
    ) -> int:
        name, number = arguments.check_writer(writer)
        within, named = Within.of(timeout, self.home), self._named(name)
        if named.last_unknown(number):
            named = await self.writer(name, timeout=within.timeout_s)
        return await named.append_within(number, data, tags, expect, within)

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        """Appends without waiting; the ticket can be awaited for the seqnum, or for what `append` raises.

        Records of one book submitted by one session are decided in the order of the calls.

        Raises:
            WindowFull: `limits.WINDOW_RECORDS` records of this book are undecided; `await book.ready()`.
            InvalidArgument, InvalidTag, RecordTooLarge, ClosedError: nothing was sent. An expectation newer than
                `position` is an InvalidArgument here, because nothing can be asked without waiting.
        """
        return submit(self._appends, self._numbers, self, data, tags, expect)

    async def ready(self) -> None:
        """Waits until `submit` finds a place."""
        await self._appends.ready(self._numbers)

    def append_many(
        self, records: Iterable[tuple[Data, Sequence[Tag]]], *, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[int]]:
        """Appends records in order, in few large frames; returns their seqnums.

        Not atomic: a *prefix* is committed. Other appends to the book may come between the records.

        Args:
            records: (data, tags) pairs, as for `append`. All are taken and checked by the call, before it is awaited.
            timeout: seconds until the call gives up waiting, by default what `connect` was given.

        Raises:
            OutcomeUnknown, Unreachable, WindowFull, LogBookError: with the facts `committed`, how many records
                certainly are, `seqnums`, theirs, and `behind`, how many are behind one that failed. With Unreachable and
                WindowFull it is no more than these.
            InvalidArgument, InvalidTag, RecordTooLarge: by the call, with the fact `index`; nothing was sent. ClosedError.
        """
        encoded = arguments.encode_many(records)
        return append_many(self._appends, self._numbers, encoded, self._timeout(timeout))

    async def refresh_view(self, timeout: float | None = None) -> None:
        """For the SDK: ask what the session may see of the book by now."""
        await self._reader.refresh(self._timeout(timeout))

    async def why_undecided(self, ticket: Ticket) -> Why:
        """For the SDK: what a record of this book waits for."""
        return await self._appends.why(self._numbers, ticket)

    def ask_outcome(self, ticket: Ticket, *, settle: bool) -> Ticket | None:
        """For the SDK: nothing of this ticket was given up."""

    # -- named writers

    async def writer(self, name: str, *, timeout: float | None = None) -> Writer:
        """A writer whose numbers survive restarts: `writer.last` is the last number of it that the log has.

        Returns:
            The same object for the same name, as long as this book is used.

        Raises:
            InvalidArgument: no name of 1 to 255 bytes, or more than 1,024 writers of this book in this session.
            TooManyWriters: the book has 1,048,576 named writers, and this would be one more. Unreachable, CallTimeout, ClosedError.
        """
        writer = self._named(name)
        await writer.refresh(timeout)
        self._writers = self._writers or {}
        return self._writers.setdefault(name, writer)

    def _named(self, name: str) -> Writer:
        """Return the writer of a name, or a new one that has not asked the log yet. Raises InvalidArgument."""
        writer_id, writers = arguments.writer_id(name), self._writers or {}
        if name not in writers and len(writers) >= WRITERS:
            raise InvalidArgument(f"expected at most {WRITERS} named writers of one book in a session")
        return writers.get(name) or Writer(self, self._appends, self._appends.named(self._numbers, writer_id), name)

    async def writer_last(self, writer: bytes, timeout: float | None) -> int:
        """For the SDK: the last number of a writer that the log has decided, as of now."""
        return await self._reader.writer_last(writer, self._timeout(timeout))

    # -- reading

    async def now(self, *, consistency: ConsistencyName = "session", timeout: float | None = None) -> int:
        """A snapshot: a seqnum up to which the book can be read, and of which it can be expected that nothing is newer.

        Taken *before* the first read that an append depends on, it is safe in `expect=` for whatever was read at or
        below it: reads with `at_most=` of it have one answer, whichever engine gives it, or raise Trimmed. `position`
        taken after reads is not: what came between would be expected without having been seen.

        Args:
            consistency: "session": at least all that this session has seen and appended. "linearizable": also all that
                anybody's append had returned before this call began. "any": `position`, without asking anybody.
            timeout: seconds until the call gives up, by default what `connect` was given.

        Raises:
            InvalidArgument. Unreachable, CallTimeout: given up. Overloaded. ClosedError.
        """
        return await self._reader.now(arguments.check_consistency(consistency), self._timeout(timeout))

    async def read_next(
        self,
        tag: Tag | None = None,
        *,
        at_least: int | None = None,
        wait: float | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Record | None:
        """The first record of a stream with a seqnum of at least `at_least` (default: the first there is), or None.

        Args:
            tag: a name, a number, or None for every record of the book.
            at_least: inclusive bound.
            wait: seconds to wait for such a record when there is none yet; wakes when one is ordered.
            consistency: "session": sees at least all that this session has seen and appended. "linearizable": also all
                that anybody's append or trim had returned before this call began; the sequencer is asked once for all
                that ask at a time. "any": whatever the engine knows now, without waiting.
            timeout: seconds, beside `wait`, until the call gives up, by default what `connect` was given.

        Raises:
            Trimmed: `at_least` lies below what was trimmed of the stream, so the record asked for may have been trimmed;
                `error.mark` is where what is live begins. Without `at_least` the search begins there.
            Lost: a record before the first that is there was declared lost.
            InvalidArgument, InvalidTag. Unreachable, CallTimeout: given up. ClosedError.
        """
        start = 0 if at_least is None else arguments.check_bound(at_least, "at_least", 0)
        wait_s = 0.0 if wait is None else arguments.check_seconds(wait, "wait", 0.0)
        chosen = Consistency.SESSION if consistency == "session" else arguments.check_consistency(consistency)
        timeout_s = self.home.give_up_s if timeout is None else self._timeout(timeout)
        reader = self._own_reader or self._reader
        return await reader.one(tag, start, chosen, wait_s=wait_s, timeout_s=timeout_s, bounded=bool(at_least))

    async def read_prev(
        self,
        tag: Tag | None = None,
        *,
        at_most: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Record | None:
        """The last record of a stream with a seqnum of at most `at_most` (default: the last there is), or None.

        None when no record from the stream's trim mark to `at_most` is there. An `at_most` above all that this session has
        seen, with the answer, is an InvalidArgument: more may come below it. Other arguments and errors as for `read_next`;
        Trimmed when `at_most` itself lies below the mark, or nothing is found and it lies below what the book has
        forgotten: there may have been one. With an `at_most` that this session has seen, "any" too waits until the
        engine has: the answer at a snapshot is the same everywhere.
        """
        start = SEQNUM_MAX if at_most is None else arguments.check_bound(at_most, "at_most", SEQNUM_MAX)
        chosen = Consistency.SESSION if consistency == "session" else arguments.check_consistency(consistency)
        chosen = arguments.at_snapshot(chosen, start, self._numbers.position)
        timeout_s = self.home.give_up_s if timeout is None else self._timeout(timeout)
        reader = self._own_reader or self._reader
        bounded = at_most is not None
        found = await reader.one(tag, start, chosen, downwards=True, timeout_s=timeout_s, bounded=bounded)
        if start > self._numbers.position:
            arguments.check_reached(start, self._numbers.position)
        return found

    async def check_tail(
        self, tag: Tag | None = None, *, consistency: ConsistencyName = "session", timeout: float | None = None
    ) -> Record | None:
        """The newest record of a stream, or None when it is empty. Arguments and errors as for `read_next`."""
        return await self.read_prev(tag, consistency=consistency, timeout=timeout)

    async def read_at(
        self, seqnum: int, *, consistency: ConsistencyName = "session", timeout: float | None = None
    ) -> Record | None:
        """The record that has this seqnum, or None when no record of this book has it.

        A record of which all tags were trimmed one by one is None too: the book keeps no list of those.

        Raises:
            Trimmed: below the book's mark. Lost. Else as `read_next`.
        """
        arguments.check_seqnum(seqnum, "seqnum")
        chosen = arguments.check_consistency(consistency)
        return await self._reader.one(None, seqnum, chosen, stop=seqnum + 1, timeout_s=self._timeout(timeout))

    async def read_prev_many(
        self,
        queries: Sequence[tuple[Tag | None, int | None]],
        *,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> list[Record | None]:
        """`read_prev` for many streams in one round trip, all of one moment.

        Args:
            queries: up to 4,096 pairs (tag, at_most); None as in `read_prev`.

        Returns:
            One record or None per query, in the order of the queries.

        Raises:
            Trimmed: as `read_prev`, for the whole call; `error.index` and `error.tag` say which query. Else as `read_next`.
        """
        chosen = arguments.check_consistency(consistency)
        tags, pairs = arguments.check_queries(queries)
        timeout_s = self._timeout(timeout)
        if not pairs:
            return []
        position = self._numbers.position
        given = [at_most for _, at_most in pairs if at_most <= position]
        chosen = arguments.at_snapshot(chosen, max(given, default=SEQNUM_MAX), position)
        found = await self._reader.prev_many(pairs, tags, consistency=chosen, timeout_s=timeout_s)
        arguments.check_reached(max((one for _, one in pairs if one < SEQNUM_MAX), default=0), self._numbers.position)
        return found

    async def read_since(
        self,
        seen: Mapping[Tag, int],
        *,
        at_most: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Since:
        """What is new in some streams to who has seen each of them up to somewhere; what is not new is not sent.

        Whoever keeps something that he computed from streams asks so whether it still holds, in one round trip:
        `position, records = await book.read_since({"a": seqnum, "b": 0})`. The position is a snapshot as of which these are all;
        without tags it is that of `now`.

        Args:
            seen: up to 255 tags, and up to where each is known; 0: nothing of it.
            at_most: as of this seqnum, by default as of now. What was seen above it is not given again.
            consistency, timeout: as for `now`.

        Raises:
            Trimmed, Lost: some of what is new may be gone; `error.tag` says of which stream, where it was one.
            InvalidArgument, InvalidTag: nothing was asked; or `at_most` lies above all that this session has seen. Else as `now`.
        """
        known = check_seen(seen)
        chosen = arguments.check_consistency(consistency)
        return await read_since(self._reader, known, at_most, chosen, timeout_s=self._timeout(timeout))

    @overload
    def read(
        self,
        tag: Tag | None = None,
        *,
        tags: None = None,
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> RecordIterator: ...

    @overload
    def read(
        self,
        *,
        tags: Sequence[Tag],
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Cursor: ...

    def read(
        self,
        tag: Tag | None = None,
        *,
        tags: Sequence[Tag] | None = None,
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> RecordIterator | Cursor:
        """The records of a stream in order, for `async for`: batches of up to 4,096 records or 1 MiB underneath.

        Where records are missing, because they were trimmed or lost before this iterator got there, it gives one
        `boki.Gap` in their place. What was trimmed before `start` was named is no gap of a read without `start`.

        Args:
            tag: as in `read_next`.
            tags: instead of one: up to 255 names or numbers. A record that has any of them is given once, and a gap says of which
                tag it is. The `boki.Cursor` that is returned says how far it has read, and takes other tags on the way.
            start: first seqnum, inclusive; default: the beginning.
            stop: last seqnum, exclusive; default: what is there when the reading begins.
            follow: wait for new records and never end, or only at `stop`.
            limit: end after so many records; gaps do not count. No more than these are looked up and sent.
            consistency, timeout: as in `read_next`, for each batch; waiting for new records does not count.

        Raises:
            InvalidArgument, InvalidTag at once; the errors of `read_next` while iterating.
        """
        bounds: dict[str, int | None] = {"start": start, "stop": stop, "limit": limit}
        timeout_s = self._timeout(timeout)
        return read(self._reader, tag, tags, follow=follow, consistency=consistency, timeout_s=timeout_s, **bounds)

    async def seek(
        self, time_ms: int, *, consistency: ConsistencyName = "session", timeout: float | None = None
    ) -> int:
        """Where to read from to get what was ordered at or after a time: for `start=` and `at_least=`.

        Args:
            time_ms: milliseconds since 1970 UTC, on the clock of `record.time_ms`.

        Returns:
            The seqnum of the first place of the book's log ordered at or after it; behind its end, if there is none yet.
            A record of another book may have it.

        Raises:
            As `read_next`.
        """
        return await self._reader.seek(
            arguments.check_time_ms(time_ms), arguments.check_consistency(consistency), self._timeout(timeout)
        )

    # -- trimming, aux data

    async def trim(
        self,
        pairs: TrimPairs | None = None,
        *,
        before: int | None = None,
        tag: Tag | None = None,
        forget: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Drops what is below a mark, for everybody and for ever: `trim(before=seqnum, tag="a")` or `trim([("a", s), …])`.

        Ordered like an append: when it returns, this session no longer sees what was trimmed. A record goes when it is
        below the book's mark, or all its tags have been trimmed past it; until then its other streams keep it. Only what
        this session sees at the call can be trimmed: marks never reach into the future.

        Args:
            pairs: up to 4,096 of (tag, first seqnum to keep); tag None or 0 is the whole book.
            before: first seqnum to keep, of `tag`.
            forget: also forget streams that are empty now and had their newest record over an hour ago (the engines' setting
                `forget_age_s`): `expect={tag: None}` holds for them again. Without it the newest seqnum of a stream outlives
                its records. All pairs of a call are judged at one place of the log: whoever knows something by several streams
                names them together. An engine that has not run for so long forgets none; trim again later.
            timeout: seconds, as in `append`.

        Raises:
            InvalidArgument, InvalidTag: nothing was sent. Unreachable, CallTimeout: given up; the trim may have been
                applied, and may be repeated. ClosedError.
        """
        marks = arguments.encode_trim(pairs, before, tag)
        forget = arguments.check_flag(forget, "forget")
        timeout_s = self._timeout(timeout)
        if max(marks.values()) > self._numbers.position + 1:
            await self._reader.refresh(timeout_s)
        seen = self._numbers.position + 1
        clamped = [(number, min(mark, seen)) for number, mark in marks.items()]
        await self._reader.trim(clamped, forget=forget, timeout_s=timeout_s)

    def set_aux_data(self, seqnum: int, data: Data, *, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Leaves up to 1 MiB of cached data beside a record: reads return it as `record.aux_data`.

        Best effort: it lives in the cache of the engine this client is connected to, may vanish at any time, and other
        engines do not have it. The last call wins. For what can be computed again, such as the state up to a record.

        Returns:
            Whether the engine took it; False when it does not have the record (yet, or any more).

        Raises:
            InvalidArgument, RecordTooLarge: nothing was sent. Unreachable, CallTimeout, ClosedError.
        """
        arguments.check_seqnum(seqnum, "seqnum")
        return self._reader.set_aux(seqnum, arguments.check_aux(data), self._timeout(timeout))

    def _timeout(self, timeout: float | None) -> float:
        return arguments.check_seconds(timeout, "timeout", self.home.give_up_s)
