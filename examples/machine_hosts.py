"""Hosts of state machines on a `boki dev`: processes that a trial kills and stops.

    async with running_hosts(directory, "examples.wordcount.host", count=3) as hosts:
        async with boki.connect(hosts.url) as client: ...
        await hosts.strike(seconds=10, chance=random.Random(7), say=print)
    hosts.faults                                    # sentences; [] if every process ended cleanly

A strike is a kill -9, after which the slot's next process starts, or a SIGSTOP for longer than the lease: then other hosts have taken the
machines when the process continues, and nothing that it still does may count. `run_host` is the other side: the main function of a host.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import boki
from boki_common.errors import BokiError
from boki_common.net.lasting_ports import lasting_port
from bokirsm import App, Host, MachineFaulted
from examples.process import parser, serve
from examples.supervisor import CommandLine, Supervisor, module_command

LEASE_S: Final = 2.0
TIMEOUT_S: Final = 10.0
BEGIN_S: Final = 60.0
"""Time that `boki dev` has to begin."""
SETTLE_S: Final = 90.0
"""Time within which all calls are answered after the last strike."""
STRIKE_EVERY_S: Final = 0.7
DOWN_S: Final = (0.0, 1.5 * LEASE_S)
"""Bounds of the time between the kill of a host and its next start."""
STOPPED_S: Final = (1.5 * LEASE_S, 2.5 * LEASE_S)

T = TypeVar("T")


async def repeated(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it is answered; one that may be repeated: it has an id, or changes nothing.

    Raises:
        MachineFaulted: a handler of a machine failed.
    """
    while True:
        try:
            return await call()
        except MachineFaulted:
            raise
        except TimeoutError:
            pass
        except BokiError as error:
            if error.definite and not error.retryable:
                raise


class HostProcesses:
    """The processes of a trial; see the module.

    Attributes:
        url: address of the `boki dev`.
        struck: strikes by kind.
    """

    def __init__(self, url: str, supervisor: Supervisor, slots: list[str]) -> None:
        self.url: Final = url
        self.struck: Final[Counter[str]] = Counter()
        self._supervisor: Final = supervisor
        self._slots: Final = slots

    @property
    def faults(self) -> list[str]:
        """Sentences about processes that ended by themselves, with an error, or not in time."""
        return self._supervisor.faults

    async def strike(self, *, seconds: float, chance: random.Random, say: Callable[[str], None]) -> None:
        """Strike one random host after the other. When the call returns, all hosts run.

        Args:
            seconds: the duration; the call returns no earlier.
            chance: source of the choices, so that a seed repeats them.
            say: called with a line per strike.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() + STRIKE_EVERY_S < end:
            await asyncio.sleep(STRIKE_EVERY_S)
            slot, left = chance.choice(self._slots), end - loop.time()
            if chance.random() < 0.5:
                down_s = min(chance.uniform(*DOWN_S), left)
                say(f"kill -9 {slot}, next start after {down_s:.1f} s")
                self.struck["killed"] += 1
                await self._supervisor.restart(slot, down_s)
            elif self._supervisor.running(slot):
                stopped_s = chance.uniform(*STOPPED_S)
                say(f"SIGSTOP {slot} for {stopped_s:.1f} s; the lease is {LEASE_S:g} s")
                self.struck["stopped"] += 1
                self._supervisor.pause(slot)
                await asyncio.sleep(stopped_s)
                self._supervisor.resume(slot)
        await asyncio.sleep(max(0.0, end - loop.time()))


@asynccontextmanager
async def running_hosts(directory: Path, module: str, *, count: int) -> AsyncIterator[HostProcesses]:
    """Run a `boki dev` and hosts, whose main module is `module`; end them in order when the block ends."""
    supervisor = Supervisor(directory / "processes.log")
    port = lasting_port()
    url = f"boki://127.0.0.1:{port}"
    slots = [f"host-{number}" for number in range(1, count + 1)]
    try:
        await supervisor.start("dev", _dev_command(directory / "data", port))
        async with boki.connect(url, timeout=BEGIN_S):
            pass
        for slot in slots:
            await supervisor.start(slot, module_command(module, url, "--slot", slot))
        yield HostProcesses(url, supervisor, slots)
        await supervisor.end(*slots)
        await supervisor.end("dev")
    finally:
        await supervisor.clear()


def _dev_command(data: Path, port: int) -> CommandLine:
    options = ("--data", str(data), "--listen", f"127.0.0.1:{port}", "--gateway-port", "-1", "--stop-with-stdin")
    return lambda _: [sys.executable, "-m", "boki_cli.main", "dev", *options]


def run_host(module: str, app: App, book: str) -> None:
    """Run the machines of an app in this process until its standard input closes.

    The host has the name of its slot. So the slot's next process takes over at once what a killed one owned; a host of another name
    would have to wait for the end of the lease.
    """
    options = parser(module)
    options.add_argument("--slot", required=True, help="name that this process shares with its predecessors")
    arguments = options.parse_args()

    async def run(stop: asyncio.Event) -> None:
        async with (
            boki.connect(arguments.url, timeout=TIMEOUT_S) as client,
            Host(app, client.book(book), name=arguments.slot, lease_s=LEASE_S),
        ):
            await stop.wait()

    serve(run)
