"""Durable appends through the whole path, on processes of their own, beside what the machine can do without Boki.

    python -m benchmarks.append [--quick] [--json FILE] [--plot FILE] [--rounds N]       (`make bench`)

Three bookies, a sequencer and an engine (each a process, on SQLite metadata) and the SDK in this one, over a Unix socket.
Rounds are interleaved: each measures every workload and every yardstick once, and what is shown are medians over rounds, so
a noisy minute spoils a round and not a figure.

    cores awake = measured while no core may sleep: Boki's roles wish that while they are busy (keep_cores_awake); the
    yardsticks are measured as they come, and once more with cores awake
    yardstick of one append = 2 × (echo p50 + fdatasync p50): to the engine and its bookies, to the sequencer and its bookies
    bare shape = one append through as many processes that do nothing but pass it on and flush it (`bare_shape`)

Processor time counts all processes, this one and its loop included. The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import boki
from benchmarks import bare_shape, command, machine, report, yardsticks
from benchmarks.bare_shape import Bare
from benchmarks.closed_loop import Once, Workload, closed_loop
from benchmarks.report import Ratio, Row
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.runtime.awake_cores import LATENCY_DEVICE, awake_cores, may_keep_awake
from boki_common.runtime.process import loop_factory

MANY_RECORDS: Final = 256
MANY_TASKS: Final = 4
REBUILD_RECORDS: Final = 1_000_000
READ_BOOK_RECORDS: Final = 2_000


class Yardsticks(NamedTuple):
    """What the machine did in one round."""

    fdatasync_us: float
    echo_us: float
    bare: Bare

    @property
    def append_ms(self) -> float:
        return 2 * (self.fdatasync_us + self.echo_us) / 1000


def appending(data_bytes: int) -> Callable[[Any], Once]:
    data = os.urandom(data_bytes)

    def make(client: Any) -> Once:
        book = client.book("bench")

        async def once(task: int) -> int:
            await book.append(data, tags=(f"task/{task}",))
            return 1

        return once

    return make


def appending_many(client: Any) -> Once:
    data = os.urandom(1024)
    book = client.book("bench")

    async def once(task: int) -> int:
        await book.append_many([(data, (f"task/{task}",))] * MANY_RECORDS)
        return MANY_RECORDS

    return once


def reading(client: Any) -> Once:
    """Point reads of records that the engine holds in memory, by tag, from all over the book."""
    book = client.book("bench-read")
    at = 0

    async def once(task: int) -> int:
        nonlocal at
        at = (at + 997) % READ_BOOK_RECORDS
        record = await book.read_next(tag=f"number/{at}")
        assert record is not None and len(record.data) == 1024
        return 1

    return once


APPEND_WORKLOADS: Final = tuple(
    Workload(f"append {size}, {tasks:,} outstanding", tasks, appending(data_bytes))
    for size, data_bytes in (("1 KB", 1024), ("100 B", 100))
    for tasks in (1, 64, 1024)
)
MANY: Final = Workload(f"append_many({MANY_RECORDS}) × {MANY_TASKS}, 1 KB", MANY_TASKS, appending_many)
READ: Final = Workload("cached read, 1 KB", 1, reading)
WORKLOADS: Final = (*APPEND_WORKLOADS, MANY, READ)


def index_rebuild(records: int) -> dict[str, float]:
    """One rebuild, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.index_rebuild", str(records)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def measure_yardsticks(directory: Path, socket: Path, name: str) -> Yardsticks:
    sync_us, echo_us = yardsticks.fdatasync_us(directory), await yardsticks.echo_us(socket)
    return Yardsticks(sync_us, echo_us, await bare_shape.measure(directory / name))


def over(rows: Sequence[Row], yards: Sequence[Yardsticks]) -> float:
    """The median over rounds of an append beside the yardstick of the same round."""
    return statistics.median(row.p50_ms / yard.append_ms for row, yard in zip(rows, yards, strict=True))


def describe(found: Sequence[Yardsticks], state: str) -> dict[str, str]:
    """The yardsticks in words, as measured in a `state` of the machine."""

    def median(of: Callable[[Yardsticks], float]) -> float:
        return statistics.median(map(of, found))

    return {
        f"fdatasync 4 KiB p50{state}": f"{median(lambda one: one.fdatasync_us):.0f} µs",
        f"framed echo 1 KiB p50{state}": f"{median(lambda one: one.echo_us):.0f} µs (Unix socket, two processes)",
        f"yardstick of an append{state}": f"{median(lambda one: one.append_ms):.3f} ms = 2 × (fdatasync + echo)",
        f"bare shape{state}": f"{median(lambda one: one.bare.append_ms):.3f} ms, "
        f"{median(lambda one: one.bare.append_ms / one.append_ms):.2f} yardsticks, "
        f"{median(lambda one: one.bare.append_cpu_us):.0f} µs of processor time",
    }


class Rounds:
    """All rounds of one run, and what follows from them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.yardsticks: list[Yardsticks] = []
        self.awake_yardsticks: list[Yardsticks] = []
        self.rebuilds: list[dict[str, float]] = []

    async def measure(
        self, cluster: LocalCluster, directory: Path, socket: Path, arguments: argparse.Namespace
    ) -> None:
        """One round more."""
        number = len(self.yardsticks)
        self.yardsticks.append(await measure_yardsticks(directory, socket, f"bare-{number}"))
        async with boki.connect(cluster.url) as client:
            for workload in WORKLOADS:
                row = await closed_loop(workload, client, cluster.pids, arguments.seconds)
                self.rows.setdefault(workload.name, []).append(row)
        if may_keep_awake():
            with awake_cores():
                self.awake_yardsticks.append(await measure_yardsticks(directory, socket, f"bare-awake-{number}"))
        self.rebuilds.append(index_rebuild(REBUILD_RECORDS))

    def medians(self) -> list[Row]:
        return [report.median_row(rows) for rows in self.rows.values()]

    def ratios(self) -> list[Ratio]:
        medians = {row.name: row for row in self.medians()}
        one, many64, many1024 = (medians[workload.name] for workload in APPEND_WORKLOADS[:3])
        rebuilt = statistics.median(one["records_per_s"] for one in self.rebuilds)
        weight = statistics.median(one["process_bytes_per_row"] for one in self.rebuilds)
        return [
            Ratio("append_p50_1_outstanding_over_yardstick", over(self.rows[one.name], self.yardsticks), "<=", 4),
            *self._awake_ratios(),
            Ratio("appends_per_s_64_1KB", many64.per_s, ">=", 20_000),
            Ratio("appends_per_s_1024_1KB", many1024.per_s, ">=", 60_000),
            Ratio("append_many_records_per_s", medians[MANY.name].per_s, ">=", 150_000),
            Ratio("cached_read_p50_ms", medians[READ.name].p50_ms, "<=", 0.2),
            Ratio("index_rebuild_records_per_s", rebuilt, ">=", 1_000_000),
            Ratio("index_bytes_per_dense_entry", weight, "<=", 16),
            Ratio("cpu_us_per_record_1024", sum(many1024.cpu_us.values()), "<=", 20),
        ]

    def _awake_ratios(self) -> list[Ratio]:
        if not self.awake_yardsticks:
            return []
        append = over(self.rows[APPEND_WORKLOADS[0].name], self.awake_yardsticks)
        return [Ratio("append_p50_1_outstanding_over_yardstick_cores_awake", append, "<=", 4)]

    def facts(self) -> dict[str, str]:
        found = describe(self.yardsticks, "")
        if self.awake_yardsticks:
            found |= describe(self.awake_yardsticks, ", cores awake")
        else:
            found["cores awake"] = f"not measured: {LATENCY_DEVICE} is absent or not ours to write to"
        rebuilds = [one["records_per_s"] for one in self.rebuilds]
        weights = [one["process_bytes_per_row"] for one in self.rebuilds]
        found["index rebuild"] = (
            f"{statistics.median(rebuilds):,.0f} records/s, {statistics.median(weights):.1f} B a row"
        )
        return found


async def run(directory: Path, arguments: argparse.Namespace) -> Rounds:
    """Starts the cluster, makes all rounds."""
    rounds = Rounds()
    socket = directory / "echo.sock"
    with yardsticks.echo_server(socket):
        async with LocalCluster(directory, bookies=3, unix_sockets=True) as cluster:
            async with boki.connect(cluster.url) as client:
                book = client.book("bench-read")
                batch = [(os.urandom(1024), (f"number/{at}",)) for at in range(READ_BOOK_RECORDS)]
                await book.append_many(batch)
            for number in range(arguments.rounds):
                sys.stderr.write(f"round {number + 1} of {arguments.rounds}\n")
                await rounds.measure(cluster, directory, socket, arguments)
    return rounds


def main() -> int:
    about = "Durable appends through the whole path, beside what the machine can do without Boki."
    parser = command.options("append", about, quick="two short rounds", parts=(), seconds=1.0)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="PNG or SVG; needs matplotlib")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 0.3
    with command.workplace(arguments) as directory:
        facts = machine.facts(directory)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            rounds = runner.run(run(directory, arguments))
    rows, ratios = rounds.medians(), rounds.ratios()
    title = f"Boki: durable appends, medians of {arguments.rounds} rounds"
    shown = machine.shown(facts)
    report.draw(title, {**shown, **rounds.facts()}, rows, ratios)
    if arguments.json:
        samples = {name: [row._asdict() for row in found] for name, found in rounds.rows.items()}
        whole = {"benchmark": "append", "machine": facts, "rounds": arguments.rounds, "seconds": arguments.seconds}
        whole |= {"yardsticks": [one._asdict() for one in rounds.yardsticks], "rebuilds": rounds.rebuilds}
        report.write_json(arguments.json, {**whole, "samples": samples}, rows, ratios)
    if arguments.plot:
        report.plot(arguments.plot, title, rows, ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
