"""A trial of a queue load: a cluster, producers and consumers under kill -9, and the check that each message was handled once.

    result = await trial(LOADS["1:4"], directory, seconds=20, seed=7, say=print)
    result.faults                                   # sentences; [] if no message is lost or handled twice

The loads are those of section 7.4 of the evaluation: producers push 1 KB at a fixed rate, and the queue has as many shards as
consumers. The evaluation pops messages, which loses one whose consumer dies after the pop. Here a consumer handles a message
in one record that holds both the acknowledgement and the push of a receipt.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import boki
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from examples.queues.worker import BOOK, TIMEOUT_S, queues
from examples.supervisor import Supervisor, kill_at_random, module_command

SETTLE_S: Final = 90.0
"""Time within which all messages are handled after the last kill."""


class QueueLoad(NamedTuple):
    """Numbers of producers and consumers, which run in two processes each.

    Attributes:
        producers: number of producers.
        consumers: number of consumers, and of shards.
        every_ms: time between two messages of a producer.
    """

    producers: int
    consumers: int
    every_ms: float


LOADS: Final = {"1:4": QueueLoad(2, 8, 10.0), "1:1": QueueLoad(4, 4, 20.0), "4:1": QueueLoad(8, 2, 40.0)}


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        acknowledged: messages whose push was acknowledged.
        handled: receipts of consumers.
        killed: kills by kind of process.
        p50_ms: median time from push to handling.
        p99_ms: 99th percentile of it.
        faults: sentences; [] if no message is lost or handled twice.
        seconds: duration.
    """

    acknowledged: int
    handled: int
    killed: Counter[str]
    p50_ms: float
    p99_ms: float
    faults: list[str]
    seconds: float


class ProducerNotes(NamedTuple):
    """Ids in the note files of producers.

    Attributes:
        pushed: messages that a producer was about to push.
        acknowledged: messages whose push was acknowledged.
    """

    pushed: frozenset[str]
    acknowledged: frozenset[str]


def read_notes(lines: Iterable[str]) -> ProducerNotes:
    """Return the ids in lines of note files, which are `? ID` or `! ID`."""
    marks = [line.split(" ", 1) for line in lines if line]
    pushed, acknowledged = (frozenset(id for mark, id in marks if mark == kind) for kind in "?!")
    return ProducerNotes(pushed, acknowledged)


def check(notes: ProducerNotes, handled: Sequence[str], waiting: int) -> list[str]:
    """Return the faults at the end of a trial.

    Args:
        notes: what producers noted.
        handled: ids in receipts of consumers.
        waiting: number of messages that are still in the queue.
    """
    faults = [f"{waiting} messages still wait"] if waiting else []
    counts = Counter(handled)
    faults += [f"message {id} was handled {count} times" for id, count in sorted(counts.items()) if count > 1]
    faults += [f"message {id} was acknowledged, but is lost" for id in sorted(notes.acknowledged - counts.keys())]
    return faults + [f"message {id} was never pushed" for id in sorted(counts.keys() - notes.pushed)]


async def trial(
    load: QueueLoad,
    directory: Path,
    *,
    seconds: float = 20.0,
    seed: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Run a trial of a load; see the module."""
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
            await _first_push(directory)
            victims = supervisor.victims(cluster)
            await kill_at_random(victims, killed, seconds=seconds, chance=random.Random(seed), say=say)
            await supervisor.end(*producers)
            notes = read_notes(
                line for file in sorted(directory.glob("notes.*")) for line in file.read_text().splitlines()
            )
            done, waiting = await _settled(cluster.url, load.consumers, len(notes.acknowledged))
            await supervisor.end(*consumers)
        finally:
            await supervisor.clear()
    faults = supervisor.faults + check(notes, [id for id, _ in done], waiting)
    took = sorted(took for _, took in done) or [0.0]
    middle, late = statistics.median(took), took[int(len(took) * 0.99)]
    return TrialResult(len(notes.acknowledged), len(done), killed, middle, late, faults, perf_counter() - began)


async def _first_push(directory: Path) -> None:
    """Wait until the first push is acknowledged: a busy machine needs long to start the processes."""
    deadline = perf_counter() + SETTLE_S
    while perf_counter() < deadline and not any("!" in file.read_text() for file in directory.glob("notes.*")):
        await asyncio.sleep(0.1)


async def _settled(url: str, shards: int, least: int) -> tuple[list[tuple[str, float]], int]:
    """Wait until every message is handled, at most SETTLE_S.

    Returns:
        (id, milliseconds from push to handling) of each receipt, and the number of messages that still wait.
    """
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
