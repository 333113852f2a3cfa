"""The ledger client for programs without an event loop.

    with boki_ledger.sync.connect("zk://127.0.0.1:2181") as client:
        with client.create(replicas=3, acks=2) as writer:
            writer.append_many([b"one", b"two"])
        for entry_id, payload in client.open(writer.ledger_id, recover=True).entries():
            ...

Same names, arguments, results and errors as `client`, `writer` and `reader`, whose docstrings are the reference; each method
here runs its namesake in one loop in a thread of its own, and waits. Any number of threads may use a client.

Where `LedgerWriter.submit` refuses because its window is full, `submit` and `append_many` here wait for room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final

from boki_common.errors import ClosedError, Overloaded
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.loop_thread import Handover, LoopThread, in_loop, waiting
from boki_common.runtime.ports import Buffer
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.runtime.token_file import read_token
from boki_ledger.client import LedgerClient
from boki_ledger.read.reader import LedgerReader
from boki_ledger.settings import LedgerSettings
from boki_ledger.write.writer import LedgerWriter

ENTRIES_PER_HOP: Final = 256
"""Entries that an iterator brings from the loop at once: a hop between threads costs more than an entry."""


class Ticket:
    """One submitted entry."""

    def __init__(self, thread: LoopThread, acks: _Acks, entry_id: int) -> None:
        self.entry_id: Final = entry_id
        self._thread = thread
        self._acks = acks

    def result(self, timeout: float | None = None) -> int:
        """The entry id, once acknowledged, or what `append` raises; TimeoutError after `timeout` seconds."""
        return self._thread.run(self._wait(timeout))

    async def _wait(self, timeout: float | None) -> int:
        async with asyncio.timeout(timeout):
            await self._acks.reach(self.entry_id)
        return self.entry_id


class _Acks:
    """Waiting for a writer, in the loop: woken by each batch of acks, by failure and by the end."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self._ended = False
        self._news: asyncio.Future[None] | None = None
        writer.listen(lambda _lac: self._wake(), lambda _error: self._wake())

    async def submit(self, payload: Buffer) -> int:
        while True:
            try:
                return self.writer.submit(payload)
            except Overloaded:
                await self._wait()

    async def submit_all(self, payloads: Iterable[Buffer]) -> list[int]:
        ids = [await self.submit(payload) for payload in payloads]
        if ids:
            await self.reach(ids[-1])
        return ids

    async def reach(self, entry_id: int) -> None:
        while self.writer.last_acked < entry_id:
            if self.writer.failed is not None:
                raise self.writer.failed
            if self._ended:
                raise ClosedError(
                    f"ledger {self.writer.ledger_id} was closed before entry {entry_id} was acknowledged",
                    ledger_id=self.writer.ledger_id,
                    entry_id=entry_id,
                )
            await self._wait()

    async def close(self) -> int:
        last = await self.writer.close()
        self._ended = True
        self._wake()
        return last

    def abandon(self) -> None:
        self.writer.abandon()
        self._ended = True
        self._wake()

    async def _wait(self) -> None:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set_result(None)


class Writer:
    """A `LedgerWriter`; as a context it is closed at the end, and abandoned if the block raised."""

    def __init__(self, thread: LoopThread, writer: LedgerWriter) -> None:
        self.ledger_id: Final = writer.ledger_id
        self._thread = thread
        self._writer = writer
        self._acks = thread.do(lambda: _Acks(writer))

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    @property
    def last_acked(self) -> int:
        return self._writer.last_acked

    def append(self, payload: Buffer) -> int:
        return self.append_many((payload,))[0]

    def append_many(self, payloads: Iterable[Buffer]) -> list[int]:
        """Appends all, with as many under way as the window holds; returns their ids once the last is acknowledged."""
        return self._thread.run(self._acks.submit_all(payloads))

    def submit(self, payload: Buffer) -> Ticket:
        """Sends an entry, once the window has room; its ticket is done when it is acknowledged."""
        return Ticket(self._thread, self._acks, self._thread.run(self._acks.submit(payload)))

    def close(self) -> int:
        """Closes the ledger behind all that was submitted; returns the last entry. Raises what `LedgerWriter.close` does."""
        return self._thread.run(self._close())

    def abandon(self) -> None:
        self._thread.do(self._acks.abandon)

    async def _close(self) -> int:
        if self._writer.last_submitted >= 0 and self._writer.failed is None:
            await self._acks.reach(self._writer.last_submitted)
        return await self._acks.close()


class Reader:
    """A `LedgerReader`."""

    def __init__(self, thread: LoopThread, reader: LedgerReader) -> None:
        self.ledger_id: Final = reader.ledger_id
        self._thread = thread
        self._inner = reader

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def last_entry(self) -> int:
        return self._inner.last_entry

    confirm = in_loop(LedgerReader.confirm)
    read = waiting(LedgerReader.read)
    read_lac = waiting(LedgerReader.read_lac)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """(entry id, payload) from `first` to `last`, by default the last one known; reads ahead."""
        end = self._inner.last_entry if last is None else last
        if end < first and last is None:
            return iter(())
        return _Entries(self._thread, self._inner, first, lambda start: self._inner.read_range(start, end))

    def follow(self, start: int, *, wait_s: float = 10.0) -> Iterator[tuple[int, memoryview]]:
        return _Entries(self._thread, self._inner, start, lambda start: self._inner.follow(start, wait_s=wait_s))

    close = waiting(LedgerReader.close)


class _Entries(Iterator[tuple[int, memoryview]]):
    """Entries of an asynchronous iterator, some at a time. It goes on after an error, and after a wait that was cut off (Ctrl-C).

    Args:
        begin: makes the asynchronous iterator, from an entry on.
    """

    def __init__(
        self,
        thread: LoopThread,
        reader: LedgerReader,
        first: int,
        begin: Callable[[int], AsyncIterator[tuple[int, memoryview]]],
    ) -> None:
        self._reader = reader
        self._begin = begin
        self._following = first
        """The entry after those that were handed over."""
        self._entries: AsyncIterator[tuple[int, memoryview]] | None = thread.do(lambda: begin(first))
        self._ended = False
        self._handover = Handover[tuple[int, memoryview]](thread.run)

    def __next__(self) -> tuple[int, memoryview]:
        entry = self._handover.next(self._some)
        if entry is None:
            raise StopIteration
        return entry

    async def _some(self) -> list[tuple[int, memoryview]]:
        """Return the next entries: as many as are known to come, and at least one; none at the end."""
        if self._ended:
            return []
        if self._entries is None:
            self._entries = self._begin(self._following)
        taken: list[tuple[int, memoryview]] = []
        try:
            async for entry in self._entries:
                taken.append(entry)
                if len(taken) == ENTRIES_PER_HOP or entry[0] >= self._reader.last_entry:
                    break
        except BaseException:
            self._entries = None  # a generator ends with an error that leaves it: another one reads them again
            raise
        if taken:
            self._following = taken[-1][0] + 1
        self._ended = not taken
        return taken


class Client:
    """A `LedgerClient`. Made by `connect`; `with` closes it."""

    def __init__(self, thread: LoopThread, client: LedgerClient, store: MetadataStore) -> None:
        self._thread = thread
        self._inner = client
        self._store = store

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(
        self,
        *,
        replicas: int = 3,
        acks: int = 2,
        password: bytes = b"",
        digest: str = "CRC32C",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
    ) -> Writer:
        made = self._inner.create(
            replicas=replicas, acks=acks, password=password, digest=digest, custom=custom, ledger_id=ledger_id
        )
        return Writer(self._thread, self._thread.run(made))

    def open(
        self,
        ledger_id: int,
        *,
        recover: bool,
        floor: int = 0,
        carried: Mapping[int, Buffer] | None = None,
        password: bytes = b"",
    ) -> Reader:
        opened = self._inner.open(ledger_id, recover=recover, floor=floor, carried=carried, password=password)
        return Reader(self._thread, self._thread.run(opened))

    delete = waiting(LedgerClient.delete)
    metadata_of = waiting(LedgerClient.metadata_of)
    list = waiting(LedgerClient.list)

    def close(self) -> None:
        """Idempotent."""

        try:
            self._thread.run(_end(self._inner, self._store))
        except ClosedError:
            pass  # closed before
        finally:
            self._thread.stop()


def connect(uri: str, *, settings: LedgerSettings | None = None, token_file: str = "") -> Client:
    """Connects to the metadata store of a cluster, `zk://host:port/chroot` or `sqlite:///absolute/path.db`.

    Args:
        uri: of the store.
        settings: of the client.
        token_file: with the cluster token, if the cluster has one: it is shown to the bookies.

    Raises:
        SettingsError: no such address, or no token in the file. MetadataUnavailable: nothing answers there.
        Unauthenticated: the bookies ask for another token, or for none.
    """
    token = read_token(token_file)
    thread = LoopThread("boki_ledger.sync")

    async def start() -> tuple[LedgerClient, MetadataStore]:
        store = open_store(uri)
        client = LedgerClient(metadata=store, rng=SystemRandom(), clock=SystemClock(), settings=settings, token=token)
        try:
            await store.start()
            await client.start()
            await client.check_admitted()
        except BaseException:
            await client.close()
            await store.close()
            raise
        return client, store

    try:
        client, store = thread.run(start())
    except BaseException:
        thread.stop()
        raise
    thread.closes(lambda: _end(client, store))
    return Client(thread, client, store)


async def _end(client: LedgerClient, store: MetadataStore) -> None:
    """Closes both. Idempotent."""
    await client.close()
    await store.close()
