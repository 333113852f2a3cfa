"""Programs on a simulated cluster, one seed at a time: `boki.testing.simulated` without pytest.

    import boki.sim

    async def worker(env: boki.sim.Environment) -> None:        # begun again whenever it is killed
        async with await env.connect() as client: ...

    async def program(cluster: boki.sim.Cluster) -> int:
        host = cluster.host("worker-1", worker)
        await cluster.faults_over()
        return await host.result()

    boki.sim.run(program, seed=7, faults="harsh")

The same seed is the same run, event by event, on every machine. `Cluster`, `Host` and `Environment` say what a program gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from boki._client import Client
from boki.testing._simulated import simulator
from boki_common.runtime.ports import Bodies, MachineClock, Random

T = TypeVar("T")

__all__ = ["Cluster", "Environment", "Host", "Process", "Subject", "run"]


class Environment(Protocol):
    """What one start of a hosted program has: a new one each time. What it must know of the start before, it stored.

    Attributes:
        name: of its host.
        url: for `boki.connect`.
        clock: wall clock and uptime of its machine, which faults change.
        random: randomness of this start.
        bodies: where blocking functions run: in the simulator inline, elsewhere in threads.
    """

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def clock(self) -> MachineClock: ...
    @property
    def random(self) -> Random: ...
    @property
    def bodies(self) -> Bodies: ...

    async def connect(self, **options: Any) -> Client:
        """A new client, as `boki.connect`; goes on trying while no engine answers."""

    def running_tasks(self) -> list[str]:
        """Names of the tasks of this start that are not done, sorted: what a program left must not run on."""


class Host(Protocol):
    """A machine on which a program lives, through any number of starts.

    Attributes:
        name: unique in its cluster.
        starts: how often the program was begun.
        running: whether a start is under way, perhaps paused.
    """

    @property
    def name(self) -> str: ...
    @property
    def starts(self) -> int: ...
    @property
    def running(self) -> bool: ...

    async def result(self) -> Any:
        """What the start returned that did; waits for it."""

    def kill(self, *, callbacks: int = 0, power: bool = False) -> bool:
        """Ends the start at once, or in the middle of what it does after so many more callbacks; it is begun again later.

        Args:
            power: its machine goes without a word: its connections stay half open.

        Returns:
            Whether there was one to kill.
        """

    def pause(self) -> None:
        """As SIGSTOP does, until `resume`."""

    def resume(self) -> None:
        """Ends a pause."""

    async def stop(self) -> None:
        """Ends it for good: the program is cancelled, and killed if it has not ended after ten seconds."""


class Process(Protocol):
    """A process that nobody begins again."""

    def start(self, main: Any, *, name: str = "main") -> Any:
        """Runs a coroutine in it; returns the task."""

    def kill(self) -> None:
        """Ends it at once: it runs nothing any more, not even its `finally` blocks."""

    def pause(self) -> None:
        """As SIGSTOP does, until `resume`."""

    def resume(self) -> None:
        """Ends a pause."""


class Cluster(Protocol):
    """What a simulated program gets. `url`: for `boki.connect`. `seed`: of this run."""

    @property
    def url(self) -> str: ...
    @property
    def seed(self) -> int: ...

    async def connect(self, **options: Any) -> Client:
        """A client, as `boki.connect`; goes on trying while no engine answers."""

    def host(
        self, name: str, main: Callable[[Any], Awaitable[Any]], *, restart_s: tuple[float, float] = (0.2, 2.0)
    ) -> Host:
        """A machine on which `main(environment)` lives: it is begun again whenever it is killed, or ends with a `BokiError`, until it
        returns. From now on it meets the faults that the seed draws for its name. Any other exception fails the run.

        Args:
            restart_s: it is begun again after a pause that is drawn between these.

        Raises:
            InvalidArgument: the name is taken, or cannot be one.
        """

    def process(self, name: str) -> Process:
        """A process of the program that nobody begins again, on a machine of its own."""

    async def faults_over(self) -> None:
        """Waits until nothing fails any more."""

    async def rest(self, seconds: float) -> None:
        """Lets time go by, days if need be, in which nothing happens but what programs set their timers for. After the faults."""


@dataclass(frozen=True)
class Subject:
    """A program with a check at its end, for `boki sim run --profile NAME`: a seed fails where it raises.

        [project.entry-points."boki.simulated"]
        NAME = "my_package.simulated:SUBJECT"

    Attributes are the arguments of `run`.
    """

    program: Callable[[Any], Awaitable[object]]
    faults: str = "harsh"
    seconds: float = 20.0
    model: bool = False
    steady: bool = False
    timeout: float = 300.0


def run(
    program: Callable[[Any], Awaitable[T]],
    *,
    seed: int,
    faults: str = "harsh",
    seconds: float = 20.0,
    model: bool = False,
    steady: bool = False,
    timeout: float = 300.0,
) -> T:
    """Runs a coroutine function under one seed; returns what it returns, raises what it raises.

    Args:
        program: takes the cluster (`Cluster`).
        faults: calm, network, disk, metadata or harsh.
        seconds: of virtual time in which faults happen.
        model: the cluster is a model of one, without roles: cheap, for programs of which the cluster is not the subject.
        steady: no cluster whose clocks run faster than time, which some seeds have.
        timeout: seconds of virtual time that the program has after the faults are over.
    """
    result: T = simulator("run")(
        program, seed=seed, faults=faults, seconds=seconds, model=model, steady=steady, timeout=timeout
    )
    return result
