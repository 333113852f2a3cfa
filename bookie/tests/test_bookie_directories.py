"""A bookie on several directories: started, restarted, one of them full, one damaged, one gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from boki_bookie.bookie import Bookie
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.storage.limbo import LIMBO_NAME
from boki_bookie.storage.storage_router import StorageRouter, directory_of
from boki_common.bookkeeper.layout import available_bookies
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, WrongDirectory
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK
LEDGERS = range(1, 9)
Start = Callable[..., Awaitable[Bookie]]


@pytest.fixture
def disks() -> list[MemoryDisk]:
    return [MemoryDisk(f"/data/{number}") for number in range(3)]


async def fill(world: Any, bookie: Bookie) -> None:
    for ledger_id in LEDGERS:
        await world.ledger(ledger_id, bookie.bookie_id)
        assert await world.put(bookie.storage, world.add(ledger_id, 0), world.add(ledger_id, 1)) == [OK, OK]


async def test_entries_are_back_after_a_restart(world: Any, start: Start, disks: list[MemoryDisk]) -> None:
    bookie = await start(*disks)
    assert isinstance(bookie.storage, StorageRouter)
    await fill(world, bookie)
    await bookie.close()
    again = await start(*[disk.reopen() for disk in disks])
    assert again.bookie_id == bookie.bookie_id
    for ledger_id in LEDGERS:
        assert await world.read(again.storage, ledger_id, 1) == bytes(world.body(ledger_id, 1))
    await again.close()
    with pytest.raises(WrongDirectory, match="expected 3 directories"):
        await start(*[disk.reopen() for disk in disks[:2]])


async def test_one_full_directory_makes_a_bookie_read_only_and_keeps_the_others_going(
    world: Any, start: Start, disks: list[MemoryDisk]
) -> None:
    bookie = await start(*disks, read_only_below_bytes=1_000, writable_above_bytes=1_000, disk_check_interval_s=0.01)
    await fill(world, bookie)
    disks[1].capacity_bytes = 0
    while bookie.bookie_id not in await available_bookies(world.store, read_only=True):
        await asyncio.sleep(0)
    for ledger_id in LEDGERS:
        expected = V2Status.READ_ONLY if directory_of(ledger_id, 3) == 1 else OK
        assert await world.put(bookie.storage, world.add(ledger_id, 2)) == [expected], ledger_id
        assert await world.read(bookie.storage, ledger_id, 1) == bytes(world.body(ledger_id, 1))
    disks[1].capacity_bytes = 2**60


async def test_a_damaged_directory_puts_its_own_ledgers_in_limbo(
    world: Any, start: Start, disks: list[MemoryDisk]
) -> None:
    bookie = await start(*disks)
    await fill(world, bookie)
    crashed = [disk.crash(world.seeded(1)) for disk in disks]
    await bookie.close()
    await crashed[1].remove(MARK_NAME)
    with pytest.raises(CorruptData, match="/data/1/CHECKPOINT"):
        await start(*crashed)
    salvaged = await start(*[disk.reopen() for disk in crashed], salvage=True)
    assert [LIMBO_NAME in disk.all_names() for disk in crashed] == [False, True, False]
    for ledger_id in LEDGERS:
        hit = directory_of(ledger_id, 3) == 1
        assert await world.read(salvaged.storage, ledger_id, 1) == bytes(world.body(ledger_id, 1))
        expected = V2Status.UNKNOWN_LEDGER_STATE if hit else V2Status.NO_ENTRY
        assert await world.read(salvaged.storage, ledger_id, 2) is expected
        assert await world.put(salvaged.storage, world.add(ledger_id, 2)) == [V2Status.FENCED if hit else OK]


async def test_space_of_a_file_system_that_two_directories_lie_on_counts_once(
    world: Any, start: Start, disks: list[MemoryDisk]
) -> None:
    for disk, size in zip(disks, (300_000, 300_000, 500_000), strict=True):
        disk.capacity_bytes = size
    disks[1].device_name = disks[0].device_name
    bookie = await start(*disks)
    first, second, third = [await disk.free_bytes() for disk in disks]
    assert await bookie.free_bytes() in (first + third, second + third)
