"""Log lines about what goes on for hours, or what anybody can cause: at most one a minute, with the count since the last one.

self._retries = LogPace(_log.warning, "not yet a term, trying again")
...
self._retries.say(error=error)      # a line, or one more for the count of the next line
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 60.0


class LogPace:
    """The lines of one event. `over` begins again: the next one is written at once."""

    def __init__(self, write: Callable[..., None], event: str, *, every_s: float = EVERY_S) -> None:
        self._write = write
        self._event = event
        self._every_s = every_s
        self._count = 0
        self._next_at = -math.inf

    def say(self, **facts: object) -> None:
        """Write a line, unless the last one is younger than `every_s`."""
        self._count += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_at:
            self._write(self._event, count=self._count, **facts)
            self._count, self._next_at = 0, now + self._every_s

    def over(self) -> None:
        """End what the lines were about."""
        self._count, self._next_at = 0, -math.inf
