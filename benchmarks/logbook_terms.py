"""What a change of terms costs those who append meanwhile, and how long an engine takes to start on many records.

A load of `TASKS` appends outstanding runs all the time; every append's begin and duration are kept. After an event (a planned
term, kill -9 of the sequencer, kill -9 of an engine, seen by clients of the other) latency counts as normal again from the
first moment on after which `NORMAL_S` pass without an append that took longer than `SLOW` times the median before; the time
until then, from the event on, is what is compared with the goal.

Throughput with a term every `PERIOD_S` is compared with throughput without in turns, for the machine's seconds differ: two
periods without, two periods that each begin with a term, and again; the ratio is the median of the turns'.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import boki
from benchmarks.bench import Bench
from benchmarks.logbook_ledger import Terms, ledger_client
from itests.support.java_server import ServerMissing
from itests.support.zookeeper import ZookeeperServer

TASKS: Final = 16
BEFORE_S: Final = 2.0
NORMAL_S: Final = 0.2
SLOW: Final = 5.0
AFTER_S: Final = 4.0
EVENTS: Final = 5
PERIOD_S: Final = 3.0
START_RECORDS: Final = 10_000_000


class Load:
    """Appends all the time; what each took."""

    def __init__(self, client: Any, name: str) -> None:
        self.begun = array("d")
        self.taken = array("d")
        self._book = client.book(name)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._append(task)) for task in range(TASKS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _append(self, task: int) -> None:
        data = os.urandom(1024)
        while True:
            begun = perf_counter()
            await self._book.append(data, tags=(f"task/{task}",))
            self.begun.append(begun)
            self.taken.append(perf_counter() - begun)

    def normal_after(self, event: float) -> float:
        """Seconds from the event until no append is slow any more that begins within `NORMAL_S`."""
        appends = [(begun + taken, begun, taken) for begun, taken in zip(self.begun, self.taken, strict=True)]
        before = statistics.median(taken for end, _, taken in appends if event - BEFORE_S < end <= event)
        normal = event
        for end, begun, taken in sorted(appends):
            if end > event and taken > SLOW * before:
                if begun - normal > NORMAL_S:
                    break
                normal = end
        return normal - event

    def around(self, event: float) -> dict[str, list[float]]:
        """Latency over time, in ms, from before the event to after it."""
        rows = sorted(
            (begun + taken - event, taken * 1000)
            for begun, taken in zip(self.begun, self.taken, strict=True)
            if -1 < begun + taken - event < 3
        )
        return {"seconds": [at for at, _ in rows], "ms": [ms for _, ms in rows]}

    def per_s(self, begin: float, end: float) -> float:
        ends = sum(begin < begun + taken <= end for begun, taken in zip(self.begun, self.taken, strict=True))
        return ends / (end - begin)


async def part_terms(bench: Bench) -> None:
    events = 2 if bench.quick else EVENTS
    async with AsyncExitStack() as stack:
        metadata_uri = await stack.enter_async_context(zookeeper(bench))
        cluster = await stack.enter_async_context(
            bench.cluster("terms", metadata_uri=metadata_uri, engines=2, sequencers=2)
        )
        urls = cluster.url.split(",")
        client = await stack.enter_async_context(boki.connect(urls[0]))
        terms = Terms(*await stack.enter_async_context(ledger_client(cluster.metadata_uri)))
        load = await stack.enter_async_context(Load(client, "terms"))
        await asyncio.sleep(BEFORE_S)
        protocol, planned, lost, other = [], [], [], []
        for _ in range(events):
            event = perf_counter()
            protocol.append(await terms.roll() * 1000)
            await asyncio.sleep(AFTER_S)
            planned.append(load.normal_after(event) * 1000)
            bench.series["planned term"] = load.around(event)
        for _ in range(events):
            primary = await serving(terms, cluster)
            event = perf_counter()
            await cluster.kill(primary)
            await asyncio.sleep(AFTER_S)
            lost.append(load.normal_after(event))
            bench.series["sequencer killed"] = load.around(event)
            await cluster.start(primary)
            await asyncio.sleep(BEFORE_S)
        for _ in range(events):
            event = perf_counter()
            await cluster.kill("engine-2")
            await asyncio.sleep(AFTER_S)
            other.append(load.normal_after(event))
            bench.series["another engine killed"] = load.around(event)
            await cluster.start("engine-2")
            await asyncio.sleep(BEFORE_S)
        often = [await often_over_without(terms, load) for _ in range(events)]
    bench.ratio("planned_term_protocol_ms", statistics.median(protocol), "<=", 30)
    bench.ratio("planned_term_latency_normal_ms", statistics.median(planned), "<=", 100)
    bench.ratio("sequencer_killed_latency_normal_s", statistics.median(lost), "<=", 1.5)
    bench.ratio("engine_killed_latency_of_others_normal_s", statistics.median(other), "<=", 1.0)
    bench.ratio("throughput_with_a_term_every_3_s_over_without", statistics.median(often), ">=", 0.95)


async def often_over_without(terms: Terms, load: Load) -> float:
    """One turn: how much of the throughput of two quiet periods is left in two that begin with a term."""
    begin = perf_counter()
    await asyncio.sleep(2 * PERIOD_S)
    middle = perf_counter()
    for _ in range(2):
        rolled = perf_counter()
        await terms.roll()
        await asyncio.sleep(rolled + PERIOD_S - perf_counter())
    return load.per_s(middle, perf_counter()) / load.per_s(begin, middle)


@asynccontextmanager
async def zookeeper(bench: Bench) -> AsyncIterator[str | None]:
    """A ZooKeeper, as a cluster of several machines has it; None where it cannot be started: then it is a SQLite file."""
    try:
        server = await asyncio.to_thread(ZookeeperServer.start, bench.directory / "zookeeper")
    except ServerMissing as error:
        bench.facts["metadata of terms"] = f"SQLite, for ZooKeeper is missing: {error}"
        yield None
        return
    bench.facts["metadata of terms"] = "ZooKeeper"
    try:
        yield f"zk://{server.hosts}/boki"
    finally:
        server.stop()


async def serving(terms: Terms, cluster: Any) -> str:
    """The role that orders log 0 now."""
    address = await terms.sequencer()
    roles: Sequence[str] = cluster.roles
    return next(role for role in roles if role.startswith("sequencer") and cluster.address(role) == address)


async def part_start(bench: Bench) -> None:
    """Appends many small records, seals and snapshots their term, restarts the engine on an empty disk of its own."""
    records = 200_000 if bench.quick else START_RECORDS
    async with bench.cluster("start") as cluster:
        async with boki.connect(cluster.url) as client:
            book = client.book("start")

            async def fill(task: int) -> None:
                for _ in range(records // 8 // 1000):
                    await book.append_many([(b"x", (f"task/{task}",))] * 1000)

            await asyncio.gather(*(fill(task) for task in range(8)))
        async with ledger_client(cluster.metadata_uri) as connected:
            await Terms(*connected).roll()
        await asyncio.sleep(5.0)  # the snapshot of the sealed term is written behind it
        await cluster.stop("engine-1")
        begin = perf_counter()
        await cluster.start("engine-1")
        async with boki.connect(cluster.url) as client:
            assert await client.book("start").check_tail(timeout=60) is not None
        seconds = perf_counter() - begin
    bench.facts["start"] = f"{seconds:.1f} s until the first read, {records:,} records"
    bench.ratio(
        "engine_start_s_with_10M_records", seconds * START_RECORDS / records if bench.quick else seconds, "<=", 10
    )


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """Latency over time around each kind of event, and throughput by number of books."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    events = [name for name in series if name != "density"]
    if events:
        figure = Figure(figsize=(4.5 * len(events), 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes: Sequence[Any] = figure.subplots(1, len(events), squeeze=False)[0]
        for one, name in zip(axes, events, strict=True):
            one.plot(series[name]["seconds"], series[name]["ms"], ".", markersize=2, color="#4c78a8")
            one.axvline(0, color="black", linewidth=0.8)
            one.set(title=name, xlabel="seconds from the event", ylabel="latency of an append, ms", yscale="log")
        figure.savefig(directory / "logbook-terms.png", dpi=120)
    if "density" in series:
        figure = Figure(figsize=(4.5, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        one = figure.subplots()
        one.bar(
            [f"{books:,} books" for books in series["density"]["books"]], series["density"]["per_s"], color="#59a14f"
        )
        one.set(ylabel="appends per second, 1 KB, 1,024 outstanding")
        figure.savefig(directory / "logbook-density.png", dpi=120)
