"""Timers of one workflow.

A timer waits once for the time that is left, by the monotonic clock of the event loop. That time is computed from the later of
the log's time and the workflow's own, so a timer is as long as it was set for, wherever the log's time stands. Only calendars (schedules)
wait for the log's time, and compute it again when their timer is due: otherwise a clock that was ahead once would make them early always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from bokiflow.execute.inbox import TimerDue
from bokiflow.runtime.commands import SetTimer
from bokilib.append.log_clock import left_ms


class Times(Protocol):
    """The clock of the log: `bokilib.append.log.Log`."""

    def now_ms(self) -> int: ...


class DurableTimers:
    """The timers that a workflow has set. Belongs to one event loop."""

    def __init__(self, log: Times, on_due: Callable[[TimerDue], None], *, by_calendar: bool) -> None:
        """Begin with no timers.

        Args:
            log: the clock of the log.
            on_due: called when a timer is due; `fires` then decides whether it fires.
            by_calendar: only the log's time counts, and not that of the workflow.
        """
        self._log: Final = log
        self._on_due: Final = on_due
        self._by_calendar: Final = by_calendar
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def _left_ms(self, command: SetTimer, own_ms: int) -> int:
        return left_ms(command.due_ms, 0 if self._by_calendar else own_ms, self._log.now_ms())

    def set(self, command: SetTimer, own_ms: int) -> None:
        """Set a timer. `own_ms` is the time of the workflow."""
        left_s = self._left_ms(command, own_ms) / 1_000
        self._waiting[command.key] = self._loop.call_later(left_s, self._on_due, TimerDue(command))

    def unset(self, key: str) -> bool:
        """Cancel a timer; return False if it was not set."""
        timer = self._waiting.pop(key, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def fires(self, command: SetTimer, own_ms: int) -> bool:
        """Return True, once, if a timer that was reported due fires now: not if it was cancelled, or has to wait again."""
        if not self.unset(command.key):
            return False
        if self._by_calendar and self._left_ms(command, own_ms):
            self.set(command, own_ms)
            return False
        return True

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
