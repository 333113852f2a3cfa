"""Workers that are left while their task is cancelled, at any turn of the event loop: nothing of them runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Worker
from bokiflow.testing import LoopClock, in_virtual_time

LEASE_S = 3.0
TURNS = 48
"""Turns of the event loop that a worker needs to be left, and more."""


class Office:
    """Workflows, one with a step that cleans up for a while when it is cancelled."""

    def __init__(self) -> None:
        self.app = App("office")
        self.begun = asyncio.Event()

        @self.app.step
        async def tidies_up() -> None:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await let_pass(0.5)

        @self.app.workflow
        async def long() -> None:
            await tidies_up()

        @self.app.workflow
        async def order(number: int) -> int:
            return number

        self.long, self.order = long, order


def of_workers() -> list[str]:
    """Return the names of the tasks of workers."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name for name in names if name.startswith(("bokiflow", "bokilib")))


async def cut_off(task: asyncio.Task[None], turns: int) -> None:
    """Cancel a task now, and again after some turns of the event loop; wait for it."""
    task.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_nothing_runs_on_of_a_worker_that_is_cancelled_again_while_it_is_left() -> None:
    for turns in range(1, TURNS):
        async with MemoryCluster(clock=LoopClock()) as cluster:
            office = Office()
            worker = Worker(office.app, (await cluster.connect()).book("b"), name="a", lease_s=LEASE_S)

            async def lives(worker: Worker = worker, office: Office = office) -> None:
                async with worker:
                    await worker.start(office.long.call(), id="x")
                    await asyncio.Event().wait()

            living = asyncio.create_task(lives())
            await office.begun.wait()
            await cut_off(living, turns)
            await let_pass(1)
            assert not of_workers(), f"cancelled again after {turns} turns"


@in_virtual_time
async def test_nothing_runs_on_of_a_worker_that_is_cancelled_at_any_turn_of_its_life() -> None:
    """Also where its block ends by itself: a cancellation comes while it is left."""
    for turns in range(4 * TURNS):
        async with MemoryCluster(clock=LoopClock()) as cluster:
            office = Office()
            worker = Worker(office.app, (await cluster.connect()).book("b"), name="a", lease_s=LEASE_S)

            async def lives(worker: Worker = worker) -> None:
                async with worker:
                    pass

            living = asyncio.create_task(lives())
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = living.done()
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
            await let_pass(1)
            assert not of_workers(), f"cancelled after {turns} turns"
            if ended:
                return
    pytest.fail("expected the worker to be left within these turns")


@in_virtual_time
async def test_others_take_over_from_a_worker_that_was_cancelled_while_it_was_left() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        office = Office()

        async def lives() -> None:
            async with Worker(office.app, (await cluster.connect()).book("b"), name="a", lease_s=LEASE_S) as worker:
                await worker.start(office.long.call(), id="x")
                await asyncio.Event().wait()

        living = asyncio.create_task(lives())
        await office.begun.wait()
        await cut_off(living, 3)
        async with (
            Worker(office.app, (await cluster.connect()).book("b"), name="b", lease_s=LEASE_S),
            Flow(office.app, (await cluster.connect()).book("b")) as outside,
        ):
            office.begun.clear()
            async with asyncio.timeout(120):
                for number in range(8):
                    assert await (await outside.start(office.order.call(number), id=f"o{number}")).result() == number
                await office.begun.wait()


@pytest.mark.parametrize(
    "call",
    [
        lambda worker, office: worker.drain(),
        lambda worker, office: worker.__aexit__(None, None, None),
        lambda worker, office: worker.start(office.order.call(1), id="other"),
    ],
    ids=["drain", "leave", "start"],
)
async def test_calls_from_another_loop_are_refused_before_anything_is_done(
    call: Callable[[Worker, Office], Coroutine[Any, Any, object]],
) -> None:
    async with MemoryCluster() as cluster:
        office = Office()
        async with Worker(office.app, (await cluster.connect()).book("b"), name="a", lease_s=3_600) as worker:

            async def elsewhere() -> None:
                with pytest.raises(boki.WrongLoop, match="nothing was done"):
                    await call(worker, office)

            await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            assert not worker.finishing
            assert await (await worker.start(office.order.call(2), id="x")).result() == 2
        assert not of_workers()
