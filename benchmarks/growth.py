"""What is kept over time, of all libraries side by side: finished workflows, a hot object, a busy queue, queues where nothing happens.

What libraries keep has to follow what lives, not what happened. Ages that are days in use are seconds here (terms, graces, garbage
collection), so that all of it happens within the run. At `--scale 1` a million workflows finish; beside them one object is changed as
often, as many messages go through one queue, and a hundred queues have one message each that nobody takes. Ids of finished workflows are
kept for their retention, which is the whole run: that much may grow.

Sampled: operations so far, disk of the bookies without their journals (three copies), the engine's index, resident memory by process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boki
from benchmarks.store_growth import QUIET_S, SETTINGS, TERM_S, Samples
from bokiflow import App, Worker
from bokilib import Log
from bokiqueue import Queue
from bokistore import BokiStore, Inc, StoreSettings

if TYPE_CHECKING:
    from benchmarks.logbook import Bench

WORKFLOWS: Final = 1_000_000
IDLE_QUEUES: Final = 100
OUTSTANDING: Final = 32
SAMPLE_S: Final = 1.0
STORE: Final = StoreSettings(grace_ms=2_000)
CARRY_EVERY_S: Final = 3.0

app = App("growth")


@app.step
async def double(n: int) -> int:
    """The step of a workflow."""
    return 2 * n


@app.workflow
async def doubled(n: int) -> int:
    """A workflow of one step."""
    return await double(n)


class Load:
    """All of it, on one book. `done`: what finished, by kind."""

    def __init__(self, log: Log) -> None:
        self.log: Final = log
        self.store: Final = BokiStore(log, settings=STORE)
        self.done: Final[dict[str, int]] = {"workflows": 0, "updates": 0, "messages": 0}

    async def workflows(self, worker: Worker, count: int) -> None:
        """So many workflows."""

        async def one(number: int) -> None:
            handle = await worker.start(doubled.call(number), id=f"w{number}")
            assert await handle.result() == 2 * number
            self.done["workflows"] += 1

        await _many(one, count)

    async def updates(self, count: int) -> None:
        """So many changes of one object."""

        async def one(_: int) -> None:
            await self.store.object("hot").apply(Inc("n", 1))
            self.done["updates"] += 1

        await _many(one, count)

    async def messages(self, queue: Queue[int], count: int) -> None:
        """So many messages, pushed and handled."""

        async def one(number: int) -> None:
            await queue.push(number)

        async def handle() -> None:
            async for message in messages:
                async with message:
                    self.done["messages"] += 1

        async with queue.consume() as messages:
            handling = [asyncio.create_task(handle()) for _ in range(4)]
            await _many(one, count)
            while self.done["messages"] < count:
                await asyncio.sleep(0.05)
            for task in handling:
                task.cancel()
            await asyncio.gather(*handling, return_exceptions=True)

    async def idle_queues(self, count: int) -> list[Queue[int]]:
        """Queues with a message each."""
        made = [await Queue.open(self.log, f"idle-{number}", int, shards=1) for number in range(count)]
        for number, queue in enumerate(made):
            await queue.push(number)
        return made


async def _many(one: Callable[[int], Awaitable[None]], count: int) -> None:
    """So many calls, some at once."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(some() for _ in range(OUTSTANDING)))


@asynccontextmanager
async def _sampled(samples: Samples, load: Load) -> AsyncIterator[None]:
    """What was done so far is sampled with the rest."""

    async def run() -> None:
        while True:
            samples.appended = sum(load.done.values())
            await samples.take()
            await asyncio.sleep(SAMPLE_S)

    watching = asyncio.create_task(run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def part_growth(bench: Bench, scale: float) -> None:
    """The run; its curves are in the series `growth`."""
    count, idle = max(1, round(WORKFLOWS * scale)), max(1, min(IDLE_QUEUES, round(IDLE_QUEUES * scale * 10)))
    cluster = bench.cluster("growth", settings=SETTINGS, sequencers=2)
    async with cluster, boki.connect(cluster.url, timeout=120.0) as client:
        load = Load(Log(client.book("growth")))
        samples = Samples(cluster)
        queues = await load.idle_queues(idle)
        busy = await Queue.open(load.log, "busy", int)
        carrier = load.store.carrier("growth", every_s=CARRY_EVERY_S, carry_ms=round(TERM_S * 1000))
        async with _sampled(samples, load):
            async with carrier, Worker(app, load.log) as worker:
                await asyncio.gather(load.workflows(worker, count), load.updates(count), load.messages(busy, count))
                await asyncio.sleep(min(QUIET_S, 10 + QUIET_S * scale))
            depths = [(await queue.stats()).depth for queue in queues]
        assert depths == [1] * idle, f"of queues in which nothing happened: {depths}"
        assert await load.store.object("hot").get("n", consistency="linearizable") == count
        await samples.take()
        await load.store.close()
        await samples.close()
    bench.series["growth"] = {"idle": idle, "count": count, **samples.columns}
    _tell(bench, samples.columns, count, idle)


def _tell(bench: Bench, columns: Mapping[str, list[float]], count: int, idle: int) -> None:
    quarter = max(1, len(columns["seconds"]) // 4)
    for name in ("disk", "index"):
        before, after = max(columns[name][quarter : 2 * quarter]), max(columns[name][-quarter:])
        bench.ratio(f"growth_{name}_last_quarter_over_second", after / max(before, 1), "<=", 1.5)
    took = f"{columns['seconds'][-1]:.0f} s, {columns['term'][-1]:.0f} terms"
    bench.facts["growth"] = f"{count:,} workflows, changes and messages beside {idle} idle queues, {took}"
    peak = {name: max(values) / 1e6 for name, values in columns.items() if name not in ("seconds", "updates", "term")}
    bench.facts["growth, peaks"] = ", ".join(f"{name} {value:,.0f} MB" for name, value in peak.items())


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """The curves."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{series['count']:,} finished workflows, changes of an object and messages beside {series['idle']} idle queues"
    )
    (log, disk), (index, memory) = figure.subplots(2, 2)
    seconds = series["seconds"]
    terms = [at for at, (one, other) in enumerate(zip(series["term"], series["term"][1:], strict=False)) if other > one]
    for axes in (log, disk, index, memory):
        axes.set(xlabel="seconds")
        for at in terms:
            axes.axvline(seconds[at], color="#cccccc", linewidth=0.6, zorder=0)
    log.plot(seconds, [value / 1000 for value in series["updates"]], color="#4c78a8")
    log.set(ylabel="log: thousand operations so far", ylim=(0, None))
    disk.plot(seconds, [value / 1e6 for value in series["disk"]], color="#e15759")
    disk.set(ylabel="disk of three bookies, MB", ylim=(0, None))
    index.plot(seconds, [value / 1e6 for value in series["index"]], color="#59a14f")
    index.set(ylabel="index of the engine, MB", ylim=(0, None))
    for name in sorted(name for name in series if name.startswith("memory")):
        memory.plot(seconds, [value / 1e6 for value in series[name]], label=name.removeprefix("memory of "))
    memory.set(ylabel="resident memory, MB", ylim=(0, None))
    memory.legend(fontsize=8)
    log.text(0.02, 0.95, "grey: a term begins", transform=log.transAxes, va="top", fontsize=8, color="#777777")
    figure.savefig(directory / "libraries-growth.png", dpi=120)
