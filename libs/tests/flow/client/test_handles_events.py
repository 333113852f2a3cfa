"""Emitted values that are not kept any more: a reader is told once, and goes on with those that are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import Trimmed
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Handle, Worker
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.iteration import Iteration
from bokilib.records.codec import Json
from libs.tests.flow.conftest import until, working

MISSED = (Trimmed, "x")

app = App("shop")


@app.workflow
async def counts(number: int) -> int:
    """Emit two values in each run; a signal begins the next run, or ends the workflow."""
    bokiflow.emit("n", number)
    bokiflow.emit("n", number + 1)
    if number == 4:
        bokiflow.emit("late", number)
    if await bokiflow.recv("on"):
        bokiflow.restart(number + 2)
    return number


async def next_run(worker: Worker) -> None:
    run = worker._executors["x"].instance.run
    await worker.handle("x").signal("on", True)
    await until(lambda: worker._executors["x"].instance.run == run + 1 and worker._executors["x"].idle)


async def rewritten(worker: Worker) -> None:
    assert await worker._executors["x"].checkpoint()


async def read(values: Iteration[Json] | AsyncIterator[Json]) -> list[object]:
    """Read all values; in the place of what is missing there is the error."""
    found: list[object] = []
    while True:
        try:
            found.append(await anext(values))
        except Trimmed as error:
            found.append((Trimmed, error.facts["id"]))
        except StopAsyncIteration:
            return found


async def begun(worker: Worker) -> Handle[int]:
    handle = await worker.start(counts.call(0), id="x")
    await until(lambda: "x" in worker._executors and worker._executors["x"].idle)
    return handle


async def test_what_a_run_before_a_restart_emitted_is_missed_once_it_is_trimmed(cluster: MemoryCluster) -> None:
    async with working(cluster, app) as worker:
        handle = await begun(worker)
        await rewritten(worker)
        assert await read(handle.events("n", follow=False)) == [0, 1]
        await next_run(worker)
        assert await read(handle.events("n", follow=False)) == [MISSED, 2, 3], "its checkpoint is gone with its history"
        await rewritten(worker)
        assert await read(handle.events("n", follow=False)) == [MISSED, 2, 3]
        await next_run(worker)
        await rewritten(worker)
        assert await read(handle.events("n", follow=False)) == [MISSED, 4, 5]
        assert await read(handle.events("late", follow=False)) == [4], "no other run emitted it"


async def test_a_reader_that_keeps_up_misses_nothing(cluster: MemoryCluster) -> None:
    async with working(cluster, app) as worker, Flow(app, (await cluster.connect()).book("shop")) as outside:
        await begun(worker)
        values = outside.handle("x").events("n")
        found = [await anext(values), await anext(values)]
        for _ in range(2):
            await next_run(worker)
            found += [await anext(values), await anext(values)]
            await rewritten(worker)
        await next_run(worker)
        assert [*found, await anext(values)] == list(range(7))


async def test_a_reader_that_lags_is_told(cluster: MemoryCluster) -> None:
    async with working(cluster, app) as worker, Flow(app, (await cluster.connect()).book("shop")) as outside:
        await begun(worker)
        values = outside.handle("x").events("n")
        assert [await anext(values), await anext(values)] == [0, 1]
        await values.aclose()
        for _ in range(2):
            await next_run(worker)
        await rewritten(worker)
        assert await read(outside.handle("x").events("n", follow=False)) == [MISSED, 4, 5]


async def test_a_fork_of_a_workflow_that_restarted_is_told_what_its_origin_emitted(cluster: MemoryCluster) -> None:
    async with working(cluster, app) as worker, asyncio.timeout(30):
        handle = await begun(worker)
        await next_run(worker)
        fork = await handle.fork(id="y")
        await until(lambda: "y" in worker._executors and worker._executors["y"].idle)
        assert [value async for value in fork.events("n", follow=False)] == [2, 3]
        await fork.signal("on", True)
        await until(lambda: worker._executors["y"].instance.run == 2 and worker._executors["y"].idle)
        with pytest.raises(Trimmed, match="'y'"):
            await anext(fork.events("n", follow=False))


@in_virtual_time
async def test_values_of_an_ended_workflow_are_missed_after_its_history_is_trimmed() -> None:
    ages = {"lease_s": 3_600, "collect_every_s": 3_600, "history_s": 6 * 3_600, "retention_s": 48 * 3_600}
    async with MemoryCluster(clock=LoopClock()) as cluster, working(cluster, app, **ages) as worker:  # type: ignore[arg-type]
        handle = await begun(worker)
        await handle.signal("on", False)
        assert await handle.result() == 0
        assert await read(handle.events("n", follow=False)) == [0, 1]
        await let_pass(12 * 3_600)
        assert await read(handle.events("n", follow=False)) == [MISSED]
        assert await read(handle.events("nothing", follow=False)) == []
        with pytest.raises(Trimmed):
            await anext(handle.events("n"))
