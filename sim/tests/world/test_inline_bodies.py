"""Blocking functions inside a simulation: run whole, some time later, returned later still; threads for nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.runtime.bodies import ThreadBodies
from boki_common.testing import bodies_contract
from boki_common.testing.bodies_contract import Check
from boki_sim.world.errors import Refused


def fails() -> int:
    raise KeyError("what the body raised")


@pytest.mark.parametrize("check", bodies_contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Check, simulation: Any) -> None:
    simulation.run(check(ThreadBodies()))


def test_a_body_takes_some_time(simulation: Any) -> None:
    async def scenario() -> float:
        begun = simulation.loop.now
        await ThreadBodies().run(lambda: 7)
        return float(simulation.loop.now - begun)

    assert simulation.run(scenario()) > 0


def test_an_abandoned_one_runs_and_its_result_is_dropped(simulation: Any) -> None:
    done: list[str] = []

    async def scenario() -> None:
        running = asyncio.ensure_future(ThreadBodies().run(lambda: done.append("ran")))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not done
        await asyncio.sleep(1)

    simulation.run(scenario())
    assert done == ["ran"]


def test_a_kill_comes_before_it_or_between_it_and_its_answer(make_simulation: Any) -> None:
    """Under some seed each."""
    seen = set()
    for seed in range(40):
        simulation = make_simulation(seed)
        process = simulation.process("program")
        log: list[str] = []

        async def program(log: list[str] = log) -> None:
            await ThreadBodies().run(lambda: log.append("done"))
            log.append("returned")

        async def scenario(process: Any = process, program: Any = program) -> None:
            process.start(program())
            await asyncio.sleep(0.003)
            process.kill()
            await asyncio.sleep(1)

        simulation.run(scenario())
        seen.add(tuple(log))
    assert seen == {(), ("done",), ("done", "returned")}


def test_an_executor_is_refused_to_everybody_else(simulation: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(Refused, match="run_in_executor"):
            await asyncio.get_running_loop().run_in_executor(None, fails)

    simulation.run(scenario())
