"""Space that is kept for a full disk."""

from __future__ import annotations

from boki_bookie.space.disk_reserve import NAME, DiskReserve
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk


async def test_the_reserve_is_written_given_up_and_made_again(disk: MemoryDisk) -> None:
    reserve = DiskReserve(disk, 600 * KIB)
    assert not await reserve.spend()
    await reserve.fill()
    assert disk.contents(NAME) == bytes(600 * KIB)
    disk.capacity_bytes = 600 * KIB
    assert await disk.free_bytes() == 0
    assert await reserve.spend()
    assert await disk.free_bytes() == 600 * KIB
    assert not await reserve.spend()
    await reserve.fill()
    assert reserve.reserved_bytes == 600 * KIB


async def test_a_disk_without_space_has_no_reserve(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 300 * KIB
    reserve = DiskReserve(disk, 600 * KIB)
    await reserve.fill()
    assert reserve.reserved_bytes == 0
    assert await disk.free_bytes() == 300 * KIB
    disk.capacity_bytes = 700 * KIB
    await reserve.fill()
    assert reserve.reserved_bytes == 600 * KIB


async def test_a_reserve_that_is_there_is_used_and_one_of_another_size_made_anew(disk: MemoryDisk) -> None:
    await DiskReserve(disk, 8 * KIB).fill()
    steps = disk.steps
    await DiskReserve(disk, 8 * KIB).fill()
    assert disk.steps - steps <= 2, "nothing is written"
    await DiskReserve(disk, 4 * KIB).fill()
    assert disk.contents(NAME) == bytes(4 * KIB)


async def test_what_an_earlier_process_left_is_found_and_spent_on_a_full_disk(disk: MemoryDisk) -> None:
    await DiskReserve(disk, 8 * KIB).fill()
    disk.capacity_bytes = 8 * KIB
    later = DiskReserve(disk, 8 * KIB)
    await later.find()
    assert later.reserved_bytes == 8 * KIB
    assert await later.spend()
    assert await disk.free_bytes() == 8 * KIB


async def test_nothing_is_found_where_nothing_was_left(disk: MemoryDisk) -> None:
    reserve = DiskReserve(disk, 8 * KIB)
    await reserve.find()
    assert reserve.reserved_bytes == 0
    assert not await reserve.spend()
