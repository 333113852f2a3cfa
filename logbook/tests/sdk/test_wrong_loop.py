"""A client, or what is made by it, in another event loop than its own: an error before anything is numbered, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import boki
import boki.sync
from boki.testing import MemoryCluster
from boki_common import limits
from boki_common.errors import BokiError, UsageError
from boki_common.runtime import confined

Use = Callable[[], Coroutine[Any, Any, object]]


class Used:
    """A client with a book, a named writer, a ticket and an iterator that were made where it is at home."""

    def __init__(self, client: boki.Client, writer: boki.Writer) -> None:
        self.client = client
        self.book = client.book("b")
        self.writer = writer
        self.undecided: boki.Ticket | None = None

    @classmethod
    async def make(cls, cluster: MemoryCluster) -> Used:
        client = await boki.connect(cluster.url, timeout=5)
        used = cls(client, await client.book("b").writer("w"))
        await used.book.append(b"at home", tags=["a"])
        return used

    def uses(self) -> Iterator[Use]:
        book, writer = self.book, self.writer

        async def submit() -> None:
            _ = book.submit(b"x")

        async def wait() -> None:
            assert self.undecided is not None
            await self.undecided

        async def outcome() -> None:
            assert self.undecided is not None
            await self.undecided.outcome(settle=True)

        yield from (
            submit,
            lambda: book.append(b"x"),
            lambda: book.append(b"x", timeout=1),
            lambda: book.append(b"x", writer=("w", 1)),
            lambda: book.append(b"x", writer=("new", 1)),
            lambda: book.append_many([(b"x", ())] * 2),
            lambda: writer.append(b"x"),
            writer.refresh,
            book.ready,
            book.read_next,
            lambda: book.read_next(at_least=1 << 62, wait=5),
            lambda: book.read_prev_many([("a", None)]),
            lambda: book.read("a").next_batch(),
            book.now,
            lambda: book.trim(before=1 << 62),
            lambda: book.seek(0),
        )
        if self.undecided is not None:
            yield from (wait, outcome)

    async def refuses_all(self, skip: int = 0) -> None:
        for use in [*self.uses()][skip:]:
            async with asyncio.timeout(5):
                with pytest.raises(boki.WrongLoop) as caught:
                    await use()
            assert caught.value.definite and not caught.value.retryable


@contextmanager
def cluster_elsewhere() -> Iterator[tuple[asyncio.Runner, MemoryCluster]]:
    """A cluster in a loop of its own."""
    with asyncio.Runner() as home:
        cluster = MemoryCluster()
        home.run(cluster.__aenter__())
        yield home, cluster
        home.run(cluster.__aexit__())


def test_in_the_next_loop_every_call_is_refused_and_nothing_is_numbered() -> None:
    with cluster_elsewhere() as (home, cluster):
        used = home.run(Used.make(cluster))

        async def leave_one_undecided() -> None:
            used.undecided = used.book.submit(b"late")

        home.run(leave_one_undecided())
        with asyncio.Runner() as other:
            other.run(used.refuses_all())
            with pytest.raises(boki.WrongLoop):
                other.run(used.client.close())

        async def records() -> list[bytes]:
            assert used.undecided is not None
            await used.undecided
            await used.book.append(b"again at home")
            found = [record.data async for record in used.book.read()]
            await used.client.close()
            return found

        assert home.run(records()) == [b"at home", b"late", b"again at home"]


def test_in_another_thread_every_call_is_refused_also_in_a_turn_that_appends() -> None:
    async def play() -> None:
        async with MemoryCluster() as cluster:
            used = await Used.make(cluster)
            used.undecided = used.book.submit(b"late")  # its frame leaves at the end of the turn
            in_thread = asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(used.refuses_all()))
            while not in_thread.done():
                if used.undecided.done():
                    used.undecided = used.book.submit(b"more")
                await asyncio.sleep(0)
            await in_thread
            with pytest.raises(boki.WrongLoop):
                _ = await asyncio.to_thread(used.book.submit, b"without any loop")
            found = [record.data async for record in used.book.read()]
            assert set(found) <= {b"at home", b"late", b"more"}
            await used.client.close()

    asyncio.run(play())


def test_a_client_whose_loop_is_closed_says_so_and_is_closed_without_waiting() -> None:
    async def open_and_leave() -> Used:
        cluster = MemoryCluster()
        return await Used.make(await cluster.__aenter__())

    with asyncio.Runner() as gone:
        used = gone.run(open_and_leave())
    with asyncio.Runner() as other:
        with pytest.raises(boki.WrongLoop, match="is closed"):
            other.run(used.book.append(b"x"))
        other.run(used.client.close())
        with pytest.raises(boki.ClosedError):
            other.run(used.book.append(b"x"))


def test_a_full_window_makes_nobody_wait_in_another_loop() -> None:
    with cluster_elsewhere() as (home, cluster):
        used = home.run(Used.make(cluster))

        async def fill() -> None:
            for _ in range(limits.WINDOW_RECORDS):
                _ = used.book.submit(b"x")

        home.run(fill())
        with asyncio.Runner() as other:
            with pytest.raises(boki.WindowFull):
                _ = used.book.submit(b"x")
            other.run(used.refuses_all(skip=1))
        home.run(used.client.close())


class NotHere(UsageError):
    """What is said to code that must reach nothing outside."""


class Confining(asyncio.SelectorEventLoop):
    """A loop of such code, as a workflow's."""

    def refused(self, what: str) -> BokiError:
        return NotHere(what)

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Run the code of the block as this loop would: in a turn of the loop that runs already."""
        outer = asyncio.get_running_loop()
        asyncio._set_running_loop(self)
        confined.running.append(self)
        try:
            yield
        finally:
            confined.running.remove(self)
            asyncio._set_running_loop(outer)


async def test_confined_code_is_refused_also_in_a_turn_that_appends_and_opens_no_client() -> None:
    async with MemoryCluster() as cluster:
        used, loop = await Used.make(cluster), Confining()
        mine = used.book.submit(b"mine")  # leaves at the end of this turn
        with loop.runs():
            for call in (
                lambda: used.book.submit(b"x"),
                lambda: boki.connect(cluster.url),
                lambda: boki.sync.connect(cluster.url),
                lambda: used.client.open().send(None),
                lambda: used.book.append(b"x").send(None),
                lambda: used.client.close().send(None),
            ):
                with pytest.raises(NotHere):
                    _ = call()
        loop.close()
        await mine
        assert [record.data async for record in used.book.read()] == [b"at home", b"mine"]
        await used.client.close()
