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
    """Invariant: while anything waits, a timer is set at or before the earliest deadline.

    How many wait is bounded by who adds them: the unanswered requests of a connection are.
    """

    __slots__ = ("_due", "_loop", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._due: dict[asyncio.Future[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self._due)

    def add(self, future: asyncio.Future[Any], at: float) -> None:
        """The future fails with TimeoutError at a time of the loop, unless it is removed before."""
        self._due[future] = at
        if at < self._timer_at:
            self._set_timer(at)

    def remove(self, future: asyncio.Future[Any]) -> None:
        """The future needs no time-out any more."""
        self._due.pop(future, None)

    def close(self) -> None:
        """Nothing is timed out any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if math.isinf(at) else self._loop.call_at(at, self._went_off)

    def _went_off(self) -> None:
        now = self._loop.time() + _EARLY_S
        over = [future for future, at in self._due.items() if at <= now]
        for future in over:
            del self._due[future]
            if not future.done():
                future.set_exception(TimeoutError())
        self._set_timer(min(self._due.values(), default=math.inf))
