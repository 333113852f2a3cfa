"""Turns of the event loop, in which everything happens that waits for nothing else; and what goes on behind."""

from __future__ import annotations

import asyncio

from boki_bookie.journal.journal_segments import segment_name
from boki_common.runtime.memory_disk import MemoryDisk


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def prepared(disk: MemoryDisk, generation: int) -> None:
    """Until the journal segment that is prepared in the background is there: else a fault of the disk may meet that instead."""
    while segment_name(generation) not in disk.all_names():
        await asyncio.sleep(0)
