"""Several directories as one store: where a ledger lies, when an acknowledgement leaves, what one bad directory does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import prepared, turns

from boki_bookie.storage.storage_router import StorageRouter, directory_of
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import DiskFailed, StorageError
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK
LEDGERS = range(1, 13)


@pytest.fixture
def disks() -> list[MemoryDisk]:
    return [MemoryDisk(f"/data/{number}") for number in range(3)]


async def opened(world: Any, disks: list[MemoryDisk]) -> StorageRouter:
    return StorageRouter([await world.open(disk) for disk in disks])


@pytest.fixture
async def router(world: Any, disks: list[MemoryDisk]) -> StorageRouter:
    return await opened(world, disks)


def ledger_of(directory: int, *, count: int = 3) -> int:
    return next(ledger_id for ledger_id in LEDGERS if directory_of(ledger_id, count) == directory)


def test_where_a_ledger_lies_never_changes() -> None:
    """These are on disks: a change of the rule would lose every ledger."""
    assert [directory_of(ledger_id, 3) for ledger_id in (0, 1, 2, 3, 2**31, 2**62)] == [1, 1, 0, 2, 2, 0]
    counts = [0, 0, 0, 0]
    for ledger_id in range(4_000):
        counts[directory_of(ledger_id, 4)] += 1
    assert all(900 < count < 1_100 for count in counts), counts


async def test_every_ledger_is_found_where_it_was_put_also_after_a_restart(world: Any, disks: list[MemoryDisk]) -> None:
    router = await opened(world, disks)
    for ledger_id in LEDGERS:
        assert await world.put(router, *(world.add(ledger_id, entry) for entry in range(3))) == [OK] * 3
    await world.fence(router.of(3), 3)
    assert sorted(router.ledger_ids) == list(LEDGERS)
    assert [storage.ledger_count for storage in router.storages] == [
        sum(directory_of(ledger_id, 3) == number for ledger_id in LEDGERS) for number in range(3)
    ]
    await world.checkpoint(router)
    router = await opened(world, [disk.crash(world.seeded(1)) for disk in disks])
    for ledger_id in LEDGERS:
        assert await world.read(router, ledger_id, 1) == bytes(world.body(ledger_id, 1))
        assert await world.read(router, ledger_id, 3) is V2Status.NO_ENTRY
        assert router.of(ledger_id).entry_ids(ledger_id) == [0, 1, 2]
    assert router.of(3).is_fenced(3)
    assert not router.of(4).is_fenced(4)
    assert await world.read(router, 99, 0) is V2Status.NO_LEDGER
    assert router.ledger_count == len(LEDGERS)
    others = LEDGERS[3:]
    assert await world.put(router, *(world.add(ledger_id, 3) for ledger_id in others)) == [OK] * len(others)
    wanted = [(ledger_id, entry_id) for ledger_id in others for entry_id in (3, 4)]
    found = [body and bytes(body) for body in router.bodies_at_hand(wanted, 1 << 20)]
    assert found == [bytes(world.body(ledger_id, 3)) if entry_id == 3 else None for ledger_id, entry_id in wanted]
    assert len(router.bodies_at_hand(wanted, 1)) == 1


async def test_reads_of_many_directories_come_back_in_order(world: Any, router: StorageRouter) -> None:
    await world.put(router, *(world.add(ledger_id, 0) for ledger_id in LEDGERS))
    await world.checkpoint(router)
    wanted = [(ledger_id, router.of(ledger_id).look_up(ledger_id, 0).place) for ledger_id in reversed(LEDGERS)]
    bodies = await router.load([(ledger_id, place) for ledger_id, place in wanted if place is not None])
    assert bodies == [world.body(ledger_id, 0) for ledger_id in reversed(LEDGERS)]


async def test_an_acknowledgement_waits_for_every_directory_that_has_part_of_its_batch(
    world: Any, disks: list[MemoryDisk], router: StorageRouter
) -> None:
    disks[1].hold("sync")
    slow, fast = ledger_of(1), ledger_of(0)
    called: list[object] = []
    for ledger_id in (fast, slow):
        assert router.of(ledger_id).note_validated(ledger_id, world.key) is OK
        assert router.of(ledger_id).add(world.add(ledger_id, 0), None) is OK  # type: ignore[arg-type]
    router.when_durable(called.append)
    assert router.of(slow).fence(slow, world.key) is OK
    router.journal.when_durable(called.append)
    await turns()
    assert called == []
    disks[1].release("sync")
    await turns()
    assert called == [None, None]


async def test_a_directory_with_nothing_under_way_makes_nobody_wait(world: Any, disks: list[MemoryDisk]) -> None:
    router = await opened(world, disks)
    disks[1].hold("sync")
    assert await world.put(router, world.add(ledger_of(0), 0)) == [OK]
    disks[1].release("sync")


async def test_a_full_directory_makes_its_own_ledgers_read_only(world: Any, router: StorageRouter) -> None:
    await world.put(router, *(world.add(ledger_of(number), 0) for number in range(3)))
    router.storages[1].set_read_only(True)
    assert router.read_only
    answers = await world.put(router, *(world.add(ledger_of(number), 1) for number in range(3)))
    assert answers == [OK, V2Status.READ_ONLY, OK]
    assert await world.put(router, world.add(ledger_of(1), 1, recovery=True)) == [OK]
    router.storages[1].set_read_only(False)
    assert not router.read_only


async def test_a_directory_without_space_for_a_checkpoint_is_read_only_and_says_so(
    world: Any, disks: list[MemoryDisk]
) -> None:
    woken = asyncio.Event()
    router = StorageRouter([await world.open(disk, disk_full=woken) for disk in disks])
    await world.put(router, *(world.add(ledger_of(number), 0) for number in range(3)))
    disks[2].capacity_bytes = 0
    router.storages[2].request_checkpoint()
    await asyncio.wait_for(woken.wait(), 5)
    assert [storage.read_only for storage in router.storages] == [False, False, True]


async def test_one_failed_directory_fails_the_whole_and_acknowledges_nothing(
    world: Any, disks: list[MemoryDisk], router: StorageRouter
) -> None:
    await world.put(router, *(world.add(ledger_of(number), 0) for number in range(3)))
    await prepared(disks[1], 3)
    disks[1].fail("sync")
    answers = await world.put(router, world.add(ledger_of(0), 1), world.add(ledger_of(1), 1))
    assert V2Status.IO_ERROR in answers
    assert isinstance(await router.failed, DiskFailed)
    assert isinstance(await router.failed, StorageError)
    called: list[Any] = []
    router.when_durable(called.append)
    assert len(called) == 1
    assert isinstance(called[0], DiskFailed)
