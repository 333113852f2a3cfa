"""Turns of the event loop, in which everything happens that waits for nothing else."""

from __future__ import annotations

import asyncio


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
