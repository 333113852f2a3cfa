"""User programs on a simulated cluster: what `boki.testing.simulated` and `boki.sim.run` find by entry point.

    @boki.testing.simulated(seeds=200, faults="harsh")
    async def test_transfers(cluster):
        async with await cluster.connect() as client: ...

The program is unmodified asyncio code on the SDK; `boki.connect(cluster.url)` works too. It runs as a process of its own,
beside a real cluster that meets the faults its seed drew; after `seconds` of virtual time all faults are over, and the
program must end. Each seed is a new cluster and a new run of the test function.

A failure keeps its own traceback and gets notes: the seed, the command that runs it alone, and the smallest fault script
that still fails.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import boki
from boki_common import logs
from boki_common.errors import BokiError, Unreachable
from boki_sim import faults as fault_scripts
from boki_sim.cluster import Cluster, SimClock
from boki_sim.faults import Fault
from boki_sim.guard import guarded
from boki_sim.invariants import Invariants
from boki_sim.loop import SimLoop, uncollected
from boki_sim.nemesis import Nemesis
from boki_sim.network import Network
from boki_sim.process import SimProcess
from boki_sim.pytest_plugin import chosen
from boki_sim.randomness import stream
from boki_sim.shape import draw_shape
from boki_sim.shrink import shrink
from boki_sim.trace import Trace

T = TypeVar("T")
Program = Callable[..., Coroutine[Any, Any, Any]]

SECONDS: Final = 20.0
PATIENCE_S: Final = 300.0
"""Virtual time that a program has after the faults are over."""
SHRINKING_TRIES: Final = 40
LOOK_EVERY_S: Final = 0.2
CLUSTER: Final = "cluster"
"""Name of the parameter that gets the cluster."""


class SimulatedCluster:
    """What a simulated program gets.

    Attributes:
        url: for `boki.connect`.
        seed: of this run.
    """

    def __init__(self, run: _ProgramRun) -> None:
        self.url = run.cluster.url
        self.seed = run.seed
        self._run = run

    async def connect(self) -> boki.Client:
        """A client; goes on trying while no engine answers."""
        while True:
            try:
                return await boki.connect(self.url)
            except Unreachable:
                await asyncio.sleep(0.2)

    def process(self, name: str) -> SimProcess:
        """One more process of the program, on a machine of its own: `start` something in it, `pause` it, `kill` it.

        Faults meet the processes that exist when they happen.
        """
        return self._run.program_process(name)


class _ProgramRun:
    """One seed of one program."""

    def __init__(self, seed: int, profile: str, seconds: float, script: Sequence[Fault] | None) -> None:
        self.seed = seed
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop)
        shape = draw_shape(stream(seed, "shape"))
        network = Network(self.loop, seed, self.trace, shape.weather)
        self.invariants = Invariants(self.loop.time, lambda found: self.trace.add("check", "VIOLATION", str(found)))
        self.cluster = Cluster(self.loop, seed, shape, network, self.trace, self.invariants)
        self._processes: dict[str, tuple[SimProcess, SimClock]] = {}
        self._nemesis = Nemesis(self.cluster, self._processes, stream(seed, "nemesis"))
        self._seconds = seconds
        self.main = self.program_process("program")
        targets = replace(shape.targets(stream(seed, "targets")), clients=("program",))
        drawn = fault_scripts.draw(
            stream(seed, "faults", profile), profile, targets, seconds=seconds, carrying=shape.carrying
        )
        self.script = drawn if script is None else list(script)

    def program_process(self, name: str) -> SimProcess:
        process = self.loop.process(name, self.cluster.machine())
        self._processes[name] = (process, SimClock(self.loop))
        return process

    def go(self, program: Callable[[SimulatedCluster], Awaitable[T]]) -> T:
        """Runs it. Raises what the program raises; AssertionError: it did not end, or the cluster broke a promise."""
        quiet = logs.configured(level="error", stream=io.StringIO())
        with quiet, uncollected(), guarded(self.loop, self.seed) as guard:
            try:
                result = self.loop.run_until_complete(self._scenario(program))
            finally:
                self.loop.end()
        assert not guard.refused, f"the program reached for the machine: {guard.refused[0]}"
        assert not self.invariants.violations, f"the cluster broke a promise: {self.invariants.violations[0]}"
        return result

    async def _scenario(self, program: Callable[[SimulatedCluster], Awaitable[T]]) -> T:
        await self.cluster.start()
        await self.cluster.up()

        async def run() -> T:
            return await program(SimulatedCluster(self))

        running = self.main.start(run(), name="program")
        injecting = asyncio.ensure_future(self._faults())
        watching = asyncio.ensure_future(self._watch())
        await asyncio.wait([running], timeout=self._seconds + PATIENCE_S)
        injecting.cancel()
        watching.cancel()
        assert running.done(), f"the program did not end within {PATIENCE_S} s after all faults were over"
        return await running

    async def _faults(self) -> None:
        end = self.loop.time() + self._seconds
        await self._nemesis.run(self.script)
        await asyncio.sleep(max(0.0, end - self.loop.time()))
        self._nemesis.heal()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.cluster.look()


def run(
    program: Callable[[SimulatedCluster], Awaitable[T]],
    *,
    seed: int,
    faults: str = "harsh",
    seconds: float = SECONDS,
    script: Sequence[Fault] | None = None,
) -> T:
    """Runs one program under one seed; returns what it returns, raises what it raises.

    Args:
        program: a coroutine function that takes the cluster.
        faults: calm, network, disk, metadata or harsh.
        seconds: of virtual time in which faults happen.
        script: the faults to inject instead of those that the seed draws.
    """
    return _ProgramRun(seed, faults, seconds, script).go(program)


def simulated(
    *, seeds: int = 100, faults: str = "harsh", first_seed: int = 1, seconds: float = SECONDS
) -> Callable[[Program], Callable[..., None]]:
    """Makes a test of a coroutine function: it runs once for each seed, on a new cluster.

    The function takes `cluster` and whatever fixtures it names besides. `pytest --sim-seed N` runs one seed alone.
    """

    def decorate(test: Program) -> Callable[..., None]:
        def run_all(*args: Any, **fixtures: Any) -> None:
            only = chosen()
            for seed in range(first_seed, first_seed + seeds) if only is None else (only,):
                _run_and_explain(test, args, fixtures, seed, faults, seconds)

        functools.update_wrapper(run_all, test)
        del run_all.__dict__["__wrapped__"]
        signature = inspect.signature(test)
        if CLUSTER not in signature.parameters:
            raise TypeError(f"expected {test.__qualname__} to take `{CLUSTER}`, found {signature}")
        kept = [one for name, one in signature.parameters.items() if name != CLUSTER]
        run_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # what pytest looks at
        return run_all

    return decorate


def _run_and_explain(
    test: Program, args: tuple[Any, ...], fixtures: dict[str, Any], seed: int, faults: str, seconds: float
) -> None:
    async def program(cluster: SimulatedCluster) -> None:
        await test(*args, **{CLUSTER: cluster}, **fixtures)

    first = _ProgramRun(seed, faults, seconds, None)
    try:
        first.go(program)
    except Exception as error:
        kind = type(error)

        def fails(script: list[Fault]) -> bool:
            try:
                run(program, seed=seed, faults=faults, seconds=seconds, script=script)
            except kind:
                return True
            except (BokiError, AssertionError):
                pass  # another failure than the one that is looked for
            return False

        smallest = shrink(first.script, fails, tries=SHRINKING_TRIES)
        where = f"{test.__code__.co_filename}::{test.__qualname__}"
        error.add_note(f"seed {seed}, faults {faults!r}; alone: pytest {where} --sim-seed={seed}")
        shown = "".join(f"\n    {fault}" for fault in smallest) or " none are needed"
        error.add_note(f"the fewest faults that make it fail, of {len(first.script)}:{shown}")
        raise
