"""What many workflows cost: handles that wait, workflows that sleep, workers that die with a thousand of them, those that are over.

Workers are processes of their own here (`flow_programs`), so that one can be killed, and that its memory is its own.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psutil

import boki
from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.closed_loop import Once, Workload, closed_loop
from benchmarks.flow_programs import DAY_S, app, asleep, steps, waits
from benchmarks.store_growth import QUIET_S, SETTINGS, TERM_S, Samples, draw, judge
from bokiflow import Call, Flow, Handle, Worker
from bokiflow.history import inspection
from bokiflow.retention.collect_rules import AGES

HANDLES: Final = 4_096
CLIENTS: Final = 4
MANY: Final = 1_000
LEASE_S: Final = 15.0
TERMS: Final = 52
"""Of a run of so many terms at least it is judged whether what is kept is bounded: what ended first is forgotten in its first quarter."""
QUICK_LEASE_S: Final = 3.0
WATCH_S: Final = 10.0
FINISHED: Final = 1_000_000
OUTSTANDING: Final = 64
DATA: Final = bytes(1024)
READY_S: Final = 60.0
RETENTION_S: Final = 10.0
COLLECT_EVERY_S: Final = 2.0
FORGET_AGE_S: Final = 120
GROWTH_AGES: Final = AGES._replace(
    grace_ms=2_000, carry_ms=round(TERM_S * 1_000), forget_ms=(FORGET_AGE_S + 61) * 1_000
)
"""Of `growth`: ages that are days in use are seconds, so that all of it happens within the run. The age at which the log forgets
streams is the least that it takes; while it is longer than a term, terms stay for as long."""
SETTLE_S: Final = 1.0
"""Until those that wait have read what was there before."""


@asynccontextmanager
async def worker(url: str, book: str, name: str, lease_s: float = LEASE_S) -> AsyncIterator[psutil.Process]:
    """A worker in a process of its own. It may be killed."""
    command = [sys.executable, "-m", "benchmarks.flow_programs", url, book, name, str(lease_s)]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    try:
        if not await asyncio.wait_for(process.stdout.readline(), READY_S):
            raise RuntimeError(f"the worker {name!r} did not start")
        yield psutil.Process(process.pid)
        process.stdin.close()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def start_many(flow: Flow, call: Call[Any], count: int, prefix: str) -> list[Handle[Any]]:
    """Starts so many workflows, some at a time."""
    found: list[Handle[Any]] = []
    for at in range(0, count, OUTSTANDING):
        numbers = range(at, min(at + OUTSTANDING, count))
        found += await asyncio.gather(*(flow.start(call, id=f"{prefix}{number}") for number in numbers))
    return found


def appends(book: boki.Book) -> Workload:
    """Of another program: one at a time."""

    def make(_: Any) -> Once:
        async def once(_task: int) -> int:
            await book.append(DATA, tags=["appended"])
            return 1

        return once

    return Workload("append, 1 outstanding", 1, make)


async def part_waiting(bench: Bench, _: float) -> None:
    """Appends beside handles that wait, of other clients than the appends."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("waiting"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        alone = appends(client.book("waiting"))
        beside = alone._replace(name=f"append beside {HANDLES} handles that wait")
        flows = []
        handles: list[Handle[Any]] = []
        for number in range(CLIENTS):
            other = await stack.enter_async_context(boki.connect(cluster.url))
            flows.append(await stack.enter_async_context(Flow(app, other.book("waiting"))))
            handles += await start_many(flows[-1], waits.call(), HANDLES // CLIENTS, f"w{number}/")
        found: dict[str, list[report.Row]] = {"alone": [], "beside": []}
        for _round in range(bench.rounds):
            found["alone"].append(await closed_loop(alone, client, cluster.pids, bench.seconds))
            waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
            for flow in flows:
                for _again in range(3):  # an answer shows that the engine has what was asked before
                    await flow.log.book.now()
            await asyncio.sleep(SETTLE_S)
            found["beside"].append(await closed_loop(beside, client, cluster.pids, bench.seconds))
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for flow in flows:
                await flow.results.__aexit__(None, None, None)
    bench.rows += [report.median_row(rows) for rows in found.values()]
    ratios = [one.p50_ms / other.p50_ms for one, other in zip(found["beside"], found["alone"], strict=True)]
    bench.ratio("append_p50_beside_waiting_handles", statistics.median(ratios), "<=", 1.2)


async def part_asleep(bench: Bench, _: float) -> None:
    """What a thousand workflows that sleep for a day take of their worker, and of others."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("asleep"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        process = await stack.enter_async_context(worker(cluster.url, "asleep", "a"))
        flow = await stack.enter_async_context(Flow(app, client.book("asleep")))
        load = appends(client.book("asleep"))
        alone = [await closed_loop(load, client, cluster.pids, bench.seconds) for _ in range(bench.rounds)]
        before = process.memory_info().rss
        handles = await start_many(flow, asleep.call(DAY_S), MANY, "s")
        await until_owned(flow, [handle.id for handle in handles], "a.")
        taken = process.memory_info().rss - before
        cpu_s, position = sum(process.cpu_times()[:2]), await flow.log.book.now(consistency="linearizable")
        await asyncio.sleep(WATCH_S)
        await flow.log.book.now(consistency="linearizable")
        written = len([None async for _record in flow.log.book.read(start=position + 1)])
        used_s = sum(process.cpu_times()[:2]) - cpu_s
        load = load._replace(name=f"append beside {MANY} that sleep")
        beside = [await closed_loop(load, client, cluster.pids, bench.seconds) for _ in range(bench.rounds)]
    rows = [report.median_row(one) for one in (alone, beside)]
    bench.rows += rows
    bench.facts["asleep"] = f"{MANY:,} workflows for a day: {taken / MANY / 1000:.1f} kB each in their worker"
    bench.facts["asleep, idle"] = (
        f"{written} records in {WATCH_S:.0f} s (heartbeats), {used_s / WATCH_S * 100:.1f} % of a processor"
    )
    bench.series["asleep"] = {"bytes_each": taken / MANY, "records": written, "processor_share": used_s / WATCH_S}
    bench.ratio("asleep_append_p50_over_alone", rows[1].p50_ms / rows[0].p50_ms, "<=", 1.2)


async def until_owned(flow: Flow, ids: Sequence[str], prefix: str) -> None:
    """Until all of them are run by a worker whose name begins so."""
    left = list(ids)
    while left:
        states = await inspection.newest_of(flow.log, left, consistency="linearizable")
        left = [
            id for id, state in zip(left, states, strict=True) if state is None or not state.owner.startswith(prefix)
        ]
        await asyncio.sleep(0.05)


async def part_takeover(bench: Bench, _: float) -> None:
    """Kill -9 of a worker that runs a thousand workflows, until another has them, and all of them end."""
    lease_s = QUICK_LEASE_S if bench.quick else LEASE_S
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("takeover"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        victim = await stack.enter_async_context(worker(cluster.url, "takeover", "a", lease_s))
        flow = await stack.enter_async_context(Flow(app, client.book("takeover")))
        handles = await start_many(flow, waits.call(), MANY, "t")
        ids = [handle.id for handle in handles]
        await until_owned(flow, ids, "a.")
        await stack.enter_async_context(worker(cluster.url, "takeover", "b", lease_s))
        await asyncio.sleep(lease_s * 1.5)  # it has listened for a lease: it knows who is alive
        victim.kill()
        began = perf_counter()
        await until_owned(flow, ids, "b.")
        took_s = perf_counter() - began
        for at in range(0, MANY, OUTSTANDING):
            await asyncio.gather(*(handle.signal("go") for handle in handles[at : at + OUTSTANDING]))
        await asyncio.gather(*(handle.result() for handle in handles))
    bench.facts["takeover"] = f"{MANY:,} workflows {took_s:.1f} s after kill -9, lease {lease_s:g} s; all ended"
    bench.ratio("takeover_beyond_lease_s", took_s - lease_s, "<=", 2.0)


async def part_growth(bench: Bench, scale: float) -> None:
    """Workflows that end, many of them: what is kept of them in memory and on disk."""
    count = max(1, round(FINISHED * scale))
    settings = {**SETTINGS, "BOKI_ENGINE_FORGET_AGE_S": str(FORGET_AGE_S)}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("growth", settings=settings, sequencers=2))
        client = await stack.enter_async_context(boki.connect(cluster.url, timeout=120.0))
        one = await stack.enter_async_context(
            Worker(
                app,
                client.book("growth"),
                name="growth",
                retention_s=RETENTION_S,
                collect_every_s=COLLECT_EVERY_S,
                ages=GROWTH_AGES,
            )
        )
        samples = Samples(cluster)
        await stack.enter_async_context(samples.taken())
        numbers = iter(range(count))

        async def some() -> None:
            for _ in numbers:
                await (await one.start(steps.call(1))).result()
                samples.appended += 1

        await asyncio.gather(*(some() for _ in range(OUTSTANDING)))
        await asyncio.sleep(QUIET_S)
    columns = samples.columns
    bench.series["growth"] = dict(columns)
    judge(bench, columns, f"{count:,} workflows", settled=columns["term"][-1] >= TERMS)


def plot(directory: Path, series: dict[str, Any]) -> None:
    """The curves of `growth`."""
    if "growth" in series:
        columns = series["growth"]
        title = f"{columns['updates'][-1]:,.0f} workflows of one step that ended"
        draw(directory, "flow-growth.png", title, columns, "workflows ended")
