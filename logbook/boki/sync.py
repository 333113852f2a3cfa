"""The SDK for programs without an event loop: scripts, notebooks, Spark workers.

    with boki.sync.connect("boki://127.0.0.1:7040") as client:
        seqnum = client.book("orders").append(b"...", tags=["user/1"])
        for record in client.book("orders").read("user/1"): ...

Same names, arguments, results and errors as the asynchronous classes, whose docstrings are the reference; each method
here only runs its namesake and waits. One thread per client runs an event loop; any number of threads may use a client.
Ctrl-C while waiting cancels the wait, and as everywhere it withdraws no append.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar, overload

import boki
from boki import _arguments as arguments
from boki._arguments import ConsistencyName, Data, Expect, Tag, TrimPairs
from boki._reader import busy
from boki._record import Gap, Record
from boki._since import Since
from boki_common.errors import ClosedError, DiskFull
from boki_common.runtime.loop_thread import LoopThread

T = TypeVar("T")

__all__ = ["Book", "Client", "Cursor", "RecordIterator", "Ticket", "Writer", "connect"]


class Ticket:
    """One submitted record."""

    def __init__(self, thread: LoopThread, ticket: boki.Ticket) -> None:
        self._thread = thread
        self._ticket = ticket

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        return self._ticket.done()

    def result(self, timeout: float | None = None) -> int:
        """The seqnum, once decided, or what `append` raises; TimeoutError after `timeout` seconds."""
        return self._thread.run(_wait(self._ticket, timeout))

    def outcome(self, *, settle: bool = False) -> boki.Outcome:
        """As `boki.Ticket.outcome`."""
        return self._thread.run(self._ticket.outcome(settle=settle))

    def why(self) -> boki.Why:
        """As `boki.Ticket.why`."""
        return self._thread.run(self._ticket.why())


async def _wait(ticket: boki.Ticket, timeout: float | None) -> int:
    async with asyncio.timeout(timeout):
        return await ticket


class RecordIterator(Iterator[Record | Gap]):
    """Records and gaps of `Book.read`, in batches underneath."""

    def __init__(self, thread: LoopThread, records: boki.RecordIterator) -> None:
        self._thread = thread
        self._records = records
        self._batch: Iterator[Record | Gap] = iter(())
        self._asking = threading.Lock()

    def __next__(self) -> Record | Gap:
        record = next(self._batch, None)
        return self._next_of_next_batch() if record is None else record

    def _next_of_next_batch(self) -> Record | Gap:
        if not self._asking.acquire(blocking=False):
            raise busy()
        try:
            record = next(self._batch, None)  # another thread may have asked just before
            if record is None:
                self._batch = iter(self._thread.run(self._records.next_batch()))
                record = next(self._batch)
            return record
        finally:
            self._asking.release()


class Cursor(Iterator[Record | Gap]):
    """Records and gaps of several tags, as `boki.Cursor`; any thread may add and discard while another waits."""

    def __init__(self, thread: LoopThread, cursor: boki.Cursor) -> None:
        self._thread = thread
        self._cursor = cursor

    def __next__(self) -> Record | Gap:
        item = self._thread.run(_next_of(self._cursor))
        if item is None:
            raise StopIteration
        return item

    @property
    def position(self) -> int:
        return self._thread.do(lambda: self._cursor.position)

    @property
    def tags(self) -> tuple[Tag, ...]:
        return self._thread.do(lambda: self._cursor.tags)

    @property
    def behind(self) -> tuple[Tag, ...]:
        return self._thread.do(lambda: self._cursor.behind)

    def current(self, *, within_s: float) -> bool:
        return self._thread.do(lambda: self._cursor.current(within_s=within_s))

    def refresh(self) -> None:
        self._thread.do(self._cursor.refresh)

    def add(self, tag: Tag, start: int | None = None) -> None:
        self._thread.do(lambda: self._cursor.add(tag, start))

    def discard(self, tag: Tag) -> None:
        self._thread.do(lambda: self._cursor.discard(tag))

    def next_batch(self) -> list[Record | Gap]:
        """The next that are there, at least one; none at the end. One crossing to the client's thread for all of them."""
        return self._thread.run(self._cursor.next_batch())


async def _next_of(cursor: boki.Cursor) -> Record | Gap | None:
    return cursor.pop() if cursor.ready or await cursor.fill() else None


class Writer:
    """A named writer. Made by `book.writer(name)`."""

    def __init__(self, thread: LoopThread, writer: boki.Writer) -> None:
        self.name: Final = writer.name
        self._thread = thread
        self._writer = writer

    @property
    def last(self) -> int:
        return self._writer.last

    def append(
        self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None, timeout: float | None = None
    ) -> int:
        return self._thread.run(self._writer.append(data, tags=tags, expect=expect, timeout=timeout))

    def append_at(
        self,
        number: int,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._thread.run(self._writer.append_at(number, data, tags=tags, expect=expect, timeout=timeout))

    def append_many(
        self, records: Iterable[tuple[Data, Sequence[Tag]]], *, first: int | None = None, timeout: float | None = None
    ) -> list[int]:
        return self._thread.run(self._writer.append_many(records, first=first, timeout=timeout))

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        return Ticket(self._thread, self._thread.do(lambda: self._writer.submit(data, tags=tags, expect=expect)))

    def ready(self) -> None:
        self._thread.run(self._writer.ready())

    def refresh(self, timeout: float | None = None) -> None:
        self._thread.run(self._writer.refresh(timeout))


class Book:
    """One LogBook in one session. Made by `client.book(...)`."""

    def __init__(self, thread: LoopThread, book: boki.Book) -> None:
        self.name: Final = book.name
        self.id: Final = book.id
        self._thread = thread
        self._book = book

    def __repr__(self) -> str:
        return f"<boki.sync.Book {self.name!r}>"

    @property
    def position(self) -> int | None:
        return self._book.position

    def using(self, call: Callable[[boki.Book], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the asynchronous book, in the client's loop, and waits: for the blocking faces of libraries."""
        return self._thread.run(call(self._book))

    def append(
        self,
        data: Data,
        *,
        tags: Sequence[Tag] = (),
        expect: Expect | None = None,
        writer: tuple[str, int] | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._thread.run(self._book.append(data, tags=tags, expect=expect, writer=writer, timeout=timeout))

    def append_many(self, records: Iterable[tuple[Data, Sequence[Tag]]], *, timeout: float | None = None) -> list[int]:
        return self._thread.run(self._book.append_many(records, timeout=timeout))

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        return Ticket(self._thread, self._thread.do(lambda: self._book.submit(data, tags=tags, expect=expect)))

    def ready(self) -> None:
        self._thread.run(self._book.ready())

    def writer(self, name: str, *, timeout: float | None = None) -> Writer:
        return Writer(self._thread, self._thread.run(self._book.writer(name, timeout=timeout)))

    def now(self, *, consistency: ConsistencyName = "session", timeout: float | None = None) -> int:
        return self._thread.run(self._book.now(consistency=consistency, timeout=timeout))

    def read_next(
        self,
        tag: Tag | None = None,
        *,
        at_least: int | None = None,
        wait: float | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Record | None:
        return self._thread.run(
            self._book.read_next(tag, at_least=at_least, wait=wait, consistency=consistency, timeout=timeout)
        )

    def read_prev(
        self,
        tag: Tag | None = None,
        *,
        at_most: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Record | None:
        return self._thread.run(self._book.read_prev(tag, at_most=at_most, consistency=consistency, timeout=timeout))

    def check_tail(
        self, tag: Tag | None = None, *, consistency: ConsistencyName = "session", timeout: float | None = None
    ) -> Record | None:
        return self._thread.run(self._book.check_tail(tag, consistency=consistency, timeout=timeout))

    def read_at(
        self, seqnum: int, *, consistency: ConsistencyName = "session", timeout: float | None = None
    ) -> Record | None:
        return self._thread.run(self._book.read_at(seqnum, consistency=consistency, timeout=timeout))

    def read_prev_many(
        self,
        queries: Sequence[tuple[Tag | None, int | None]],
        *,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> list[Record | None]:
        return self._thread.run(self._book.read_prev_many(queries, consistency=consistency, timeout=timeout))

    def read_since(
        self,
        seen: Mapping[Tag, int],
        *,
        at_most: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> Since:
        asking = self._book.read_since(seen, at_most=at_most, consistency=consistency, timeout=timeout)
        return self._thread.run(asking)

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
        how: dict[str, Any] = {"start": start, "stop": stop, "limit": limit, "timeout": timeout}
        book, thread = self._book, self._thread
        if tags is None:
            return RecordIterator(thread, book.read(tag, follow=follow, consistency=consistency, **how))
        arguments.check_read_tags(tags, tag)
        return Cursor(thread, book.read(tags=tags, follow=follow, consistency=consistency, **how))

    def seek(self, time_ms: int, *, consistency: ConsistencyName = "session", timeout: float | None = None) -> int:
        return self._thread.run(self._book.seek(time_ms, consistency=consistency, timeout=timeout))

    def trim(
        self,
        pairs: TrimPairs | None = None,
        *,
        before: int | None = None,
        tag: Tag | None = None,
        forget: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._thread.run(self._book.trim(pairs, before=before, tag=tag, forget=forget, timeout=timeout))

    def set_aux_data(self, seqnum: int, data: Data, *, timeout: float | None = None) -> bool:
        return self._thread.run(self._book.set_aux_data(seqnum, data, timeout=timeout))


class Client:
    """A connected client. Made by `boki.sync.connect`; `with` closes it."""

    def __init__(self, thread: LoopThread, client: boki.Client, *, owner: bool) -> None:
        self._thread = thread
        self._client = client
        self._owner = owner

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owner and not self._thread.elsewhere:
            try:
                self._thread.run(self._client.close())
            except ClosedError:
                pass  # closed before
            finally:
                self._thread.stop()

    def book(self, name: str | int) -> Book:
        return Book(self._thread, self._thread.do(lambda: self._client.book(name)))

    @property
    def refusal(self) -> DiskFull | None:
        return self._client.refusal

    @property
    def cluster(self) -> str | None:
        return self._client.cluster

    def session_token(self) -> str:
        return self._thread.do(self._client.session_token)

    def merge(self, token: str) -> None:
        self._thread.do(lambda: self._client.merge(token))

    def session(self, token: str | None = None) -> Client:
        return Client(self._thread, self._thread.do(lambda: self._client.session(token)), owner=False)


def connect(
    url: str | None = None,
    *,
    timeout: float | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Client:
    """Connects and returns the client. Arguments as for `boki.connect`; also raises what entering it raises."""
    client = boki.connect(url, timeout=timeout, token=token, token_file=token_file)
    thread = LoopThread("boki.sync")
    try:
        opened = thread.run(client.open())
    except BaseException:
        thread.stop()
        raise
    thread.closes(lambda: _drop(opened))
    return Client(thread, opened, owner=True)


async def _drop(client: boki.Client) -> None:
    """Closes at once; what is undecided fails with OutcomeUnknown. Idempotent."""
    if client._connection is not None:
        await client._connection.close(0.0)
