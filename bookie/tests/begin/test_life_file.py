"""The file LIFE: written in place, read with the last checkpoint beside it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.turns import turns

from boki_bookie.begin.life_file import LIFE_NAME, format_life, read_life, write_slot
from boki_bookie.begin.life_rules import Slot, StoredLife
from boki_common.runtime.memory_disk import MemoryDisk

ONE, TWO = Slot(1, "01" * 16), Slot(2, "02" * 16)


async def test_a_directory_without_one_has_no_life(world: Any, disk: MemoryDisk) -> None:
    assert await read_life(disk, world.raw_id) == StoredLife()
    await world.format(disk)
    assert await read_life(disk, world.raw_id) == StoredLife(checkpoint=0)
    await format_life(disk)
    assert await read_life(disk, world.raw_id) == StoredLife(checkpoint=0)


async def test_slots_are_written_without_space_and_a_torn_one_leaves_the_other(world: Any, disk: MemoryDisk) -> None:
    await format_life(disk)
    disk.capacity_bytes = 0
    await write_slot(disk, 1, ONE, world.raw_id)
    disk.hold("sync")
    writing = asyncio.ensure_future(write_slot(disk, 0, TWO, world.raw_id))
    await turns(20)
    writing.cancel()
    found = {(await read_life(disk.crash(world.seeded(seed)), world.raw_id)).slots for seed in range(20)}
    assert found == {(None, ONE), (TWO, ONE)}
    assert len(disk.contents(LIFE_NAME)) == 8_192
