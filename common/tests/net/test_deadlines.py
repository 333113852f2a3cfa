"""Deadlines, on virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from boki_common.net.deadlines import Deadlines
from boki_common.testing.virtual_time import VirtualTimeLoop, let_pass

EARLY_S = 0.002


class CountingLoop(VirtualTimeLoop):
    """Counts the timers that are set."""

    timers = 0

    def call_at(  # type: ignore[override]  # its real signature is generic in the arguments
        self, when: float, callback: Any, *args: Any, **named: Any
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, **named)


def on_virtual_time(routine: Callable[[CountingLoop], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        await routine(loop)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(main())


def add(deadlines: Deadlines, future: asyncio.Future[None], at: float) -> None:
    """What a call does."""
    deadlines.due[future] = at
    if at < deadlines.timer_at:
        deadlines.set_timer(at)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), max_size=12),
    st.lists(st.floats(0.1, 50), max_size=6),
)
def test_what_is_due_fails_in_its_time_and_nothing_else_does(
    calls: list[tuple[float, bool]], pauses: list[float]
) -> None:
    async def run(loop: CountingLoop) -> None:
        deadlines, began = Deadlines(loop), loop.time()
        unanswered: list[tuple[asyncio.Future[None], float]] = []
        for after_s, answered in calls:
            future: asyncio.Future[None] = loop.create_future()
            add(deadlines, future, began + after_s)
            if answered:
                del deadlines.due[future]
            else:
                unanswered.append((future, began + after_s))
        for pause in pauses:
            await let_pass(pause)
            for future, at in unanswered:
                if at < loop.time() - EARLY_S:
                    assert isinstance(future.exception(), TimeoutError)
                elif at > loop.time() + EARLY_S:
                    assert not future.done()
        assert list(deadlines.due) == [future for future, _ in unanswered], "whoever put it in takes it out"
        deadlines.close()
        late: asyncio.Future[None] = loop.create_future()
        add(deadlines, late, loop.time() + 1.0)
        await let_pass(200.0)
        assert not late.done(), "nothing is timed out any more"
        for future, at in unanswered:
            assert future.done() == (at < began + sum(pauses) + EARLY_S) or abs(at - began - sum(pauses)) <= EARLY_S
            assert not future.done() or future.exception()

    on_virtual_time(run)


def test_calls_with_one_time_out_share_a_timer() -> None:
    async def run(loop: CountingLoop) -> None:
        deadlines = Deadlines(loop)
        for number in range(1_000):
            future: asyncio.Future[None] = loop.create_future()
            add(deadlines, future, loop.time() + 500.0 + number)
            del deadlines.due[future]
        assert loop.timers == 1
        deadlines.close()

    on_virtual_time(run)


def test_what_has_no_time_out_never_ends() -> None:
    async def run(loop: CountingLoop) -> None:
        deadlines = Deadlines(loop)
        endless: asyncio.Future[None] = loop.create_future()
        add(deadlines, endless, math.inf)
        assert loop.timers == 0
        short: asyncio.Future[None] = loop.create_future()
        add(deadlines, short, loop.time() + 1.0)
        await let_pass(10_000.0)
        assert isinstance(short.exception(), TimeoutError) and not endless.done()

    on_virtual_time(run)
