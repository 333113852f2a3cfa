"""Errors of a program, not of its data: wrong set-up, changed parameters and types. They block a workflow, and mended code resumes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, NotInWorkflow, Worker
from bokiflow.errors import OnlyInSteps, UnfitStore
from bokilib.append.log import Log
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline, until, working

LONG_S = 3_600.0


class Program:
    """An app of one workflow, whose set-up is wrong until `mended`.

    Attributes:
        ran: steps whose bodies ran.
    """

    def __init__(self, use: Callable[[bool], Awaitable[object]], *, ran: list[str], mended: bool) -> None:
        self.app = App("shop")

        @self.app.step
        async def note(what: str) -> str:
            ran.append(what)
            return what

        @self.app.step(at_most_once=True)
        async def once() -> str:
            ran.append("once")
            return "once"

        @self.app.workflow
        async def flow() -> str:
            await note("first")
            await once()
            async with bokiflow.lock("room"):
                bokiflow.emit("state", "in the room")
                await use(mended)
                await note("last")
            return "done"

        self.flow = flow


def plain(what: str) -> str:
    return what


async def call_a_plain_step(mended: bool) -> object:
    step = App("steps").step(plain)
    return await step.aio("x") if mended else step("x")


async def call_it_in_a_group(mended: bool) -> object:
    async with asyncio.TaskGroup() as group:
        return group.create_task(call_a_plain_step(mended))


async def use_a_thread(mended: bool) -> object:
    return None if mended else await asyncio.to_thread(plain, "x")


@pytest.mark.parametrize(
    ("use", "why"),
    [(call_a_plain_step, NotInWorkflow), (call_it_in_a_group, NotInWorkflow), (use_a_thread, OnlyInSteps)],
)
async def test_mended_code_goes_on_where_the_set_up_was_wrong(
    cluster: MemoryCluster, use: Callable[[bool], Awaitable[object]], why: type[Exception]
) -> None:
    ran: list[str] = []
    old, new = Program(use, ran=ran, mended=False), Program(use, ran=ran, mended=True)
    async with working(cluster, old.app, "old", lease_s=LONG_S) as worker:
        handle = await worker.start(old.flow.call(), id="x")
        with pytest.raises(why):
            await handle.result()
        blocked = await blocked_by(worker, "x")
        assert blocked.startswith(f"{why.__name__}: ") and "test_set_up.py" in blocked
        async with working(cluster, new.app, "new", lease_s=LONG_S) as other:
            assert await other.handle("x").result(blocked="wait") == "done"
            done = [one async for one in other.handle("x").steps()]
    assert ran == ["first", "once", "last"], "what was done before is not done again"
    assert [one.kind for one in done].count("emit") == 1, "what the wrong code did last is not in the history"


async def blocked_by(worker: Worker, id: str) -> str:
    """Return why a workflow is blocked, once that is in the log."""
    await until(lambda: id in worker._takeover.aside)
    while True:
        known = await worker.flow.known(id)
        assert known is not None
        if known.blocked:
            return known.blocked
        await asyncio.sleep(0)


async def test_a_store_of_another_log_blocks_and_one_of_the_workers_own_goes_on(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("shop"))
    stores = [BokiStore(Log((await cluster.connect()).book("shop")))]
    app = App("shop")

    async def pay(tx: Transaction) -> str:
        tx["account"].inc("cents", 1)
        return "paid"

    @app.workflow
    async def flow() -> str:
        return await bokiflow.transact(stores[-1], pay)

    async with Worker(app, log, name="w", bodies=Inline(), lease_s=LONG_S) as worker:
        handle = await worker.start(flow.call(), id="x")
        with pytest.raises(UnfitStore, match="own Log"):
            await handle.result()
        assert "UnfitStore" in await blocked_by(worker, "x")
        stores.append(BokiStore(log))
        await handle.resume()
        assert await handle.result(blocked="wait") == "paid"
        assert await stores[-1].object("account").get("cents") == 1


async def test_what_the_code_handles_or_a_step_raised_blocks_nothing(cluster: MemoryCluster) -> None:
    app = App("shop")
    step = app.step(plain)

    @app.step
    async def misplaced() -> str:
        return bokiflow.workflow_id()

    @app.workflow
    async def handles() -> str:
        try:
            return step("x")
        except NotInWorkflow:
            return await step.aio("handled")

    @app.workflow
    async def says_otherwise() -> None:
        try:
            step("x")
        except NotInWorkflow as error:
            raise ValueError("not here") from error

    @app.workflow
    async def calls() -> str:
        return await misplaced()

    async with working(cluster, app) as worker:
        assert await (await worker.start(handles.call(), id="a")).result() == "handled"
        with pytest.raises(ValueError, match="not here"):
            await (await worker.start(says_otherwise.call(), id="b")).result()
        with pytest.raises(NotInWorkflow):
            await (await worker.start(calls.call(), id="c")).result()
        assert await worker.handle("c").status() == "failed", "a step has one outcome, whatever it raised"


def versioned(change: str, ran: list[str]) -> App:
    """Return the program of an order, in which something of a function has changed since it began."""
    app = App("shop")

    async def price(sku: str) -> Any:
        ran.append(sku)
        return "7 EUR"

    price.__annotations__["return"] = int if change == "result" else str
    priced = app.step(price)

    @app.step
    async def refund() -> None:
        ran.append("refund")

    async def body(sku: str) -> str:
        try:
            cost = await priced(sku)
            return f"{cost}, {await bokiflow.recv('go')}"
        except Exception:
            await refund()
            raise

    async def order(sku: str, count: int = 1) -> str:
        return await body(sku)

    async def no_parameters() -> str:
        return await body("none")

    async def another_name(*, article: str) -> str:
        return await body(article)

    async def another_type(sku: int) -> str:
        return await body(str(sku))

    changed: dict[str, Callable[..., Coroutine[Any, Any, str]]] = {
        "parameters": no_parameters,
        "a name": another_name,
        "a type": another_type,
    }
    app.workflow(name="order")(changed.get(change, order))
    return app


@pytest.mark.parametrize("change", ["parameters", "a name", "a type", "result"])
async def test_parameters_or_types_that_changed_block_it_and_the_right_code_goes_on(
    cluster: MemoryCluster, change: str
) -> None:
    ran: list[str] = []
    right, wrong = versioned("", ran), versioned(change, ran)
    async with working(cluster, right, "first", lease_s=LONG_S) as first:
        handle = await first.start(right.find("order").call("pear"), id="begun")
        while "step" not in [one.kind async for one in handle.steps()]:
            await asyncio.sleep(0)
        await first.drain()
    async with working(cluster, wrong, "wrong", lease_s=LONG_S) as worker:
        await worker.start(right.find("order").call("plum"), id="new")
        for id in ("begun", "new"):
            why = await blocked_by(worker, id)
            what = "the result of step 'price' (0:1)" if change == "result" else "the arguments"
            assert why.startswith("NonDeterminism: ") and f"{what} in its history cannot be given to this code" in why
        async with working(cluster, versioned("", ran), "right", lease_s=LONG_S) as other:
            for id in ("begun", "new"):
                await other.handle(id).signal("go", "sent")
                assert await other.handle(id).result(blocked="wait") == "7 EUR, sent"
    assert ran == ["pear", "plum"], "no step runs twice, and no `except` of the code sees the error"
