"""Calls of `anext` that are cancelled after each number of turns of the loop, until one is long enough for an item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def cut_everywhere(items: AsyncIterator[T], count: int) -> list[T]:
    """Return the first items. Each is waited for by calls that are cancelled one turn later each time."""
    found: list[T] = []
    while len(found) < count:
        turns = 0
        while True:
            waiting = asyncio.ensure_future(anext(items))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not waiting.cancel() or not await _was_cut(waiting):
                found.append(waiting.result())
                break
            turns += 1
    return found


async def _was_cut(waiting: asyncio.Future[T]) -> bool:
    await asyncio.wait([waiting])
    return waiting.cancelled()
