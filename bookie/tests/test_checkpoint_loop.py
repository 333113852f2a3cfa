"""When checkpoints run, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_common.bookkeeper.status import V2Status
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_acks_are_held_and_adds_refused_by_a_filling_cache(world: Any, disk: MemoryDisk) -> None:
    settings = world.tiny(write_cache_bytes=8 * KIB, journal_segment_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    await world.put(storage, world.add(1, 0, bytes(700)))
    disk.hold("replace")
    answered = [world.submit(storage, world.add(1, entry, bytes(700))) for entry in range(1, 12)]
    await turns(100)
    states = [future.result() if future.done() else None for future in answered]
    assert states[0] is OK or states[0] is None
    assert None in states, "acknowledgements are held above three quarters"
    assert states[-1] is V2Status.TOO_MANY_REQUESTS
    disk.release("replace")
    for future in answered:
        assert await future in (OK, V2Status.TOO_MANY_REQUESTS)
    await storage.checkpoint()
    assert await world.put(storage, world.add(1, 50, bytes(700))) == [OK]


async def test_many_segments_ask_for_a_checkpoint(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk, world.tiny(journal_live_segments=2))
    for entry in range(10):
        await world.put(storage, world.add(1, entry, bytes(6_000)))
    await turns(200)
    assert len(storage.journal.live) <= 4


async def test_checkpoints_at_the_same_time_run_one_after_the_other(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    for entry in range(8):
        await world.put(storage, world.add(1, entry, bytes(6_000)))
    await asyncio.gather(*(storage.checkpoint() for _ in range(4)))
    assert len(storage.journal.live) == 1
    assert await world.put(storage, world.add(1, 8)) == [OK]
