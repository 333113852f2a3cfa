"""Machines beside their peers: counters, ping-pong, the word count.

Each side is a `Load`, which measures one round of it. Clients, machines and the tasks of peers are in one process, but for ping-pong,
whose two players are in a process each.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

import boki
from benchmarks import flow, machine, report, rsm_child
from benchmarks.bench import Bench, over, p50, rate
from benchmarks.closed_loop import Once, Workload, closed_loop, cpu_groups
from benchmarks.postgres_peer import postgres, processes
from benchmarks.report import Row
from benchmarks.rsm_actors import BALL_BYTES, SETUP, Actors, Queues, add, count_words
from benchmarks.rsm_child import Child
from benchmarks.rsm_programs import BOOK, MACHINES, Add, Begin, Counter, Player, Serve, Top, WordCounter, Words
from bokilib.records import tags
from bokirsm import Host, Rsm

Load: TypeAlias = Callable[[], Awaitable[Row]]

COUNTERS: Final = 1_000
STRIDE: Final = 389
"""From one counter to the next: neighbours are not added to at the same time."""
CLIENTS: Final = 32
TOGETHER: Final = 64
"""Calls that prepare a part and are made at once."""
TASKS: Final = 4
"""Tasks of the actors on PostgreSQL: with more of them transactions are smaller, with fewer they wait for each other."""
BATCH: Final = 256
"""The most messages of a transaction of actors."""
WORD_COUNTERS: Final = 8
WORD_BATCHES: Final = ((256, 16), (1, 64))
"""Words of a batch, and batches that are outstanding."""
DISTINCT: Final = 4_096
WARM_UP_S: Final = 0.3
ENDED_S: Final = 0.2
"""Until the last ball of a rally has come."""
HOSTS_LEASE_S: Final = 6.0
"""The lease of two hosts: the second one has its partitions after a part of it."""
ABSENT_POSTGRES: Final = "absent: apt-get install postgresql; pip install asyncpg"
LEASE_S: Final = 60.0
"""So that heartbeats are few."""


async def rounds(bench: Bench, loads: Mapping[str, Load]) -> dict[str, list[Row]]:
    """Interleaved rounds of loads; medians go into the table."""
    found: dict[str, list[Row]] = {name: [] for name in loads}
    for _ in range(bench.rounds):
        for name, load in loads.items():
            found[name].append(await load())
            await asyncio.sleep(flow.PEER_SETTLE_S)  # what the last one has still to flush is not the next one's
    bench.rows += [report.median_row(rows) for rows in found.values()]
    return found


def loop(name: str, tasks: int, once: Once, pids: Mapping[str, int], seconds: float) -> Load:
    """A closed loop as a load."""
    return lambda: closed_loop(Workload(name, tasks, lambda _: once), None, pids, seconds)


@asynccontextmanager
async def actors_server(bench: Bench, name: str) -> AsyncIterator[tuple[Path, Any]]:
    """The directory of a PostgreSQL with the tables of actors, and a pool of connections to it; None where there is none."""
    directory = bench.directory / f"pg-{name}"
    async with postgres(directory) as pool:
        if pool is None:
            bench.facts["PostgreSQL"] = ABSENT_POSTGRES
        else:
            await pool.execute(SETUP)
            version = await pool.fetchval("SHOW server_version")
            bench.facts["PostgreSQL"] = f"{version.split()[0]}, a flush for each commit"
        yield directory, pool


async def together(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Return the results of calls, some of which are made at a time."""
    found: list[Any] = []
    for at in range(0, len(calls), TOGETHER):
        found += await asyncio.gather(*(call() for call in calls[at : at + TOGETHER]))
    return found


# -- counters


async def part_counters(bench: Bench) -> None:
    """Additions, each answered once it is durable."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("counters"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        host = await stack.enter_async_context(Host(MACHINES, client.book(BOOK), lease_s=LEASE_S))
        names = [f"c{number}" for number in range(COUNTERS)]
        counters = await together([partial(host.create, Counter, key=name) for name in names])
        numbers = itertools.count(0, STRIDE)

        async def ours(_: int) -> int:
            await host.ask(Add(1).to(counters[next(numbers) % COUNTERS]))
            return 1

        what = f"add, {CLIENTS} clients"
        loads: dict[str, Load] = {"boki": loop(f"boki: {what}", CLIENTS, ours, cluster.pids, bench.seconds)}
        _, pool = await stack.enter_async_context(actors_server(bench, "counters"))
        if pool is not None:
            for side, merged in (("actors", False), ("actors together", True)):
                actors = Actors(pool, add, tasks=TASKS, batch=BATCH, together=merged, prefix=f"{side}/")
                await stack.enter_async_context(actors.running())

                async def theirs(_: int, actors: Actors = actors) -> int:
                    await actors.ask(f"c{next(numbers) % COUNTERS}", {"add": 1})
                    return 1

                shown = f"{side}: {what}"
                loads[side] = loop(shown, CLIENTS, theirs, processes(pool), bench.seconds)
        for peer, load_name in ((flow.dbos, "1 step"), (flow.restate, "add")):
            one = await stack.enter_async_context(peer(bench))
            if one is not None:
                loads[one.name] = measured(one, load_name, CLIENTS, bench.seconds)
        found = await rounds(bench, loads)
    for name, goal in (("Restate", 8.0), ("DBOS", 8.0), ("actors", 2.0)):
        if name in found:
            bench.ratio(
                f"adds_{CLIENTS}_clients_over_{name.lower()}", over(found["boki"], found[name], rate), ">=", goal
            )


def measured(side: flow.Side, what: str, tasks: int, seconds: float) -> Load:
    """A peer in a process of its own as a load."""
    return lambda: side.measure(what, tasks, seconds)


# -- ping-pong


async def part_ping_pong(bench: Bench) -> None:
    """A message from a handler to the handler of a machine of another host."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("ping-pong"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        rsm = await stack.enter_async_context(Rsm(MACHINES, client.book(BOOK)))
        hosts, (one, other) = await two_hosts(stack, cluster.url)
        players = [await rsm.create(Player, key=key) for key in (one, other)]
        await rsm.send(players[1], Serve(players[0], 0.0, b""))
        data = os.urandom(BALL_BYTES)
        pids = {**cluster.pids, **{f"sdk-{number}": host.pid for number, host in enumerate(hosts)}}

        async def serve(seconds: float) -> None:
            await rsm.send(players[0], Serve(players[1], perf_counter() + seconds, data))

        book = client.book(BOOK)

        async def append(_: int) -> int:
            await book.append(data, tags=["appended"])
            return 1

        loads: dict[str, Load] = {
            "boki": partial(rally, "boki: message of a rally, two hosts", hosts, serve, pids, bench.seconds),
            "append": loop("append 100 B, 1 outstanding", 1, append, cluster.pids, bench.seconds),
        }
        directory, pool = await stack.enter_async_context(actors_server(bench, "ping-pong"))
        if pool is not None:
            loads["actors"] = await actors_rally(stack, directory, pool, bench.seconds)
        restate = await stack.enter_async_context(flow.restate(bench))
        if restate is not None:
            loads["Restate"] = measured(restate, "add", 1, bench.seconds)
        found = await rounds(bench, loads)
    for name, goal in (("append", 1.8), ("actors", 0.8), ("Restate", 0.4)):
        if name in found:
            bench.ratio(f"ping_pong_message_p50_over_{name.lower()}", over(found["boki"], found[name], p50), "<=", goal)


async def two_hosts(stack: AsyncExitStack, url: str, lease_s: float = HOSTS_LEASE_S) -> tuple[list[Child], list[str]]:
    """Two hosts in a process each, and the key of a machine for each of them."""
    hosts = [
        await stack.enter_async_context(
            rsm_child.running("benchmarks.rsm_programs", url, BOOK, f"host-{number}", str(lease_s))
        )
        for number in range(2)
    ]
    while True:
        first, second = [await host.ask("partitions") for host in hosts]
        if first and second and len(first) + len(second) == tags.PARTITIONS:
            break
        await asyncio.sleep(0.1)
    return hosts, [
        next(key for key in map("m{}".format, itertools.count()) if tags.partition_of(key) in mine)
        for mine in (first, second)
    ]


async def rally(
    name: str,
    players: list[Child],
    serve: Callable[[float], Awaitable[object]],
    pids: Mapping[str, int],
    seconds: float,
) -> Row:
    """Measure one round of a rally between two processes: latencies from handler to handler."""
    await serve(WARM_UP_S)
    await asyncio.sleep(WARM_UP_S + ENDED_S)
    for player in players:
        await player.ask("taken")
    groups = cpu_groups(pids)
    before = {kind: machine.cpu_seconds(group) for kind, group in groups.items()}
    await serve(seconds)
    await asyncio.sleep(seconds + ENDED_S)
    taken = [latency for player in players for latency in await player.ask("taken")]
    used = {kind: machine.cpu_seconds(group) - before[kind] for kind, group in groups.items()}
    return Row.of(name, len(taken) / seconds, taken, {kind: one * 1e6 / len(taken) for kind, one in used.items()})


async def actors_rally(stack: AsyncExitStack, directory: Path, pool: Any, seconds: float) -> Load:
    """A rally between two processes on PostgreSQL."""
    players = [
        await stack.enter_async_context(rsm_child.running("benchmarks.rsm_actors", str(directory), str(number)))
        for number in range(2)
    ]

    async def serve(for_s: float) -> None:
        await players[0].ask(f"serve {for_s}")

    pids = {f"sdk-{number}": player.pid for number, player in enumerate(players)}
    pids |= processes(pool)
    return partial(rally, "actors: message of a rally, two processes", players, serve, pids, seconds)


# -- the word count


async def part_words(bench: Bench) -> None:
    """Batches of words, each answered once it is counted durably."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("words"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        host = await stack.enter_async_context(Host(MACHINES, client.book(BOOK), lease_s=LEASE_S))
        top = await host.create(Top, key="top")
        names = [f"w{number}" for number in range(WORD_COUNTERS)]
        counters = dict(
            zip(names, [await host.create(WordCounter, Begin(top), key=name) for name in names], strict=True)
        )

        async def ours(name: str, words: list[str]) -> int:
            return await host.ask(Words(words).to(counters[name]))

        _, pool = await stack.enter_async_context(actors_server(bench, "words"))
        queues = await stack.enter_async_context(Queues(names).running())
        sides = {"boki": (ours, cluster.pids)}
        if pool is not None:
            actors = Actors(pool, count_words, tasks=TASKS, batch=BATCH, together=True)
            await stack.enter_async_context(actors.running())
            sides["actors"] = (lambda name, words: actors.ask(name, {"words": words}), processes(pool))
        sides["queues"] = (lambda name, words: queues.ask(name, {"words": words}), {})
        loads = {
            f"{side} {batch}": loop(
                f"{side}: batches of {batch}, {outstanding} outstanding",
                outstanding,
                counting(count, names, batch),
                pids,
                bench.seconds,
            )
            for batch, outstanding in WORD_BATCHES
            for side, (count, pids) in sides.items()
        }
        found = await rounds(bench, loads)
    if "actors 256" in found:
        bench.ratio("words_in_256_over_actors", over(found["boki 256"], found["actors 256"], rate), ">=", 3.0)
    for batch, _ in WORD_BATCHES:
        value = over(found[f"boki {batch}"], found[f"queues {batch}"], rate)
        bench.ratio(f"words_in_{batch}_over_queues_without_durability", value, ">=", 0.08)


def counting(count: Callable[[str, list[str]], Awaitable[int]], names: list[str], batch: int) -> Once:
    """Batches of words to one counter after the other: of words of which some are frequent."""
    chance = random.Random(1)
    weights = [1 / (rank + 1) for rank in range(DISTINCT)]
    words = chance.choices([f"word{rank}" for rank in range(DISTINCT)], weights, k=DISTINCT * 16)
    numbers = itertools.count()

    async def once(_: int) -> int:
        number = next(numbers)
        at = number * batch % (len(words) - batch)
        done = await count(names[number % len(names)], words[at : at + batch])
        assert done == batch
        return done

    return once
