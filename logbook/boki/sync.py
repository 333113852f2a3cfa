"""The SDK for programs without an event loop: scripts, notebooks, Spark workers.

    with boki.sync.connect("boki://127.0.0.1:7040") as client:
        seqnum = client.book("orders").append(b"...", tags=["user/1"])
        for record in client.book("orders").read("user/1"): ...

Same names, arguments, results and errors as the asynchronous classes, whose docstrings are the reference; each method
here only runs its namesake and waits. One thread per client runs an event loop; any number of threads may use a client.
What ends a wait from outside (Ctrl-C, an alarm's error) cancels it: it withdraws no append, and an iterator goes on without a loss.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar, overload

import boki
from boki import _arguments as arguments
from boki import _book, _client, _cursor, _ticket, _writer
from boki._arguments import ConsistencyName, Data, Expect, Tag
from boki._reader import busy
from boki._record import Gap, Record
from boki_common.errors import ClosedError, DiskFull
from boki_common.runtime.loop_thread import Caller, Handover, LoopThread, in_loop, waiting
from boki_common.unpickled import Unpickled

T = TypeVar("T")

__all__ = ["Book", "Caller", "Client", "Cursor", "Handover", "RecordIterator", "Ticket", "Writer", "connect"]


class Ticket:
    """One submitted record."""

    def __init__(self, thread: LoopThread, ticket: boki.Ticket) -> None:
        self._thread = thread
        self._inner = ticket

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        return self._inner.done()

    def result(self, timeout: float | None = None) -> int:
        """The seqnum, once decided, or what `append` raises; TimeoutError after `timeout` seconds."""
        return self._thread.run(_wait(self._inner, timeout))

    outcome = waiting(_ticket.Ticket.outcome)
    why = waiting(_ticket.Ticket.why)


async def _wait(ticket: boki.Ticket, timeout: float | None) -> int:
    async with asyncio.timeout(timeout):
        return await ticket


class RecordIterator(Iterator[Record | Gap]):
    """Records and gaps of `Book.read`, in batches underneath."""

    def __init__(self, thread: LoopThread, records: boki.RecordIterator) -> None:
        self._records = records
        self._items = Handover[Record | Gap](thread.run)
        self._asking = threading.Lock()

    def __next__(self) -> Record | Gap:
        item = self._items.get()
        if item is None:
            item = self._next()
        if item is None:
            raise StopIteration
        return item

    def _next(self) -> Record | Gap | None:
        if not self._asking.acquire(blocking=False):
            raise busy()
        try:
            return self._items.next(self._records.next_batch)
        finally:
            self._asking.release()


class Cursor(Iterator[Record | Gap]):
    """Records and gaps of several tags, as `boki.Cursor`; any thread may add and discard while another waits."""

    def __init__(self, thread: LoopThread, cursor: boki.Cursor) -> None:
        self._thread = thread
        self._inner = cursor
        self._items = Handover[Record | Gap](thread.run)

    def __next__(self) -> Record | Gap:
        item = self._items.next(self._next)
        if item is None:
            raise StopIteration
        return item

    async def _next(self) -> list[Record | Gap]:
        return [self._inner.pop()] if self._inner.ready or await self._inner.fill() else []

    def next_batch(self) -> list[Record | Gap]:
        """Return the next records and gaps as `boki.Cursor.next_batch`: one crossing to the client's thread for all of them."""
        return self._items.batch(self._inner.next_batch)

    @property
    def position(self) -> int:
        return self._thread.do(self._seen)

    def _seen(self) -> int:
        waiting = self._items.first
        return self._inner.position if waiting is None else min(self._inner.position, _cursor.place(waiting) - 1)

    @property
    def tags(self) -> tuple[Tag, ...]:
        return self._thread.do(lambda: self._inner.tags)

    @property
    def behind(self) -> tuple[Tag, ...]:
        return self._thread.do(lambda: self._inner.behind)

    current = in_loop(_cursor.Cursor.current)
    refresh = in_loop(_cursor.Cursor.refresh)
    add = in_loop(_cursor.Cursor.add)
    discard = in_loop(_cursor.Cursor.discard)


class Writer:
    """A named writer. Made by `book.writer(name)`."""

    def __init__(self, thread: LoopThread, writer: boki.Writer) -> None:
        self.name: Final = writer.name
        self._thread = thread
        self._inner = writer

    @property
    def last(self) -> int:
        return self._inner.last

    append = waiting(_writer.Writer.append)
    append_at = waiting(_writer.Writer.append_at)
    append_many = waiting(_writer.Writer.append_many)

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        return Ticket(self._thread, self._thread.do(lambda: self._inner.submit(data, tags=tags, expect=expect)))

    ready = waiting(_writer.Writer.ready)
    refresh = waiting(_writer.Writer.refresh)


class Book(Unpickled):
    """One LogBook in one session. Made by `client.book(...)`."""

    def __init__(self, thread: LoopThread, book: boki.Book) -> None:
        self.name: Final = book.name
        self.id: Final = book.id
        self._thread = thread
        self._inner = book

    def __repr__(self) -> str:
        return f"<boki.sync.Book {self.name!r}>"

    @property
    def cluster(self) -> str | None:
        return self._inner.cluster

    @property
    def position(self) -> int | None:
        return self._inner.position

    def using(self, call: Callable[[boki.Book], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the asynchronous book, in the client's loop, and waits: for the blocking faces of libraries."""
        return self._thread.run(call(self._inner))

    def run(self, routine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of an object on the asynchronous book, in the client's loop, and waits: for the blocking faces of libraries."""
        return self._thread.run(routine)

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in the client's loop, as `run` does."""
        return self._thread.do(function)

    def serving(self, call: Callable[[boki.Book, Caller], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine as `using` does, and meanwhile runs, in this thread, the functions that the coroutine gives to it."""
        return self._thread.serve(lambda caller: call(self._inner, caller))

    append = waiting(_book.Book.append)
    append_many = waiting(_book.Book.append_many)

    def submit(self, data: Data, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> Ticket:
        return Ticket(self._thread, self._thread.do(lambda: self._inner.submit(data, tags=tags, expect=expect)))

    ready = waiting(_book.Book.ready)

    def writer(self, name: str, *, timeout: float | None = None) -> Writer:
        return Writer(self._thread, self._thread.run(self._inner.writer(name, timeout=timeout)))

    now = waiting(_book.Book.now)
    read_next = waiting(_book.Book.read_next)
    read_prev = waiting(_book.Book.read_prev)
    check_tail = waiting(_book.Book.check_tail)
    read_at = waiting(_book.Book.read_at)
    read_prev_many = waiting(_book.Book.read_prev_many)
    read_since = waiting(_book.Book.read_since)

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
        book, thread = self._inner, self._thread
        if tags is None:
            return RecordIterator(thread, book.read(tag, follow=follow, consistency=consistency, **how))
        arguments.check_read_tags(tags, tag)
        return Cursor(thread, book.read(tags=tags, follow=follow, consistency=consistency, **how))

    seek = waiting(_book.Book.seek)
    trim = waiting(_book.Book.trim)
    set_aux_data = waiting(_book.Book.set_aux_data)


class Client(Unpickled):
    """A connected client. Made by `boki.sync.connect`; `with` closes it."""

    def __init__(self, thread: LoopThread, client: boki.Client, *, owner: bool) -> None:
        self._thread = thread
        self._inner = client
        self._owner = owner

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owner and not self._thread.elsewhere:
            try:
                self._thread.run(self._inner.close())
            except ClosedError:
                pass  # closed before
            finally:
                self._thread.stop()

    def book(self, name: str | int) -> Book:
        return Book(self._thread, self._thread.do(lambda: self._inner.book(name)))

    @property
    def refusal(self) -> DiskFull | None:
        return self._inner.refusal

    @property
    def cluster(self) -> str | None:
        return self._inner.cluster

    session_token = in_loop(_client.Client.session_token)
    merge = in_loop(_client.Client.merge)

    def session(self, token: str | None = None) -> Client:
        return Client(self._thread, self._thread.do(lambda: self._inner.session(token)), owner=False)


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
