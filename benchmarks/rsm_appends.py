"""Machines beside the appends that they stand on: creation, a producer and its consumer, a long inbox, records an operation."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

import boki
from benchmarks import machine, rsm_child
from benchmarks.bench import Bench, over, p50, rate
from benchmarks.closed_loop import cpu_groups
from benchmarks.report import Row
from benchmarks.rsm_child import Child
from benchmarks.rsm_compared import ENDED_S, HOSTS_LEASE_S, LEASE_S, Load, loop, rounds, two_hosts
from benchmarks.rsm_programs import (
    BOOK,
    MACHINES,
    Add,
    Begin,
    Blank,
    Consumer,
    Counter,
    Deferring,
    Letter,
    Make,
    Maker,
    Open,
    Poke,
    Produce,
    Producer,
    Top,
    WordCounter,
    Words,
)
from bokilib.append.log import Log
from bokilib.ports import BookPort, TicketPort
from bokirsm import Host, Ref, Rsm
from bokirsm.model.events import PICKER, Checkpoint, Claimed, Commit, Inputs, Snapshot

MAKERS: Final = 10
CREATED: Final = 10_000
SIZES: Final = (100, 1_024, 16_384, 65_536)
BATCH: Final = 256
BATCH_BYTES: Final = 448 * 1_024
"""The most bytes that a handler sends: large messages are in smaller batches."""
AHEAD: Final = 4
"""Batches under way at once, on all sides."""
DEFERRED_BYTES: Final = 32 * 2**20
LETTER_BYTES: Final = 1_024
OPERATIONS: Final = 64


# -- creation


async def part_creation(bench: Bench) -> None:
    """Creations by a client, and by handlers."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("creation"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        rsm = await stack.enter_async_context(Rsm(MACHINES, client.book(BOOK)))
        host = await stack.enter_async_context(
            rsm_child.running("benchmarks.rsm_programs", cluster.url, BOOK, "host", str(HOSTS_LEASE_S))
        )
        book, data = client.book(BOOK), os.urandom(100)

        async def create(_: int) -> int:
            await rsm.create(Blank)
            return 1

        async def append(_: int) -> int:
            await book.append(data, tags=["appended"])
            return 1

        pids = {**cluster.pids, "sdk-1": host.pid}
        loads: dict[str, Load] = {
            "boki": loop("boki: create, 1 outstanding", 1, create, pids, bench.seconds),
            "append": loop("append 100 B, 1 outstanding", 1, append, pids, bench.seconds),
        }
        found = await rounds(bench, loads)
    bench.ratio("creation_p50_over_append", over(found["boki"], found["append"], p50), "<=", 1.3)
    await creation_by_handlers(bench)


async def creation_by_handlers(bench: Bench) -> None:
    """Ten handlers create 10,000 machines: which records come of it."""
    async with bench.cluster("created") as cluster, boki.connect(cluster.url) as client:
        book = client.book(BOOK)
        async with Host(MACHINES, book, lease_s=3_600) as host:
            makers = [await host.create(Maker, key=f"maker{number}") for number in range(MAKERS)]
            log = host.rsm.log
            start = await log.book.now(consistency="linearizable") + 1
            began = perf_counter()
            await asyncio.gather(*(host.ask(Make(CREATED // MAKERS).to(maker)) for maker in makers))
            took_s = perf_counter() - began
            await host.lane.settled()
            handled_s = perf_counter() - began
            kinds = await records_from(log, start)
    bench.facts["10,000 by 10 handlers"] = (
        f"{took_s:.2f} s until all are created, {handled_s:.2f} s until the created have begun; records: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    )
    bench.ratio("records_that_create_10000_by_10_handlers", kinds["create"], "<=", 10)


async def records_from(log: Log, start: int) -> Tally[str]:
    """Count the records of machines from a seqnum on, by what they do."""
    found: Tally[str] = Tally()
    stop = await log.book.now(consistency="linearizable") + 1
    async for item in log.book.read(start=start, stop=stop):
        if isinstance(item, boki.Gap):
            continue
        envelope = await log.open(item)
        events = PICKER.of(item.seqnum, envelope)
        commits = [event for event in events if isinstance(event, Commit)]
        if any(commit.creates for commit in commits):
            found["create"] += 1
        elif commits:
            found["of the created"] += 1
        for kind, name in ((Inputs, "ask"), (Snapshot, "snapshots"), (Checkpoint, "checkpoints")):
            found[name] += any(isinstance(event, kind) for event in events)
    return found


# -- a producer and its consumer


async def part_producer(bench: Bench) -> None:
    """Batches from machine to machine, of one host and of two, beside appends of the same batches."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("producer"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        rsm = await stack.enter_async_context(Rsm(MACHINES, client.book(BOOK)))
        hosts, (one, other) = await two_hosts(stack, cluster.url)
        producer = await rsm.create(Producer, key=one)
        consumers = {
            "one host": await rsm.create(Consumer, near=producer),
            "two hosts": await rsm.create(Consumer, key=other),
        }
        pids = {**cluster.pids, **{f"sdk-{number}": host.pid for number, host in enumerate(hosts)}}
        loads: dict[str, Load] = {}
        for size in SIZES:
            batch, data = min(BATCH, BATCH_BYTES // size), os.urandom(size)
            shown = f"{size:,} B, batches of {batch}"
            for where, consumer in consumers.items():

                async def produce(
                    seconds: float, consumer: Ref[Any] = consumer, data: bytes = data, batch: int = batch
                ) -> None:
                    await rsm.send(producer, Produce(consumer, perf_counter() + seconds, data, batch, AHEAD))

                name = f"boki, {where}: {shown}"
                loads[f"{where} {size}"] = partial(transfer, name, hosts, produce, pids, bench.seconds)
            loads[f"append {size}"] = loop(
                f"append_many: {shown}", AHEAD, appending_many(client, data, batch), cluster.pids, bench.seconds
            )
        found = await rounds(bench, loads)
    for size in SIZES:
        rates = {side: [row.per_s * size / 1e6 for row in found[f"{side} {size}"]] for side in (*consumers, "append")}
        bench.facts[f"{size:,} B"] = ", ".join(
            f"{side} {sorted(some)[len(some) // 2]:,.1f} MB/s" for side, some in rates.items()
        )
    for where in consumers:
        value = over(found[f"{where} 1024"], found["append 1024"], rate)
        bench.ratio(f"producer_to_consumer_1KB_{where.replace(' ', '_')}_over_append_many", value, ">=", 0.1)


def appending_many(client: Any, data: bytes, batch: int) -> Callable[[int], Awaitable[int]]:
    """Appends of a batch."""
    book = client.book(BOOK)

    async def once(task: int) -> int:
        await book.append_many([(data, (f"task/{task}",))] * batch)
        return batch

    return once


async def transfer(
    name: str, hosts: list[Child], produce: Callable[[float], Awaitable[None]], pids: Mapping[str, int], seconds: float
) -> Row:
    """Measure one round: messages that the consumer's handler took, until the last one."""
    groups = cpu_groups(pids)
    before = {kind: machine.cpu_seconds(group) for kind, group in groups.items()}
    began = ended = perf_counter()
    await produce(seconds)
    taken: list[float] = []
    while True:  # until nothing more comes
        await asyncio.sleep(ENDED_S)
        some = [latency for host in hosts for latency in await host.ask("taken")]
        taken += some
        if perf_counter() - began > seconds and not some:
            break
        ended = perf_counter()
    used = {kind: machine.cpu_seconds(group) - before[kind] for kind, group in groups.items()}
    per_s = len(taken) / max(seconds, ended - began)
    return Row.of(name, per_s, taken, {kind: one * 1e6 / len(taken) for kind, one in used.items()})


# -- a long inbox


class Weighed:
    """A book whose appended bytes are counted. What else it can it does as the book does."""

    def __init__(self, book: BookPort) -> None:
        self.bytes = 0
        self._book: Final = book

    def submit(self, data: bytes, **options: Any) -> TicketPort:
        """See `BookPort`."""
        self.bytes += len(data)
        return self._book.submit(data, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)


async def part_deferred(bench: Bench) -> None:
    """A long inbox: the bytes that are appended for it, its checkpoints and its end included."""
    count = (DEFERRED_BYTES // 8 if bench.quick else DEFERRED_BYTES) // LETTER_BYTES
    async with bench.cluster("deferred") as cluster, boki.connect(cluster.url, timeout=120.0) as client:
        weighed = Weighed(client.book(BOOK))
        log = Log(cast(BookPort, weighed))
        async with Host(MACHINES, log, lease_s=LEASE_S) as host:
            deferring = await host.create(Deferring, key="deferring")
            letter = Letter(os.urandom(LETTER_BYTES))
            numbers = iter(range(count))
            before = weighed.bytes

            async def some() -> None:
                for _ in numbers:
                    await host.send(deferring, letter)

            began = perf_counter()
            await asyncio.gather(*(some() for _ in range(OPERATIONS)))
            await host.lane.settled()
            waits_s, waiting = perf_counter() - began, weighed.bytes - before
            await host.ask(Open().to(deferring), timeout_s=300.0)
            read = await host.ask(Open().to(deferring), timeout_s=300.0)
            assert read == count, f"{read} letters of {count} were read"
            read_s, after = perf_counter() - began - waits_s, weighed.bytes - before
    sent = count * LETTER_BYTES
    bench.facts["deferred"] = (
        f"{sent / 2**20:.0f} MiB in {count:,} events, sent in {waits_s:.1f} s: {waiting / sent:.2f} × appended; "
        f"then read in {read_s:.1f} s: {after / sent:.2f} ×"
    )
    bench.ratio("bytes_appended_over_bytes_deferred", waiting / sent, "<=", 1.5)


# -- records an operation


async def part_appends(bench: Bench) -> None:
    """Records of one process that does nothing else; no heartbeat comes within its lease."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("appends"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        host = await stack.enter_async_context(Host(MACHINES, client.book(BOOK), lease_s=3_600))
        rsm = await stack.enter_async_context(Rsm(MACHINES, client.book("other")))  # a book in which no host runs
        counter = await host.create(Counter, key="counter")
        maker = await host.create(Maker, key="maker")
        counts = await host.create(WordCounter, Begin(await host.create(Top, key="top")), key="words")
        words = map(Words, itertools.repeat(["a"]))
        await host.ask(Add(1).to(counter))
        await host.lane.settled()

        async def appends(name: str, log: Log, work: Callable[[], Awaitable[object]], most: float) -> None:
            before = log.appends
            await work()
            await host.lane.settled()
            bench.ratio(f"appends_a_{name}", (log.appends - before) / OPERATIONS, "<=", most)

        async def repeated(call: Callable[[], Awaitable[object]]) -> None:
            for _ in range(OPERATIONS):
                await call()

        log = host.rsm.log
        elsewhere = await rsm.create(Blank)
        add = (counter, Add(1))
        await appends("creation_by_a_client", rsm.log, partial(repeated, partial(rsm.create, Blank)), 1.0)
        await appends("send", rsm.log, partial(repeated, partial(rsm.send, elsewhere, Poke())), 1.0)
        await appends(
            f"send_of_{OPERATIONS}_at_once",
            rsm.log,
            partial(rsm.send_many, [(elsewhere, Poke())] * OPERATIONS),
            1 / OPERATIONS,
        )
        await appends("question", log, partial(repeated, lambda: host.ask(add[1].to(counter))), 2.0)
        await appends(
            "question_whose_handler_sends_within_the_host",
            log,
            partial(repeated, lambda: host.ask(next(words).to(counts))),
            2.0,
        )

        async def handled() -> None:
            await host.send_many([add] * OPERATIONS)
            await host.ask(add[1].to(counter))  # so that all are handled

        await appends(f"event_of_{OPERATIONS}_handled_and_a_question", log, handled, 4 / OPERATIONS)
        await appends(
            f"creation_by_a_handler_of_{OPERATIONS}", log, lambda: host.ask(Make(OPERATIONS).to(maker)), 3 / OPERATIONS
        )
        partition_claims = await claims_of(log)
    bench.ratio("appends_that_claim_64_partitions", partition_claims, "<=", 1)


async def claims_of(log: Log) -> int:
    """Count the records of a book that claim partitions."""
    found = 0
    async for item in log.book.read(start=1, stop=await log.book.now(consistency="linearizable") + 1):
        if not isinstance(item, boki.Gap):
            found += any(isinstance(event, Claimed) for event in PICKER.of(item.seqnum, await log.open(item)))
    return found
