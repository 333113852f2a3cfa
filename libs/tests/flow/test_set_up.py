"""Errors of a program's set-up that leave the code of a workflow: it is blocked, and mended code goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, NotInWorkflow, Worker
from bokiflow.errors import OnlyInSteps, UnfitStore
from bokilib.log import Log
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline, until, working

LONG_S = 1e6


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
