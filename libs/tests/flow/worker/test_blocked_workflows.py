"""Blocked workflows, and workers with other code beside the owner of their partition, which lives."""

from __future__ import annotations

import asyncio
import sys
import types
from io import StringIO

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.logs import configured
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow, Worker
from bokiflow.errors import NonDeterminism, WorkflowStuck
from bokiflow.history import inspection
from bokiflow.model.flow_events import Resumed
from bokiflow.model.records import InstanceStreams
from bokiflow.testing import LoopClock, in_virtual_time
from bokiflow.worker.takeover import record_blocked
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from libs.tests.flow.conftest import until, working

LONG_S = 3_600.0
"""A lease during which no partition moves to a worker that begins later."""


def program(ran: list[str], name: str, *, step: str | None) -> App:
    """Return the code of a worker: a workflow that does a step of some name, then waits for "go" and does another.

    Args:
        step: None: this program has no such workflow.
    """
    app = App("shop")
    if step is None:
        return app

    async def did(what: str) -> str:
        ran.append(f"{name} {what}")
        return f"{name} {what}"

    one = app.step(name=step)(did)

    @app.workflow
    async def flow() -> list[str]:
        first = await one("first")
        return [first, str(await bokiflow.recv("go")), await one("last")]

    return app


async def blocked(flow: Flow, id: str) -> str:
    """Return why a workflow is blocked, once it is."""
    for _ in range(20_000):
        known = await flow.known(id)
        if known is not None and known.blocked:
            return known.blocked
        await asyncio.sleep(0)
    raise AssertionError("it was never blocked")


async def seen(worker: Worker) -> None:
    """Wait until a worker has looked at all that was recorded of blocked workflows."""
    last = await worker.log.append(Contribution((tags.flow_blocked("shop"),), {}, (Resumed("nobody"),)))
    await until(lambda: worker._follower.position >= last)
    await worker._blocked_workflows.read()
    await until(lambda: not worker._takeover.claiming)


async def records(log: Log, tag: str) -> int:
    return len([one async for one in log.book.read(tag) if isinstance(one, boki.Record)])


async def test_what_a_living_owner_lacks_a_new_worker_runs_and_what_is_sent_reaches_it(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with working(cluster, program(ran, "old", step=None), "old", lease_s=LONG_S) as old:
        handle = await old.flow.start(new.find("flow").call(), id="x")
        assert "NotRegistered" in await blocked(old.flow, "x")
        async with working(cluster, new, "new", lease_s=LONG_S) as worker:
            await until(lambda: ran == ["new first"])
            assert worker._partitions.mine == {}
            await seen(old)
            assert old._takeover.others == {"x": worker.name} and not old._takeover.aside
            await seen(worker)
            assert not worker._blocked_workflows._pending, "what runs here is looked at no more"
            await handle.signal("go", "sent")
            assert await handle.result() == ["new first", "sent", "new last"]


async def test_what_old_code_does_otherwise_than_its_history_a_new_worker_goes_on_with(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with working(cluster, new, "first", lease_s=LONG_S) as first:
        handle = await first.start(new.find("flow").call(), id="x")
        await until(lambda: ran == ["new first"])
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        await first.drain()
    async with working(cluster, program(ran, "old", step="two"), "old", lease_s=LONG_S) as old:
        assert "NonDeterminism" in await blocked(old.flow, "x")
        async with working(cluster, program(ran, "again", step="one"), "new", lease_s=LONG_S):
            await old.handle("x").signal("go")
            assert await old.handle("x").result(blocked="wait") == ["new first", "None", "again last"]
    assert ran == ["new first", "again last"]


class _Hook:
    """A payload hook whose next calls of `seal` fail."""

    name = "h"
    fails = 0

    async def seal(self, events: bytes) -> bytes:
        if self.fails:
            self.fails -= 1
            raise ValueError("no key")
        return events

    async def open(self, sealed: bytes) -> bytes:
        return sealed


@in_virtual_time
async def test_a_block_that_cannot_be_recorded_is_recorded_later() -> None:
    """Until it is recorded the workflow looks as if its worker runs it, and no worker with other code tries it."""
    ran: list[str] = []
    code, stream, hook = program(ran, "w", step="one"), StringIO(), _Hook()
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        working(cluster, code, "w", lease_s=LONG_S, hook=hook) as worker,
    ):
        handle = await worker.start(code.find("flow").call(), id="x")
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        hook.fails = 3
        with configured(stream=stream):
            worker._takeover.blocked("x", NonDeterminism("other code"), worker._executors["x"].claim, 0)
            await let_pass(60)
        assert not hook.fails and await handle.status() == "blocked"
    assert stream.getvalue().count("blocked workflow not recorded: another attempt follows") == 3


MOVED = """
import bokiflow
from bokiflow import App

app = App("shop")

class Declined(Exception):
    pass

@app.step
async def charge():
    raise Declined("visa")

@app.workflow
async def flow():
    try:
        await charge()
    except Declined:
        await bokiflow.recv("go")
        return "compensated"
"""


def deployed(monkeypatch: pytest.MonkeyPatch, name: str, source: str = MOVED) -> App:
    """Return the app of a module that this program has imported."""
    made = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(source, made.__dict__)
    found = made.app
    assert isinstance(found, App)
    return found


async def test_an_error_whose_class_moved_is_caught_and_one_whose_class_is_gone_blocks(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(cluster, deployed(monkeypatch, "old_shop"), "first", lease_s=LONG_S) as first:
        handle = await first.start(first.flow.app.find("flow").call(), id="x")
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        await first.drain()
    monkeypatch.delitem(sys.modules, "old_shop")
    renamed = MOVED.replace("Declined", "Refused")
    async with working(cluster, deployed(monkeypatch, "renamed_shop", renamed), "old", lease_s=LONG_S) as old:
        why = await blocked(old.flow, "x")
        assert why.startswith("NonDeterminism: ") and "the error old_shop:Declined of step 'charge' (0:1)" in why
        assert "which this program cannot find: restore the class" in why
        async with working(cluster, deployed(monkeypatch, "new_shop"), "new", lease_s=LONG_S):
            await old.handle("x").signal("go")
            assert await old.handle("x").result(blocked="wait") == "compensated"


OF_A_VENDOR = """
import bokiflow
from bokiflow import App

import {vendor} as vendor

app = App("shop")

class Timeout(Exception):
    pass

@app.step
async def charge():
    raise vendor.Timeout("socket")

@app.workflow
async def flow():
    try:
        await charge()
    except Timeout:
        return "dropped: the customer did not confirm"
    except Exception:
        await bokiflow.recv("go")
        return "in doubt"
"""


async def test_a_class_that_left_its_module_is_not_taken_for_another_one_of_that_name(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(vendor: str) -> App:
        made = types.ModuleType(vendor)
        monkeypatch.setitem(sys.modules, vendor, made)
        exec("class Timeout(Exception): pass", made.__dict__)
        return deployed(monkeypatch, "a_shop", OF_A_VENDOR.format(vendor=vendor))

    async with working(cluster, program("vendor_errors"), "first", lease_s=LONG_S) as first:
        handle = await first.start(first.flow.app.find("flow").call(), id="x")
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        await first.drain()
    monkeypatch.delitem(sys.modules, "vendor_errors")
    async with working(cluster, program("vendor_exceptions"), "second", lease_s=LONG_S) as second:
        why = await blocked(second.flow, "x")
        assert "vendor_errors:Timeout of step 'charge' (0:1), which this program cannot find" in why
        monkeypatch.setitem(sys.modules, "vendor_errors", sys.modules["vendor_exceptions"])
        await second.handle("x").resume()
        await second.handle("x").signal("go")
        assert await second.handle("x").result(blocked="wait") == "in doubt"


async def test_each_worker_tries_it_once_and_once_more_when_it_is_resumed(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with working(cluster, new, "first", lease_s=LONG_S) as first:
        handle = await first.start(new.find("flow").call(), id="x")
        await until(lambda: ran == ["new first"])
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        await first.drain()
    async with (
        working(cluster, program(ran, "a", step="two"), "a", lease_s=LONG_S) as a,
        working(cluster, program(ran, "b", step="three"), "b", lease_s=LONG_S) as b,
        working(cluster, program(ran, "c", step=None), "c", lease_s=LONG_S) as c,
    ):
        fences = []
        for _ in range(2):
            for _ in range(4):
                for one in (a, b, c):
                    await seen(one)
            fences.append(await records(a.log, tags.flow_own("x")))
            assert "x" in a._takeover.aside and "x" in b._takeover.aside, "the owner of its partition keeps it"
            await a.handle("x").resume()
        assert fences == [5, 9], "its start; then a claim and why it failed, of each worker that has such a workflow"


async def test_a_worker_that_tried_it_does_not_try_it_again_when_its_partition_moves(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with working(cluster, new, "first", lease_s=LONG_S) as first:
        handle = await first.start(new.find("flow").call(), id="x")
        await until(lambda: ran == ["new first"])
        while not [one async for one in handle.steps() if one.kind == "step"]:
            await asyncio.sleep(0)
        await first.drain()
    async with (
        working(cluster, program(ran, "a", step="two"), "a", lease_s=LONG_S) as a,
        working(cluster, program(ran, "b", step="three"), "b", lease_s=LONG_S) as b,
    ):
        for _ in range(4):
            for one in (a, b):
                await seen(one)
        before = await records(b.log, tags.flow_own("x"))
        said = capsys.readouterr().err
        assert a.is_mine("x") and said.count("a workflow is blocked") == 2, "each worker tried it"
        await a.drain()
        await until(lambda: b.is_mine("x"))
        await b._round()
        await until(lambda: not b._takeover.claiming and "x" in b._takeover.aside)
        assert await records(b.log, tags.flow_own("x")) == before, "no further claim"
        await b.handle("x").resume()
        await until(lambda: "a workflow is blocked" in capsys.readouterr().err)


async def test_when_the_worker_dies_that_had_the_code_another_one_that_has_it_goes_on(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with working(cluster, program(ran, "old", step=None), "old", lease_s=LONG_S) as old:
        handle = await old.flow.start(new.find("flow").call(), id="x")
        await blocked(old.flow, "x")
        async with working(cluster, new, "new", lease_s=LONG_S) as worker:
            await until(lambda: ran == ["new first"])
            await seen(old)
        old._peers.saw_leaving(worker.name, 0)  # as its silence will tell
        await old._round()
        assert "NotRegistered" in await blocked(old.flow, "x")
        async with working(cluster, new, "newer", lease_s=LONG_S):
            await handle.signal("go")
            assert (await handle.result(blocked="wait"))[1:] == ["None", "new last"]


async def test_a_program_that_gets_the_code_later_tries_it_then(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new, notebook = program(ran, "new", step="one"), App("shop")
    async with working(cluster, program(ran, "old", step=None), "old", lease_s=LONG_S) as old:
        handle = await old.flow.start(new.find("flow").call(), id="x")
        await blocked(old.flow, "x")
        async with working(cluster, notebook, "notebook", lease_s=LONG_S) as worker:
            await seen(worker)

            @notebook.workflow
            async def flow() -> list[str]:
                return ["from the notebook"]

            worker._retry()
            await worker._blocked_workflows.read()
            assert await handle.result(blocked="wait") == ["from the notebook"]


async def test_what_is_stuck_stays_with_the_owner_of_its_partition(cluster: MemoryCluster) -> None:
    ran: list[str] = []
    new = program(ran, "new", step="one")
    async with Flow(new, (await cluster.connect()).book("shop")) as outside:
        handle = await outside.start(new.find("flow").call(), id="x")
        state = await inspection.newest(outside.log, "x")
        assert state is not None
        await record_blocked(outside.log, InstanceStreams("x", "shop"), WorkflowStuck("it polls"), state.claim)
        async with (
            working(cluster, program(ran, "old", step=None), "old", lease_s=LONG_S) as old,
            working(cluster, new, "new", lease_s=LONG_S) as worker,
        ):
            await seen(old)
            await seen(worker)
            assert ran == [] and "x" in old._takeover.aside
            await handle.cancel()
            with pytest.raises(bokiflow.WorkflowCancelled):
                await handle.result(blocked="wait")
