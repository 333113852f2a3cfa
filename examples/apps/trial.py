"""An application on a cluster of processes while they are killed with kill -9, and what is true in the end.

    found = await trial(HOTEL, directory, seconds=20, seed=7, say=print)
    found.faults                                    # sentences; none

Two engines, three bookies, two sequencers (one stands by), two services, and clients that ask until they have a definite result. Every
second somebody is killed: a service, or a role; each begins again on what it stored. What has to hold of any snapshot is looked at
meanwhile, all of it in the end.
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
from bokilib.codec import JsonObject
from examples.apps.application import Answer, Application
from examples.apps.load import LoadGenerator
from examples.apps.page import OperationRow, SnapshotCheck, TrialStatus, page
from examples.apps.service import HOST, open_row_store
from examples.apps.service_client import ServiceClient
from examples.supervisor import ROLE_DOWN_S, Supervisor, Victims, kill_at_random, module_command

CLIENTS: Final = 8
READY_S: Final = 180.0
MORE_S: Final = 2.0
"""Of kills, again and again, until enough was answered."""
PAGE_S: Final = 1.0
LOOK_S: Final = 6.0
READY_AGAIN_S: Final = 0.05
CASSANDRA: Final = "cassandra-1"


class TrialResult(NamedTuple):
    """What became of a trial."""

    answers: list[Answer]
    failed_attempts: int
    killed: Counter[str]
    rows: dict[str, JsonObject]
    faults: list[str]
    seconds: float


class ServiceProcesses:
    """Processes of an application; each keeps its port when it begins again."""

    def __init__(self, url: str, application: str, directory: Path, count: int, tables: int = 0) -> None:
        self.supervisor: Final = Supervisor(directory / "processes.log")
        options = ("--application", application, "--tables", str(tables))
        self._command = partial(module_command, "examples.apps.service", url, *options)
        self._ports = {f"service-{number}": lasting_port(HOST) for number in range(1, count + 1)}

    @property
    def addresses(self) -> list[str]:
        """Where they serve."""
        return [f"http://{HOST}:{port}" for port in self._ports.values()]

    async def start(self) -> None:
        """Begins all, and waits until they serve. Raises TimeoutError; RuntimeError: one ended."""
        for name, port in self._ports.items():
            await self.supervisor.start(name, self._command("--port", str(port)))
        await self.ready()

    def victims(self, cluster: LocalCluster) -> dict[str, Callable[[], Awaitable[None]]]:
        """All of them, and the roles of a cluster: each serves again before another one is killed, however busy the machine is."""
        restarts = {name: partial(self._restart, name) for name in self._ports}
        return {**self.supervisor.victims(cluster), **restarts}

    async def _restart(self, name: str) -> None:
        await self.supervisor.restart(name, ROLE_DOWN_S)
        await self.ready()

    async def ready(self) -> None:
        """Waits until all serve. Raises TimeoutError; RuntimeError: one ended."""
        async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
            for name, port in self._ports.items():
                while True:
                    if not self.supervisor.running(name):
                        raise RuntimeError(f"{name} ended")
                    try:
                        async with session.get(f"http://{HOST}:{port}/"):
                            break
                    except (aiohttp.ClientError, OSError):
                        await asyncio.sleep(READY_AGAIN_S)


class TrialMonitor:
    """What the page shows, second by second."""

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
        """Since it began."""
        return perf_counter() - self._began

    def write(self, *, over: bool = False) -> None:
        """Writes the page; nobody sees half of it."""
        made = self._file.with_suffix(".new")
        made.write_text(page(self._standing(over)))
        os.replace(made, self._file)

    def _standing(self, over: bool) -> TrialStatus:
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
            over,
        )

    async def run(self) -> None:
        """Once a second, for ever."""
        before = 0
        while True:
            self.write()
            await asyncio.sleep(PAGE_S)
            self._rates.append(len(self._load.answers) - before)
            before = len(self._load.answers)


def operation_rows(answers: list[Answer]) -> list[OperationRow]:
    """Answers by operation."""
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
    """Runs one; see the module.

    Args:
        seconds, least: of load and kills: so long, and until so many requests are answered.
        pause_s: for which a client thinks before it asks again; so a trial leaves the machine to others.
        tables: has the rows, and is killed as well; by default a store has them.
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
                watch = TrialMonitor(application, load, calls, directory / "page.html")
                say(f"how it stands: {directory / 'page.html'}")
                looking = asyncio.create_task(_look(cluster.url, application, watch, port))
                try:
                    victims = serving.victims(cluster)
                    if tables is not None:
                        victims[CASSANDRA] = partial(_restart, tables)
                    asking = partial(load.closed, clients, pause_s=pause_s)
                    await _under_load(victims, load, watch, asking, (seconds, least), random.Random(seed), say)
                finally:
                    looking.cancel()
                    (looked,) = await asyncio.gather(looking, return_exceptions=True)
                await supervisor.end()
                faults = [*load.faults, *supervisor.faults]
                if not isinstance(looked, asyncio.CancelledError):
                    faults.append(f"what has to hold was not looked at any more: {looked!r}")
        finally:
            await supervisor.clear()
        rows = await _rows(cluster.url, application, port)
    faults += [fault for check in watch.checks for fault in check.faults]
    faults += application.check(load.answers, rows)
    watch.checks.append(SnapshotCheck(watch.seconds, len(rows), faults))
    watch.write(over=True)
    return TrialResult(load.answers, calls.failed, watch.killed, rows, faults, watch.seconds)


class CassandraProcess(Protocol):
    """A Cassandra that is killed."""

    port: int

    def kill(self) -> None: ...

    def restart(self) -> None: ...


async def _restart(tables: CassandraProcess) -> None:
    await asyncio.to_thread(tables.kill)
    await asyncio.to_thread(tables.restart)


async def _under_load(
    victims: Victims,
    load: LoadGenerator,
    watch: TrialMonitor,
    ask: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    until: tuple[float, int],
    chance: random.Random,
    say: Callable[[str], None],
) -> None:
    stop = asyncio.Event()
    asking = asyncio.create_task(ask(stop))
    showing = asyncio.create_task(watch.run())
    try:
        seconds, least = until
        await kill_at_random(victims, watch.killed, seconds=seconds, chance=chance, say=say)
        while len(load.answers) < least:
            await kill_at_random(victims, watch.killed, seconds=MORE_S, chance=chance, say=say)
        stop.set()
        await asking
    finally:
        for task in (asking, showing):
            task.cancel()
        await asyncio.gather(asking, showing, return_exceptions=True)


async def _look(url: str, application: Application, watch: TrialMonitor, tables: int) -> None:
    """Every some seconds: what has to hold of any snapshot."""
    async with open_row_store(url, application, tables) as data:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                rows = await data.all()
            except BokiError as error:
                if not error.retryable:
                    raise
                continue  # somebody was killed: the next time
            watch.checks.append(SnapshotCheck(watch.seconds, len(rows), application.always(rows)))


async def _rows(url: str, application: Application, tables: int) -> dict[str, JsonObject]:
    """All rows in the end, when the database has them too."""
    async with open_row_store(url, application, tables) as data:
        while True:
            try:
                await data.settle()
                return await data.all()
            except BokiError as error:
                if not error.retryable:
                    raise
