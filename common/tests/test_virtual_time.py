"""The clock of tests goes on wherever something waits, however short the wait is."""

from __future__ import annotations

import asyncio
from functools import partial

from boki_common.testing.virtual_time import START_S, VirtualTimeLoop, let_pass

TURNS = 1_000


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def test_a_timer_of_less_than_a_nanosecond_lets_the_clock_go_on() -> None:
    """Of two tasks always one is about to run: with the resolution of a real clock, this clock would stand still."""
    due_s = START_S + 4e-10

    async def looks_again(later: int) -> int:
        loop = asyncio.get_running_loop()
        for _ in range(later):
            await asyncio.sleep(0)
        turns = 0
        while loop.time() < due_s:
            turns += 1
            assert turns < TURNS, "the clock stands still"
            woken = loop.create_future()
            loop.call_at(due_s, partial(_wake, woken))
            await woken
        return turns

    async def main() -> int:
        return max(await asyncio.gather(looks_again(0), looks_again(1)))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) < TURNS


def test_a_timer_fires_at_its_time_and_not_before() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        for number in range(1, 50):
            due_s = START_S + number / 7 + number * 1e-10
            loop.call_at(due_s, lambda due_s: fired.append(loop.time() - due_s), due_s)
        await let_pass(10)
        return fired

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        early = runner.run(main())
    assert len(early) == 49 and all(0 <= one < 1e-9 for one in early), early
