"""The clock of a log, and the time that is left until a durable time. Pure.

Times come from the log, whose clock never goes back, and not from the wall clock of a host. Between two records `LogClock` adds the time
that passed by the process's monotonic clock, so delays also expire in a book without appends. Only the rate of that clock matters, not
the time that it shows. The log's time stands still after a sequencer whose clock was ahead; a process that appends notices, and sets its
`LogClock` back to the time at which its record was ordered.
"""

from __future__ import annotations


def left_ms(due_ms: int, set_ms: int, now_ms: int) -> int:
    """Return how many milliseconds are left until a time, at most as many as it was set for, wherever the log's time stands.

    Args:
        due_ms: the time.
        set_ms: when it was set; 0 if only the log's time counts, as for calendars.
        now_ms: the log's time.
    """
    return max(0, due_ms - max(set_ms, now_ms))


class LogClock:
    """The time of the log's clock, as far as one process knows it."""

    def __init__(self) -> None:
        self._ms = 0
        self._at_s = 0.0

    def observe(self, time_ms: int, now_s: float) -> None:
        """Advance the clock to the time of a record that was read at `now_s` of the monotonic clock, unless it is ahead of that already."""
        if time_ms > self.now_ms(now_s):
            self._ms, self._at_s = time_ms, now_s

    def at_most(self, time_ms: int, sent_s: float) -> None:
        """Set the clock back if it is ahead of a record that this process sent at `sent_s` and that was ordered at `time_ms`."""
        if self._at_s <= sent_s and self.now_ms(sent_s) > time_ms:
            self._ms, self._at_s = time_ms, sent_s

    def now_ms(self, now_s: float) -> int:
        """Return the log's time in milliseconds, or 0 before any record was observed."""
        return self._ms + int(max(0.0, now_s - self._at_s) * 1000) if self._ms else 0

    def when_s(self, due_ms: int, now_s: float) -> float:
        """Return when the log's time will be `due_ms`, by this process's monotonic clock."""
        return now_s + left_ms(due_ms, 0, self.now_ms(now_s)) / 1000
