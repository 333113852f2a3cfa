"""LogBooks beside what they stand on, in one run: ledgers, Redis, themselves with a feature left out.

    python -m benchmarks.logbook [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]       (`make bench-logbook`)

Parts, each on a cluster of its own processes (three bookies, E = Qw = 3, Qa = 2; metadata in SQLite, for changes of terms in
ZooKeeper where there is Java):

    append      one append at a time beside one durable ledger append at a time, from this process, on the same bookies
    density     100,000 books beside 100, after a warm-up that touches each
    skew        128 books, Zipf s = 5 beside uniform, over two engines; a book fixed to one engine is shown beside it
    conditions  appends with a condition that holds beside plain ones
    reads       a cached read beside a Redis GET through its Python client; a read that misses the cache
    consistency linearizable reads beside session reads
    parked      appends beside 4,096 reads of the same book that wait, and beside as many cursors over three tags
    aux         an object of 1,000 records read with its state in aux data, and replayed without
    terms       planned terms and kill -9 under load: how long the change takes, and until latency is normal again
    logs        two physical logs beside one, with as many appends outstanding a log; beside it with as many in all
    start       an engine that starts on many records, from snapshots

What is compared is measured in interleaved rounds, so a noisy minute spoils a round and not a figure. The exit code is 0
whatever falls short.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import boki
from benchmarks import bare_shape, command, logbook_parked, logbook_terms, report
from benchmarks.bench import Bench, Loads, over, p50, rate
from benchmarks.closed_loop import Once, Workload
from benchmarks.logbook_ledger import ledger_appends
from benchmarks.redis_peer import redis_client
from benchmarks.report import Row
from boki_cli.demo.local_cluster import LocalCluster, Place

DATA: Final = os.urandom(1024)
BOOKS: Final = 100_000
FEW_BOOKS: Final = 100
SKEW_BOOKS: Final = 128
ZIPF: Final = 5.0
READ_RECORDS: Final = 2_000
OBJECT_RECORDS: Final = 1_000


def to_books(books: Sequence[boki.Book]) -> Callable[[Any], Once]:
    """Appends of 1 KB to one book after another, in steps that reach all."""

    def make(_: Any) -> Once:
        number = 0

        async def once(task: int) -> int:
            nonlocal number
            number += 7919  # a prime: no length of `books` here has it as a factor
            await books[number % len(books)].append(DATA)
            return 1

        return once

    return make


def cpu(row: Row) -> float:
    return sum(row.cpu_us.values())


def appends(books: Callable[[int], int]) -> Callable[[Any], Once]:
    """Appends of 1 KB, the n-th to `books(n)` of the client, which keeps its books."""

    def make(client: Any) -> Once:
        number = 0
        kept: dict[int, Any] = {}

        async def once(task: int) -> int:
            nonlocal number
            number += 1
            name = books(number)
            book = kept.get(name) or kept.setdefault(name, client.book(name))
            await book.append(DATA)
            return 1

        return once

    return make


# -- parts


async def part_append(bench: Bench) -> None:
    async with bench.cluster("append") as cluster, boki.connect(cluster.url) as client, AsyncExitStack() as stack:
        once = await stack.enter_async_context(ledger_appends(cluster.metadata_uri, DATA))
        loads: Loads = {
            "ledger": (Workload("durable ledger append, 1 outstanding", 1, lambda _: once), client, cluster),
            "log": (Workload("append, 1 outstanding", 1, appends(lambda _: 1)), client, cluster),
        }
        found = await bench.compare(loads)
    bare = [(await bare_shape.measure(bench.directory / f"bare-{number}")).over_ledger for number in range(3)]
    bench.facts["bare shape"] = f"{statistics.median(bare):.2f} × its own ledger append: processes that do nothing else"
    bench.ratio("append_p50_over_ledger_append", over(found["log"], found["ledger"], p50), "<=", 2.2)


async def part_density(bench: Bench) -> None:
    many = 2_000 if bench.quick else BOOKS
    async with bench.cluster("density") as cluster, boki.connect(cluster.url) as client:
        few_books = [client.book(10**9 + number) for number in range(FEW_BOOKS)]
        many_books = [client.book(1 + number) for number in range(many)]

        async def touch(books: Sequence[boki.Book]) -> None:
            for book in books:
                await book.append(DATA)

        await asyncio.gather(*(touch(many_books[start::256]) for start in range(256)))
        await asyncio.gather(*(touch(few_books[start::10]) for start in range(10)))
        found = await bench.compare(
            {
                "few": (
                    Workload(f"append, {FEW_BOOKS} books, 1,024 outstanding", 1024, to_books(few_books)),
                    client,
                    cluster,
                ),
                "many": (
                    Workload(f"append, {many:,} books, 1,024 outstanding", 1024, to_books(many_books)),
                    client,
                    cluster,
                ),
            }
        )
    bench.series["density"] = {
        "books": [FEW_BOOKS, many],
        "per_s": [report.median_row(found[k]).per_s for k in ("few", "many")],
    }
    bench.ratio("density_100000_books_over_100", over(found["many"], found["few"], rate), ">=", 0.9)


def zipf(books: int, s: float) -> Callable[[int], int]:
    """Book numbers by Zipf's law, drawn beforehand."""
    chance = random.Random(1)
    drawn = chance.choices(range(books), [1 / (rank + 1) ** s for rank in range(books)], k=65_536)
    return lambda number: drawn[number % len(drawn)]


async def part_skew(bench: Bench) -> None:
    async with bench.cluster("skew", engines=2) as cluster, AsyncExitStack() as stack:
        urls = cluster.url.split(",")
        clients = [await stack.enter_async_context(boki.connect(url)) for url in urls]
        skewed, uniform = zipf(SKEW_BOOKS, ZIPF), lambda number: number % SKEW_BOOKS

        def any_shard(books: Callable[[int], int]) -> Callable[[Any], Once]:
            return through(books, lambda number, book: number % len(clients))

        def fixed(books: Callable[[int], int]) -> Callable[[Any], Once]:
            return through(books, lambda number, book: book % len(clients))

        def through(books: Callable[[int], int], engine: Callable[[int, int], int]) -> Callable[[Any], Once]:
            def make(_: Any) -> Once:
                number = 0

                async def once(task: int) -> int:
                    nonlocal number
                    number += 1
                    book = books(number)
                    await clients[engine(number, book)].book(book).append(DATA)
                    return 1

                return once

            return make

        def load(name: str, make: Callable[[Any], Once]) -> tuple[Workload, Any, LocalCluster]:
            return Workload(f"append, {SKEW_BOOKS} books, {name}", 256, make), clients[0], cluster

        found = await bench.compare(
            {
                "uniform": load("uniform", any_shard(uniform)),
                "zipf": load("Zipf s = 5", any_shard(skewed)),
                "fixed": load("Zipf s = 5, a book's engine fixed", fixed(skewed)),
                "fixed uniform": load("uniform, a book's engine fixed", fixed(uniform)),
            }
        )
    bench.ratio("zipf_over_uniform", over(found["zipf"], found["uniform"], rate), ">=", 1.0)
    bench.facts["fixed sharding"] = f"Zipf over uniform {over(found['fixed'], found['fixed uniform'], rate):.2f}"


def conditional(client: Any) -> Once:
    """Each task appends to a tag of its own, expecting its own last record there."""
    book = client.book("conditions")
    newest: dict[int, int | None] = {}

    async def once(task: int) -> int:
        tag = f"task/{task}"
        if task not in newest:
            record = await book.check_tail(tag)
            newest[task] = None if record is None else record.seqnum
        newest[task] = await book.append(DATA, tags=(tag,), expect={tag: newest[task]})
        return 1

    return once


async def part_conditions(bench: Bench) -> None:
    def plain(client: Any) -> Once:
        book = client.book("plain")

        async def once(task: int) -> int:
            await book.append(DATA, tags=(f"task/{task}",))
            return 1

        return once

    async with bench.cluster("conditions") as cluster, boki.connect(cluster.url) as client:
        found = await bench.compare(
            {
                "plain": (Workload("append, 64 outstanding", 64, plain), client, cluster),
                "conditional": (Workload("conditional append, 64 outstanding", 64, conditional), client, cluster),
            }
        )
    bench.ratio("conditional_over_plain", over(found["conditional"], found["plain"], rate), ">=", 0.8)


async def fill(client: Any, records: int) -> None:
    batch = [(os.urandom(1024), (f"number/{at}",)) for at in range(records)]
    await client.book("read").append_many(batch)


def point_reads(**options: Any) -> Callable[[Any], Once]:
    def make(client: Any) -> Once:
        book = client.book("read")
        at = 0

        async def once(task: int) -> int:
            nonlocal at
            at = (at + 997) % READ_RECORDS
            record = await book.read_next(tag=f"number/{at}", **options)
            assert record is not None and len(record.data) == 1024
            return 1

        return once

    return make


async def part_reads(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            bench.cluster(
                "reads",
                engines=2,
                places={"engine-2": Place("unix:", settings={"BOKI_ENGINE_CACHE_BYTES": "1"})},
                settings={"BOKI_KEEP_CORES_AWAKE": "never"},  # else Redis would find them awake, or not, as it comes
            )
        )
        hot, cold = [await stack.enter_async_context(boki.connect(url)) for url in cluster.url.split(",")]
        await fill(hot, READ_RECORDS)
        await cold.book("read").read_next(tag=f"number/{READ_RECORDS - 1}", wait=10)
        loads: dict[str, tuple[Workload, Any, LocalCluster]] = {
            "hit": (Workload("cached read, 1 KB", 1, point_reads()), hot, cluster),
            "miss": (Workload("read that misses the cache, 1 KB", 1, point_reads()), cold, cluster),
        }
        redis = await stack.enter_async_context(redis_client(bench.directory / "redis"))
        if redis is None:
            bench.facts["Redis"] = "absent: apt-get install redis-server; pip install redis"
        else:
            for number in range(READ_RECORDS):
                await redis.set(f"number/{number}", os.urandom(1024))
            loads["redis"] = (Workload("Redis GET, 1 KB", 1, redis_reads(redis)), hot, cluster)
        found = await bench.compare(loads)
        awake = await bench.compare_awake({key: loads[key] for key in ("hit", "redis") if key in loads})
    if redis is not None:
        bench.ratio("cached_read_p50_over_redis_get", over(found["hit"], found["redis"], p50), "<=", 1.5)
        if awake:
            over_redis = over(awake["hit"], awake["redis"], p50)
            bench.ratio("cached_read_p50_over_redis_get_cores_awake", over_redis, "<=", 1.5)
    bench.ratio("miss_p50_over_hit", over(found["miss"], found["hit"], p50), "<=", 5)


async def part_consistency(bench: Bench) -> None:
    async with bench.cluster("consistency") as cluster, boki.connect(cluster.url) as client:
        await fill(client, READ_RECORDS)
        found = await bench.compare(
            {
                how: (Workload(f"{how} read, 64 outstanding", 64, point_reads(consistency=how)), client, cluster)
                for how in ("session", "linearizable")
            }
        )
    bench.ratio("linearizable_over_session_reads", over(found["linearizable"], found["session"], rate), ">=", 0.5)


def redis_reads(redis: Any) -> Callable[[Any], Once]:
    def make(_: Any) -> Once:
        at = 0

        async def once(task: int) -> int:
            nonlocal at
            at = (at + 997) % READ_RECORDS
            assert len(await redis.get(f"number/{at}")) == 1024
            return 1

        return once

    return make


async def part_aux(bench: Bench) -> None:
    """An object is the sum of its records; its state after a record fits into that record's aux data."""

    def replay(client: Any) -> Once:
        book = client.book("object")

        async def once(task: int) -> int:
            total = 0
            async for record in book.read(tag="object"):
                total += record.data[0]
            return 1

        return once

    def cached(client: Any) -> Once:
        book = client.book("object")

        async def once(task: int) -> int:
            tail = await book.check_tail("object")
            if tail.aux_data is None:
                total = 0
                async for record in book.read(tag="object"):
                    total += record.data[0]
                await book.set_aux_data(tail.seqnum, total.to_bytes(8, "little"))
            return 1

        return once

    async with bench.cluster("aux") as cluster, boki.connect(cluster.url) as client:
        await client.book("object").append_many([(DATA[:100], ("object",))] * OBJECT_RECORDS)
        found = await bench.compare(
            {
                "without": (Workload(f"object of {OBJECT_RECORDS:,} records, replayed", 1, replay), client, cluster),
                "with": (Workload("the same, its state in aux data", 1, cached), client, cluster),
            }
        )
    bench.ratio("aux_on_over_off", over(found["with"], found["without"], rate), ">=", 7)


async def part_logs(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        loads = {}
        for logs in (1, 2):
            cluster = await stack.enter_async_context(bench.cluster(f"logs-{logs}", logs=logs, sequencers=logs))
            client = await stack.enter_async_context(boki.connect(cluster.url))
            for tasks in (1024, 2048):
                name = f"append, {logs} log{'s'[: logs - 1]}, {tasks:,} outstanding"
                loads[f"{logs}/{tasks}"] = (Workload(name, tasks, appends(lambda n: n % FEW_BOOKS)), client, cluster)
        found = await bench.compare(loads)
    one, crowded, two, shared = (found[key] for key in ("1/1024", "1/2048", "2/2048", "2/1024"))
    cores = os.cpu_count() or 1
    if cores >= 8:
        bench.ratio("two_logs_over_one", over(two, one, rate), ">=", 1.8)
    else:
        bench.ratio("two_logs_cpu_per_record_over_one", over(two, one, cpu), "<=", 1.1)
        bench.facts["two logs"] = (
            f"{over(two, one, rate):.2f} × the rate of one on {cores} cores; with 1,024 outstanding in all "
            f"{over(shared, one, rate):.2f} ×, and {over(shared, one, cpu):.2f} × the processor time a record; with 2,048 "
            f"in all {over(two, crowded, rate):.2f} × and {over(two, crowded, cpu):.2f} ×"
        )


PARTS: Final[Mapping[str, Callable[[Bench], Awaitable[None]]]] = {
    "append": part_append,
    "density": part_density,
    "skew": part_skew,
    "conditions": part_conditions,
    "reads": part_reads,
    "consistency": part_consistency,
    "parked": logbook_parked.part_parked,
    "aux": part_aux,
    "terms": logbook_terms.part_terms,
    "logs": part_logs,
    "start": logbook_terms.part_start,
}


def main() -> int:
    about = "LogBooks beside what they stand on, in one run."
    plots = "PNGs of latency over time and of density"
    parser = command.options("logbook", about, quick="two short rounds", parts=PARTS, seconds=1.0, plots=plots)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1.0
    with command.workplace(arguments) as directory:
        bench = Bench(arguments, directory)
        facts = command.run(arguments.only or PARTS, lambda name: PARTS[name](bench), directory)
    command.show("logbook", "LogBooks", arguments, facts, bench)
    if arguments.plots:
        logbook_terms.plot(arguments.plots, bench.series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
