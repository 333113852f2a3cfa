"""The time by the clock of the log, as far as one process knows it. Pure.

Records have times of the log, which never fall. Between two records the process adds what passed by its own monotonic clock, so
delays run on where nobody writes. Only how fast this machine's clock runs matters, not what it shows.

The log's time stands still where a sequencer's clock was ahead, and is not any more. A process that writes finds out: what it sent and
what time that got says how late it can have been.
"""

from __future__ import annotations


class LogClock:
    """See the module."""

    def __init__(self) -> None:
        self._ms = 0
        self._at_s = 0.0

    def observe(self, time_ms: int, now_s: float) -> None:
        """A record was read or appended, `now_s` by this process's clock."""
        if time_ms > self.now_ms(now_s):
            self._ms, self._at_s = time_ms, now_s

    def at_most(self, time_ms: int, sent_s: float) -> None:
        """A record that this process sent at `sent_s` was ordered at `time_ms`: so it was not later when it was sent."""
        if self._at_s <= sent_s and self.now_ms(sent_s) > time_ms:
            self._ms, self._at_s = time_ms, sent_s

    def now_ms(self, now_s: float) -> int:
        """The log's time; 0 before anything was observed."""
        return self._ms + int(max(0.0, now_s - self._at_s) * 1000) if self._ms else 0

    def when_s(self, due_ms: int, now_s: float) -> float:
        """When it will be `due_ms`, by this process's clock."""
        return now_s + max(0, due_ms - self.now_ms(now_s)) / 1000
