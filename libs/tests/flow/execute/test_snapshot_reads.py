"""What a workflow looks at without a record: the same in each replay, delivered before anything else, as of the last delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import LogBookError
from bokiflow import App, Worker
from bokiflow.client import replayer
from bokiflow.errors import CannotLook
from bokiflow.history import inspection
from bokiflow.runtime.calls import context
from bokiflow.runtime.instance import Instance
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, started, until


async def look(ask: Callable[[int], Awaitable[Any]]) -> Any:
    return await cast(Instance, context()).look(ask)


class Counting:
    """Workflows that look at how many records a stream has, which steps and others append to."""

    def __init__(self, book: BookPort) -> None:
        self.book = book
        self.app = App("counting")
        self.asked: list[int] = []

        async def count(place: int) -> int:
            self.asked.append(place)
            found = 0
            async for item in book.read("counted", stop=place + 1):
                found += not isinstance(item, boki.Gap)
            return found

        @self.app.step
        async def append(seen: int) -> int:
            """`seen` is compared in each replay: it has to be the same."""
            try:
                await book.submit(b"x", tags=["counted"])
            except boki.OutcomeUnknown:
                pass  # there is one more, or not
            return seen

        @self.app.workflow
        async def one_after_the_other() -> list[int]:
            found = [await look(count)]
            for _ in range(2):
                await append(found[-1])
                found.append(await look(count))
            return sorted(found)[:1]

        @self.app.workflow
        async def at_once() -> list[int]:
            """Looks and steps of several tasks: the order of their deliveries is the same in each replay."""

            async def both(number: int) -> int:
                before = cast(int, await look(count))
                await append(10 * number + before)
                return cast(int, await look(count)) - before

            found = await asyncio.gather(both(1), both(2), both(3))
            await append(sum(found))
            return [len(found)]

        @self.app.workflow
        async def signalled() -> list[int]:
            await bokiflow.recv("go")
            seen = await look(count)
            await append(seen)
            return [seen]

        self.workflows = {"steps": one_after_the_other, "at once": at_once}
        self.signalled = signalled
        self.count = count


EXPECTED = {"steps": [0], "at once": [3]}


class Programs:
    """One of them, as programs that are killed."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def work(self, book: BookPort) -> None:
        counting = Counting(book)

        async def work() -> None:
            async with Worker(counting.app, Log(book), name="w", bodies=Inline()) as worker:
                handle = await started(worker, counting.workflows[self.name].call())
                assert await handle.result() == EXPECTED[self.name]

        await while_alive(book, work())

    async def check(self, book: boki.Book) -> None:
        known = await inspection.known(Log(book), "x")
        assert known is not None and known.status == "completed"


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_it_reads_the_same_wherever_its_process_dies(name: str, kinds: tuple[FaultKind, ...]) -> None:
    programs = Programs(name)
    assert (await crash_everywhere(programs.work, programs.work, programs.check, kinds=kinds)).runs > 8


@pytest.mark.parametrize("name", EXPECTED)
async def test_it_reads_the_same_wherever_a_second_worker_comes(name: str) -> None:
    programs = Programs(name)
    assert (await start_anywhere(programs.work, programs.work, programs.check)).runs > 3


async def test_it_sees_what_was_acknowledged_before_a_delivery() -> None:
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("shop")
        counting = Counting(book)
        async with Worker(counting.app, Log(book), bodies=Inline()) as worker:
            handle = await worker.start(counting.signalled.call(), id="x")
            await until(lambda: bool(worker.runs("x")))
            await book.append(b"x", tags=["counted"])
            await handle.signal("go", 1)
            assert await handle.result() == [1]
        history = await replayer.export(Log(book), "x")
        with pytest.raises(boki.InvalidArgument, match="where its log"):
            await replayer.replay(counting.app, history)


async def test_it_makes_no_record_and_waits_for_those_before() -> None:
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("shop")
        counting = Counting(book)
        async with Worker(counting.app, Log(book), bodies=Inline()) as worker:
            before = worker.log.appends
            handle = await worker.start(counting.workflows["steps"].call(), id="x")
            assert await handle.result() == [0]
            assert worker.log.appends - before == 4, "start, two steps, end"
            assert counting.asked == sorted(counting.asked) and len(set(counting.asked)) == 3


async def test_an_answer_that_comes_later_is_waited_for_and_one_that_never_comes_blocks() -> None:
    class Later(LogBookError):
        retryable = True

    class Never(LogBookError):
        pass

    failures: list[Exception] = [Later("not yet"), Later("not yet")]
    app = App("a")

    async def ask(place: int) -> int:
        if failures:
            raise failures.pop(0)
        return 7

    @app.workflow
    async def one() -> int:
        async with asyncio.timeout(0.001):  # durable: it is not delivered while it looks
            return cast(int, await look(ask))

    async with (
        MemoryCluster() as cluster,
        Worker(app, (await cluster.connect()).book("shop"), bodies=Inline()) as worker,
    ):
        assert await (await worker.start(one.call(), id="x")).result() == 7
        failures.append(Never("gone"))
        handle = await worker.start(one.call(), id="y")
        with pytest.raises(CannotLook, match="gone"):
            await handle.result()


async def test_a_run_that_begins_anew_and_a_fork_look_where_the_one_before_did() -> None:
    async with MemoryCluster() as cluster:
        book = (await cluster.connect()).book("shop")
        app = App("a")
        places: list[int] = []
        fail = True

        async def ask(place: int) -> int:
            places.append(place)
            return place

        @app.step
        async def step(seen: int) -> int:
            return seen

        @app.step
        async def last(seen: int) -> int:
            if fail:
                raise ValueError("for once")
            return seen

        @app.workflow
        async def again(left: int) -> int:
            seen = await step(await look(ask))
            if left:
                bokiflow.restart(left - 1)
            return await last(await look(ask) - seen)

        async with Worker(app, book, bodies=Inline()) as worker:
            handle = await worker.start(again.call(1), id="x")
            with pytest.raises(ValueError, match="for once"):
                await handle.result()
            assert places == sorted(places) and len(places) == 3
            fail = False
            fork = await handle.fork(id="y")
            await fork.result()
            assert places[3:] == places[1:3], "of its origin's last run"
