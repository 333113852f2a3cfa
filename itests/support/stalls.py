"""Let the clock of each event loop jump now and then, as if the machine had stood still between two steps of a test.

    BOKI_LOOP=asyncio BOKI_STALLS=1 python -m pytest libs/tests

A test that takes a real time for an upper bound ("within 10 ms this happens") passes on a quiet machine and fails on a
busy one. Here it fails at once, and each time with the same number in `BOKI_STALLS`. Nothing waits: what jumps is
`loop.time()` alone, by 2 s in all for each test. Loops of virtual time have a clock of their own and are left alone.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import Final

JUMP_S: Final = 0.1
JUMPS_MOST: Final = 20
PROBABILITY: Final = 0.1
"""Of a jump before each callback of the loop, until a test has had all of its jumps."""


class Stalls:
    """The jumps of one run of tests."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._left = 0
        self._ahead_s = 0.0

    def begin(self, test: str) -> None:
        """Give a test its jumps, which depend on its name and the seed alone."""
        self._random = random.Random(self._seed + zlib.crc32(test.encode()))
        self._left = JUMPS_MOST

    def install(self) -> None:
        """Replace the clock of event loops, and the function that runs a callback, until the process ends."""
        clock, run_callback = asyncio.BaseEventLoop.time, asyncio.Handle._run

        def time(loop: asyncio.BaseEventLoop) -> float:
            return clock(loop) + self._ahead_s

        def run(handle: asyncio.Handle) -> None:
            if self._left and self._random.random() < PROBABILITY:
                self._left -= 1
                self._ahead_s += JUMP_S
            run_callback(handle)

        asyncio.BaseEventLoop.time = time  # type: ignore[method-assign,assignment]
        asyncio.Handle._run = run  # type: ignore[method-assign,assignment]
