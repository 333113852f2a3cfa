"""Plain functions as steps: the threads that they run in, and what becomes of those that hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import ThreadsExhausted
from boki_common.runtime.ports import Bodies
from boki_common.testing import bodies_contract
from boki_common.testing.bodies_contract import Check
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, ThreadBodies, Worker, WorkflowCancelled
from bokiflow.execute.body import Tried, run_body
from bokiflow.model.outcomes import Outcome
from bokiflow.testing import in_virtual_time
from bokiflow.testing._scenario import _Inline
from libs.tests.flow.conftest import Inline

LIMIT_S = 20.0
"""Until a test fails in which a step gets no thread."""


class Orders:
    """An app whose payments hang if they are told to, until the test ends."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self.app = App("shop")
        self.hang = threading.Event()
        self.began: list[str] = []

        @self.app.step(timeout_s=timeout_s)
        def pay(order: str) -> str:
            self.began.append(order)
            if order.startswith("hangs"):
                self.hang.wait(3 * LIMIT_S)
            return f"paid {order}"

        @self.app.workflow
        async def place(order: str) -> str:
            return await pay.aio(order)

        self.pay, self.place = pay, place


@asynccontextmanager
async def working(cluster: MemoryCluster, orders: Orders, bodies: ThreadBodies) -> AsyncIterator[Worker]:
    client = await cluster.connect()
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            Worker(orders.app, client.book("shop"), name="w", bodies=bodies) as worker,
        ):
            yield worker
    finally:
        orders.hang.set()


async def begun(orders: Orders, count: int) -> None:
    while len(orders.began) < count:
        await asyncio.sleep(0)


async def test_a_cancelled_step_that_hangs_holds_up_no_other(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders()
    async with working(cluster, orders, ThreadBodies(threads=1)) as worker:
        hangs = await worker.start(orders.place.call("hangs"), id="order-1")
        await begun(orders, 1)
        good = await worker.start(orders.place.call("good"), id="order-2")
        await hangs.cancel()
        with pytest.raises(WorkflowCancelled):
            await hangs.result()
        assert await good.result() == "paid good"
    said = capsys.readouterr().err
    assert "given up" in said and "step 'pay' of workflow 'order-1'" in said, "its thread runs on, and it is said"


async def test_a_step_that_timed_out_holds_up_no_other(cluster: MemoryCluster) -> None:
    """Those that wait behind it hang in their turn, each for its own `timeout_s`."""
    orders = Orders(timeout_s=0.05)

    @orders.app.step
    def ship(order: str) -> str:
        return f"shipped {order}"

    @orders.app.workflow
    async def send(order: str) -> str:
        return await ship.aio(order)

    async with working(cluster, orders, ThreadBodies(threads=1)) as worker:
        bad = [await worker.start(orders.place.call(f"hangs {number}"), id=f"bad-{number}") for number in range(3)]
        good = await worker.start(send.call("good"), id="good")
        assert await good.result() == "shipped good"
        for one in bad:
            with pytest.raises(TimeoutError, match=r"step 'pay' ran for longer than its timeout_s=0\.05"):
                await one.result()
    assert sorted(orders.began) == ["hangs 0", "hangs 1", "hangs 2"]


async def test_what_runs_on_of_a_worker_that_ended_is_said(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders()
    async with working(cluster, orders, ThreadBodies()) as worker:
        for number in range(2):
            await worker.start(orders.place.call("hangs"), id=f"order-{number}")
        await begun(orders, 2)
        await worker.drain(finish_s=0)
    said = capsys.readouterr().err
    assert "they run on in their threads" in said and "'order-0'" in said and "'order-1'" in said, said


class Scripted:
    """Bodies in virtual time: a function waits for a thread, and then takes its time. full: calls that no thread is left for."""

    def __init__(self, *, waits_s: float, takes_s: float, full: int = 0) -> None:
        self.waits_s, self.takes_s, self.full = waits_s, takes_s, full
        self.names: list[str] = []

    async def run(self, body: Callable[[], Any], *, name: str = "", begun: Callable[[], None] | None = None) -> Any:
        self.names.append(name)
        if self.full:
            self.full -= 1
            raise ThreadsExhausted("all of them hang")
        await let_pass(self.waits_s)
        if begun is not None:
            begun()
        await let_pass(self.takes_s)
        return body()


async def outcome(bodies: Scripted, step: Any, *args: Any) -> Outcome:
    return (await run_body(step, args, {}, bodies, "order-7")).outcome


@in_virtual_time
async def test_a_timeout_leaves_out_the_wait_for_a_thread() -> None:
    pay = Orders(timeout_s=10).pay
    bodies = Scripted(waits_s=86_400, takes_s=9.9)
    assert await outcome(bodies, pay, "good") == Outcome("paid good")
    assert bodies.names == ["step 'pay' of workflow 'order-7'"]
    found = await outcome(Scripted(waits_s=86_400, takes_s=10.1), pay, "good")
    assert found.error is not None and found.error.type == "builtins:TimeoutError"


@in_virtual_time
async def test_a_step_waits_while_threads_are_exhausted_and_does_not_fail() -> None:
    bodies = Scripted(waits_s=0, takes_s=0, full=100)
    assert await run_body(Orders(timeout_s=10).pay, ("good",), {}, bodies) == Tried(Outcome("paid good"), 1)
    assert len(bodies.names) == 101


@in_virtual_time
async def test_threads_of_its_own_that_a_body_exhausts_are_its_error() -> None:
    app = App("shop")

    @app.step
    def resize() -> None:
        raise ThreadsExhausted("all threads of the body")

    found = await outcome(Scripted(waits_s=0, takes_s=0), resize)
    assert found.error is not None and found.error.type == "boki_common.errors:ThreadsExhausted"


@pytest.mark.parametrize("bodies", [Inline(), _Inline()], ids=["of these tests", "of users' tests"])
@pytest.mark.parametrize("check", bodies_contract.CHECKS, ids=lambda check: check.__name__)
async def test_bodies_of_tests_keep_the_contract(check: Check, bodies: Bodies) -> None:
    await check(bodies)
