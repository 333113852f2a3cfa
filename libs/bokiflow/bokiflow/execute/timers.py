"""Timers of one workflow: when each is due, as time goes by in the log and on this machine.

A timer waits once for what is left of it, by the loop's clock, which nobody sets. What is left is reckoned from the later of the log's
time and the workflow's own, so a timer is as long as it was set for, wherever the log's time stands. Only calendars (schedules) wait for
the log's time, and look again when their timer fires: what they are ahead would stay for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from bokiflow.runtime.commands import SetTimer


class TimerDue(NamedTuple):
    """A timer is due."""

    ask: SetTimer


class Times(Protocol):
    """Who knows what time it is by the clock of the log: `bokilib.append.log.Log`."""

    def now_ms(self) -> int: ...


def left_ms(due_ms: int, own_ms: int, log_ms: int, *, by_calendar: bool) -> int:
    """How long a timer has to wait yet. `own_ms`: what time it is for the workflow."""
    return max(0, due_ms - (log_ms if by_calendar else max(own_ms, log_ms)))


class DurableTimers:
    """See the module. Belongs to one event loop."""

    def __init__(self, log: Times, on_due: Callable[[TimerDue], None], *, by_calendar: bool) -> None:
        """`on_due`: called when one is due; `fires` checks whether it is."""
        self._log: Final = log
        self._on_due: Final = on_due
        self._by_calendar: Final = by_calendar
        self._outer: Final = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def _left_ms(self, ask: SetTimer, own_ms: int) -> int:
        return left_ms(ask.due_ms, own_ms, self._log.now_ms(), by_calendar=self._by_calendar)

    def set(self, ask: SetTimer, own_ms: int) -> None:
        """`on_due` shall be called when a timer is due. `own_ms`: what time it is for the workflow."""
        self._waiting[ask.key] = self._outer.call_later(self._left_ms(ask, own_ms) / 1_000, self._on_due, TimerDue(ask))

    def unset(self, key: str) -> bool:
        """It shall not; whether it was set."""
        timer = self._waiting.pop(key, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def fires(self, ask: SetTimer, own_ms: int) -> bool:
        """Whether a timer that was reported due is, and was not unset meanwhile; it fires once. A calendar's may wait on."""
        if not self.unset(ask.key):
            return False
        if self._by_calendar and self._left_ms(ask, own_ms):
            self.set(ask, own_ms)
            return False
        return True

    def stop(self) -> None:
        """Nothing is due any more."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
