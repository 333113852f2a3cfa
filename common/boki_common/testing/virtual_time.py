"""An event loop whose clock jumps: when nothing is ready, it is at once the time of the next timer. Nothing waits.

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())

Time-outs of hours cost nothing, and a run depends on nothing but what it does itself: the same calls happen in the same
order at the same times. No sockets, threads or child processes: it would not wait for them. When nothing is ready and
no timer is set, nothing can ever happen again: that is `StuckError`, at once, instead of a test that hangs.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import Final

START_S: Final = 1_000.0
"""Not 0, so that a time that was never set is not taken for now."""


class StuckError(RuntimeError):
    """Every task waits for something that nobody is going to do."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._now = START_S
        super().__init__(_Selector(self))

    @property
    def _clock_resolution(self) -> float:
        """The seconds by which asyncio runs a timer early: the least that the clock can show.

        With the nanosecond of a real clock, two tasks that each wait for a time less than that ahead would wake each other without end:
        the loop never waits then, and this clock advances only where the loop waits.
        """
        return math.ulp(self._now)

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """Ignore the resolution of the machine's clock, which asyncio sets."""

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        """It is that much later."""
        self._now += seconds


class _Selector(selectors.SelectSelector):
    """Lets time pass where the loop would wait."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise StuckError("nothing is ready and no timer is set: whatever is awaited, nobody is going to do it")
        self._loop.jump(timeout)
        return ready


async def let_pass(seconds: float) -> None:
    """Everything happens that is due within that time."""
    await asyncio.sleep(seconds)
