"""A leap over idle time: what it leaves where it is, what it moves, and that its work does not grow with it. See also `test_hosts`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common.errors import InvalidArgument
from boki_sim.world.idle_time import AWAKE_S, FAR_S, rest
from boki_sim.world.process import SimProcess

DAY_S = 86_400.0


def test_far_timers_of_programs_come_when_they_are_due_and_near_ones_later(simulation: Any) -> None:
    program, role = simulation.process("program"), simulation.process("role")
    loop = simulation.loop
    woke: dict[str, float] = {}
    beats = []

    async def waits(name: str, seconds: float) -> None:
        begun = loop.now
        await asyncio.sleep(seconds)
        woke[name] = loop.now - begun

    async def beats_on() -> None:
        while True:
            await asyncio.sleep(1.0)
            beats.append(loop.time())

    async def scenario() -> float:
        program.start(waits("far", DAY_S))
        program.start(waits("late", 1.5 * DAY_S))
        role.start(waits("of a role", DAY_S))
        program.start(waits("near", FAR_S / 2))
        role.start(beats_on())
        begun = loop.now
        await rest(loop, 2 * DAY_S, lambda process: process is program, lambda: [role])
        return float(loop.now - begun)

    assert simulation.run(scenario()) == pytest.approx(2 * DAY_S, abs=1)
    assert woke["far"] == pytest.approx(DAY_S, abs=0.01)
    assert woke["late"] == pytest.approx(1.5 * DAY_S, abs=0.01)
    assert woke["near"] > DAY_S / 2, "its time stood still in the first leap"
    assert "of a role" not in woke
    assert len(beats) < 10 * AWAKE_S
    assert beats[-1] - beats[0] == pytest.approx(len(beats) - 1, abs=1), "the clock of a role's loop stood still"


def test_short_pauses_are_slept_and_times_that_are_none_refused(simulation: Any) -> None:
    loop = simulation.loop
    nobody: list[SimProcess] = []

    async def scenario() -> float:
        begun = loop.now
        await rest(loop, 20.0, lambda _process: True, lambda: nobody)
        with pytest.raises(InvalidArgument, match="seconds to rest"):
            await rest(loop, -1.0, lambda _process: True, lambda: nobody)
        return float(loop.now - begun)

    assert simulation.run(scenario()) == pytest.approx(20.0, abs=0.01)


def test_who_has_died_is_not_waited_for(simulation: Any) -> None:
    program = simulation.process("program")
    loop = simulation.loop

    async def scenario() -> int:
        program.start(asyncio.sleep(DAY_S))
        await asyncio.sleep(1)
        program.kill()
        before = loop.callbacks
        await rest(loop, 3 * DAY_S, lambda process: process is program, list)
        return int(loop.callbacks - before)

    assert simulation.run(scenario()) < 20
