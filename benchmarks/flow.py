"""Workflows beside DBOS on PostgreSQL and one node of Restate, in one run; and what many of them cost.

    python -m benchmarks.flow [--quick] [--only PART …] [--json FILE] [--plots DIRECTORY]           (`make bench-flow`)

Parts, each on a cluster of its own processes (three bookies, E = Qw = 3, Qa = 2, metadata in SQLite), every write flushed on all sides:

    steps       a workflow of five steps, 32 clients; of one step, one client; starter and worker in one process; beside both peers
    appends     records that each operation takes, beside the table of records
    waiting     appends of another program beside 4,096 handles that wait for results
    asleep      1,000 workflows that sleep for a day: memory of the worker, and what they do to others
    takeover    kill -9 of a worker with 1,000 running workflows, until another has them all
    hot         300 workflows that change one object of a store at once, from one process and from four
    slow        1,000 workflows of a fast transaction beside one whose body takes five seconds
    growth      finished workflows: what is kept of them over time (only if asked for: --scale 1 are a million)

What is compared is measured in interleaved rounds. The exit code is 0 whatever falls short. How fair it is: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple

import psutil

import boki
from benchmarks import command, flow_many, hot, machine, report
from benchmarks.bench import Bench, p50, rate
from benchmarks.closed_loop import Once, Workload, closed_loop
from benchmarks.flow_peer import ALONE, PEERS, Peer
from benchmarks.flow_programs import app, asleep, steps
from benchmarks.postgres_peer import PORT, installed, server_alone
from benchmarks.report import Row
from bokiflow import Call, Worker, send, workflow_id

CLIENTS: Final = 32
SHAPES: Final = (("5 steps", 5, CLIENTS), ("1 step", 1, 1))
ABSENT: Final = "absent: make bench-flow installs what it can; PostgreSQL is apt-get install postgresql"
SERVER: Final = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
PEER_SETTLE_S: Final = 1.0


class Side(NamedTuple):
    """Who is measured. `measure` gets what, how many clients and for how long."""

    name: str
    measure: Callable[[str, int, float], Awaitable[Row]]


def ours(worker: Worker, cluster: Any) -> Side:
    """Starter and worker in this process."""

    async def measure(what: str, tasks: int, seconds: float) -> Row:
        count = {shape: number for shape, number, _ in SHAPES}[what]

        def make(_: Any) -> Once:
            async def once(_task: int) -> int:
                await (await worker.start(steps.call(count))).result()
                return 1

            return once

        return await closed_loop(Workload(_name("boki", what, tasks), tasks, make), None, cluster.pids, seconds)

    return Side("boki", measure)


def theirs(name: str, peer: Peer, servers: Callable[[], list[int]]) -> Side:
    """A peer in its process, and its servers."""

    async def measure(what: str, tasks: int, seconds: float) -> Row:
        def used() -> dict[str, float]:
            return {"sdk": machine.cpu_seconds([peer.pid]), "server": machine.cpu_seconds(servers())}

        before = used()
        found = await peer.measure(what, tasks, seconds)
        cpu = {key: (value - before[key]) * 1e6 / found["count"] for key, value in used().items()}
        cpu |= {"engine": 0.0, "sequencer": 0.0, "bookies": 0.0}
        shown = _name(name, what, tasks)
        return Row(shown, found["per_s"], found["p50_ms"], found["p99_ms"], cpu, found["p90_ms"], found["mean_ms"])

    return Side(name, measure)


def _name(side: str, what: str, tasks: int) -> str:
    return f"{side}: {what}, {tasks} client{'s' if tasks > 1 else ''}"


@asynccontextmanager
async def dbos(bench: Bench) -> AsyncIterator[Side | None]:
    """DBOS on a PostgreSQL of its own."""
    directory, programs = bench.directory / "pg", installed()
    if programs is None or not (PEERS / "bin" / "dbos").exists():
        bench.facts["DBOS"] = ABSENT
        yield None
        return
    async with server_alone(directory) as server:
        assert server is not None
        where = ["-h", str(directory), "-p", str(PORT), "-U", "bench"]
        ready = [str(programs / "pg_isready"), "-q", *where]
        while (await asyncio.to_thread(subprocess.run, ready, check=False)).returncode:
            await asyncio.sleep(0.1)
        await asyncio.to_thread(subprocess.run, [str(programs / "createdb"), *where, "dbos"], check=True)
        peer = await Peer.start("benchmarks.flow_dbos", str(directory), str(PORT), log=bench.directory / "dbos.log")
        shown = await asyncio.to_thread(
            subprocess.run, [str(programs / "postgres"), "--version"], check=True, capture_output=True, text=True
        )
        bench.facts["DBOS"] = (
            f"{peer.ready['version']} on {shown.stdout.split()[0]} {shown.stdout.split()[2]}, a flush for each commit"
        )

        def servers() -> list[int]:
            parent = psutil.Process(server.pid)
            return [parent.pid, *(child.pid for child in parent.children())]

        try:
            yield theirs("DBOS", peer, servers)
        finally:
            await peer.close()


@asynccontextmanager
async def restate(bench: Bench) -> AsyncIterator[Side | None]:
    """One node of Restate."""
    program = PEERS / SERVER
    if not program.exists() or shutil.which(ALONE[0]) is None or shutil.which("ip") is None:
        bench.facts["Restate"] = "absent: make bench-flow installs it where there is npm; it needs unshare and ip"
        yield None
        return
    peer = await Peer.start(
        "benchmarks.flow_restate",
        str(program),
        str(bench.directory / "restate"),
        log=bench.directory / "restate.log",
        alone=True,
    )
    version = (await asyncio.to_thread(subprocess.check_output, [str(program), "--version"], text=True)).split()[-1]
    bench.facts["Restate"] = (
        f"{version}, one node, SDK {peer.ready['version']}; its log is flushed (WAL fsync), one copy"
    )
    try:
        yield theirs("Restate", peer, lambda: [int(peer.ready["server"])])
    finally:
        await peer.close()


async def part_steps(bench: Bench, _: float) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("steps"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        worker = await stack.enter_async_context(Worker(app, client.book("steps"), name="bench"))
        peers = [await stack.enter_async_context(dbos(bench)), await stack.enter_async_context(restate(bench))]
        sides = [ours(worker, cluster), *(one for one in peers if one is not None)]
        found: dict[tuple[str, str], list[Row]] = {(one.name, what): [] for what, _, _ in SHAPES for one in sides}
        for _round in range(bench.rounds):
            for what, _, tasks in SHAPES:
                for one in sides:
                    found[one.name, what].append(await one.measure(what, tasks, bench.seconds))
                    await asyncio.sleep(PEER_SETTLE_S)  # what the last one has still to flush is not the next one's
    bench.rows += [report.median_row(rows) for rows in found.values()]
    for name, goal in (("DBOS", 8.0), ("Restate", 4.0)):
        if (name, "5 steps") in found:
            value = _over(found["boki", "5 steps"], found[name, "5 steps"], rate)
            bench.ratio(f"five_steps_{CLIENTS}_clients_over_{name.lower()}", value, ">=", goal)
    if ("DBOS", "1 step") in found:
        value = _over(found["boki", "1 step"], found["DBOS", "1 step"], p50)
        bench.ratio("one_step_p50_over_dbos", value, "<=", 0.5)


def _over(numerator: Sequence[Row], denominator: Sequence[Row], figure: Callable[[Row], float]) -> float:
    """The median over rounds of one figure beside the other's of the same round."""
    return statistics.median(figure(a) / figure(b) for a, b in zip(numerator, denominator, strict=True))


@app.workflow
async def calls_child() -> int:
    """A child of one step."""
    return await steps(1)


@app.workflow
async def sends(other: str) -> str:
    """A signal."""
    send(other, "go", None)
    return workflow_id()


async def part_appends(bench: Bench, _: float) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench.cluster("appends"))
        client = await stack.enter_async_context(boki.connect(cluster.url))
        # A lease that nothing of this run outlasts: so no heartbeat is among the records that are counted.
        worker = await stack.enter_async_context(Worker(app, client.book("appends"), name="bench", lease_s=3_600))
        counted: tuple[tuple[str, Call[Any], int], ...] = (
            ("workflow_of_5_steps", steps.call(5), 6),
            ("workflow_of_1_step", steps.call(1), 2),
            ("sleep", asleep.call(0.01), 2),
            ("child_of_1_step", calls_child.call(), 4),
            ("signal_that_is_sent", sends.call("nobody"), 2),
        )
        for name, call, expected in counted:
            bench.ratio(f"appends_{name}", await _appends_of(worker, call), "<=", expected)


async def _appends_of(worker: Worker, call: Call[Any]) -> int:
    before = worker.log.appends
    await (await worker.start(call)).result()
    return worker.log.appends - before


async def part_hot(bench: Bench, _: float) -> None:
    await hot.part_hot(bench, "flow")


async def part_slow(bench: Bench, _: float) -> None:
    await hot.part_slow(bench, "flow")


PARTS: Final[Mapping[str, Callable[[Bench, float], Awaitable[None]]]] = {
    "steps": part_steps,
    "appends": part_appends,
    "waiting": flow_many.part_waiting,
    "asleep": flow_many.part_asleep,
    "takeover": flow_many.part_takeover,
    "hot": part_hot,
    "slow": part_slow,
    "growth": flow_many.part_growth,
}
USUAL: Final = tuple(name for name in PARTS if name != "growth")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = command.options(
        "flow",
        "Workflows beside others, in one run.",
        quick="short rounds, fewer of everything",
        parts=PARTS,
        seconds=4.0,
        plots="PNGs of what is kept over time",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of growth: 0.01 are 10,000 workflows")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1.5
        arguments.scale = min(arguments.scale, 0.01)
    return arguments


def main() -> int:
    arguments = parsed()
    with command.workplace(arguments) as directory:
        bench = Bench(arguments, directory)
        facts = command.run(arguments.only or USUAL, lambda name: PARTS[name](bench, arguments.scale), directory)
    command.show("flow", "workflows", arguments, facts, bench)
    if arguments.plots:
        flow_many.plot(arguments.plots, bench.series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
