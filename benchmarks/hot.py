"""Transactions that meet: many that change one object at once, and fast ones beside a body that takes seconds.

    python -m benchmarks.hot KIND URL BOOK NAME COUNT

is a process of `hot`: it says when it is ready, and begins at a line of its input. KIND is `store` (plain transactions), `flow`
(workflows of one transaction) or `queue` (messages whose handlers change objects).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Final, TypeAlias

import boki
import bokiflow
from benchmarks.bench import Bench
from boki_common.runtime.process import loop_factory
from bokiflow import App, Worker
from bokiqueue import Message, Queue
from bokistore import BokiStore, StoreSettings, Transaction

HOT: Final = 300
PROCESSES: Final = 4
FAST: Final = 1_000
FAST_FOR_S: Final = 2.0
CLIENTS: Final = 16
OBJECTS: Final = 100
SLOW_S: Final = 5.0
SETTINGS: Final = StoreSettings(checkpoints=False)

Do: TypeAlias = Callable[[str, float], Awaitable[None]]
"""Changes an object, in a transaction whose body takes so many seconds."""


async def change(tx: Transaction, name: str, seconds: float) -> None:
    """A body: it reads an object and writes it."""
    found = await tx[name].get("n", 0)
    if seconds:
        await asyncio.sleep(seconds)
    tx[name].set("n", found + 1 if isinstance(found, int) else 0)


@asynccontextmanager
async def doing(kind: str, book: boki.Book, name: str) -> AsyncIterator[Do]:
    """How a kind changes an object, with all that it needs in this process."""
    if kind == "store":
        store = BokiStore(book, settings=SETTINGS)

        async def plain(object_name: str, seconds: float) -> None:
            await store.transact(change, object_name, seconds)

        yield plain
    elif kind == "flow":
        app = App("hot")

        @app.workflow
        async def one(object_name: str, seconds: float) -> None:
            await bokiflow.transact(of_worker, change, object_name, seconds)

        async with Worker(app, book, name=name) as worker:
            of_worker = BokiStore(worker.log, settings=SETTINGS)

            async def workflow(object_name: str, seconds: float) -> None:
                await (await worker.start(one.call(object_name, seconds))).result()

            yield workflow
    else:
        of_queue = BokiStore(book, settings=SETTINGS)
        queue = await Queue.open(of_queue.log, "hot", dict, shards=1)
        handled: dict[int, asyncio.Future[None]] = {}

        @queue.handler(of_queue, at_once=2 * CLIENTS)
        async def handler(message: Message[dict[str, object]], tx: Transaction) -> None:
            seconds = message.body["seconds"]
            await change(tx, str(message.body["name"]), seconds if isinstance(seconds, float) else 0.0)
            asked = message.body["number"]
            tx_done = handled.get(asked) if isinstance(asked, int) else None
            if tx_done is not None and not tx_done.done():
                tx_done.set_result(None)

        async with handler:

            async def message(object_name: str, seconds: float) -> None:
                number = len(handled)
                handled[number] = asyncio.get_running_loop().create_future()
                await queue.push({"name": object_name, "seconds": seconds, "number": number})
                await handled[number]

            yield message


async def part_hot(bench: Bench, kind: str) -> None:
    """300 that change one object at once: from one process, and from four."""
    async with bench.cluster("hot") as cluster, boki.connect(cluster.url) as client:
        for processes, least_per_s, most_positions in ((1, 300.0, 3.0), (PROCESSES, 100.0, 10.0)):
            found = [
                await _hot(kind, cluster.url, client.book(f"hot-{processes}-{turn}"), processes)
                for turn in range(bench.rounds)
            ]
            name = f"hot_{kind}_{processes}_process{'es' if processes > 1 else ''}"
            bench.ratio(f"{name}_per_s", statistics.median(per_s for per_s, _ in found), ">=", least_per_s)
            bench.ratio(f"{name}_positions", statistics.median(each for _, each in found), "<=", most_positions)


async def _hot(kind: str, url: str, book: boki.Book, processes: int) -> tuple[float, float]:
    """So many a second, and positions of the log that each took."""
    await BokiStore(book, settings=SETTINGS).object("hot").set("n", 0)
    count = HOT // processes
    children = []
    for number in range(processes):
        command = [sys.executable, "-m", "benchmarks.hot", kind, url, str(book.name), f"p{number}", str(count)]
        pipe = asyncio.subprocess.PIPE
        children.append(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
    try:
        for child in children:
            assert child.stdout is not None
            await child.stdout.readline()
        before = await _tail(book)
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        took = [json.loads(await child.stdout.readline()) for child in children if child.stdout is not None]
        after = await _tail(book)
    finally:
        for child in children:
            if child.stdin is not None:
                child.stdin.close()
            await child.wait()
    found = await BokiStore(book, settings=SETTINGS).object("hot").get("n", consistency="linearizable")
    assert found == HOT // processes * processes, f"{found} of {HOT}"
    return count * processes / max(took), (after - before) / (count * processes)


async def _tail(book: boki.Book) -> int:
    newest = await book.check_tail()
    return newest.seqnum if newest is not None else 0


async def part_slow(bench: Bench, kind: str) -> None:
    """1,000 fast ones, alone and beside a body of five seconds: what becomes of their p99."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("slow"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        do = await stack.enter_async_context(doing(kind, client.book("slow"), "slow"))
        await _fast(do)  # all objects are known
        ratios = []
        for _ in range(bench.rounds):
            alone = await _usual_p99(do)
            slow = asyncio.ensure_future(do("slow", SLOW_S))
            await asyncio.sleep(0.1)
            ratios.append(await _usual_p99(do) / alone)
            assert not slow.done(), "the slow body was beside all of them"
            await slow
        bench.ratio(f"slow_body_{kind}_p99_of_fast_over_alone", statistics.median(ratios), "<=", 1.2)


async def _usual_p99(do: Do) -> float:
    """Return the median of their p99 in several rounds, in seconds.

    1,000 of them take a quarter of a second, and wait in a batch together: one pause of the machine is the p99 of a round.
    """
    until = perf_counter() + FAST_FOR_S
    found: list[float] = []
    while not found or perf_counter() < until:
        found.append(await _fast(do))
    return statistics.median(found)


async def _fast(do: Do) -> float:
    """Their p99, in seconds."""
    took: list[float] = []

    async def client(first: int) -> None:
        for number in range(first, FAST, CLIENTS):
            began = perf_counter()
            await do(f"o{number % OBJECTS}", 0.0)
            took.append(perf_counter() - began)

    await asyncio.gather(*(client(first) for first in range(CLIENTS)))
    return statistics.quantiles(took, n=100)[98]


async def work(kind: str, url: str, book: str, name: str, count: int) -> None:
    """A process of `hot`."""
    loop = asyncio.get_running_loop()
    async with boki.connect(url) as client, doing(kind, client.book(book), name) as do:
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        began = perf_counter()
        await asyncio.gather(*(do("hot", 0.0) for _ in range(count)))
        print(json.dumps(perf_counter() - began), flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
