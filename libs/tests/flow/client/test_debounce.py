"""Debounced starts: many calls start one workflow with the newest arguments, and no call is lost between two rounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Worker
from bokiflow.client import debounce
from bokiflow.model.flow_events import PICKER, Started
from bokiflow.model.record_batcher import SHARED_BYTES
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.ports import BookPort
from bokilib.testing import CRASHES, UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.conftest import SetClock
from libs.tests.flow.conftest import Inline, Stepping, until, working
from libs.tests.flow.retention.test_collector import DAY_MS, later


def search(ran: list[str]) -> App:
    app = App("search")

    @app.workflow
    async def index(what: str) -> str:
        ran.append(what)
        return what

    return app


async def test_many_calls_are_one_start_with_the_newest_arguments(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")
    async with working(cluster, app) as worker:
        handles = [
            await worker.flow.debounce(index.call(f"{number}"), id="doc", quiet_s=2, at_most_s=100)
            for number in range(5)
        ]
        other = await worker.flow.debounce(index.call("else"), id="other", quiet_s=0.1)
        assert await other.result() == "else"
        assert await asyncio.gather(*(handle.result() for handle in handles)) == ["4"] * 5
        assert len({handle.id for handle in handles}) == 1 and sorted(ran) == ["4", "else"]
        again = await worker.flow.debounce(index.call("5"), id="doc", quiet_s=0.1)
        assert again.id != handles[0].id and await again.result() == "5"


async def test_a_call_that_the_round_could_not_start_is_refused(cluster: MemoryCluster) -> None:
    """A round starts its workflow in a record that has the arguments twice."""
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")
    async with working(cluster, app) as worker:
        with pytest.raises(AtomicTooLarge, match="arguments of workflow 'index' in a debounced call of up to 253952"):
            await worker.flow.debounce(index.call("x" * SHARED_BYTES), id="doc", quiet_s=0.1)
        handle = await worker.flow.debounce(index.call("x" * (SHARED_BYTES - 8)), id="doc", quiet_s=0.1)
        assert len(await handle.result()) == SHARED_BYTES - 8


async def test_many_apps_of_a_book_debounce_calls_of_one_id(cluster: MemoryCluster) -> None:
    """Ids of rounds are those of the book: the first rounds of all apps want one id."""
    begun = []
    for number in range(debounce.ATTEMPTS + 2):
        app = App(f"app {number}")

        @app.workflow
        async def index(what: str) -> str:
            return what

        flow = Flow(app, (await cluster.connect()).book("shop"))
        calls = [await flow.debounce(index.call(f"{n}"), id="doc", quiet_s=2) for n in range(2)]
        assert calls[0].id == calls[1].id
        begun.append(calls[0].id)
    assert len(set(begun)) == len(begun)


async def test_a_worker_that_lacks_the_workflow_runs_the_round(
    cluster: MemoryCluster,
) -> None:
    """In a rolling deploy the old program owns all partitions until it is drained."""
    ran: list[str] = []
    app = search(ran)
    async with (
        working(cluster, App("search"), "old", lease_s=3_600) as old,
        working(cluster, app, "new", lease_s=3_600) as new,
    ):
        handle = await new.flow.debounce(app.find("index").call("doc"), id="doc", quiet_s=0.01)
        await until(lambda: bool(old._takeover.aside))
        assert await new.handle("debounce/doc/0").status() == "completed"
        await old.drain()
        assert await handle.result() == "doc" and ran == ["doc"]


async def test_calls_that_never_end_are_started_in_time(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")
    async with working(cluster, app) as worker:
        number = 0
        async with asyncio.timeout(60):
            while len(ran) < 2:
                number += 1
                await worker.flow.debounce(index.call(f"{number}"), id="doc", quiet_s=1, at_most_s=1.2)
                await asyncio.sleep(0)
        last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=0.1)
        assert await last.result() == "last"
        assert ran[:2] == sorted(ran[:2], key=int)


async def test_a_call_at_the_moment_of_closing_is_in_this_round_or_the_next(cluster: MemoryCluster) -> None:
    """Calls come while the round closes; the last call is run, in either order."""
    for moment in range(0, 400, 25):
        ran: list[str] = []
        app = search(ran)
        index = app.find("index")
        client = await cluster.connect()
        async with Worker(app, client.book(f"book {moment}"), name="w", bodies=Inline()) as worker:
            first = await worker.flow.debounce(index.call("first"), id="doc", quiet_s=0.005)
            for _ in range(moment):
                await asyncio.sleep(0)
            last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=0.005)
            found = [await first.result(), await last.result()]
            assert found == (["last", "last"] if first.id == last.id else ["first", "last"]), moment
            assert ran == (["last"] if first.id == last.id else ["first", "last"])


@asynccontextmanager
async def working_in_virtual_time(app: App) -> AsyncIterator[Worker]:
    """Yield a worker in virtual time, without heartbeats, that collects only when the test calls it."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        options: dict[str, Any] = {"lease_s": 3_600, "collect_every_s": 1e9}
        async with working(cluster, app, **options) as worker:
            yield worker


@pytest.mark.parametrize("days", [1, 2, 6, 7, 8, 9])
async def test_a_round_is_found_or_begun_anew_however_long_the_last_one_is_over(days: int) -> None:
    """The history is trimmed after a minute, the end repeated each day, and the id forgotten after a week."""
    ran: list[str] = []
    app, clock = search(ran), SetClock()
    index = app.find("index")
    async with MemoryCluster(clock=clock) as cluster, working(cluster, app) as worker:

        async def call(what: str) -> str:
            handle = await worker.flow.debounce(index.call(what), id="doc", quiet_s=0.01)
            assert await handle.result() == what
            clock.ms += 1_000
            return handle.id

        ids = [await call("0"), await call("1")]
        for _ in range(days):
            await later(worker, clock, DAY_MS)
        await later(worker, clock, DAY_MS // 48)  # what is to be forgotten may not be yet
        ids += [await call("2"), await call("3")]
        assert ran == ["0", "1", "2", "3"]
        assert len(set(ids[:2])) == 2 and len(set(ids[1:])) == 3


@in_virtual_time
async def test_a_call_at_the_very_moment_the_round_fires_is_in_it_or_in_the_next() -> None:
    """The call comes at the same instant as the timer, before or after it in the order of the loop."""
    found: set[int] = set()
    for steps in range(0, 60, 2):
        ran: list[str] = []
        app = search(ran)
        index = app.find("index")
        async with working_in_virtual_time(app) as worker:
            first = await worker.flow.debounce(index.call("first"), id="doc", quiet_s=5)
            due_s = asyncio.get_running_loop().time() + 5
            await let_pass(4.9)
            while asyncio.get_running_loop().time() < due_s - 0.002:
                await let_pass(0.001)
            for _ in range(steps):
                await let_pass(0.000_1)
            last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=5)
            assert await last.result() == "last"
            assert await first.result() == ("last" if first.id == last.id else "first")
            assert ran == (["last"] if first.id == last.id else ["first", "last"])
            found.add(len(ran))
    assert found == {1, 2}, "both happen"


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
@in_virtual_time
async def test_a_round_is_as_long_as_it_should_be_where_the_clock_of_the_log_jumps(jump_ms: int) -> None:
    """No call is lost: a call after the close is in the next round."""
    ran: list[str] = []
    app = search(ran)
    index = app.find("index")

    clock = Stepping()
    async with MemoryCluster(clock=clock) as cluster:
        options: dict[str, Any] = {"lease_s": 60, "collect_every_s": 1e9}
        async with working(cluster, app, **options) as worker:
            first = await worker.flow.debounce(index.call("first"), id="doc", quiet_s=60, at_most_s=600)
            await let_pass(30)
            clock.ahead_ms = jump_ms
            await let_pass(30.1)
            last = await worker.flow.debounce(index.call("last"), id="doc", quiet_s=60, at_most_s=600)
            began_s = asyncio.get_running_loop().time()
            results = [await first.result(), await last.result()]
            took_s = asyncio.get_running_loop().time() - began_s
            assert results == ["first", "last"] and 60 <= took_s < 61


async def _call(app: App, book: BookPort) -> str:
    """Call until the outcome is known, wait for the workflow that it starts, and return its id."""
    async with Worker(app, book, name="w", bodies=Inline()) as worker:
        while True:
            try:
                handle = await worker.flow.debounce(app.find("index").call("a"), id="doc", quiet_s=0.01)
                break
            except boki.OutcomeUnknown:
                pass
        assert await handle.result() == "a"
        return handle.id


async def _runs(book: boki.Book) -> list[str]:
    """Return the ids of workflows that rounds started, in the order of the log."""
    log, found = Log(book), []
    async for item in book.read():
        assert not isinstance(item, boki.Gap)
        for event in PICKER.of(item.seqnum, await log.open(item)):
            if isinstance(event, Started) and event.name == "index":
                found.append(event.id)
    return found


@pytest.mark.parametrize("kinds", [CRASHES, UNKNOWNS])
@in_virtual_time
async def test_a_crash_or_a_lost_answer_anywhere_starts_each_round_once(kinds: tuple[FaultKind, ...]) -> None:
    """A call that is repeated because its answer was lost may be a round of its own."""
    called: list[str] = []

    async def work(book: BookPort) -> None:
        called.append(await _call(search([]), book))

    async def program(book: BookPort) -> None:
        await while_alive(book, work(book))

    async def check(book: boki.Book) -> None:
        found = await _runs(book)
        assert 1 <= len(found) <= 3 and len(set(found)) == len(found), (
            "a program, a repetition, and who comes after a crash"
        )
        assert called[-1] == found[-1], "whose round is known, its round started something"

    assert (await crash_everywhere(program, program, check, kinds=kinds, clock=LoopClock())).runs > 10


@in_virtual_time
async def test_a_second_worker_anywhere_that_calls_too_loses_neither_call() -> None:
    called: list[str] = []

    async def program(book: BookPort) -> None:
        async def work() -> None:
            called.append(await _call(search([]), book))

        await while_alive(book, work())

    async def check(book: boki.Book) -> None:
        found = await _runs(book)
        assert 1 <= len(found) <= 2 and len(set(found)) == len(found) and set(called) <= set(found)
        called.clear()

    assert (await start_anywhere(program, program, check, clock=LoopClock())).runs > 10


@pytest.mark.parametrize(("quiet_s", "most_s"), [(0, 1), (2, 1), (-1, None)])
def test_times_that_mean_nothing_are_refused(quiet_s: float, most_s: float | None) -> None:
    call = search([]).find("index").call("a")
    with pytest.raises(boki.InvalidArgument, match="quiet_s"):
        debounce.checked(call, quiet_s, most_s)


@in_virtual_time
async def test_what_is_started_has_the_newest_attributes() -> None:
    app = search([])
    call = app.find("index").call("a")
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, app) as worker:
        for day in ("one", "two"):
            handle = await worker.flow.debounce(call, id="x", quiet_s=1, attributes={"day": day})
        await handle.result()
        assert await worker.flow.find(day="two") == [handle.id] and await worker.flow.find(day="one") == []
        with pytest.raises(boki.InvalidArgument, match="expected up to 8"):
            await worker.flow.debounce(call, id="x", quiet_s=1, attributes=dict.fromkeys("123456789", "x"))
