"""Virtual time for tests of workflows: a sleep of a day takes no time, and wall clocks are the loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from boki_common.testing.virtual_time import VirtualTimeLoop

P = ParamSpec("P")
R = TypeVar("R")

BEGIN_MS: Final = 1_700_000_000_000
"""The time of wall clocks when a loop begins to count."""


class LoopClock:
    """A wall clock that goes as the event loop does, in virtual time and in real time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return BEGIN_MS + round(asyncio.get_running_loop().time() * 1_000)

    def elapsed_s(self) -> float:
        """Seconds since some moment."""
        return asyncio.get_running_loop().time()


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Makes a test of a coroutine function: it runs on a loop whose clock jumps to the next timer when nothing is ready.

    No sockets, threads or processes: `MemoryCluster` is all that is needed.
    """

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> R:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(test(*args, **options))

    return run
