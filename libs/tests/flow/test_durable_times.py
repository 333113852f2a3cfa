"""Durable times go by the log's clock: whoever's clock is wrong, and whoever goes on with it, a timer is as long as it should be."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bokiflow
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Flow
from bokiflow.model import records
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.append.log import Log
from libs.tests.flow.conftest import Stepping, working
from libs.tests.flow.shop import Shop

HOUR_S = 3_600
DAY_MS = 86_400_000
LEASE: dict[str, Any] = {"lease_s": 3.0, "collect_every_s": 1e9}
WALL_CLOCKS = {"now", "utcnow", "today", "time", "time_ns"}


def elapsed_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("moment", ["before it starts", "while it sleeps", "when it is taken over"])
@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS])
@in_virtual_time
async def test_a_timer_fires_in_time_where_the_log_gains_or_loses_two_days(jump_ms: int, moment: str) -> None:
    """Another worker goes on with it, which knows what the log says and nothing else. Early it is by the log's time only."""
    clock, shop = Stepping(), Shop()
    call = shop.sleep.call(30)
    async with MemoryCluster(clock=clock) as cluster:
        client = await cluster.connect()
        async with Flow(shop.app, client.book("shop")) as flow:
            async with working(cluster, shop.app, "one", **LEASE) as worker:
                await let_pass(10)
                if moment == "before it starts":
                    clock.ahead_ms += jump_ms
                    await let_pass(10)
                began_s = elapsed_s()
                handle = await flow.start(call, id="x")
                await let_pass(5)
                assert worker.runs("x")
                if moment == "while it sleeps":
                    clock.ahead_ms += jump_ms
                await let_pass(5)
            if moment == "when it is taken over":
                clock.ahead_ms += jump_ms
            async with working(cluster, shop.app, "two", **LEASE):
                slept_ms = await handle.result()
            took_s = round(elapsed_s() - began_s, 9)  # a difference of floats
    gained = jump_ms > 0 and moment != "before it starts"
    assert slept_ms >= 30_000
    assert took_s >= (10 if gained else 30), "by the log's time it was long enough"
    assert took_s < 60, "the other one takes over after a lease, and at worst the timer begins again"


@in_virtual_time
async def test_a_schedule_waits_for_the_log_where_that_was_ahead() -> None:
    """A clock of the log that was four hours ahead for an hour leaves no schedule early."""
    clock, app, ran = Stepping(), App("shop"), list[int]()

    @app.step
    async def note() -> None:
        ran.append(clock.now_ms())

    @app.workflow
    async def report() -> None:
        await note()

    app.schedule("hourly", report.call(), every_s=HOUR_S, missed="skip")
    async with MemoryCluster(clock=clock) as cluster, working(cluster, app, lease_s=300, collect_every_s=1e9):
        await let_pass(HOUR_S)
        clock.ahead_ms += 4_000 * HOUR_S
        await let_pass(HOUR_S)
        clock.ahead_ms -= 4_000 * HOUR_S
        count = len(ran)
        await let_pass(3 * HOUR_S)
        assert len(ran) <= count + 1, "the log's time stands still"
        await let_pass(5 * HOUR_S)
    late_ms = [ms % (HOUR_S * 1_000) for ms in ran[count + 1 :]]
    assert len(late_ms) >= 3 and max(late_ms) < 1_000, "then it goes by the hour"


@in_virtual_time
async def test_what_is_started_in_a_book_that_was_quiet_for_hours_begins_now() -> None:
    """Whoever starts it has read nothing newer than that: his start begins when its record is ordered."""
    shop = Shop()
    call = shop.sleep.call(30)
    async with (
        MemoryCluster(clock=LoopClock()) as cluster,
        Flow(shop.app, (await cluster.connect()).book("shop")) as flow,
    ):
        await flow.start(call, id="old")
        await let_pass(3 * HOUR_S)
        began_s = elapsed_s()
        handle = await flow.start(call, id="x")
        began_ms = LoopClock().now_ms()
        async with working(cluster, shop.app, **LEASE):
            assert await handle.result() >= 30_000 and 30 <= elapsed_s() - began_s < 40
        known = await flow.known("x")
    assert known is not None and known.started_ms == began_ms


@in_virtual_time
async def test_what_a_clock_two_days_ahead_has_begun_sleeps_no_longer() -> None:
    """A history of before, whose times were those of hosts."""
    shop = Shop()
    call = shop.sleep.call(1.5)
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("shop"))
        async with Flow(shop.app, log) as flow:
            ahead_ms = LoopClock().now_ms() + 2 * DAY_MS
            made = msgspec.structs.replace(flow.started(call, "x", {}), at_ms=ahead_ms)
            await log.append(records.start(made, 0))
            began_s = elapsed_s()
            async with working(cluster, shop.app, **LEASE):
                await flow.handle("x").result()
                assert 1.5 <= elapsed_s() - began_s < 5


def test_no_code_of_workflows_reads_a_wall_clock() -> None:
    """A host's clock is nobody else's: durable times are `bokilib.append.log.Log.now_ms`."""
    found = []
    package = Path(bokiflow.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in ("tables", "testing"):
            continue  # tables have a clock of their own, for expiry in their database
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            of = ast.unparse(node.value)
            of_time = of in {"time", "datetime", "date"} and node.attr in WALL_CLOCKS
            if of_time or node.attr == "SystemClock" or (node.attr == "now_ms" and of.endswith("clock")):
                found.append(f"{path.name}:{node.lineno} {of}.{node.attr}")
    assert found == []
