"""Workflows terminated without their code: released locks, cancelled children, and the copy that a worker still has."""

from __future__ import annotations

import asyncio

import pytest

import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, NoSuchWorkflow, Worker, WorkflowCancelled
from bokiflow.errors import WorkflowStuck
from bokiflow.history import inspection
from bokiflow.history.ends import TERMINATED
from bokiflow.model.flow_events import Claimed
from bokiflow.model.records import InstanceStreams, claim
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.takeover import record_blocked
from bokilib.append.log import Log
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import until, working

LONG_S = 3_600.0


class Parlour:
    """Workflows that hold a lock, and what their code did.

    Attributes:
        did: what ran, in order. body: the step that waits for it runs until it is set.
    """

    def __init__(self) -> None:
        self.app = App("shop")
        self.did: list[str] = []
        self.body = asyncio.Event()
        did = self.did

        @self.app.step
        async def clean() -> None:
            did.append("cleaned")

        @self.app.step
        async def slow() -> None:
            did.append("slow")
            await self.body.wait()

        @self.app.workflow
        async def child() -> None:
            await bokiflow.recv("never")

        @self.app.workflow
        async def holds() -> str:
            async with bokiflow.lock("room"):
                try:
                    waiting = asyncio.create_task(child())
                    bokiflow.emit("state", "in the room")
                    await bokiflow.recv("go")
                    await waiting
                finally:
                    await clean()
            return "done"

        @self.app.workflow
        async def parent() -> str:
            try:
                return await holds()
            except WorkflowCancelled as error:
                return str(error)

        @self.app.workflow
        async def follows() -> str:
            async with bokiflow.lock("room"):
                return "in"

        @self.app.workflow
        async def steps() -> None:
            await slow()
            await clean()

        self.holds, self.parent, self.follows, self.steps = holds, parent, follows, steps


async def in_the_room(flow: Flow, id: str) -> None:
    async for _ in flow.handle(id).events("state"):
        return


async def ended_words(flow: Flow, id: str) -> str:
    with pytest.raises(WorkflowCancelled) as caught:
        await flow.handle(id).result()
    assert await flow.handle(id).status() == "cancelled"
    return str(caught.value)


async def test_a_running_one_ends_without_its_code_and_frees_all_it_has(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with working(cluster, parlour.app, lease_s=LONG_S) as worker:
        parent = await worker.start(parlour.parent.call(), id="p")
        holder = "p/0:1"
        await in_the_room(worker.flow, holder)
        second = await worker.start(parlour.follows.call(), id="second")
        await worker.handle(holder).terminate("it hangs")
        words = "was terminated (it hangs): its `except` and `finally` did not run"
        assert await ended_words(worker.flow, holder) == f"workflow {holder!r} {words}"
        assert await second.result() == "in" and parlour.did == []
        assert words in str(await parent.result()), "its parent is told"
        assert await ended_words(worker.flow, f"{holder}/0/1:1") == f"workflow '{holder}/0/1:1' was cancelled"
        await until(lambda: not worker._executors)
        assert worker._takeover.others == {}


async def test_one_that_no_worker_has_the_code_of_ends_and_gives_back_its_lock(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with working(cluster, parlour.app, "first", lease_s=LONG_S) as worker:
        await worker.start(parlour.holds.call(), id="x")
        await in_the_room(worker.flow, "x")
        await worker.drain()
    async with working(cluster, App("shop"), "lacks", lease_s=LONG_S) as worker:
        await until(lambda: "x" in worker._takeover.aside)
        while await worker.handle("x").status() != "blocked":
            await worker.log.book.now()
        await worker.handle("x").terminate()
        assert "was terminated: its" in await ended_words(worker.flow, "x")
        await until(lambda: "x" not in worker._takeover.aside)
        await worker.drain()
    async with working(cluster, parlour.app, "new", lease_s=LONG_S) as worker:
        assert await (await worker.start(parlour.follows.call())).result() == "in"
    assert parlour.did == []


async def test_it_needs_no_worker_and_a_second_one_finds_nothing_to_do(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with Flow(parlour.app, (await cluster.connect()).book("shop")) as flow:
        handle = await flow.start(parlour.holds.call(), id="x")
        await handle.terminate("never began")
        last = await flow.log.book.now()
        await handle.terminate("again")
        assert await flow.log.book.now() == last
        assert "(never began)" in await ended_words(flow, "x")
        with pytest.raises(NoSuchWorkflow):
            await flow.handle("y").terminate()


@pytest.mark.parametrize("ends", ["terminate", "cancel"])
@in_virtual_time
async def test_parts_of_its_transaction_end_with_it_without_a_worker(ends: str) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        parlour = Parlour()
        log = Log((await cluster.connect()).book("shop"))
        store = BokiStore(log, settings=StoreSettings(checkpoints=False))

        @parlour.app.workflow
        async def keeps() -> None:
            async with bokiflow.lock("room"):
                await bokiflow.recv("never")

        async def body(tx: Transaction) -> None:
            await keeps()

        @parlour.app.workflow
        async def trip() -> None:
            await bokiflow.transact(store, body)

        async with Worker(parlour.app, log, name="first") as worker:
            await worker.start(trip.call(), id="x")
            await let_pass(2)
        async with Flow(parlour.app, (await cluster.connect()).book("shop")) as flow:
            state = await inspection.newest(flow.log, "x")
            assert state is not None
            if ends == "cancel":
                await record_blocked(flow.log, InstanceStreams("x", "shop"), WorkflowStuck("it polls"), state.claim)
                await flow.handle("x").cancel()
            else:
                await flow.handle("x").terminate()
            async with working(cluster, parlour.app, "second") as worker:
                async with asyncio.timeout(3_600):  # else the part has not given its lock back
                    assert await (await worker.start(parlour.follows.call())).result() == "in"
                with pytest.raises(WorkflowCancelled):
                    await worker.handle("x").result()
                assert await inspection.unfinished(flow.log, "shop") == []


async def test_what_a_step_that_runs_gives_is_refused(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with working(cluster, parlour.app, lease_s=LONG_S) as worker:
        handle = await worker.start(parlour.steps.call(), id="x")
        await until(lambda: parlour.did == ["slow"])
        async with Flow(parlour.app, (await cluster.connect()).book("shop")) as outside:
            await outside.handle("x").terminate()
        parlour.body.set()
        with pytest.raises(WorkflowCancelled):
            await handle.result()
        assert parlour.did == ["slow"]


async def test_one_whose_terminator_died_is_ended_by_who_takes_it_over(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with Flow(parlour.app, (await cluster.connect()).book("shop")) as flow:
        await flow.start(parlour.holds.call(), id="x")
        state = await inspection.newest(flow.log, "x")
        assert state is not None
        there = await inspection.started_call(flow.log, "x", state)
        assert there is not None
        blocked = Claimed("x", "", 0, there.start, there.name, there.digest, "shop", blocked=f"{TERMINATED}: late")
        await flow.log.append(claim(InstanceStreams("x", "shop"), blocked, state.claim, None))
        async with working(cluster, parlour.app, lease_s=LONG_S):
            assert "(late)" in await ended_words(flow, "x")


async def test_a_stuck_one_that_is_cancelled_gives_back_its_locks(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with working(cluster, parlour.app, "first", lease_s=LONG_S) as worker:
        await worker.start(parlour.holds.call(), id="x")
        await in_the_room(worker.flow, "x")
        await worker.drain()
        state = await inspection.newest(worker.log, "x")
        assert state is not None
        await record_blocked(worker.log, InstanceStreams("x", "shop"), WorkflowStuck("it polls"), state.claim)
    async with working(cluster, parlour.app, "second", lease_s=LONG_S) as worker:
        await worker.handle("x").cancel()
        assert "blocked by WorkflowStuck" in await ended_words(worker.flow, "x")
        assert await (await worker.start(parlour.follows.call())).result() == "in"


async def test_while_a_worker_hands_it_over_it_ends_once(cluster: MemoryCluster) -> None:
    parlour = Parlour()
    async with (
        working(cluster, parlour.app, "a", lease_s=LONG_S) as a,
        working(cluster, parlour.app, "b", lease_s=LONG_S) as b,
        Flow(parlour.app, (await cluster.connect()).book("shop")) as flow,
    ):
        await flow.start(parlour.holds.call(), id="x")
        await in_the_room(flow, "x")
        await asyncio.gather(a.drain(), flow.handle("x").terminate("moving"))
        assert "(moving)" in await ended_words(flow, "x")
        await until(lambda: not b._executors)
    assert "cleaned" not in parlour.did
