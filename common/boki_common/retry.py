"""Waiting and trying again, as coroutines do it: with growing pauses, and never for what will not get better by itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from boki_common.backoff import Backoff
from boki_common.errors import BokiError

T = TypeVar("T")


async def event_or_timeout(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Waits until the event is set, or the time is over: whether it was set. It is clear afterwards."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
    finally:
        event.clear()


async def retry(
    attempt: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    retryable: Callable[[BokiError], bool] = lambda error: error.retryable,
    on_failure: Callable[[BokiError, float], None] = lambda error, pause_s: None,
    timeout_s: float = math.inf,
) -> T:
    """Repeats an attempt until it succeeds.

    Args:
        retryable: whether an error may go away by itself; others are raised.
        on_failure: called with each error and the pause after it.
        timeout_s: what fails after this time is raised; an attempt is never cut short.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return await attempt()
        except BokiError as error:
            if not retryable(error) or loop.time() >= give_up_at:
                raise
            pause_s = backoff.next()
            on_failure(error, pause_s)
        await asyncio.sleep(pause_s)
