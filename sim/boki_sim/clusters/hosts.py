"""Programs of users that live on machines of the simulation: they are killed, begin again, and know what they stored.

    host = cluster.host("worker-1", main)       # main(env): a coroutine function
    result = await host.result()                # when one of its starts has returned

A host is a machine, its wall clock, and a program. Each start is a new process that gets a new `Environment`: no client, no
object of the start before, nothing but what is in the cluster. Rules of a host:
- A start that returned has done its work: its process ends, with its connections, and is not started again.
- A start that was killed, or ended with a `BokiError`, is followed by another one, after a pause that the seed draws from
  `restart_s`; after a fault that keeps its machine down for a time, when that is over.
- Any other exception is a mistake of the program: the run fails with it.
- `stop` ends a host for good.
The clock is the machine's: what faults did to it stays over all starts.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import boki
from boki_common.errors import BokiError, InvalidArgument, Unreachable
from boki_common.runtime.bodies import ThreadBodies
from boki_sim.clusters.cluster import SimClock
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import SimRandom, stream
from boki_sim.world.trace import Trace

RESTART_S: Final = (0.2, 2.0)
"""A supervisor begins a program again after a pause between these."""
STOP_S: Final = 10.0
"""A program that is asked to end has so long for it; then it is killed."""
TRY_AGAIN_S: Final = 0.2

Main = Callable[["Environment"], Awaitable[Any]]


class Environment:
    """What one start of a program has. A new one each time.

    Attributes:
        name: of its host.
        url: for `boki.connect`.
        clock: the machine's wall clock and uptime (port `MachineClock`), which faults change.
        random: randomness of this start (port `Random`).
        bodies: where blocking functions run (port `Bodies`): inline here, in threads elsewhere.
    """

    def __init__(self, name: str, url: str, clock: SimClock, numbers: random.Random, process: SimProcess) -> None:
        self.name: Final = name
        self.url: Final = url
        self.clock: Final = clock
        self.random: Final = SimRandom(numbers)
        self.bodies: Final = ThreadBodies()
        self._process: Final = process

    async def connect(self, **options: Any) -> boki.Client:
        """A new client, as `boki.connect`; goes on trying while no engine answers."""
        return await connected(self.url, **options)

    def running_tasks(self) -> list[str]:
        """Names of the tasks of this start that are not done, sorted."""
        return sorted(task.get_name() for task in self._process.tasks())


async def connected(url: str, **options: Any) -> boki.Client:
    """A client, as soon as an engine takes one."""
    while True:
        try:
            return await boki.connect(url, **options)
        except Unreachable:
            await asyncio.sleep(TRY_AGAIN_S)


class Host:
    """See the module. Made by `Hosts.add`.

    Attributes:
        name: unique in its cluster.
        starts: how often its program was begun.
        ends: why starts ended that did not return, newest last.
        held: faults that keep it from being started again.
        process: the newest start's.
        present: False: it is left out of this run, and never started.
    """

    def __init__(self, hosts: Hosts, name: str, main: Main, machine: str, restart_s: tuple[float, float]) -> None:
        self.name = name
        self.starts = 0
        self.ends: list[str] = []
        self.held = 0
        self.clock = SimClock(hosts.loop)
        self.present = True
        self.process = SimProcess(hosts.loop, name, machine)  # before the first start: nothing runs in it
        self.process.clock = self.clock
        self._hosts = hosts
        self._main = main
        self._restart_s = restart_s
        self._numbers = stream(hosts.seed, "host", name)
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self._asked: SimProcess | None = None
        """The start that was asked to end: what it returns is not its work's end."""
        self._result: asyncio.Future[Any] = hosts.loop.create_future()

    def __repr__(self) -> str:
        return f"<host {self.name}: start {self.starts}, {'up' if self.running else 'over' if self._over else 'down'}>"

    @property
    def running(self) -> bool:
        """Whether a start is under way, perhaps paused."""
        return self._task is not None and self.process.alive

    async def result(self) -> Any:
        """What the start returned that did; waits for it. Raises CancelledError when the host was stopped before."""
        return await asyncio.shield(self._result)

    # -- what a test does to it; faults do the same

    def kill(self, *, callbacks: int = 0, power: bool = False) -> bool:
        """Ends the start at once, or when it has run so many more callbacks; it is begun again later. `power`: of the machine:
        peers are not notified, its connections stay half open. Returns whether there was one to kill."""
        if not self.running or self.process.doomed >= 0:
            return False
        if power:
            self._hosts.network.power_off(self.process.host)
        if callbacks and not power:
            self.process.kill_after(callbacks)
        else:
            self.process.kill()
        return True

    def pause(self) -> None:
        """As SIGSTOP does, until `resume`."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    async def stop(self) -> None:
        """Ends it for good: its program is cancelled, and killed if it has not ended after ten seconds."""
        self._over = True
        if self.running and self._task is not None:
            self._hosts.loop.call_soon(self._task.cancel, context=self.process.context)
            await asyncio.wait([self._task], timeout=STOP_S)
        self.process.kill()
        if not self._result.done():
            self._outside(self._result.cancel)

    def ask_to_end(self) -> bool:
        """As SIGTERM does: its program is cancelled, and killed if it goes on for ten seconds; another start follows."""
        if not self.running or self._task is None:
            return False
        self._asked = self.process
        self._hosts.loop.call_soon(self._task.cancel, context=self.process.context)
        outside = self._hosts.loop.outside.context
        self._hosts.loop.call_later(STOP_S, self.process.kill, context=outside)
        return True

    # -- its life

    def start(self) -> None:
        """A new process of the program, unless it is over, held, or there is one."""
        if self._over or self.held or self.running or not self.present:
            return
        self.starts += 1
        hosts = self._hosts
        process = hosts.loop.process(f"{self.name}#{self.starts}", self.process.host)
        process.clock = self.clock
        self.process = process
        process.on_death.append(partial(self._died, process))
        hosts.network.power_on(process.host)
        hosts.trace.add(process.name, "starts", "")
        self._task = process.start(self._live(process), name=process.name)

    async def _live(self, process: SimProcess) -> None:
        environment = Environment(
            self.name, self._hosts.url, self.clock, stream(self._hosts.seed, "environment", process.name), process
        )
        try:
            result = await self._main(environment)
        except asyncio.CancelledError:
            self._outside(self._ended, process, "stopped")
        except BokiError as error:
            self._outside(self._ended, process, f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the run fails with it
            self._outside(self._hosts.mistaken, error)
        else:
            self._outside(self._returned, process, result)

    def _outside(self, callback: Callable[..., object], *args: object) -> None:
        self._hosts.loop.call_soon(callback, *args, context=self._hosts.loop.outside.context)

    def _returned(self, process: SimProcess, result: object) -> None:
        if not process.alive:
            return
        if process is self._asked and not self._over:
            self._ended(process, "stopped")
            return
        self._over = True
        self._hosts.trace.add(process.name, "returns", "")
        process.kill()
        if not self._result.done():
            self._result.set_result(result)

    def _ended(self, process: SimProcess, reason: str) -> None:
        if process.alive:
            self.ends.append(reason)
            process.kill()

    def _died(self, process: SimProcess) -> None:
        self._hosts.trace.add(process.name, "ended", "")
        if not self._over and not self.held:
            pause_s = self._numbers.uniform(*self._restart_s)
            self._hosts.loop.call_later(pause_s, self.start, context=self._hosts.loop.outside.context)

    # -- for faults

    def keep_down(self) -> None:
        """It is not started again until as many `release`."""
        self.held += 1

    def release(self) -> None:
        """A fault that kept it down is over."""
        self.held = max(0, self.held - 1)
        self.start()

    def heal(self) -> None:
        """All faults are over: who was kept down is begun again at once."""
        self.process.doomed = -1
        if self.held:
            self.held = 0
            self.start()


class Hosts:
    """All of a run, by name. `url`: for `boki.connect`, once the cluster is there. `failure`: set when a program made a
    mistake: the run is over."""

    def __init__(self, loop: SimLoop, seed: int, network: Network, trace: Trace, machine: Callable[[], str]) -> None:
        self.loop: Final = loop
        self.seed: Final = seed
        self.network: Final = network
        self.trace: Final = trace
        self.url = ""
        self.failure: Final[asyncio.Future[None]] = loop.create_future()
        self._machine = machine
        self._by_name: dict[str, Host] = {}

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Host | None:
        return self._by_name.get(name)

    def add(self, name: str, main: Main, *, restart_s: tuple[float, float] = RESTART_S) -> Host:
        """A host that is not started yet. Raises InvalidArgument: the name is taken, or cannot be one."""
        if not name or set(name) & set("#,> ") or name.partition("-")[0] in ROLES or name in self._by_name:
            raise InvalidArgument(
                f"expected a new name of a host without any of '#,> ', that begins with none of {', '.join(ROLES)}, "
                f"found {name!r}"
            )
        made = self._by_name[name] = Host(self, name, main, self._machine(), restart_s)
        return made

    def mistaken(self, error: Exception) -> None:
        """A program ended with what is no BokiError."""
        if not self.failure.done():
            self.failure.set_exception(error)


ROLES: Final = ("bookie", "sequencer", "engine", "controller", "client", "program")
"""Beginnings of names that are others'."""
