"""Queues beside NATS JetStream and PostgreSQL with SKIP LOCKED, in one run.

    python -m benchmarks.queue [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]           (`make bench-queue`)

Parts, each on a cluster of its own processes (three bookies, E = Qw = 3, Qa = 2, metadata in SQLite), every write flushed on all sides:

    rate        messages of 1 KB that come through, 8P8C and 32P8C, pushed one by one, beside both
    delivery    from push to handler: at half of PostgreSQL's rate beside it, at 50 % and 90 % of NATS's beside it
    record      consume + object change + push as one record, beside one transaction of PostgreSQL
    appends     records of the log an operation
    slow        1,000 fast messages beside one whose handler takes five seconds
    growth      what is kept over time of finished workflows, a hot object, busy and idle queues (`benchmarks.growth`)

All producers and consumers are tasks of this process. What is compared is measured in interleaved rounds. NATS and PostgreSQL keep one
copy, ours three. The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import boki
from benchmarks import command, growth, hot, report
from benchmarks.bench import Bench, over, p50, rate
from benchmarks.postgres_peer import postgres
from benchmarks.queue_load import UNTIMED, Handled, Shape, Side, measure
from benchmarks.queue_peers import ABSENT_NATS, ABSENT_POSTGRES, Postgres, PostgresTransaction, nats, object_of
from benchmarks.report import Row
from bokiqueue import Message, Queue
from bokistore import BokiStore, Transaction

SHARDS: Final = 8
SHAPES: Final = (Shape(8, 8), Shape(32, 8))
OPERATIONS: Final = 64
GOALS: Final[Mapping[tuple[str, int], float]] = {
    ("nats", 8): 8.0,
    ("nats", 32): 8.0,
    ("postgres", 8): 3.0,
    ("postgres", 32): 5.0,
}


class Boki:
    """A queue: one member, and as many tasks over it as there are consumers."""

    def __init__(self, queue: Queue[str], pids: Mapping[str, int]) -> None:
        self.pids: Final = pids
        self._queue = queue

    async def push(self, producer: int, body: str) -> None:
        await self._queue.push(body)

    async def consume(self, consumers: int, ready: asyncio.Event, handled: Handled) -> None:
        async with self._queue.consume() as messages:
            await messages.has(SHARDS)
            ready.set()

            async def work() -> None:
                async for message in messages:
                    async with message:
                        handled(message.body)

            await asyncio.gather(*(work() for _ in range(consumers)))


class BokiRecord:
    """The same, whose handlers change an object and push on in the record of the ACK."""

    def __init__(self, store: BokiStore, queue: Queue[str], to: Queue[str], pids: Mapping[str, int]) -> None:
        self.pids: Final = pids
        self._store = store
        self._queue = queue
        self._to = to

    async def push(self, producer: int, body: str) -> None:
        await self._queue.push(body)

    async def consume(self, consumers: int, ready: asyncio.Event, handled: Handled) -> None:
        @self._queue.handler(_Answering(self._store, handled), at_once=consumers)
        async def handle(message: Message[str], tx: Transaction) -> None:
            tx[f"o{object_of(message.body)}"].inc("n")
            tx.add(self._to.pushed(message.body))

        async with handle:
            assert handle.consumer is not None, "it was entered"
            await handle.consumer.has(SHARDS)
            ready.set()
            await asyncio.Event().wait()


class _Answering:
    """Tells of a message when its record is in the log."""

    def __init__(self, store: BokiStore, handled: Handled) -> None:
        self._store = store
        self._handled = handled

    async def transact(self, body: Callable[[Transaction], Awaitable[None]]) -> None:
        await self._store.transact(body)
        self._handled(UNTIMED)


async def rounds(bench: Bench, loads: Mapping[str, tuple[Side, Shape]]) -> dict[str, list[Row]]:
    """Interleaved rounds of loads; medians go into the table."""
    found: dict[str, list[Row]] = {name: [] for name in loads}
    for _ in range(bench.rounds):
        for name, (side, shape) in loads.items():
            label = name if "," in name else name.partition(" ")[0]
            found[name].append(await measure(label, side, shape, bench.seconds))
    bench.rows += [report.median_row(rows) for rows in found.values()]
    return found


class Sides:
    """All three, for one part. `peers`: those that there are."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.peers: dict[str, Side] = {}
        self._bench = bench
        self._name = name
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Sides:
        bench, name, enter = self._bench, self._name, self._stack.enter_async_context
        cluster = await enter(bench.cluster(name))
        client = await enter(boki.connect(cluster.url))
        self.pids = cluster.pids
        self.store = BokiStore(client.book("bench"))
        queue = await Queue.open(self.store.log, "work", str, shards=SHARDS)
        self.boki = Boki(queue, self.pids)
        server = await enter(nats(bench.directory / f"nats-{name}"))
        if server is None:
            bench.facts["NATS"] = ABSENT_NATS
        else:
            self.peers["nats"] = server
        self.pool: Any = await enter(postgres(bench.directory / f"pg-{name}"))
        if self.pool is None:
            bench.facts["PostgreSQL"] = ABSENT_POSTGRES
        else:
            table = Postgres(self.pool)
            await table.setup()
            self.peers["postgres"] = table
            bench.facts["PostgreSQL"] = await self.pool.fetchval("SHOW server_version")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.store.close()
        await self._stack.aclose()


async def part_rate(bench: Bench) -> None:
    async with Sides(bench, "rate") as sides:
        every: dict[str, Side] = {"boki": sides.boki, **sides.peers}
        loads = {f"{name} {shape.producers}": (side, shape) for shape in SHAPES for name, side in every.items()}
        found = await rounds(bench, loads)
    for shape in SHAPES:
        for name in sides.peers:
            value = over(found[f"boki {shape.producers}"], found[f"{name} {shape.producers}"], rate)
            bench.ratio(f"queue_{shape.name}_over_{name}", value, ">=", GOALS[name, shape.producers])


async def part_delivery(bench: Bench) -> None:
    """At a pace that is a part of what the peer can do, which is measured first."""
    parts = {"postgres": ((0.5, 1.0),), "nats": ((0.5, 2.0), (0.9, 1.0))}
    async with Sides(bench, "delivery") as sides:
        for name, peer in sides.peers.items():
            most = statistics.median([(await measure(name, peer, SHAPES[0], bench.seconds)).per_s for _ in range(2)])
            for part, goal in parts[name]:
                shape = SHAPES[0]._replace(per_s=part * most)
                found = await rounds(bench, {f"boki {name}": (sides.boki, shape), f"{name} {name}": (peer, shape)})
                value = over(found[f"boki {name}"], found[f"{name} {name}"], p50)
                bench.ratio(f"delivery_p50_at_{part * 100:.0f}_percent_of_{name}", value, "<=", goal)


async def part_record(bench: Bench) -> None:
    async with Sides(bench, "record") as sides:
        log = sides.store.log
        queue = await Queue.open(log, "orders", str, shards=SHARDS)
        to = await Queue.open(log, "emails", str, shards=SHARDS)
        loads: dict[str, tuple[Side, Shape]] = {
            "boki, one record": (BokiRecord(sides.store, queue, to, sides.pids), SHAPES[0])
        }
        if sides.pool is not None:
            loads["postgres, one transaction"] = (PostgresTransaction(sides.pool), SHAPES[0])
        found = list((await rounds(bench, loads)).values())
    if len(found) > 1:
        bench.ratio("consume_change_push_over_postgres", over(found[0], found[1], rate), ">=", 2.0)


async def part_appends(bench: Bench) -> None:
    """Of one process that does nothing else; heartbeats come seldom."""
    async with bench.cluster("appends") as cluster, boki.connect(cluster.url) as client:
        store = BokiStore(client.book("bench"))
        log = store.log
        queue = await Queue.open(log, "work", str, shards=1)
        popped = await Queue.open(log, "popped", str, shards=1, mode="pop")

        async def appends(name: str, work: Callable[[], Awaitable[object]], most: float, count: int) -> None:
            before = log.appends
            await work()
            bench.ratio(f"appends_a_{name}", (log.appends - before) / count, "<=", most)

        async def pushes() -> None:
            for _ in range(OPERATIONS):
                await queue.push("x")

        async def pops() -> None:
            for _ in range(OPERATIONS):
                await popped.pop()

        async def consume(many: int) -> None:
            for _ in range(many):
                async with await anext(messages) as message:
                    await message.ack()

        await appends("push", pushes, 1.0, OPERATIONS)
        await appends("push_in_batches", lambda: queue.push_many(["x"] * OPERATIONS), 1 / OPERATIONS, OPERATIONS)
        await popped.push_many(["x"] * OPERATIONS)
        await appends("pop", pops, 1.0, OPERATIONS)
        async with queue.consume(member_lease_s=600) as messages:
            await messages.has(1)
            await appends("message_consumed_alone", lambda: consume(2 * OPERATIONS), 2.0, 2 * OPERATIONS)
            await queue.push_many(["x"] * OPERATIONS)

            async def together() -> None:
                taken = [await anext(messages) for _ in range(OPERATIONS)]
                await asyncio.gather(*(message.ack() for message in taken))

            await appends("message_consumed_of_64", together, 2 / OPERATIONS, OPERATIONS)
        await store.close()


async def part_growth(bench: Bench) -> None:
    await growth.part_growth(bench, bench.scale if isinstance(bench, Scaled) else 1.0)


class Scaled(Bench):
    """With the scale of the part `growth`."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        super().__init__(arguments, directory)
        self.scale: float = arguments.scale


async def part_slow(bench: Bench) -> None:
    await hot.part_slow(bench, "queue")


PARTS: Final[Mapping[str, Callable[[Bench], Awaitable[None]]]] = {
    "rate": part_rate,
    "delivery": part_delivery,
    "record": part_record,
    "appends": part_appends,
    "slow": part_slow,
    "growth": part_growth,
}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command.options(
        "queue",
        "Queues beside others, in one run.",
        quick="short rounds, little growth",
        parts=PARTS,
        seconds=3.0,
        each="load",
        plots="PNGs of growth",
    )
    parser.add_argument("--scale", type=float, default=0.05, help="of growth: 1 has a million finished workflows")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.scale = 2, 1.0, min(arguments.scale, 0.002)
    return arguments


def main() -> int:
    arguments = parsed()
    with command.workplace(arguments) as directory:
        bench = Scaled(arguments, directory)
        facts = command.run(arguments.only or PARTS, lambda name: PARTS[name](bench), directory)
    command.show("queue", "queues", arguments, facts, bench)
    if arguments.plots and "growth" in bench.series:
        series: Any = bench.series["growth"]
        growth.plot(arguments.plots, series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
