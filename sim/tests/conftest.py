"""Simulations for tests: a loop, and two machines that can talk."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from boki_sim.loop import SimLoop
from boki_sim.network import Network, Weather
from boki_sim.process import SimProcess
from boki_sim.trace import Trace


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
    made = Simulation()
    yield made
    made.loop.end()


@pytest.fixture
def make_simulation() -> Iterator[Any]:
    made: list[Simulation] = []

    def make(seed: int, weather: Weather | None = None) -> Simulation:
        made.append(Simulation(seed, weather))
        return made[-1]

    yield make
    for one in made:
        one.loop.end()
