"""What is kept over time, of all libraries side by side: finished workflows, a hot object, a busy queue, queues where nothing happens.

What libraries keep has to follow what lives, not what happened. Ages that are days in use are seconds here (terms, graces, garbage
collection), so that all of it happens within the run. At `--scale 1` a million workflows finish; beside them one object is changed as
often, as many messages go through one queue, and a hundred queues have one message each that nobody takes. What workflows came to is
kept for a minute, their ids until the log can forget them, which takes three at least: so much grows with how fast they finish.

Sampled: operations so far, disk of the bookies without their journals (three copies), the engine's index, resident memory by process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import boki
from benchmarks import store_growth
from benchmarks.bench import Bench
from benchmarks.store_growth import QUIET_S, TERM_S, Samples, draw, judge
from bokiflow import App, Worker
from bokilib import Carrier, Log
from bokilib.retention.checkpoint_rules import Ages
from bokiqueue import Queue, carried
from bokistore import BokiStore, Inc, StoreSettings

WORKFLOWS: Final = 1_000_000
IDLE_QUEUES: Final = 100
OUTSTANDING: Final = 32
STORE: Final = StoreSettings(grace_ms=2_000)
CARRY_EVERY_S: Final = 3.0
RETENTION_S: Final = 60.0
FORGET_AGE_S: Final = 120
"""The least that the log takes; it counts whole minutes."""
AGES: Final = Ages(grace_ms=2_000, forget_ms=(FORGET_AGE_S + 61) * 1_000, carry_ms=round(TERM_S * 1_000))
SETTINGS: Final[Mapping[str, str]] = {
    **store_growth.SETTINGS,
    "BOKI_ENGINE_FORGET_AGE_S": str(FORGET_AGE_S),
    "BOKI_ENGINE_CACHE_BYTES": str(32 * 2**20),
}

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

        async with queue.consume(carry_s=TERM_S) as messages:
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


async def part_growth(bench: Bench, scale: float) -> None:
    """The run; its curves are in the series `growth`."""
    count, idle = max(1, round(WORKFLOWS * scale)), max(1, min(IDLE_QUEUES, round(IDLE_QUEUES * scale * 10)))
    cluster = bench.cluster("growth", settings=SETTINGS, sequencers=2)
    async with cluster, boki.connect(cluster.url, timeout=120.0) as client:
        load = Load(Log(client.book("growth")))
        samples = Samples(cluster, lambda: sum(load.done.values()))
        queues = await load.idle_queues(idle)
        busy = await Queue.open(load.log, "busy", int)
        both = [load.store.carried(), carried(load.log)]
        carrier = Carrier(load.log, both, who="growth", every_s=CARRY_EVERY_S, carry_ms=AGES.carry_ms)
        async with samples.taken():
            worker = Worker(app, load.log, retention_s=RETENTION_S, collect_every_s=CARRY_EVERY_S, ages=AGES)
            async with carrier, worker:
                await asyncio.gather(load.workflows(worker, count), load.updates(count), load.messages(busy, count))
                await asyncio.sleep(min(QUIET_S, 10 + QUIET_S * scale))
            depths = [(await queue.stats()).depth for queue in queues]
        assert depths == [1] * idle, f"of queues in which nothing happened: {depths}"
        assert await load.store.object("hot").get("n", consistency="linearizable") == count
        await load.store.close()
    bench.series["growth"] = {"idle": idle, "count": count, **samples.columns}
    what = f"{count:,} workflows, changes and messages beside {idle} idle queues"
    judge(bench, samples.columns, what, settled=True)


def plot(directory: Path, series: Mapping[str, Any]) -> None:
    """The curves."""
    what = "finished workflows, changes of an object and messages"
    title = f"{series['count']:,} {what} beside {series['idle']} idle queues"
    draw(directory, "libraries-growth.png", title, series, "operations so far")
