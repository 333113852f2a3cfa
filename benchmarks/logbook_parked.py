"""Appends to a book beside reads of the same book that wait, each for a tag of its own: these should cost them nothing.

One append at a time, with and without the reads, in turns. The reads are of other clients than the appends; a round begins when an answer
shows that the engine has them.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import boki
from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.closed_loop import Workload, closed_loop

READS: Final = 4_096
CLIENTS: Final = 4
BOOK: Final = "parked"
DATA: Final = bytes(1024)


def _appends(client: boki.Client) -> object:
    book = client.book(BOOK)

    async def once(task: int) -> int:
        await book.append(DATA, tags=["appended"])
        return 1

    return once


@asynccontextmanager
async def waiting(url: str, kind: str) -> AsyncIterator[None]:
    """Reads that wait for what nobody appends: for a record each, or as cursors over three tags."""
    clients = [await boki.connect(url) for _ in range(CLIENTS)]
    tasks: list[asyncio.Future[Any]] = []
    for number in range(READS):
        book = clients[number % len(clients)].book(BOOK)
        if kind == "reads":
            tasks.append(asyncio.ensure_future(book.read_next(f"waits/{number}", wait=600)))
        else:
            cursor = book.read(tags=[f"waits/{number}/{one}" for one in range(3)], follow=True)
            tasks.append(asyncio.ensure_future(anext(cursor)))
    for client in clients:
        for _ in range(3):
            await client.book(BOOK).now()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()


async def part_parked(bench: Bench) -> None:
    async with bench.cluster("parked") as cluster, boki.connect(cluster.url) as client:
        await client.book(BOOK).append(DATA)
        names = {
            "alone": "append, 1 outstanding",
            "reads": f"beside {READS} waiting reads",
            "cursors": f"beside {READS} cursors",
        }
        loads = {kind: Workload(name, 1, _appends) for kind, name in names.items()}  # type: ignore[arg-type]
        found: dict[str, list[report.Row]] = {kind: [] for kind in names}
        for _ in range(bench.rounds):
            found["alone"].append(await closed_loop(loads["alone"], client, cluster.pids, bench.seconds))
            for kind in ("reads", "cursors"):
                async with waiting(cluster.url, kind):
                    found[kind].append(await closed_loop(loads[kind], client, cluster.pids, bench.seconds))
    bench.rows += [report.median_row(rows) for rows in found.values()]
    for kind, name in (("reads", "parked_reads"), ("cursors", "parked_cursors")):
        ratios = [one.p50_ms / alone.p50_ms for one, alone in zip(found[kind], found["alone"], strict=True)]
        bench.ratio(name, statistics.median(ratios), "<=", 1.2)
