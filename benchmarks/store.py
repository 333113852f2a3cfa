"""Stores beside PostgreSQL, and beside themselves with a feature left out, in one run.

    python -m benchmarks.store [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]           (`make bench-store`)

Parts, each on a cluster of its own processes (three bookies, E = Qw = 3, Qa = 2, metadata in SQLite), every write flushed on both sides:

    retwis      the mix at 64 and 192 clients beside PostgreSQL: JSONB, SERIALIZABLE, 32 connections, again after 40001
    aux         the mix with aux data beside without, after three minutes: no checkpoints, nothing cached by clients; and with defaults
    change      a transaction that reads an object and writes it, one client, beside a conditional append of as many bytes
    read        an object that is followed, and one that is cached and asks, one client, beside a SELECT by key through asyncpg
    hot         300 transactions that change one object at once, from one process and from four
    slow        1,000 fast transactions beside a body of five seconds
    growth      an object with a million updates beside 100,000 idle ones: what is kept over time (only if asked for)

What is compared is measured in interleaved rounds; `aux` in two runs, since it is about what piles up. The exit code is 0 whatever falls
short. How fair it is: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec

import boki
from benchmarks import command, hot, report, store_growth
from benchmarks.bench import Bench, over, p50, rate
from benchmarks.closed_loop import Once, Workload, closed_loop
from benchmarks.postgres_peer import RetwisPostgres, postgres, processes
from benchmarks.retwis_load import fill, mixed, network
from bokistore import BokiStore, StoreSettings, Transaction
from examples.retwis.app import Retwis

CLIENTS: Final = (64, 192)
USERS: Final = 10_000
QUICK_USERS: Final = 500
VIEWS_A_USER: Final = 8
"""Cached by the client: as PostgreSQL has the whole network in its buffers, both begin with all of it."""
AUX_USERS: Final = 1_000
AUX_S: Final = 180.0
AUX_CLIENTS: Final = 64
LAST: Final = 0.2
"""The part of a long run in which its rate is taken."""
OBJECTS: Final = 1_000
ABSENT: Final = "absent: apt-get install postgresql; pip install asyncpg"


class Wanted(NamedTuple):
    """What the command line says beyond what all benchmarks take."""

    users: int
    long_s: float
    scale: float


class Server:
    """Stands where a cluster is measured: the processes of PostgreSQL."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @property
    def pids(self) -> dict[str, int]:
        return processes(self._pool)


async def part_retwis(bench: Bench, wanted: Wanted) -> None:
    objects = network(wanted.users)
    async with (
        bench.cluster("retwis") as cluster,
        boki.connect(cluster.url) as client,
        postgres(bench.directory / "pg") as pool,
    ):
        store = BokiStore(client.book("retwis"), settings=StoreSettings(cached_views=VIEWS_A_USER * wanted.users))
        await fill(store, objects)
        await store.values([name for name, _ in objects])
        ours = Retwis(store)
        loads: dict[str, Any] = {}
        theirs = None
        if pool is None:
            bench.facts["PostgreSQL"] = ABSENT
        else:
            theirs = RetwisPostgres(pool)
            await theirs.fill(objects)
            bench.facts["PostgreSQL"] = await pool.fetchval("SHOW server_version")
        for tasks in CLIENTS:
            name = f"Retwis, {tasks} clients"
            loads[f"boki {tasks}"] = (
                Workload(name, tasks, mixed(ours, wanted.users, tasks, f"b{tasks}")),
                client,
                cluster,
            )
            if theirs is not None:
                load = Workload(f"{name}, PostgreSQL", tasks, mixed(theirs, wanted.users, tasks, f"p{tasks}"))
                loads[f"postgres {tasks}"] = (load, None, Server(pool))
        found = await bench.compare(_with_new_ids(loads))
        await store.close()
    if theirs is None:
        return
    bench.facts["PostgreSQL, again"] = f"{theirs.again:,} transactions after 40001"
    for tasks in CLIENTS:
        value = over(found[f"boki {tasks}"], found[f"postgres {tasks}"], rate)
        bench.ratio(f"retwis_{tasks}_clients_over_postgres", value, ">=", 1.25)


def _with_new_ids(loads: dict[str, Any]) -> dict[str, Any]:
    """Each round makes its workload once: the ids of posts go on where those of the round before ended."""
    return {
        name: (workload._replace(make=_kept(workload.make)), client, cluster)
        for name, (workload, client, cluster) in loads.items()
    }


def _kept(make: Callable[[Any], Once]) -> Callable[[Any], Once]:
    made: list[Once] = []

    def once(client: Any) -> Once:
        if not made:
            made.append(make(client))
        return made[0]

    return once


async def part_aux(bench: Bench, wanted: Wanted) -> None:
    bare = StoreSettings(checkpoints=False, cached_views=0)
    defaults = StoreSettings()
    rates: dict[str, float] = {}
    for what, settings in (("", bare), (", defaults", defaults)):
        for aux in (True, False):
            name = f"Retwis{what}, {'with' if aux else 'without'} aux data"
            row = await _long_run(bench, name, wanted, msgspec.structs.replace(settings, aux_data=aux))
            rates[f"{what}{aux}"] = row.per_s
            bench.rows.append(row)
    bench.ratio(f"aux_over_without_after_{wanted.long_s:.0f}_s", rates["True"] / rates["False"], ">=", 10)
    with_defaults = rates[", defaultsTrue"] / rates[", defaultsFalse"]
    bench.facts["aux, defaults"] = f"{with_defaults:.2f} × the rate without, with checkpoints and cached views"


async def _long_run(bench: Bench, name: str, wanted: Wanted, settings: StoreSettings) -> report.Row:
    """The mix for a long time on a network of its own; its row at the end of that."""
    users = min(AUX_USERS, wanted.users)
    folder = name.replace(", ", "-").replace(" ", "-")
    async with bench.cluster(folder) as cluster, boki.connect(cluster.url) as client:
        store = BokiStore(client.book("retwis"), settings=settings)
        await fill(store, network(users))
        workload = Workload(name, AUX_CLIENTS, _kept(mixed(Retwis(store), users, AUX_CLIENTS, "a")))
        await closed_loop(workload, client, cluster.pids, wanted.long_s * (1 - LAST))
        row = await closed_loop(workload, client, cluster.pids, wanted.long_s * LAST)
        await store.close()
        return row


async def part_change(bench: Bench, _: Wanted) -> None:
    async with bench.cluster("change") as cluster, boki.connect(cluster.url) as client:
        store = BokiStore(client.book("change"))

        async def add(tx: Transaction) -> None:
            tx["counter"].set("n", 1 + int(str(await tx["counter"].get("n", 0))))

        def changes(_: Any) -> Once:
            async def once(_task: int) -> int:
                await store.transact(add)
                return 1

            return once

        await store.transact(add)
        newest = await client.book("change").check_tail()
        assert newest is not None
        loads = {
            "append": (Workload("conditional append, 1 client", 1, _conditional(newest.data)), client, cluster),
            "change": (Workload("transaction: read, then write, one object, 1 client", 1, changes), client, cluster),
        }
        found = await bench.compare(loads)
        await store.close()
    bench.ratio("change_p50_over_conditional_append", over(found["change"], found["append"], p50), "<=", 1.3)


def _conditional(data: bytes) -> Callable[[Any], Once]:
    """Appends to a stream, each expecting the one before: what the log itself takes for as many bytes."""

    def make(client: Any) -> Once:
        book = client.book("conditional")
        newest: list[int | None] = []

        async def once(_task: int) -> int:
            if not newest:
                tail = await book.check_tail("x")
                newest.append(None if tail is None else tail.seqnum)
            newest[0] = await book.append(data, tags=("x",), expect={"x": newest[0]})
            return 1

        return once

    return make


async def part_read(bench: Bench, _: Wanted) -> None:
    objects = network(OBJECTS)
    names = [name for name, _ in objects if name.startswith("userid:")]
    settings = {"BOKI_KEEP_CORES_AWAKE": "never"}  # else the other side would find them awake, or not, as it comes
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("read", settings=settings))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        pool = await stack.enter_async_context(postgres(bench.directory / "pg-read"))
        asking = BokiStore(client.book("read"))
        await fill(asking, objects)
        following = BokiStore(client.book("read"), settings=StoreSettings(followed_objects=2 * OBJECTS))
        for store in (asking, following, following):
            await store.values(names)

        def reads_of(store: BokiStore) -> Callable[[Any], Once]:
            return lambda _: _one_after_another(names, lambda name: store.object(name).get())

        loads: dict[str, Any] = {
            "boki": (Workload("object that is followed, 1 client", 1, reads_of(following)), client, cluster),
            "asking": (Workload("cached object that asks, 1 client", 1, reads_of(asking)), client, cluster),
        }
        if pool is None:
            bench.facts["PostgreSQL"] = ABSENT
        else:
            await RetwisPostgres(pool).fill(objects)
            connection = await stack.enter_async_context(pool.acquire())
            select = await connection.prepare("SELECT value FROM objects WHERE name = $1")

            def theirs(_: Any) -> Once:
                return _one_after_another(names, select.fetchval)

            loads["postgres"] = (Workload("PostgreSQL SELECT by key, 1 client", 1, theirs), None, Server(pool))
        found = await bench.compare(loads)
        await following.close()
    if pool is not None:
        bench.facts["a cached read that asks"] = f"{over(found['asking'], found['postgres'], p50):.2f} × the SELECT"
        bench.ratio("cached_read_p50_over_postgres_select", over(found["boki"], found["postgres"], p50), "<=", 0.7)


def _one_after_another(names: Sequence[str], read: Callable[[str], Awaitable[Any]]) -> Once:
    at = 0

    async def once(_task: int) -> int:
        nonlocal at
        at = (at + 997) % len(names)
        assert await read(names[at]) is not None
        return 1

    return once


async def part_growth(bench: Bench, wanted: Wanted) -> None:
    await store_growth.part_growth(bench, wanted.scale)


async def part_hot(bench: Bench, _: Wanted) -> None:
    await hot.part_hot(bench, "store")


async def part_slow(bench: Bench, _: Wanted) -> None:
    await hot.part_slow(bench, "store")


PARTS: Final[Mapping[str, Callable[[Bench, Wanted], Awaitable[None]]]] = {
    "retwis": part_retwis,
    "change": part_change,
    "read": part_read,
    "aux": part_aux,
    "hot": part_hot,
    "slow": part_slow,
    "growth": part_growth,
}
USUAL: Final = tuple(name for name in PARTS if name != "growth")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command.options(
        "store",
        "Stores beside PostgreSQL, in one run.",
        quick="few users, short rounds",
        parts=PARTS,
        seconds=3.0,
        plots="a PNG of growth",
    )
    parser.add_argument("--long", type=float, default=AUX_S, help="seconds of each run of aux")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of growth: 0.01 has 10,000 updates, 1,000 idle objects"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.long = 2, 1.0, 5.0
    return arguments


def main() -> int:
    arguments = parsed()
    wanted = Wanted(QUICK_USERS if arguments.quick else USERS, arguments.long, arguments.scale)
    with command.workplace(arguments) as directory:
        bench = Bench(arguments, directory)
        bench.facts["users"] = f"{wanted.users:,}"
        facts = command.run(arguments.only or USUAL, lambda name: PARTS[name](bench, wanted), directory)
    command.show("store", "stores", arguments, facts, bench)
    if arguments.plots and "growth" in bench.series:
        series: Any = bench.series["growth"]
        store_growth.plot(arguments.plots, series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
