"""Log lines about what lasts for hours, or what anybody can cause: at most one an interval, with how many were left out before it.

self._retries = LogPace(_log.warning, "not yet a term, trying again")
...
self._retries.say(error=error)      # a line now, or when the interval of the last one ends
...
self._retries.flush()               # its holder closes

Rules:
- The newest line is never lost: it is held back until the interval ends, or until `flush`, `over` or the end of `with`. A line that
  a newer one replaced is counted, in `left_out` of the newer one.
- Who makes one flushes it when it closes, since a timer of a loop that has ended writes nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

EVERY_S: Final = 60.0


class LogPace:
    """The lines of one event. Invariant: a timer of the loop is due while a line is held."""

    def __init__(self, write: Callable[..., None], event: str, *, every_s: float = EVERY_S) -> None:
        """Make the pace of an event.

        Args:
            write: writes a line, from the event and its facts.
            event: what happened.
            every_s: seconds between two lines.
        """
        self._write: Final = write
        self._event: Final = event
        self._every_s: Final = every_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._held: dict[str, object] | None = None
        self._left_out = 0
        self._next_at = -math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def say(self, **facts: object) -> None:
        """Write a line now, or in place of the one that is held, when the last one is `every_s` old."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.over()  # another loop has another clock, and a timer of one that ended would never come
            self._loop = loop
        if self._held is not None:
            self._held, self._left_out = facts, self._left_out + 1
            return
        self._held = facts
        if loop.time() >= self._next_at:
            self.flush()
        else:
            self._timer = loop.call_at(self._next_at, self.flush)

    def flush(self) -> None:
        """Write the line that is held, if there is one."""
        facts, self._held = self._held, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if facts is None or self._loop is None:
            return
        if self._left_out:
            facts["left_out"], self._left_out = self._left_out, 0
        self._next_at = self._loop.time() + self._every_s
        self._write(self._event, **facts)

    def over(self) -> None:
        """End what the lines were about: write the line that is held. The next one is written at once."""
        self.flush()
        self._next_at = -math.inf
