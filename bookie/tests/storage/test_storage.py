"""A storage in one piece: adds, fences, reads, restarts, damage, a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.turns import prepared, turns

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, DiskFailed
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK


async def test_entries_are_read_from_memory_from_the_entry_log_and_after_a_restart(
    world: Any, disk: MemoryDisk, storage: Any
) -> None:
    assert await world.put(storage, *(world.add(1, entry, b"%d" % entry) for entry in range(5))) == [OK] * 5
    expected = [bytes(world.body(1, entry, b"%d" % entry)) for entry in range(5)]
    assert [await world.read(storage, 1, entry) for entry in range(5)] == expected
    await storage.checkpoint()
    assert storage.look_up(1, 3).place is not None
    assert [await world.read(storage, 1, entry) for entry in range(5)] == expected
    assert await world.read(storage, 1, -1) == expected[4]
    assert await world.read(storage, 1, 5) is V2Status.NO_ENTRY
    assert await world.read(storage, 2, 0) is V2Status.NO_LEDGER
    assert await world.read(storage, 1, -2) is V2Status.BAD_REQUEST
    await world.put(storage, world.add(1, 5, b"5"))
    later = await world.open(disk.crash(world.seeded(3)))
    assert [await world.read(later, 1, entry) for entry in range(5)] == expected
    assert await world.read(later, 1, -1) == bytes(world.body(1, 5, b"5"))


async def test_an_entry_is_read_before_it_is_durable_and_acknowledged_after(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    disk.hold("sync")
    answered = world.submit(storage, world.add(1, 1))
    await turns()
    assert await world.read(storage, 1, 1) == bytes(world.body(1, 1))
    assert not answered.done()
    disk.release("sync")
    assert await answered is OK


async def test_entries_may_come_in_any_order(world: Any, storage: Any) -> None:
    for entries in ([5, 3], [4, 9], [0, 1]):
        await world.put(storage, *(world.add(1, entry, recovery=True) for entry in entries))
        await storage.checkpoint()
    assert [await world.read(storage, 1, entry) == bytes(world.body(1, entry)) for entry in range(11)] == [
        entry in (0, 1, 3, 4, 5, 9) for entry in range(11)
    ]
    assert await world.read(storage, 1, -1) == bytes(world.body(1, 9))


async def test_a_fence_refuses_adds_at_once_and_for_ever(world: Any, disk: MemoryDisk, storage: Any) -> None:
    await world.put(storage, world.add(1, 0))
    assert await world.fence(storage, 1) is OK
    assert await world.put(storage, world.add(1, 1)) == [V2Status.FENCED]
    assert await world.put(storage, world.add(1, 1, recovery=True)) == [OK]
    assert await world.fence(storage, 1, world.other_key) is V2Status.UNAUTHORIZED
    later = await world.open(disk.crash(world.seeded(1)))
    assert await world.put(later, world.add(1, 2)) == [V2Status.FENCED]
    await later.checkpoint()
    assert await world.put(later, world.add(1, 2)) == [V2Status.FENCED]


async def test_fencing_an_unknown_ledger_makes_it_and_is_certain_that_it_is_empty(world: Any, storage: Any) -> None:
    assert await world.fence(storage, 9) is OK
    assert storage.look_up(9, -1).status is V2Status.NO_ENTRY
    assert await world.put(storage, world.add(9, 0)) == [V2Status.FENCED]
    assert world.looks == []


async def test_a_wrong_key_neither_adds_nor_fences(world: Any, storage: Any) -> None:
    await world.put(storage, world.add(1, 0))
    assert await world.put(storage, world.add(1, 1, key=world.other_key)) == [V2Status.UNAUTHORIZED]
    assert await world.fence(storage, 1, world.other_key) is V2Status.UNAUTHORIZED
    assert await world.put(storage, world.add(1, 1)) == [OK]


async def test_a_fence_with_no_entry_survives_checkpoints_and_recycled_journals(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.fence(storage, 9)
    for _ in range(3):
        await storage.checkpoint()
    later = await world.open(disk.crash(world.seeded(1)))
    assert await world.put(later, world.add(9, 0)) == [V2Status.FENCED]


async def test_a_fence_of_what_no_ledger_can_be_called_is_refused_and_makes_none(world: Any, storage: Any) -> None:
    """Garbage collection asks the metadata about every ledger here, by paths that no negative number has."""
    assert [await world.fence(storage, ledger_id) for ledger_id in (-1, -(2**63))] == [V2Status.BAD_REQUEST] * 2
    assert await world.fence(storage, 2**63 - 1) is V2Status.OK
    assert storage.ledger_count == 1


async def test_a_failed_journal_fails_the_storage_and_is_answered_as_unknown(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    await prepared(disk, 3)
    disk.fail("sync")
    answered = world.submit(storage, world.add(1, 1))
    assert isinstance(await storage.failed, DiskFailed)
    assert await answered is V2Status.IO_ERROR
    assert await world.put(storage, world.add(1, 2)) == [V2Status.IO_ERROR]
    assert storage.fence(2, world.key) is V2Status.IO_ERROR


async def test_a_damaged_stored_entry_is_unknown_and_never_absent(world: Any, disk: MemoryDisk, storage: Any) -> None:
    await world.put(storage, world.add(1, 0, b"a" * 100), world.add(1, 1, b"b" * 100))
    await storage.checkpoint()
    world.damage(disk, b"b" * 100)
    assert await world.read(storage, 1, 0) == bytes(world.body(1, 0, b"a" * 100))
    assert isinstance(await world.read(storage, 1, 1), CorruptData)
    assert await world.put(storage, world.add(1, 1, b"b" * 100)) == [V2Status.IO_ERROR]


class TestFullDisk:
    async def test_normal_adds_are_refused_and_recovery_goes_on(self, world: Any, storage: Any) -> None:
        await world.put(storage, world.add(1, 0))
        storage.set_read_only(True)
        assert await world.put(storage, world.add(1, 1)) == [V2Status.READ_ONLY]
        assert await world.put(storage, world.add(3, 0)) == [V2Status.READ_ONLY]
        assert await world.put(storage, world.add(1, 1, recovery=True)) == [OK]
        assert await world.fence(storage, 1) is OK
        assert await world.put(storage, world.add(1, 2)) == [V2Status.FENCED]
        assert await world.read(storage, 1, 0) == bytes(world.body(1, 0))

    async def test_a_checkpoint_without_space_is_finished_later(self, world: Any, disk: MemoryDisk) -> None:
        storage = await world.open(disk)
        await world.put(storage, world.add(1, 0, bytes(3_000)))
        await turns(100)
        disk.capacity_bytes = 0
        storage.request_checkpoint()
        await asyncio.wait_for(storage._disk_full.wait(), 5)
        assert storage.read_only
        assert await world.put(storage, world.add(1, 1, recovery=True)) == [OK]
        disk.capacity_bytes = 2**40
        storage.set_read_only(False)
        await storage.checkpoint()
        await storage.checkpoint()
        assert await world.read(storage, 1, 0) == bytes(world.body(1, 0, bytes(3_000)))
        assert storage.look_up(1, 1).place is not None

    async def test_a_bookie_starts_on_a_full_disk_after_a_clean_end(self, world: Any, disk: MemoryDisk) -> None:
        storage = await world.open(disk)
        await world.put(storage, world.add(1, 0))
        await turns(100)
        await storage.checkpoint()
        await storage.close()
        later_disk = disk.reopen()
        later_disk.capacity_bytes = 0
        later = await world.open(later_disk)
        assert later.read_only
        assert await world.read(later, 1, 0) == bytes(world.body(1, 0))
        assert await world.put(later, world.add(1, 1)) == [V2Status.READ_ONLY]


async def test_closing_stores_everything(world: Any, disk: MemoryDisk, answers: Callable[[], Any]) -> None:
    storage: Storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    await storage.close()
    await storage.close()
    later = await world.open(disk.reopen())
    assert later.look_up(1, 0).place is not None
