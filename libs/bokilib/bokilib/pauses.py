"""Pauses of libraries between attempts: short at first, each twice as long as the one before, at most `LIMIT_S`.

The SDK retries for its own time-out before it raises a retryable error, so these pauses matter for calls that fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from boki_common.backoff import Backoff
from boki_common.errors import BokiError

T = TypeVar("T")

FIRST_S: Final = 0.1
LIMIT_S: Final = 5.0


def pauses() -> Backoff:
    """Return the pauses of one series of attempts. Call `reset` after a success."""
    return Backoff(FIRST_S, LIMIT_S)


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call. Repeat the call, after pauses, while it raises a retryable error."""
    pause = pauses()
    while True:
        try:
            return await call()
        except BokiError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(pause.next())
