"""Takeovers: by workers whose program has the workflow, and by others, which set it aside."""

from __future__ import annotations

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, NotRegistered, StepFailed
from bokiflow.flow_events import Claimed
from bokiflow.instance_state import Held
from bokiflow.takeover import reason, waits_for_code
from bokilib.ports import BookPort
from libs.tests.flow.conftest import until, working

LONG_S = 1e6


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
    assert waits_for_code(Held(3, newest=Claimed("x", "", blocked=reason(error)))) is waits
    assert not waits_for_code(Held(3, "w", newest=Claimed("x", "w")))
