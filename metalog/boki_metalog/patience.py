"""Waiting and trying again, as the long-lived coroutines of this package do it: for ever, with growing pauses, and never for
what will not get better by itself. Knows no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from boki_common.errors import BokiError

T = TypeVar("T")


async def woken(wake: asyncio.Event, timeout_s: float | None) -> None:
    """Waits until the event is set, or the time is over; it is clear afterwards."""
    try:
        async with asyncio.timeout(timeout_s):
            await wake.wait()
    except TimeoutError:
        return
    finally:
        wake.clear()


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    *,
    first_s: float,
    limit_s: float,
    passing: Callable[[BokiError], bool],
    waits: Callable[[BokiError, float], None],
) -> T:
    """Repeats an attempt until it succeeds.

    Args:
        first_s, limit_s: the first pause, which doubles, and the longest.
        passing: whether an error may go away by itself; others are raised.
        waits: told of each error and of the pause after it.
    """
    pause_s = first_s
    while True:
        try:
            return await attempt()
        except BokiError as error:
            if not passing(error):
                raise
            waits(error, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, limit_s)
