"""Time-outs of many calls with one timer: a timer for each costs more than the rest of its bookkeeping.

Nearly all calls of a client have the same long time-out and are answered long before. So their deadlines lie in a dict, and
one timer is set for the earliest that was there when it was set. When it goes off, what is due fails with TimeoutError,
and the timer is set again for what is left.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

_EARLY_S: Final = 0.001
"""Loops count milliseconds: a timer may go off so much before its time."""


class Deadlines:
    """A call is a few statements and costs no call of this class, as long as a timer is set:

        deadlines.due[future] = at                     # a time of the loop; then the future fails with TimeoutError
        if at < deadlines.timer_at:
            deadlines.set_timer(at)
        ...                                            # and whoever put it in takes it out, whatever became of it:
        del deadlines.due[future]

    Invariant: while anything that is not done is due, a timer is set at or before the earliest deadline. How many wait is
    bounded by who adds them: the unanswered requests of a connection are.
    """

    __slots__ = ("_loop", "_timer", "due", "timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self.due: Final[dict[asyncio.Future[Any], float]] = {}
        self.timer_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set_timer(self, at: float) -> None:
        """Looks at what is due at a time of the loop, and not at the time that was set before."""
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at = at
        self._timer = None if math.isinf(at) else self._loop.call_at(at, self._went_off)

    def close(self) -> None:
        """Nothing is timed out any more."""
        self.set_timer(-math.inf)

    def _went_off(self) -> None:
        now = self._loop.time() + _EARLY_S
        earliest = math.inf
        for future, at in self.due.items():
            if not future.done():
                if at <= now:
                    future.set_exception(TimeoutError())
                elif at < earliest:
                    earliest = at
        self.set_timer(earliest)
