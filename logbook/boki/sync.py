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
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final

import boki
from boki._arguments import ConsistencyName, Data, Expect, Tag, TrimPairs
from boki._record import Gap, Record
from boki_common.errors import ClosedError
from boki_common.runtime.loop_thread import LoopThread

__all__ = ["Book", "Client", "RecordIterator", "Ticket", "Writer", "connect"]


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

    def __next__(self) -> Record | Gap:
        record = next(self._batch, None)
        if record is None:
            self._batch = iter(self._thread.run(self._records.next_batch()))
            record = next(self._batch)
        return record


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

    def append_many(self, records: Iterable[tuple[Data, Sequence[Tag]]], *, timeout: float | None = None) -> list[int]:
        return self._thread.run(self._writer.append_many(records, timeout=timeout))

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

    def read(
        self,
        tag: Tag | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
        limit: int | None = None,
        consistency: ConsistencyName = "session",
        timeout: float | None = None,
    ) -> RecordIterator:
        records = self._book.read(
            tag, start=start, stop=stop, follow=follow, limit=limit, consistency=consistency, timeout=timeout
        )
        return RecordIterator(self._thread, records)

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
        if self._owner:
            try:
                self._thread.run(self._client.close())
            except ClosedError:
                pass  # closed before
            finally:
                self._thread.stop()

    def book(self, name: str | int) -> Book:
        return Book(self._thread, self._thread.do(lambda: self._client.book(name)))

    def session_token(self) -> str:
        return self._thread.do(self._client.session_token)

    def merge(self, token: str) -> None:
        self._thread.do(lambda: self._client.merge(token))

    def session(self, token: str | None = None) -> Client:
        return Client(self._thread, self._thread.do(lambda: self._client.session(token)), owner=False)


def connect(url: str | None = None, *, timeout: float | None = None) -> Client:
    """Connects and returns the client. Arguments as for `boki.connect`; also raises what entering it raises."""
    client = boki.connect(url, timeout=timeout)
    thread = LoopThread("boki.sync")
    try:
        opened = thread.run(client.open())
    except BaseException:
        thread.stop()
        raise
    return Client(thread, opened, owner=True)
