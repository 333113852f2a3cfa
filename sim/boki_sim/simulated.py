"""User programs on a simulated cluster: what `boki.testing.simulated` and `boki.sim.run` find by entry point.

    @boki.testing.simulated(seeds=200, faults="harsh")
    async def test_transfers(cluster):
        async with await cluster.connect() as client: ...

The program is unmodified asyncio code on the SDK; `boki.connect(cluster.url)` works too. It runs as a process of its own, and
begins hosts (`cluster.host`), beside a real cluster, or a model of one; everybody meets the faults the seed drew. After `seconds` of
virtual time all faults are over, and the program must end. Each seed is a new cluster and a new run of the test function.

A failure keeps its own traceback and gets notes: the seed, the command that runs it alone, and the smallest fault script
that still fails.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import boki
from boki_common import logs
from boki_sim.clusters.cluster import Cluster, SimClock
from boki_sim.clusters.hosts import RESTART_S, Host, Hosts, Main, connected
from boki_sim.clusters.invariants import Invariants
from boki_sim.clusters.model_cluster import NAME, start_model, without_roles
from boki_sim.clusters.shape import Shape, draw_shape
from boki_sim.faults import faults as fault_scripts
from boki_sim.faults import host_faults
from boki_sim.faults.faults import Fault
from boki_sim.faults.host_faults import ABSENT
from boki_sim.nemesis.nemesis import ENDS, Nemesis
from boki_sim.pytest_plugin import chosen
from boki_sim.shrink import shrink
from boki_sim.world.ending import uncollected
from boki_sim.world.guard import guarded
from boki_sim.world.idle_time import rest
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network
from boki_sim.world.process import SimProcess
from boki_sim.world.randomness import stream
from boki_sim.world.trace import Trace

T = TypeVar("T")
Program = Callable[..., Coroutine[Any, Any, Any]]

SECONDS: Final = 20.0
TIMEOUT_S: Final = 300.0
"""Virtual time that a program has after the faults are over."""
SHRINKING_TRIES: Final = 40
LOOK_EVERY_S: Final = 0.2
CHECK_EVERY_S: Final = 20.0
CLUSTER: Final = "cluster"
"""Name of the parameter that gets the cluster."""


class How(NamedTuple):
    """What kind of cluster, and how long a program may go on."""

    model: bool = False
    steady: bool = False
    timeout_s: float = TIMEOUT_S

    def shape(self, seed: int) -> Shape:
        """Of the cluster."""
        drawn = draw_shape(stream(seed, "shape"))
        again = 0
        while self.steady and (drawn.clock_rate != 1.0 or drawn.hasty):
            again += 1
            drawn = draw_shape(stream(seed, "shape", again))
        return without_roles(drawn) if self.model else drawn


class NotEnded(AssertionError):
    """A program that goes on when it must have ended."""


class SimulatedCluster:
    """What a simulated program gets. `url`: for `boki.connect`. `seed`: of this run."""

    def __init__(self, run: ProgramRun) -> None:
        self.url = run.url
        self.seed = run.seed
        self._run = run

    async def connect(self, **options: Any) -> boki.Client:
        """A client, as `boki.connect`; goes on trying while no engine answers."""
        return await connected(self.url, **options)

    def host(self, name: str, main: Main, *, restart_s: tuple[float, float] = RESTART_S) -> Host:
        """A machine on which a program lives: `main(environment)`, begun again whenever it is killed, until it returns. See `hosts`.

        From now on it meets faults as every role does, drawn by its name.

        Raises:
            InvalidArgument: the name is taken, or cannot be one.
        """
        return self._run.host(name, main, restart_s)

    def process(self, name: str) -> SimProcess:
        """One more process of the program, on a machine of its own: `start` something in it, `pause` it, `kill` it.

        Faults meet the processes that exist when they happen. What is to be begun again is a `host`.
        """
        return self._run.program_process(name)

    async def faults_over(self) -> None:
        """Waits until nothing fails any more, and whoever is down is on its way up."""
        await asyncio.shield(self._run.healed)

    async def rest(self, seconds: float) -> None:
        """Lets time go by, days if need be, in which nothing happens but what programs set their timers for (`idle_time`).

        Waits for the end of the faults first.
        """
        await self.faults_over()
        await self._run.rest(seconds)


class _Span:
    """How long a run may last: its faults, then its time-out; rests do not count."""

    def __init__(self, seconds: float, timeout_s: float) -> None:
        self.seconds = seconds
        self.begun = inf
        self._timeout_s = timeout_s
        self._resting = 0
        self._rested_s = 0.0

    @property
    def limit(self) -> float:
        """When it must have ended."""
        return inf if self._resting else self.begun + self.seconds + self._timeout_s + self._rested_s

    @contextmanager
    def resting(self, now: Callable[[], float]) -> Iterator[None]:
        """A rest, one of perhaps many at once."""
        self._resting += 1
        begun = now()
        yield
        self._resting -= 1
        self._rested_s += now() - begun


class ProgramRun:
    """One seed of one program.

    Attributes:
        hosts: those that it began.
        script: the faults of this run, those of its hosts included as they are drawn.
        healed: done when all faults are over.
    """

    def __init__(self, seed: int, profile: str, seconds: float, script: Sequence[Fault] | None, how: How) -> None:
        self.seed = seed
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop)
        self._how = how
        shape = how.shape(seed)
        network = Network(self.loop, seed, self.trace, shape.weather)
        self.invariants = Invariants(self.loop.time, lambda found: self.trace.add("check", "VIOLATION", str(found)))
        self.cluster = Cluster(self.loop, seed, shape, network, self.trace, self.invariants)
        self.url = self.cluster.url
        self._processes: dict[str, tuple[SimProcess, SimClock]] = {}
        self._programs: dict[SimProcess, None] = {}
        self._roles: list[SimProcess] = []
        self._profile = profile
        self._span = _Span(seconds, how.timeout_s)
        self.hosts = Hosts(self.loop, seed, network, self.trace, self.cluster.machine)
        self._nemesis = Nemesis(self.cluster, self._processes, stream(seed, "nemesis"), hosts=self.hosts)
        self._striking: list[asyncio.Task[None]] = []
        self.healed = self.loop.create_future()
        self.main = self.program_process("program")
        self._given = None if script is None else list(script)
        self.script = self._draw(shape) if self._given is None else list(self._given)

    def _draw(self, shape: Shape) -> list[Fault]:
        """The faults of roles, and of the program's main process."""
        if self._how.model:
            numbers = stream(self.seed, "host faults", self._profile, "program")
            drawn = host_faults.draw(numbers, self._profile, "program", [NAME], begun=0.0, seconds=self._span.seconds)
            return [fault for fault in drawn if fault.kind not in ENDS]
        targets = replace(shape.targets(stream(self.seed, "targets")), clients=("program",))
        numbers = stream(self.seed, "faults", self._profile)
        return fault_scripts.draw(numbers, self._profile, targets, seconds=self._span.seconds, carrying=shape.carrying)

    # -- processes

    def program_process(self, name: str) -> SimProcess:
        process = self.loop.process(name, self.cluster.machine())
        clock = process.clock = SimClock(self.loop)
        self._processes[name] = (process, clock)
        self._programs[process] = None
        return process

    def host(self, name: str, main: Main, restart_s: tuple[float, float]) -> Host:
        """A new host, begun at once, and from now on met by its faults."""
        made = self.hosts.add(name, main, restart_s=restart_s)
        others = [*self.cluster.nodes] or [NAME]
        now = self.loop.now - self._span.begun
        if self._given is None:
            numbers = stream(self.seed, "host faults", self._profile, name)
            mine = host_faults.draw(numbers, self._profile, name, others, begun=now, seconds=self._span.seconds)
            self.script += mine
        else:
            mine = host_faults.of_host(self._given, name)
        made.present = not any(fault.kind == ABSENT for fault in mine)
        if not self.healed.done():
            striking = self._nemesis.run([fault for fault in mine if fault.at >= now], since=self._span.begun)
            self._striking.append(self.loop.create_task(striking, context=self.loop.outside.context))
        made.start()
        return made

    def _is_program(self, process: SimProcess) -> bool:
        """Whose far timers a rest waits for."""
        return process in self._programs or process.name.partition("#")[0] in self.hosts

    def happened(self) -> dict[tuple[str, str], int]:
        """(Kind of fault, step that it met) → how often."""
        return dict(self._nemesis.happened)

    def _role_processes(self) -> list[SimProcess]:
        """Running ones."""
        nodes = [node.process for node in self.cluster.nodes.values() if node.process is not None]
        return [process for process in (*nodes, *self._roles) if process.alive]

    # -- the run

    def go(self, program: Callable[[SimulatedCluster], Awaitable[T]]) -> T:
        """Runs it. Raises what the program raises, or one of its hosts; AssertionError: it did not end, or the cluster broke a promise."""
        quiet = logs.configured(level="error", stream=io.StringIO())
        with quiet, uncollected(), guarded(self.loop, self.seed) as guard:
            try:
                result = self.loop.run_until_complete(self._scenario(program))
                broken = [*self.invariants.violations]  # what is thrown away afterwards breaks nothing
            finally:
                self.loop.end()
        assert not guard.refused, f"the program reached for the machine: {guard.refused[0]}"
        assert not broken, f"the cluster broke a promise: {broken[0]}"
        return result

    async def _scenario(self, program: Callable[[SimulatedCluster], Awaitable[T]]) -> T:
        await self.cluster.start()
        if self._how.model:
            process, self.url = await start_model(self.cluster)
            self._processes[NAME] = (process, SimClock(self.loop))
            self._roles.append(process)
        await self.cluster.up()
        self.hosts.url = self.url
        self._span.begun = self.loop.now

        async def run() -> T:
            return await program(SimulatedCluster(self))

        running = self.main.start(run(), name="program")
        injecting = asyncio.ensure_future(self._faults())
        watching = asyncio.ensure_future(self._watch())
        failure = self.hosts.failure
        ending: list[asyncio.Future[Any]] = [running, failure]
        while not any(one.done() for one in ending) and self.loop.now < self._span.limit:
            await asyncio.wait(ending, timeout=CHECK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        for task in (injecting, watching, *self._striking):
            task.cancel()
        if failure.done():
            await failure
        if not running.done():
            raise NotEnded(f"the program did not end within {self._how.timeout_s:g} s after all faults were over")
        return await running

    async def rest(self, seconds: float) -> None:
        """See `idle_time`."""
        with self._span.resting(lambda: self.loop.now):
            await rest(self.loop, seconds, self._is_program, self._role_processes)

    async def _faults(self) -> None:
        end = self.loop.time() + self._span.seconds
        known = {"all", *self.cluster.nodes, *self._processes}  # others are hosts, which get theirs when they are made
        await self._nemesis.run([fault for fault in self.script if host_faults.host_of(fault) in known])
        await asyncio.sleep(max(0.0, end - self.loop.time()))
        for striking in self._striking:
            striking.cancel()
        self._nemesis.heal()
        self.healed.set_result(None)

    async def _watch(self) -> None:
        while self.cluster.nodes:
            await asyncio.sleep(LOOK_EVERY_S)
            self.cluster.look()


def run(
    program: Callable[[SimulatedCluster], Awaitable[T]],
    *,
    seed: int,
    faults: str = "harsh",
    seconds: float = SECONDS,
    script: Sequence[Fault] | None = None,
    model: bool = False,
    steady: bool = False,
    timeout: float = TIMEOUT_S,
) -> T:
    """Runs one program under one seed; returns what it returns, raises what it raises.

    Args:
        program: a coroutine function that takes the cluster.
        faults: calm, network, disk, metadata or harsh.
        seconds: of virtual time in which faults happen.
        script: the faults to inject instead of those that the seed draws.
        model: the cluster is a model of one, without roles.
        steady: no cluster whose clocks run faster than time, which some seeds have.
        timeout: seconds of virtual time that the program has after the faults are over.
    """
    return ProgramRun(seed, faults, seconds, script, How(model, steady, timeout)).go(program)


def simulated(
    *,
    seeds: int = 100,
    faults: str = "harsh",
    first_seed: int = 1,
    seconds: float = SECONDS,
    model: bool = False,
    steady: bool = False,
    timeout: float = TIMEOUT_S,
) -> Callable[[Program], Callable[..., None]]:
    """Makes a test of a coroutine function: it runs once for each seed, on a new cluster. Arguments as those of `run`.

    The function takes `cluster` and whatever fixtures it names besides. `pytest --sim-seed N` runs one seed alone.
    """
    how = How(model, steady, timeout)

    def decorate(test: Program) -> Callable[..., None]:
        def run_all(*args: Any, **fixtures: Any) -> None:
            only = chosen()
            for seed in range(first_seed, first_seed + seeds) if only is None else (only,):
                _run_and_explain(test, args, fixtures, Runs(seed, faults, seconds, how))

        functools.update_wrapper(run_all, test)
        del run_all.__dict__["__wrapped__"]
        signature = inspect.signature(test)
        if CLUSTER not in signature.parameters:
            raise TypeError(f"expected {test.__qualname__} to take `{CLUSTER}`, found {signature}")
        kept = [one for name, one in signature.parameters.items() if name != CLUSTER]
        run_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what pytest looks at
        return run_all

    return decorate


class Runs(NamedTuple):
    """One seed, under any script."""

    seed: int
    faults: str
    seconds: float
    how: How

    def under(self, script: Sequence[Fault] | None) -> ProgramRun:
        """A run that has not begun."""
        return ProgramRun(self.seed, self.faults, self.seconds, script, self.how)


def _run_and_explain(test: Program, args: tuple[Any, ...], fixtures: dict[str, Any], runs: Runs) -> None:
    async def program(cluster: SimulatedCluster) -> None:
        await test(*args, **{CLUSTER: cluster}, **fixtures)

    first = runs.under(None)
    try:
        first.go(program)
    except Exception as error:
        smallest, whole = smallest_script(error, first, program, runs)
        where = f"{test.__code__.co_filename}::{test.__qualname__}"
        error.add_note(f"seed {runs.seed}, faults {runs.faults!r}; alone: pytest {where} --sim-seed={runs.seed}")
        shown = "".join(f"\n    {fault}" for fault in smallest) or " none are needed"
        error.add_note(f"the fewest faults that make it fail, of {whole}:{shown}")
        raise


def smallest_script(
    error: Exception,
    failed: ProgramRun,
    program: Callable[[SimulatedCluster], Awaitable[T]],
    runs: Runs,
    *,
    tries: int = SHRINKING_TRIES,
) -> tuple[list[Fault], int]:
    """The fewest faults, and hosts, with which a program still fails as it did; and how many faults there were."""
    wanted = _kind_of(error)

    def fails(script: list[Fault]) -> bool:
        try:
            runs.under(script).go(program)
        except Exception as other:  # noqa: BLE001 - it is compared; another failure than the one that is looked for is none
            return _kind_of(other) == wanted
        return False

    script = sorted(failed.script, key=lambda fault: fault.at)
    return shrink(script, fails, tries=tries, hosts=[host.name for host in failed.hosts]), len(script)


def _kind_of(error: BaseException) -> tuple[str, str, int]:
    """What failed, and where: the same in two runs that fail alike."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__qualname__, frames[-1].filename if frames else "", (frames[-1].lineno or 0) if frames else 0
