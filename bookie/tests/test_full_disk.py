"""A bookie that starts on a full disk, once and often: it serves what it has, uses up nothing, and promises nothing that is
not on the disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.storage.crashes import end_all_tasks
from tests.turns import prepared, turns

from boki_bookie.entries.checkpoint import INDEX_FOLDER, index_name
from boki_bookie.space.disk_reserve import NAME as RESERVE
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import DiskFailed
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

OK, FENCED = V2Status.OK, V2Status.FENCED


async def until_quiet(disk: MemoryDisk) -> None:
    """Until what goes on behind, such as preparing the next segment, is over."""
    before = -1
    while disk.steps != before:
        before = disk.steps
        await turns(20)


async def killed(disk: MemoryDisk) -> MemoryDisk:
    """The directory as another process finds it, on the same machine: what was written is there, flushed or not."""
    await end_all_tasks()
    disk.stopped.set()
    later = disk.reopen()
    later._holders.clear()
    return later


def sizes(disk: MemoryDisk) -> dict[str, int]:
    return {name: disk.size_of(name) for name in disk.all_names()}


def fill(disk: MemoryDisk) -> MemoryDisk:
    """No space is left, nor any by removing what a start removes at once."""
    disk.capacity_bytes = sum(size for name, size in sizes(disk).items() if name != "journal/preparing")
    return disk


def holds(disk: MemoryDisk, data: bytes) -> bool:
    return any(data in disk.contents(name) for name in disk.all_names())


def groups(disk: MemoryDisk) -> int:
    """How many there are, or begin."""
    return sum(disk.contents(name).count(b"BKG1") for name in disk.all_names())


async def test_many_restarts_on_a_full_disk_change_nothing(world: Any, disk: MemoryDisk, storage: Any) -> None:
    bodies = [bytes([entry]) * 3_000 for entry in range(4)]
    for entry, body in enumerate(bodies):
        await world.put(storage, world.add(1, entry, body))
    await until_quiet(disk)
    before: list[dict[str, int]] = []
    for _ in range(12):
        disk = fill(await killed(disk))
        storage = await world.open(disk)
        assert storage.read_only
        for entry, body in enumerate(bodies):
            assert await world.read(storage, 1, entry) == bytes(world.body(1, entry, body))
        await until_quiet(disk)
        before.append(sizes(disk))
    assert before[2:] == before[2:3] * 10


async def test_every_restart_takes_fences_and_recovery_adds_though_no_segment_can_be_made(
    world: Any, disk: MemoryDisk
) -> None:
    """Each life writes a group: when no segment is left over, the last one is written on."""
    settings = world.tiny(journal_segment_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    await world.put(storage, world.add(1, 0, bytes(3_000)))
    await until_quiet(disk)
    for life in range(1, 4):
        disk = fill(await killed(disk))
        for name in [name for name in disk.all_names() if name.endswith(".spare")]:
            await disk.remove(name)
        fill(disk)
        storage = await world.open(disk, settings)
        assert storage.read_only
        assert await asyncio.wait_for(world.put(storage, world.add(1, life, recovery=True)), 5) == [OK]
        assert await world.fence(storage, 10 + life) is OK
    after = disk.crash(world.seeded(1))
    after.capacity_bytes = 2**40
    later = await world.open(after, settings)
    for life in range(1, 4):
        assert await world.read(later, 1, life) == bytes(world.body(1, life))
        assert await world.put(later, world.add(10 + life, 0)) == [FENCED]
    assert await world.put(later, world.add(2, 0)) == [OK]


async def test_a_torn_group_keeps_no_bookie_from_starting_on_a_full_disk(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0, bytes(3_000)))
    await until_quiet(disk)
    disk.hold("sync", under="journal/")
    torn = world.submit(storage, world.add(1, 1, b"t" * 3_000))
    await until_quiet(disk)
    assert not torn.done()
    disk.stopped.set()
    crashes = [disk.crash(world.seeded(seed)) for seed in range(40)]
    begun = [one for one in crashes if groups(one) == groups(disk)]
    survivor = next(one for one in begun if not holds(one, b"t" * 3_000))
    for _ in range(3):
        storage = await world.open(fill(survivor))
        assert storage.read_only
        assert await world.read(storage, 1, 0) == bytes(world.body(1, 0, bytes(3_000)))
        assert await world.read(storage, 1, 1) is V2Status.NO_ENTRY
        assert await world.put(storage, world.add(1, 2, recovery=True)) == [OK]
        survivor = await killed(survivor)
    later = await world.open(survivor.crash(world.seeded(1)))
    assert await world.read(later, 1, 2) == bytes(world.body(1, 2))


async def test_the_reserve_of_an_earlier_life_is_there_for_this_one(world: Any, disk: MemoryDisk) -> None:
    settings = world.tiny(disk_reserve_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    await world.put(storage, world.add(1, 0, bytes(3_000)))
    await until_quiet(disk)
    assert disk.size_of(RESERVE) == 64 * KIB
    disk = fill(await killed(disk))
    storage = await world.open(disk, settings)
    assert storage.read_only
    reserve = storage._collector._files._parts.reserve
    assert reserve.reserved_bytes == 64 * KIB
    assert await reserve.spend()
    await storage.checkpoint()


async def asked_again(world: Any, storage: Storage) -> tuple[Any, Any]:
    """A recovery that repeats what it was not answered: an add and a fence."""
    added = (await world.put(storage, world.add(1, 1, recovery=True)))[0]
    return added, await world.fence(storage, 1)


@pytest.mark.parametrize("failed", [False, True], ids=["killed before the flush", "after a flush that failed"])
async def test_a_replayed_group_is_durable_before_it_is_answered_for(
    world: Any, disk: MemoryDisk, failed: bool
) -> None:
    """What was replayed was read from the memory of the system; on a full disk no checkpoint writes it anew."""
    disk.forgets_failed = True
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    await prepared(disk, 3)
    await until_quiet(disk)
    if failed:
        disk.fail("sync")
    else:
        disk.hold("sync", under="journal/")
    adding = world.submit(storage, world.add(1, 1, recovery=True))
    storage.fence(1, world.key)
    await until_quiet(disk)
    if failed:
        assert isinstance(await storage.failed, DiskFailed)
    assert adding.done() == failed
    disk = fill(await killed(disk))
    storage = await world.open(disk)
    assert storage.read_only
    assert await asked_again(world, storage) == (OK, OK)
    for seed in range(20):
        after = disk.crash(world.seeded(seed))
        after.capacity_bytes = 2**40
        later = await world.open(after)
        assert await world.read(later, 1, 1) == bytes(world.body(1, 1))
        assert await world.put(later, world.add(1, 5)) == [FENCED]


async def test_a_journal_longer_than_the_write_cache_is_replayed_on_a_full_disk(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    for entry in range(12):
        await world.put(storage, world.add(1, entry, bytes([entry]) * 3_000))
    await until_quiet(disk)
    disk = fill(await killed(disk))
    storage = await world.open(disk, world.tiny(write_cache_bytes=8 * KIB))
    assert storage.read_only
    for entry in range(12):
        assert await world.read(storage, 1, entry) == bytes(world.body(1, entry, bytes([entry]) * 3_000))
    disk.capacity_bytes = 2**40
    await storage.checkpoint()
    await storage.checkpoint()
    for entry in range(12):
        assert await world.read(storage, 1, entry) == bytes(world.body(1, entry, bytes([entry]) * 3_000))


async def test_index_files_that_the_mark_does_not_name_go_after_the_first_own_mark(
    world: Any, disk: MemoryDisk, storage: Any
) -> None:
    """Until then a power cut may bring back the mark before, which names one of them."""
    await world.put(storage, world.add(1, 0))
    await storage.close()
    disk = await killed(disk)
    disk.put(index_name(41), b"of a mark that is not durable yet")
    storage = await world.open(fill(disk))
    assert storage.read_only
    assert len(await disk.names(INDEX_FOLDER)) == 2
    disk.capacity_bytes = 2**40
    await storage.checkpoint()
    assert len(await disk.names(INDEX_FOLDER)) == 1
