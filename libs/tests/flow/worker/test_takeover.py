"""Takeovers: by workers whose program has the workflow, and by others, which set it aside."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, NotRegistered, StepFailed, Worker
from bokiflow.errors import WorkflowStuck
from bokiflow.history import inspection
from bokiflow.history.ends import waits_for_code
from bokiflow.history.instance_state import InstanceState
from bokiflow.model.flow_events import Checkpointed, Claimed, Signalled
from bokiflow.model.records import InstanceStreams
from bokiflow.worker.takeover import reason, record_blocked
from bokilib import Log
from bokilib.errors import PayloadHookFailed, UnknownEvent
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Event
from libs.tests.flow.conftest import ids_of, until, working

LONG_S = 3_600.0


async def test_old_workers_in_turn_append_nothing_and_the_first_new_one_runs_it(cluster: MemoryCluster) -> None:
    app, ran = App("shop"), []

    @app.workflow
    async def flow() -> str:
        ran.append("once")
        return "done"

    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(flow.call(), id="x")
        counts = []
        for number in range(4):
            async with working(cluster, App("shop"), f"old {number}", lease_s=LONG_S) as old:
                await until(lambda: "x" in old._takeover.aside)
                counts.append(await records(outside.log.book, "flow/own/x"))
                assert await handle.status() == "blocked"
                await old.drain()
        assert counts == [2, 2, 2, 2], "its start, and why it is blocked"
        async with working(cluster, app, "new", lease_s=LONG_S):
            assert await handle.result() == "done" and ran == ["once"]


async def records(book: BookPort, tag: str) -> int:
    return len([one async for one in book.read(tag) if isinstance(one, boki.Record)])


async def test_what_it_started_itself_and_lacks_another_program_runs(cluster: MemoryCluster) -> None:
    old, new = App("shop"), App("shop")

    @new.workflow
    async def flow() -> str:
        return "done"

    async with working(cluster, old, "old", lease_s=LONG_S) as worker:
        await worker.flow.start(flow.call(), id="x")
        await until(lambda: "x" in worker._takeover.aside)
        while await worker.handle("x").status() != "blocked":
            await worker.log.book.now()
        await worker.drain()
    async with working(cluster, new, "new", lease_s=LONG_S) as worker:
        assert await worker.handle("x").result() == "done"


@pytest.mark.parametrize(("error", "waits"), [(NotRegistered("no x"), True), (StepFailed("NotRegistered: y"), False)])
def test_a_reason_says_whether_other_code_may_go_on(error: Exception, waits: bool) -> None:
    assert waits_for_code(InstanceState(3, newest=Claimed("x", "", blocked=reason(error)))) is waits
    assert not waits_for_code(InstanceState(3, "w", newest=Claimed("x", "w")))


def polling(ran: list[str], stuck: list[bool]) -> App:
    """Return an app whose workflow keeps its worker from running others after "go", while `stuck` says so."""
    app = App("shop")

    @app.workflow
    async def polls() -> str:
        ran.append(bokiflow.workflow_id())
        await bokiflow.recv("go")
        while stuck[0]:
            await asyncio.sleep(0)
        return "done"

    return app


async def blocked(worker: Worker, id: str) -> None:
    """Wait until a workflow is blocked in the log."""
    await until(lambda: id in worker._takeover.aside)
    while await worker.handle(id).status() != "blocked":
        await asyncio.sleep(0)


async def test_resuming_what_runs_does_not_run_it_again_once_it_is_stuck(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    app = polling(ran, [True])
    async with working(cluster, app, lease_s=LONG_S) as worker:
        handle = await worker.start(app.find("polls").call(), id="x")
        await handle.resume()
        last = await worker.log.book.now()
        await until(lambda: worker._follower.position >= last)
        await handle.signal("go")
        await blocked(worker, "x")
        worker._takeover.claim_soon("x")
        await until(lambda: not worker._takeover.is_claiming("x"))
        assert ran == ["x"] and await handle.status() == "blocked"


async def test_a_stuck_workflow_that_is_resumed_at_any_moment_of_its_claim_runs_again(cluster: MemoryCluster) -> None:
    app, turns = polling([], [False]), range(24)
    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        for one in turns:
            handle = await outside.start(app.find("polls").call(), id=f"x{one}")
            await handle.signal("go")
            place, state = InstanceStreams(handle.id, "shop"), await inspection.newest(outside.log, handle.id)
            assert state is not None
            await record_blocked(outside.log, place, WorkflowStuck("it polls"), state.claim)
    async with working(cluster, app, lease_s=LONG_S) as worker:
        await until(lambda: len(worker._takeover.aside) == len(turns))
        for one in turns:
            worker._takeover.claim_soon(f"x{one}")
            for _ in range(one):
                await asyncio.sleep(0)
            worker._resume(f"x{one}")
            assert await worker.handle(f"x{one}").result(blocked="wait") == "done"


async def test_a_history_that_cannot_be_read_blocks_its_workflow_alone(cluster: MemoryCluster) -> None:
    app = App("shop")

    @app.workflow
    async def waits() -> str:
        return str(await bokiflow.recv("go"))

    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        for id in ("x", "well"):
            await outside.start(waits.call(), id=id)
        later = Checkpointed("x", await outside.log.book.now(), 0, 1, msgspec.msgpack.encode(("a later form",)))
        await outside.log.append(Contribution((InstanceStreams("x", "shop").history,), {}, (later,)))
        async with working(cluster, app, lease_s=LONG_S) as worker:
            broken, well = (asyncio.create_task(worker.handle(id).result()) for id in ("x", "well"))
            await blocked(worker, "x")
            with pytest.raises(UnknownEvent, match="upgrade"):
                await broken
            await outside.handle("well").signal("go", "done")
            assert await well == "done"
            known = await outside.known("x")
            assert known is not None and known.blocked.startswith("UnknownEvent: the checkpoint of a history in record")
            assert await worker.collect()
            await worker.drain()
        before = await records(outside.log.book, "flow/own/x")
        async with working(cluster, app, "next", lease_s=LONG_S) as worker:
            await blocked(worker, "x")
            await worker._round()
            assert await records(outside.log.book, "flow/own/x") <= before + 2, "each program claims and blocks it once"


class Later(Event, tag="flow.later", frozen=True):
    """An event of a later version."""

    id: str


async def test_a_message_of_a_later_version_holds_up_its_workflow_alone(cluster: MemoryCluster) -> None:
    """The worker runs what is started and signalled afterwards, also in the partition of the message."""
    app, sibling = App("shop"), next(ids_of(tags.partition_of("x")))

    @app.workflow
    async def waits() -> str:
        return str(await bokiflow.recv("go"))

    async with (
        bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside,
        working(cluster, app, lease_s=LONG_S) as worker,
    ):
        for id in ("x", sibling):
            await outside.start(waits.call(), id=id)
        await until(lambda: all(id in worker.executors for id in ("x", sibling)))
        place = InstanceStreams("x", "shop")
        await outside.log.append(Contribution((place.to_workers, place.history), {}, (Later("x"),)))
        await blocked(worker, "x")
        for id in (sibling, "later", "z"):
            handle = await outside.start(waits.call(), id=id)
            await handle.signal("go", id)
            assert await handle.result() == id
        known = await outside.known("x")
        assert known is not None and known.blocked.startswith("UnknownEvent: ")


async def test_an_error_of_a_takeover_reaches_those_who_wait_for_its_workflow_alone(
    cluster: MemoryCluster,
) -> None:
    app = App("shop")

    @app.workflow
    async def waits() -> str:
        return str(await bokiflow.recv("go"))

    class Hook:
        name, sealed = "keys", b"lost"

        async def seal(self, events: bytes) -> bytes:
            return events

        async def open(self, sealed: bytes) -> bytes:
            if self.sealed in sealed:
                raise LookupError("no key")
            return sealed

    async with bokiflow.Flow(app, (await cluster.connect()).book("shop"), hook=Hook()) as outside:
        for id in ("x", "well"):
            await outside.start(waits.call(), id=id)
        await outside.log.append(
            Contribution((InstanceStreams("x", "shop").history,), {}, (Signalled("x", "other", "lost"),))
        )
        async with working(cluster, app, hook=Hook(), lease_s=LONG_S) as worker:
            broken, well = (asyncio.create_task(worker.handle(id).result()) for id in ("x", "well"))
            await blocked(worker, "x")
            with pytest.raises(PayloadHookFailed, match="no key"):
                await broken
            await outside.handle("well").signal("go", "done")
            assert await well == "done"


class Reversed:
    """A payload hook that some programs have, and others lack."""

    name = "reversed"

    async def seal(self, events: bytes) -> bytes:
        return events[::-1]

    async def open(self, sealed: bytes) -> bytes:
        return sealed[::-1]


async def test_a_start_that_a_worker_cannot_open_waits_alone_until_one_can(cluster: MemoryCluster) -> None:
    """A worker that begins or takes partitions over runs what else is in them, and trims none of what it cannot read."""
    app, sibling = App("shop"), next(ids_of(tags.partition_of("x")))

    @app.workflow
    async def order() -> str:
        return "done"

    async with (
        bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside,
        bokiflow.Flow(app, Log((await cluster.connect()).book("shop"), hook=Reversed())) as sealing,
    ):
        sealed = await sealing.start(order.call(), id="x")
        handles = [await outside.start(order.call(), id=id) for id in (sibling, "y", "z")]
        async with working(cluster, app, "lacks it", lease_s=LONG_S) as worker:
            assert [await one.result() for one in handles] == ["done"] * 3
            assert await (await outside.start(order.call(), id="later")).result() == "done"
            assert (await worker.collect()).ended == 0, "all of a day"
            await worker.drain()
        has_it = Worker(app, Log((await cluster.connect()).book("shop"), hook=Reversed()), lease_s=LONG_S)
        async with has_it:
            assert await sealed.result() == "done"


async def test_a_workflow_whose_state_is_of_a_later_version_waits_alone(cluster: MemoryCluster) -> None:
    """Its newest record is unknown to a worker that begins, which runs all others, and tries none of them in vain."""
    app = App("shop")

    @app.workflow
    async def waits() -> str:
        return str(await bokiflow.recv("go"))

    async with bokiflow.Flow(app, (await cluster.connect()).book("shop")) as outside:
        handles = {id: await outside.start(waits.call(), id=id) for id in ("x", "y", "z")}
        place = InstanceStreams("x", "shop")
        await outside.log.append(Contribution((place.fence,), {}, (Later("x"),)))
        async with working(cluster, app, lease_s=LONG_S) as worker:
            await until(lambda: {"y", "z"} == set(worker.executors))
            await worker._round()
            await worker.collect()
            assert "x" not in worker._takeover.others and "x" not in worker._takeover.aside
            for id in ("y", "z"):
                await handles[id].signal("go", id)
                assert await handles[id].result() == id
