"""The paper's loads (section 7.4) on a cluster of processes while they are killed with kill -9, and what is true in the end.

    found = await trial(LOADS["1:4"], directory, seconds=20, seed=7, say=print)
    found.faults                                    # sentences; none

As there, producers push 1 KB at a pace, and there are as many shards as consumers. Unlike there a message is consumed, not popped: who is
killed between the pop and his work would have lost it. A consumer's record is the ACK and the push of its receipt.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from examples.queues.checks import check, read
from examples.queues.worker import BOOK, TIMEOUT_S, queues
from examples.supervisor import Supervisor, kill_at_random, module_command

SETTLE_S: Final = 90.0
"""All messages are done so long after the last kill."""


class QueueLoad(NamedTuple):
    """Producers and consumers, in two processes each; every producer pushes so often."""

    producers: int
    consumers: int
    every_ms: float


LOADS: Final = {"1:4": QueueLoad(2, 8, 10.0), "1:1": QueueLoad(4, 4, 20.0), "4:1": QueueLoad(8, 2, 40.0)}


class TrialResult(NamedTuple):
    """What became of a trial. `p50_ms`, `p99_ms`: from push to handling."""

    acknowledged: int
    handled: int
    killed: Counter[str]
    p50_ms: float
    p99_ms: float
    faults: list[str]
    seconds: float


async def trial(
    load: QueueLoad,
    directory: Path,
    *,
    seconds: float = 20.0,
    seed: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Runs one; see the module."""
    began = perf_counter()
    producers, consumers = ["producer1", "producer2"], ["consumer1", "consumer2"]
    killed: Counter[str] = Counter()
    async with LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster:
        supervisor = Supervisor(directory / "processes.log")
        command = partial(module_command, "examples.queues.worker", cluster.url, "--shards", str(load.consumers))
        consume = command("--role", "consume", "--clients", str(load.consumers // 2))
        pushes = ("--every-ms", str(load.every_ms), "--notes", str(directory / "notes"))
        produce = command("--role", "produce", "--clients", str(load.producers // 2), *pushes)
        try:
            for slot in consumers:
                await supervisor.start(slot, consume)
            for slot in producers:
                await supervisor.start(slot, produce)
            await _begun(directory)
            victims = supervisor.victims(cluster)
            await kill_at_random(victims, killed, seconds=seconds, chance=random.Random(seed), say=say)
            await supervisor.end(*producers)
            notes = read(line for file in sorted(directory.glob("notes.*")) for line in file.read_text().splitlines())
            done, waiting = await _settled(cluster.url, load.consumers, len(notes.acknowledged))
            await supervisor.end(*consumers)
        finally:
            await supervisor.clear()
    faults = supervisor.faults + check(notes, [id for id, _ in done], waiting)
    took = sorted(took for _, took in done) or [0.0]
    middle, late = statistics.median(took), took[int(len(took) * 0.99)]
    return TrialResult(len(notes.acknowledged), len(done), killed, middle, late, faults, perf_counter() - began)


async def _begun(directory: Path) -> None:
    """Until a producer's first message has its place: a busy machine takes its time to start so many processes."""
    deadline = perf_counter() + SETTLE_S
    while perf_counter() < deadline and not any("!" in file.read_text() for file in directory.glob("notes.*")):
        await asyncio.sleep(0.1)


async def _settled(url: str, shards: int, least: int) -> tuple[list[tuple[str, float]], int]:
    """What is done when nothing waits, or as it is when that takes too long; and how much waits."""
    deadline = perf_counter() + SETTLE_S
    async with boki.connect(url, timeout=TIMEOUT_S) as client:
        work, done = await queues(client.book(BOOK), shards)
        while True:
            try:
                waiting = (await work.stats()).depth
                if (not waiting and (await done.stats()).depth >= least) or perf_counter() > deadline:
                    reported = [one.body for one in await done.peek(10**6)]
                    return [
                        (str(one["id"]), float(str(one["took_ms"]))) for one in reported if isinstance(one, dict)
                    ], waiting
            except BokiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.3)
