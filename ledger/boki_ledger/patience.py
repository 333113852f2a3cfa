"""How long an answer is waited for before its asker does something else: one timer for all who have the same patience.

    enough = patience.begin(answer)
    try:
        await enough                 # until the answer is there, or the time is over: `answer.done()` tells
    finally:
        patience.end(enough)

A timer for each of fifty thousand reads a second costs more than what most of them wait for; nearly none ever rings. The
answer stays as it is: its asker may go on waiting for it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any


def _wake(enough: asyncio.Future[None], _: object = None) -> None:
    if not enough.done():
        enough.set_result(None)


class Patience:
    """Invariant: whoever began first is first in `_ends`, and the timer, if there is one, rings no later than his time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._ends: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, answer: asyncio.Future[Any]) -> asyncio.Future[None]:
        """Ends with the answer, or after the time; `end` must follow."""
        enough: asyncio.Future[None] = self._loop.create_future()
        answer.add_done_callback(partial(_wake, enough))
        self._ends[enough] = over = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(over, self._ring)
        return enough

    def end(self, enough: asyncio.Future[None]) -> None:
        """Nobody waits any more."""
        del self._ends[enough]

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        for enough, over in self._ends.items():
            if over > now:
                self._timer = self._loop.call_at(over, self._ring)
                return
            _wake(enough)
