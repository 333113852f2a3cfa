"""A trial of an application: a cluster of processes under load, killed with kill -9, and the check of its promises.

    result = await trial(HOTEL, directory, seconds=20, seed=7, say=print)
    result.faults                                   # sentences; [] if every promise held

The cluster has two engines, three bookies and two sequencers, one of them on standby; beside it run two services and
clients that repeat each request until its result is definite. Every second a service or a role is killed; it restarts with
the data that it had stored. Promises that hold at any time are checked in snapshots during the trial, all promises at its
end. `page.html` in the directory shows the state.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import aiohttp

from boki_cli.demo.local_cluster import LocalCluster
from boki_common.errors import BokiError
from boki_common.net.lasting_ports import lasting_port
from bokilib.records.codec import JsonObject
from examples.apps.application import Answer, Application
from examples.apps.load import LoadGenerator
from examples.apps.page import OperationRow, SnapshotCheck, TrialStatus, page
from examples.apps.service import HOST, open_row_store
from examples.apps.service_client import ServiceClient
from examples.supervisor import ROLE_DOWN_S, Supervisor, Victims, kill_at_random, module_command

CLIENTS: Final = 8
READY_S: Final = 180.0
MORE_S: Final = 2.0
"""Length of each extension of the kills, until enough requests are answered."""
PAGE_EVERY_S: Final = 1.0
CHECK_EVERY_S: Final = 6.0
READY_RETRY_S: Final = 0.05
CASSANDRA: Final = "cassandra-1"


class TrialResult(NamedTuple):
    """Result of a trial.

    Attributes:
        answers: definite results of requests.
        failed_attempts: attempts without an answer, which were repeated.
        killed: kills by kind of process.
        rows: all rows at the end, by name.
        faults: sentences; [] if every promise held.
        seconds: duration.
    """

    answers: list[Answer]
    failed_attempts: int
    killed: Counter[str]
    rows: dict[str, JsonObject]
    faults: list[str]
    seconds: float


class ServiceProcesses:
    """Service processes of an application; each keeps its port across restarts."""

    def __init__(self, url: str, application: str, directory: Path, count: int, tables: int = 0) -> None:
        self.supervisor: Final = Supervisor(directory / "processes.log")
        options = ("--application", application, "--tables", str(tables))
        self._command = partial(module_command, "examples.apps.service", url, *options)
        self._ports = {f"service-{number}": lasting_port(HOST) for number in range(1, count + 1)}

    @property
    def addresses(self) -> list[str]:
        """Base URLs of the services."""
        return [f"http://{HOST}:{port}" for port in self._ports.values()]

    async def start(self) -> None:
        """Start all services and wait until they serve; see `ready`."""
        for name, port in self._ports.items():
            await self.supervisor.start(name, self._command("--port", str(port)))
        await self.ready()

    def victims(self, cluster: LocalCluster) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the services and the roles of a cluster as victims.

        The kill of a service returns when all services serve again, so that one is left however busy the machine is.
        """
        restarts = {name: partial(self._restart, name) for name in self._ports}
        return {**self.supervisor.victims(cluster), **restarts}

    async def _restart(self, name: str) -> None:
        await self.supervisor.restart(name, ROLE_DOWN_S)
        await self.ready()

    async def ready(self) -> None:
        """Wait until all services serve.

        Raises:
            TimeoutError: one does not serve within READY_S.
            RuntimeError: one ended.
        """
        async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
            for name, port in self._ports.items():
                while True:
                    if not self.supervisor.running(name):
                        raise RuntimeError(f"{name} ended before it served: see processes.log")
                    try:
                        async with session.get(f"http://{HOST}:{port}/"):
                            break
                    except (aiohttp.ClientError, OSError):
                        await asyncio.sleep(READY_RETRY_S)


class TrialMonitor:
    """State of a running trial, and its status page.

    Attributes:
        checks: results of checks so far.
        killed: kills so far, by kind of process.
    """

    def __init__(self, application: Application, load: LoadGenerator, calls: ServiceClient, file: Path) -> None:
        self.checks: list[SnapshotCheck] = []
        self.killed: Counter[str] = Counter()
        self._application = application
        self._load = load
        self._calls = calls
        self._file = file
        self._began = perf_counter()
        self._rates: list[int] = []

    @property
    def seconds(self) -> float:
        """Seconds since the trial began."""
        return perf_counter() - self._began

    def write(self, *, ended: bool = False) -> None:
        """Replace the page atomically, so that a browser never loads half of it."""
        made = self._file.with_suffix(".new")
        made.write_text(page(self._status(ended)))
        os.replace(made, self._file)

    def _status(self, ended: bool) -> TrialStatus:
        killed = sorted(self.killed.items())
        return TrialStatus(
            f"{self._application.name} under kill -9",
            self.seconds,
            list(self._rates),
            operation_rows(self._load.answers),
            self._calls.failed,
            killed,
            list(self.checks),
            self._application.holds,
            ended,
        )

    async def run(self) -> None:
        """Write the page every second until the task is cancelled."""
        before = 0
        while True:
            self.write()
            await asyncio.sleep(PAGE_EVERY_S)
            self._rates.append(len(self._load.answers) - before)
            before = len(self._load.answers)


def operation_rows(answers: list[Answer]) -> list[OperationRow]:
    """Return a row per operation with the number of its answers and their latencies."""
    by_operation: dict[str, list[Answer]] = {}
    for answer in answers:
        by_operation.setdefault(answer.request.operation, []).append(answer)
    rows = []
    for operation, some in sorted(by_operation.items()):
        times = sorted(answer.seconds * 1_000 for answer in some)
        refused = sum(bool(answer.refused) for answer in some)
        rows.append(OperationRow(operation, len(some), refused, times[len(times) // 2], times[int(len(times) * 0.99)]))
    return rows


async def trial(
    application: Application,
    directory: Path,
    *,
    seconds: float = 20.0,
    least: int = 0,
    seed: int = 1,
    services: int = 2,
    clients: int = CLIENTS,
    pause_s: float = 0.0,
    tables: CassandraProcess | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Run a trial; see the module.

    Args:
        application: what runs.
        directory: directory for data, logs and the page.
        seconds: duration of load and kills.
        least: number of answers below which load and kills continue.
        seed: seed of requests and kills.
        services: number of service processes.
        clients: number of clients, each with one request at a time.
        pause_s: pause of a client between requests, which leaves the machine to others.
        tables: the Cassandra that keeps the rows, and is killed too; by default a store keeps them.
        say: called with a line per event.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = tables.port if tables is not None else 0
    async with LocalCluster(directory, bookies=3, engines=2, sequencers=2, unix_sockets=True) as cluster:
        async with open_row_store(cluster.url, application, port) as data:
            await data.fill(application.rows())
        serving = ServiceProcesses(cluster.url, application.name, directory, services, port)
        supervisor = serving.supervisor
        try:
            await serving.start()
            async with ServiceClient(serving.addresses) as calls:
                load = LoadGenerator(application, calls, application.trial_mix, name="trial", seed=seed)
                monitor = TrialMonitor(application, load, calls, directory / "page.html")
                say(f"status page: {directory / 'page.html'}")
                checking = asyncio.create_task(_check_snapshots(cluster.url, application, monitor, port))
                try:
                    victims = serving.victims(cluster)
                    if tables is not None:
                        victims[CASSANDRA] = partial(_restart, tables)
                    asking = partial(load.closed, clients, pause_s=pause_s)
                    await _kill_under_load(victims, load, monitor, asking, (seconds, least), random.Random(seed), say)
                finally:
                    checking.cancel()
                    (checked,) = await asyncio.gather(checking, return_exceptions=True)
                await supervisor.end()
                faults = [*load.faults, *supervisor.faults]
                if not isinstance(checked, asyncio.CancelledError):
                    faults.append(f"the checks during the trial stopped: {checked!r}")
        finally:
            await supervisor.clear()
        rows = await _rows(cluster.url, application, port)
    faults += [fault for check in monitor.checks for fault in check.faults]
    faults += application.check(load.answers, rows)
    monitor.checks.append(SnapshotCheck(monitor.seconds, len(rows), faults))
    monitor.write(ended=True)
    return TrialResult(load.answers, calls.failed, monitor.killed, rows, faults, monitor.seconds)


class CassandraProcess(Protocol):
    """Cassandra process that a trial kills."""

    port: int

    def kill(self) -> None:
        """Kill the process."""

    def restart(self) -> None:
        """Start it with its data, and wait until it serves."""


async def _restart(tables: CassandraProcess) -> None:
    await asyncio.to_thread(tables.kill)
    await asyncio.to_thread(tables.restart)


async def _kill_under_load(
    victims: Victims,
    load: LoadGenerator,
    monitor: TrialMonitor,
    ask: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    until: tuple[float, int],
    chance: random.Random,
    say: Callable[[str], None],
) -> None:
    stop = asyncio.Event()
    asking = asyncio.create_task(ask(stop))
    showing = asyncio.create_task(monitor.run())
    try:
        seconds, least = until
        await kill_at_random(victims, monitor.killed, seconds=seconds, chance=chance, say=say)
        while len(load.answers) < least:
            await kill_at_random(victims, monitor.killed, seconds=MORE_S, chance=chance, say=say)
        stop.set()
        await asking
    finally:
        for task in (asking, showing):
            task.cancel()
        await asyncio.gather(asking, showing, return_exceptions=True)


async def _check_snapshots(url: str, application: Application, monitor: TrialMonitor, tables: int) -> None:
    """Check a snapshot every few seconds until the task is cancelled."""
    async with open_row_store(url, application, tables) as data:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                rows = await data.all()
            except BokiError as error:
                if not error.retryable:
                    raise
                continue  # a process was killed: check the next snapshot
            monitor.checks.append(SnapshotCheck(monitor.seconds, len(rows), application.always(rows)))


async def _rows(url: str, application: Application, tables: int) -> dict[str, JsonObject]:
    """Return all rows at the end, once the row store is up to date."""
    async with open_row_store(url, application, tables) as data:
        while True:
            try:
                await data.settle()
                return await data.all()
            except BokiError as error:
                if not error.retryable:
                    raise
