"""Simulations for tests: a loop, and two machines that can talk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from boki_ledger.recover.fencing_reads import FencingReads
from boki_sim.clusters import shape
from boki_sim.clusters.shape import Shape
from boki_sim.faults.faults import Fault
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed
from boki_sim.work import call_mix
from boki_sim.work.call_mix import CallMix
from boki_sim.world.ending import uncollected
from boki_sim.world.loop import SimLoop
from boki_sim.world.network import Network, Weather
from boki_sim.world.process import SimProcess
from boki_sim.world.trace import Trace


class Simulation:
    """A loop, its network, and processes by name, each on a machine of its own."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop, keep=True)
        self.network = Network(self.loop, seed, self.trace, weather)
        self._hosts = 0

    def process(self, name: str) -> SimProcess:
        self._hosts += 1
        return self.loop.process(name, f"10.0.0.{self._hosts}")

    def run(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(scenario)


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with uncollected():
        made = Simulation()
        yield made
        made.loop.end()


@pytest.fixture
def make_simulation() -> Iterator[Any]:
    made: list[Simulation] = []

    def make(seed: int, weather: Weather | None = None) -> Simulation:
        made.append(Simulation(seed, weather))
        return made[-1]

    with uncollected():
        yield make
        for one in made:
            one.loop.end()


class Call(NamedTuple):
    """A call that ended: with its positional arguments, `self` first, and what it returned."""

    arguments: tuple[Any, ...]
    answer: Any


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Call]]:
    """All calls of a function from now on that raise nothing."""

    def noted(owner: Any, name: str) -> list[Call]:
        calls: list[Call] = []
        before = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            answer = before(*arguments, **options)
            if inspect.iscoroutine(answer):
                return awaited(answer, arguments)
            calls.append(Call(arguments, answer))
            return answer

        async def awaited(answer: Coroutine[Any, Any, Any], arguments: tuple[Any, ...]) -> Any:
            found = await answer
            calls.append(Call(arguments, found))
            return found

        monkeypatch.setattr(owner, name, call)
        return calls

    return noted


class Planted:
    """Whole clusters whose clients and shape a test chooses, to look for what it has planted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def clients(self, weights: dict[str, float], **facts: Any) -> None:
        """Clients do these activities only, so often; `facts`: of their mix."""
        before = call_mix.draw_call_mix

        def draw_call_mix(numbers: Any, *, crowded: bool) -> CallMix:
            return replace(before(numbers), weights=weights, **facts)

        self._monkeypatch.setattr("boki_sim.run.draw_call_mix", draw_call_mix)

    def shape(self, change: Callable[[Shape], Shape]) -> None:
        """Clusters are changed so, after they were drawn."""
        before = shape.draw_shape
        self._monkeypatch.setattr("boki_sim.run.draw_shape", lambda numbers: change(before(numbers)))

    def unfenced(self, first: int) -> None:
        """BookKeeper's #2614: what recovery reads does not fence; entries from that number on, of which -1 is the last."""
        before = FencingReads.__init__

        class Unfencing:
            """Bookies, asked without a word of fencing."""

            def __init__(self, transport: Any) -> None:
                self._transport = transport

            def __getattr__(self, name: str) -> Any:
                return getattr(self._transport, name)

            def read(self, bookie: Any, ledger_id: int, entry_id: int, **options: Any) -> Any:
                unfenced = {"fence_key": None} if entry_id >= first else {}
                return self._transport.read(bookie, ledger_id, entry_id, **{**options, **unfenced})

        def begin(self: FencingReads, *arguments: Any, **options: Any) -> None:
            before(self, *arguments, **options)
            self._ports = self._ports._replace(transport=Unfencing(self._ports.transport))

        self._monkeypatch.setattr(FencingReads, "__init__", begin)

    @staticmethod
    def found(
        wanted: str,
        *,
        seeds: Sequence[int] = range(1, 20),
        faults: Sequence[Fault] | Callable[[int], list[Fault]] = (),
        work_s: float = 2,
    ) -> Outcome:
        """The first seed whose violations have what is wanted. `faults`: of all seeds, or by the seed."""
        for seed in seeds:
            outcome = run_seed(seed, "calm", script=faults(seed) if callable(faults) else list(faults), work_s=work_s)
            if any(wanted in text for text in outcome.violations):
                return outcome
        raise AssertionError(f"no seed of {seeds} found {wanted!r}")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    return Planted(monkeypatch)
