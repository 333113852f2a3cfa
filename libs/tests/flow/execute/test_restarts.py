"""Restarts: from whatever task, and with more unreceived signals than fit into a record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Flow, Worker
from bokiflow.history import inspection
from bokiflow.model import history_fold, record_batcher
from bokiflow.model.flow_events import PICKER, Unreceived
from bokiflow.testing import LoopClock
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import CRASHES, UNKNOWNS, FaultKind, crash_everywhere, start_anywhere, while_alive
from libs.tests.flow.conftest import Inline, until, working

SIGNALS = 5
QUIET: dict[str, Any] = {"lease_s": 3_600, "collect_every_s": 1e9}


def collecting(run_again: int = SIGNALS) -> App:
    """Return an app with a workflow that restarts after each signal that it receives."""
    app = App("shop")

    @app.step
    async def note(value: str) -> str:
        return value[:4]

    @app.workflow
    async def collect(found: list[str]) -> list[str]:
        found = [*found, await note(str(await bokiflow.recv("a")))]
        if len(found) < run_again:
            bokiflow.restart(found)
        return found

    return app


def values(length: int) -> list[str]:
    return [f"{number:04}".ljust(length, "x") for number in range(SIGNALS)]


EXPECTED = [one[:4] for one in values(4)]


async def send_all(book: BookPort, length: int) -> None:
    """Start the workflow and send all signals to it while no worker runs."""
    app = collecting()
    async with Flow(app, book) as flow:
        handle = await flow.start(app.find("collect").call([]), id="x")
        for value in values(length):
            await handle.signal("b", value)
            await handle.signal("a", value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few signals fill the record of a restart, and fewer a part."""
    monkeypatch.setattr(history_fold, "EVENT_BYTES", 600)
    monkeypatch.setattr(history_fold, "PART_DATA_BYTES", 300)
    monkeypatch.setattr(record_batcher, "RECORD_BYTES", 600)


async def parts(log: Log) -> list[Unreceived]:
    return [
        event
        async for item in log.book.read(tags.flow_history("x"))
        if isinstance(item, boki.Record)
        for event in PICKER.of(item.seqnum, await log.open(item))
        if isinstance(event, Unreceived)
    ]


async def test_signals_that_fit_no_record_are_handed_on(cluster: MemoryCluster) -> None:
    """At the true bounds of a record: each restart has up to 10 signals of 200 kB."""
    await send_all((await cluster.connect()).book("shop"), 200_000)
    async with working(cluster, collecting()) as worker:
        assert await worker.handle("x").result() == EXPECTED
        assert (await worker.flow.known("x")) is not None


@pytest.mark.usefixtures("small")
async def test_a_fork_has_the_signals_that_a_restart_handed_on(cluster: MemoryCluster) -> None:
    await send_all((await cluster.connect()).book("shop"), 100)
    async with working(cluster, collecting()) as worker:
        await worker.handle("x").result()
        first = await worker.handle("x").fork(id="y")
        assert await first.result() == EXPECTED


class Backlog:
    """A workflow with a backlog that every restart hands on in parts."""

    async def work(self, book: BookPort) -> None:
        async with Worker(collecting(), book, name="w", bodies=Inline()) as worker:
            assert await worker.handle("x").result() == EXPECTED

    async def program(self, book: BookPort) -> None:
        await while_alive(book, self.work(book))

    async def check(self, book: boki.Book) -> None:
        log = Log(book)
        state = await inspection.newest(log, "x", consistency="linearizable")
        assert state is not None and state.ended is not None and state.ended.outcome.value == EXPECTED

    async def before(self, book: BookPort) -> None:
        await send_all(book, 100)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kinds", [CRASHES, UNKNOWNS])
async def test_a_crash_anywhere_loses_and_doubles_no_signal(kinds: tuple[FaultKind, ...]) -> None:
    one = Backlog()
    explored = await crash_everywhere(one.program, one.program, one.check, kinds=kinds, before=one.before)
    assert explored.runs > 10


@pytest.mark.usefixtures("small")
async def test_old_parts_are_trimmed_and_a_checkpoint_has_all_signals() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        await send_all((await cluster.connect()).book("shop"), 100)
        async with working(cluster, collecting(99), **QUIET) as worker:
            await until(lambda: "x" in worker._executors and worker._executors["x"].instance.run == SIGNALS)
            await until(lambda: worker._executors["x"].idle)
            found = await parts(worker.log)
            assert [one.part for one in found] == list(range(found[0].parts)), "those of the last restart"
            await worker._executors["x"].checkpoint()
            assert not await parts(worker.log)
            history = await inspection.whole_history(worker.log, "x")
            assert history.restarted is not None and len(history.restarted.unreceived) == SIGNALS


async def again_in_task(n: int) -> None:
    bokiflow.restart(n + 1)


async def in_group(n: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(again_in_task(n))
        group.create_task(bokiflow.recv("never"))


async def in_nested_groups(n: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(in_group(n))


async def gathered(n: int) -> None:
    await asyncio.gather(again_in_task(n), bokiflow.recv("never"))


async def not_awaited(n: int) -> None:
    task = asyncio.create_task(again_in_task(n))
    await bokiflow.recv("never")
    del task


async def not_awaited_in_a_group(n: int) -> None:
    task = asyncio.create_task(in_group(n))
    await bokiflow.recv("never")
    del task


async def waited_for_without_a_look(n: int) -> None:
    await asyncio.wait([asyncio.create_task(again_in_task(n))])
    await bokiflow.recv("never")


async def left_behind(n: int) -> None:
    task = asyncio.create_task(again_in_task(n))
    await asyncio.sleep(0)
    assert task.done()


WAYS = [
    again_in_task,
    in_group,
    in_nested_groups,
    gathered,
    not_awaited,
    not_awaited_in_a_group,
    waited_for_without_a_look,
    left_behind,
]


def restarting(way: Callable[[int], Awaitable[None]], cleaned: list[int]) -> App:
    app = App("shop")

    @app.step
    async def clean(n: int) -> None:
        cleaned.append(n)

    @app.workflow
    async def again(n: int) -> int:
        if n == 2:
            return n
        try:
            await way(n)
        finally:
            await clean(n)
        return -1

    return app


@pytest.mark.parametrize("way", WAYS)
async def test_a_restart_counts_in_whatever_task_it_is_called(
    cluster: MemoryCluster, way: Callable[[int], Awaitable[None]]
) -> None:
    cleaned: list[int] = []
    app = restarting(way, cleaned)
    async with working(cluster, app) as worker, asyncio.timeout(30):
        assert await (await worker.start(app.find("again").call(0), id="x")).result() == 2
        # A step of a `finally` block that runs already is cancelled with the task.
        assert cleaned == ([] if way is left_behind else [0, 1]), "`finally` blocks run"


@pytest.mark.parametrize("way", [in_group, not_awaited])
async def test_a_second_worker_anywhere_replays_a_restart_of_a_task(way: Callable[[int], Awaitable[None]]) -> None:
    async def program(book: BookPort) -> None:
        app = restarting(way, [])
        async with Worker(app, book, name="w", bodies=Inline()) as worker:
            assert await (await worker.start(app.find("again").call(0), id="x")).result() == 2

    async def check(book: boki.Book) -> None:
        state = await inspection.newest(Log(book), "x", consistency="linearizable")
        assert state is not None and state.ended is not None and state.ended.outcome.value == 2

    assert (await start_anywhere(program, program, check)).runs > 5


async def test_an_error_beside_a_restart_is_not_hidden(cluster: MemoryCluster) -> None:
    async def fails() -> None:
        raise ValueError("no")

    app = App("shop")

    @app.workflow
    async def flow(n: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(again_in_task(n))
            group.create_task(fails())

    async with working(cluster, app) as worker:
        with pytest.raises(BaseException, match="TaskGroup"):
            await (await worker.start(flow.call(0), id="x")).result()


async def test_a_cancellation_after_a_restart_in_a_task_ends_the_workflow(cluster: MemoryCluster) -> None:
    """It came while `finally` blocks of the run still waited: the next run would not get it."""
    app = App("shop")

    @app.workflow
    async def flow(n: int) -> None:
        task = asyncio.create_task(again_in_task(n))
        try:
            await bokiflow.recv("never")
        finally:
            await bokiflow.recv("cleaned")
            del task

    async with working(cluster, app) as worker:
        handle = await worker.start(flow.call(0), id="x")
        await until(lambda: "x" in worker._executors and worker._executors["x"].idle)
        await handle.cancel()
        with pytest.raises(bokiflow.WorkflowCancelled):
            await handle.result()


async def test_a_signal_that_comes_after_a_restart_and_before_its_record_is_kept(cluster: MemoryCluster) -> None:
    """A replay delivers it to the ended run, in which a task still waits for it."""
    app = App("shop")

    @app.workflow
    async def flow(n: int) -> object:
        if not n:
            task = asyncio.create_task(bokiflow.recv("a"))
            await bokiflow.recv("go")
            assert not task.done()
            bokiflow.restart(1)
        return await bokiflow.recv("a")

    async with Flow(app, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(flow.call(0), id="x")
        await handle.signal("go")
        await handle.signal("a", 7)
    async with working(cluster, app) as worker, asyncio.timeout(30):
        assert await worker.handle("x").result() == 7
