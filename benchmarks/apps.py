"""The applications of the evaluation beside their two ends: Beldi's logging on Apache Cassandra, and no logging at all.

    python -m benchmarks.apps [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]           (`make bench-apps`)

Parts:

    primitives  read, write, conditional write, invoke, one after the other, beside the same through Beldi's logging
    movie       reviews: p50 at half of what Beldi's logging can do at most, data in a store, and in Cassandra; beside no logging
    hotel       the same of the travel reservation
    spent       where the time of one request goes, of each operation: appends and reads that wait for each other, and the process's own

With `--plots` also p50 and p99 over the rate.

A cluster of processes (three bookies, one sequencer, one engine) and one node of Cassandra (commit log `batch`), each write flushed on all
sides; one service process of each kind answers over the same HTTP. Rounds are interleaved. The exit code is 0 whatever falls short.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import boki
import bokiflow
from benchmarks import apps_plot, apps_spent, command, machine, report
from benchmarks.apps_beldi import Beldi, Instance
from benchmarks.apps_peer import book_of
from benchmarks.bench import Bench
from benchmarks.report import Row
from boki_cli.demo.local_cluster import LocalCluster
from boki_common.net.lasting_ports import lasting_port
from bokiflow.tables import Schema, Tables
from bokiflow.tables.cassandra_port import CassandraTables
from bokilib.append.log import Log
from bokilib.records.codec import JsonObject
from bokistore import BokiStore
from examples.apps.application import Application
from examples.apps.load import LoadGenerator
from examples.apps.row_store import ObjectRowStore, RowStore, RowTransaction
from examples.apps.service import HOST, open_row_store
from examples.apps.service_client import ServiceClient
from examples.apps.table_row_store import TableRowStore
from examples.hotel.application import HOTEL
from examples.movie.application import MOVIE
from itests.support.cassandra import FOR_BENCHMARKS, CassandraServer
from itests.support.java_server import ServerMissing

CLIENTS: Final = 16
"""Of the closed loop that finds what Beldi's logging can do."""
OPERATIONS: Final = 10
"""Of one kind in a workflow, whose time is divided by it."""
GOALS: Final = {"movie": (4.7, 3.0), "hotel": (4.3, 1.8)}
CURVE: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Of what Beldi's logging can do at most."""
QUICK_CURVE: Final = (0.5, 1.0)
READY_S: Final = 60.0
SPENT, SPENT_QUICK = 500, 50
"""Requests of each operation."""
KINDS: Final = {
    "boki": "workflows, data in a store",
    "tables": "workflows, data in Cassandra",
    "beldi": "Beldi's logging on Cassandra",
    "plain": "no logging, data in a store",
}


class Wanted(NamedTuple):
    """What the command line says beyond what all benchmarks take."""

    cassandra: CassandraServer
    warm_s: float


class Sites:
    """A service process of each kind, for one application."""

    def __init__(self, application: Application, cluster: LocalCluster, cassandra: CassandraServer, log: Path) -> None:
        name, url, cql = application.name, cluster.url, str(cassandra.port)
        self.ports: Final = {kind: lasting_port(HOST) for kind in KINDS}
        ours = ("-m", "examples.apps.service", url, "--name", name, "--application", name)
        peer = ("-m", "benchmarks.apps_peer")
        self._commands: Final = {
            "boki": ours,
            "tables": (*ours, "--tables", cql),
            "beldi": (*peer, "beldi", "--application", name, "--tables", cql),
            "plain": (*peer, "plain", "--application", name, "--url", url),
        }
        self._log = log
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Sites:
        for kind, line in self._commands.items():
            with self._log.open("ab") as log:
                self._running[kind] = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *(*line, "--port", str(self.ports[kind])),
                    stdin=asyncio.subprocess.PIPE,
                    stderr=log,
                    cwd=Path(__file__).parents[1],
                )
        return self

    async def __aexit__(self, *error: object) -> None:
        for process in self._running.values():
            process.kill()
            await process.wait()

    def address(self, kind: str) -> str:
        """Where it serves."""
        return f"http://{HOST}:{self.ports[kind]}"

    def pid(self, kind: str) -> int:
        """Of its process."""
        return self._running[kind].pid


class Loads:
    """Requests of one application to each kind, round after round."""

    def __init__(self, application: Application, sites: Sites) -> None:
        self._application: Final = application
        self._sites: Final = sites
        self._run: Final = f"{application.name}-{os.getpid()}"
        self._number = 0

    async def closed(self, kind: str, clients: int, seconds: float) -> float:
        """Answers a second at most."""
        async with ServiceClient([self._sites.address(kind)]) as calls:
            load = self._load(kind, calls)
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(seconds, stop.set)
            began = perf_counter()
            await load.closed(clients, stop)
            return len(load.answers) / (perf_counter() - began)

    async def open(self, kind: str, rate: float, seconds: float) -> Row:
        """One round at a rate."""
        async with ServiceClient([self._sites.address(kind)]) as calls:
            load = self._load(kind, calls)
            before = machine.cpu_seconds([self._sites.pid(kind)])
            began = perf_counter()
            await load.open(rate, seconds)
            elapsed = perf_counter() - began
            used = machine.cpu_seconds([self._sites.pid(kind)]) - before
            if load.faults or load.late:
                sys.stderr.write(f"{kind}: {load.faults[:3]}, {load.late} requests were not made\n")
        times = sorted(answer.seconds * 1_000 for answer in load.answers)
        name = f"{self._application.name}, {KINDS[kind]}"
        cpu = {"service": used * 1e6 / max(1, len(times))}
        return Row(name, len(times) / elapsed, times[len(times) // 2], times[len(times) * 99 // 100], cpu)

    def _load(self, kind: str, calls: ServiceClient) -> LoadGenerator:
        self._number += 1
        return LoadGenerator(
            self._application, calls, self._application.mix, name=f"{self._run}-{kind}{self._number}", seed=self._number
        )


async def part_application(application: Application, bench: Bench, wanted: Wanted) -> None:
    """One application on all sides."""
    name = application.name
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster(name))
        rows = application.rows()
        for port in (0, wanted.cassandra.port):
            async with open_row_store(cluster.url, application, port) as data:
                await data.fill(rows)
        async with await Beldi.connect(wanted.cassandra.port) as beldi, boki.connect(cluster.url) as client:
            await beldi.fill(rows)
            plain = ObjectRowStore(BokiStore(client.book(book_of(name))))
            await plain.fill(rows)
            await plain.close()
        sites = await stack.enter_async_context(
            Sites(application, cluster, wanted.cassandra, bench.directory / f"{name}-services.log")
        )
        loads = Loads(application, sites)
        for kind in KINDS:
            await loads.closed(kind, CLIENTS, wanted.warm_s)
        most = await loads.closed("beldi", CLIENTS, bench.seconds)
        bench.facts[f"{name}: Beldi at most"] = f"{most:.0f}/s"
        await _at_half(name, bench, loads, most / 2)
        if bench.plots:
            await _curve(name, bench, loads, most)


async def _at_half(name: str, bench: Bench, loads: Loads, rate: float) -> None:
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for _ in range(bench.rounds):
        for kind, rows in found.items():
            rows.append(await loads.open(kind, rate, bench.seconds))
    bench.rows += [report.median_row(rows) for rows in found.values()]
    logged, bare = GOALS[name]
    bench.ratio(f"{name}_p50_beldi_over_ours_in_store", _over(found["beldi"], found["boki"]), ">=", logged)
    bench.ratio(f"{name}_p50_beldi_over_ours_in_cassandra", _over(found["beldi"], found["tables"]), ">=", 2.0)
    bench.ratio(f"{name}_p50_ours_in_store_over_no_logging", _over(found["boki"], found["plain"]), "<=", bare)


async def _curve(name: str, bench: Bench, loads: Loads, most: float) -> None:
    points: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    for share in QUICK_CURVE if bench.quick else CURVE:
        for kind, some in points.items():
            if kind == "beldi" and share > 1:
                continue
            row = await loads.open(kind, share * most, bench.seconds)
            some.append((row.per_s, row.p50_ms, row.p99_ms))
    bench.series[name] = {KINDS[kind]: some for kind, some in points.items()}


def _over(numerator: Sequence[Row], denominator: Sequence[Row]) -> float:
    return statistics.median(a.p50_ms / b.p50_ms for a, b in zip(numerator, denominator, strict=True))


# -- primitives

READ, WRITE, CONDITION, INVOKE = "read", "write", "conditional write", "invoke"
LOOK: Final = "read without a record"
"""Of tables that have versions; beside a read of Beldi's."""
ROW: Final = "row:x"


class Primitives:
    """Workflows of so many operations of one kind."""

    def __init__(self, data: RowStore, app: bokiflow.App) -> None:
        @app.step
        async def look() -> JsonObject | None:
            return (await data.read([ROW]))[0]

        async def write(rows: RowTransaction, number: int) -> None:
            rows.put(ROW, {"n": number})

        async def write_if(rows: RowTransaction, number: int) -> bool:
            there = await rows.value(ROW)
            if there is None:
                return False
            rows.put(ROW, {"n": number})
            return True

        @app.workflow
        async def nothing() -> None:
            return None

        @app.workflow
        async def reads() -> None:
            for _ in range(OPERATIONS):
                await look()

        @app.workflow
        async def writes() -> None:
            for number in range(OPERATIONS):
                await data.transact(write, number)

        @app.workflow
        async def conditions() -> None:
            for number in range(OPERATIONS):
                await data.transact(write_if, number)

        @app.workflow
        async def invokes() -> None:
            for _ in range(OPERATIONS):
                await nothing()

        @app.workflow
        async def looks() -> None:
            for _ in range(OPERATIONS):
                assert isinstance(data, TableRowStore), "a store has no such reads"
                await data.look([ROW])

        self.calls: Final[Mapping[str, bokiflow.Workflow[[], None]]] = {
            LOOK: looks,
            READ: reads,
            WRITE: writes,
            CONDITION: conditions,
            INVOKE: invokes,
        }


async def _nothing(_: Any) -> None:
    """A function that does nothing."""


async def _with_beldi(beldi: Beldi, what: str, id: str) -> None:
    async def body(instance: Instance) -> None:
        for number in range(OPERATIONS):
            if what == READ:
                await instance.read([ROW])
            elif what in (WRITE, CONDITION):  # its write is one, with one more thing to compare
                await instance.write(ROW, {"n": number})
            else:
                await instance.call(_nothing)

    await body(Instance(beldi, id))


async def part_primitives(bench: Bench, wanted: Wanted) -> None:
    """One client; the time of a workflow of ten operations, its beginning and end included, divided by ten."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("primitives"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        port = await CassandraTables.connect([HOST], port=wanted.cassandra.port, keyspace="primitives")
        await stack.enter_async_context(port)
        beldi = await stack.enter_async_context(await Beldi.connect(wanted.cassandra.port))
        logs = {"boki": Log(client.book("store")), "tables": Log(client.book("tables"))}
        tables = await stack.enter_async_context(Tables(logs["tables"], port))
        await tables.open(Schema("row", {"value": "json"}, "versioned"))
        store = BokiStore(logs["boki"])
        datas: dict[str, RowStore] = {"boki": ObjectRowStore(store), "tables": TableRowStore(tables, ["row"])}
        sides: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "beldi": lambda what, id: _with_beldi(beldi, what, id)
        }
        for kind, data in datas.items():
            await data.fill({ROW: {"n": 0}})
            app = bokiflow.App(kind)
            primitives = Primitives(data, app)
            worker = await stack.enter_async_context(bokiflow.Worker(app, data.log))
            sides[kind] = _running(primitives, worker)
        await beldi.fill({ROW: {"n": 0}})
        await _measured(bench, sides)
        await store.close()


def _running(primitives: Primitives, worker: bokiflow.Worker) -> Callable[[str, str], Awaitable[None]]:
    async def run(what: str, id: str) -> None:
        await (await worker.start(primitives.calls[what].call(), id=id)).result()

    return run


async def _measured(bench: Bench, sides: Mapping[str, Callable[[str, str], Awaitable[None]]]) -> None:
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(bench.rounds * (5 if bench.quick else 20) + 3):
        for what in (LOOK, READ, WRITE, CONDITION, INVOKE):
            for kind, run in sides.items():
                if what == LOOK and kind != "tables":
                    continue
                began = perf_counter()
                await run(what, f"{kind}-{what}-{number}-{os.getpid()}")
                if number >= 3:
                    times.setdefault((what, kind), []).append((perf_counter() - began) * 1_000 / OPERATIONS)
    for (what, kind), some in times.items():
        ordered = sorted(some)
        middle = statistics.median(ordered)
        bench.rows.append(
            Row(f"{what}, {KINDS[kind]}", 1_000 / middle, middle, ordered[len(ordered) * 99 // 100], {"service": 0.0})
        )
    for what in (READ, WRITE, CONDITION, INVOKE):
        value = statistics.median(times[what, "boki"]) / statistics.median(times[what, "beldi"])
        bench.ratio(f"{what.replace(' ', '_')}_p50_over_beldi", value, "<=", 0.25)
        value = statistics.median(times[what, "tables"]) / statistics.median(times[what, "beldi"])
        bench.ratio(f"{what.replace(' ', '_')}_p50_in_cassandra_over_beldi", value, "<=", 0.5)
    value = statistics.median(times[LOOK, "tables"]) / statistics.median(times[READ, "beldi"])
    bench.ratio(f"{LOOK.replace(' ', '_')}_p50_in_cassandra_over_beldi", value, "<=", 0.25)


async def part_movie(bench: Bench, wanted: Wanted) -> None:
    await part_application(MOVIE, bench, wanted)


async def part_hotel(bench: Bench, wanted: Wanted) -> None:
    await part_application(HOTEL, bench, wanted)


async def part_spent(bench: Bench, _: Wanted) -> None:
    """One request after the other, on a cluster of its own."""
    async with bench.cluster("spent") as cluster:
        for application in (HOTEL, MOVIE):
            found = await apps_spent.spent(application, cluster.url, SPENT_QUICK if bench.quick else SPENT)
            bench.facts |= {f"{application.name}: {operation}": one.line for operation, one in found.items()}


PARTS: Final = {"primitives": part_primitives, "movie": part_movie, "hotel": part_hotel, "spent": part_spent}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command.options(
        "apps",
        "The applications beside their two ends.",
        quick="one short round",
        parts=PARTS,
        seconds=15.0,
        each="kind",
        plots="a PNG of latency over the rate",
    )
    parser.add_argument("--warm", type=float, default=15.0, help="seconds of requests before, of each kind")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds, arguments.warm = 2, 4.0, 3.0
    return arguments


def main() -> int:
    arguments = parsed()
    with command.workplace(arguments) as directory, ExitStack() as stack:
        bench = Bench(arguments, directory)
        try:
            cassandra = CassandraServer.start(directory / "cassandra", flags=FOR_BENCHMARKS)
        except ServerMissing as missing:
            sys.stderr.write(f"nothing is measured without Cassandra: {missing}\n")
            return 0
        stack.callback(cassandra.kill)
        wanted = Wanted(cassandra, arguments.warm)
        facts = command.run(arguments.only or PARTS, lambda name: PARTS[name](bench, wanted), directory)
    command.show("apps", "applications", arguments, facts, bench)
    if arguments.plots and bench.series:
        apps_plot.plot(arguments.plots, bench.series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
