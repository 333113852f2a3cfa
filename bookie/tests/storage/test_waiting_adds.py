"""Adds that are answered later: first validation, and repeats of what is held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import turns

from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK


@pytest.mark.parametrize("stored", [False, True])
async def test_repeats_are_accepted_and_contradictions_refused(world: Any, storage: Any, stored: bool) -> None:
    await world.put(storage, world.add(1, 0, b"original"))
    if stored:
        await storage.checkpoint()
    assert await world.put(storage, world.add(1, 0, b"original")) == [OK]
    assert await world.put(storage, world.add(1, 0, b"original", lac=-1, recovery=True)) == [OK]
    assert await world.put(storage, world.add(1, 0, b"changed!")) == [V2Status.BAD_REQUEST]
    assert await world.put(storage, world.add(1, 0, b"changed!", recovery=True)) == [V2Status.BAD_REQUEST]
    assert await world.read(storage, 1, 0) == bytes(world.body(1, 0, b"original"))


async def test_many_repeats_of_stored_entries_are_each_answered(world: Any, storage: Any) -> None:
    adds = [world.add(1, entry) for entry in range(20)]
    await world.put(storage, *adds)
    await storage.checkpoint()
    assert await world.put(storage, *adds, *adds) == [OK] * 40


async def test_a_repeat_is_acknowledged_only_when_the_first_is_durable(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    disk.hold("sync")
    first = world.submit(storage, world.add(1, 1))
    await turns()
    again = world.submit(storage, world.add(1, 1))
    await turns()
    assert not first.done()
    assert not again.done()
    disk.release("sync")
    assert [await first, await again] == [OK, OK]


async def journal_is_idle(storage: Any) -> tuple[Any, int]:
    """Where the journal is when all of it is written, and how many groups it wrote."""
    await storage.journal.flushed()
    return storage.journal.position, storage.journal.groups_written


@pytest.mark.parametrize("stored", [False, True])
async def test_a_repeat_is_acknowledged_with_nothing_written_and_nothing_flushed(
    world: Any, disk: MemoryDisk, storage: Any, stored: bool
) -> None:
    adds = [world.add(1, entry) for entry in range(3)]
    await world.put(storage, *adds)
    if stored:
        await storage.checkpoint()
    assert (storage.ledger(1).cached(2) is None) == stored
    before = await journal_is_idle(storage)
    disk.hold("sync")
    disk.fail("write")
    for _ in range(10):
        assert await world.put(storage, adds[-1], *adds) == [OK] * 4
    assert await journal_is_idle(storage) == before
    disk.release("sync")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("crashed", [False, True])
async def test_a_repeat_to_a_fenced_ledger_is_refused(
    world: Any, disk: MemoryDisk, storage: Any, stored: bool, crashed: bool
) -> None:
    """It proves to a writer that nobody fenced: so it may not be taken for what is held already."""
    last = world.add(1, 1)
    await world.put(storage, world.add(1, 0), last)
    assert await world.put(storage, last) == [OK]
    assert await world.fence(storage, 1) is OK
    if stored:
        await storage.checkpoint()
    if crashed:
        disk = disk.crash(world.seeded(1))
        storage = await world.open(disk)
    before = await journal_is_idle(storage)
    assert await world.put(storage, last, last) == [V2Status.FENCED] * 2
    assert await world.put(storage, world.add(1, 1, b"changed!")) == [V2Status.FENCED]
    assert await world.put(storage, world.add(1, 1, recovery=True)) == [OK]
    assert await journal_is_idle(storage) == before


async def test_a_repeat_is_refused_from_when_the_fence_came_though_it_is_not_durable_yet(
    world: Any, disk: MemoryDisk, storage: Any
) -> None:
    await world.put(storage, world.add(1, 0))
    disk.hold("sync")
    fencing = asyncio.ensure_future(world.fence(storage, 1))
    await turns()
    assert not fencing.done()
    assert await world.put(storage, world.add(1, 0)) == [V2Status.FENCED]
    disk.release("sync")
    assert await fencing is OK


async def damaged_entry(world: Any, disk: MemoryDisk) -> Any:
    """A storage whose entry 1 of ledger 1 is stored and damaged."""
    storage = await world.open(disk)
    await world.put(storage, *(world.add(1, entry, b"%d" % entry * 100) for entry in range(3)))
    await storage.checkpoint()
    world.damage(disk, b"1" * 100)
    assert isinstance(await world.read(storage, 1, 1), CorruptData)
    return storage


@pytest.mark.parametrize("then", ["nothing", "crash", "checkpoint", "checkpoint and crash"])
async def test_a_recovery_add_takes_the_place_of_a_damaged_copy(world: Any, disk: MemoryDisk, then: str) -> None:
    storage = await damaged_entry(world, disk)
    again = world.add(1, 1, b"1" * 100, lac=2, recovery=True)
    assert await world.put(storage, again, again) == [OK, OK]
    if "checkpoint" in then:
        await storage.checkpoint()
    if "crash" in then:
        storage = await world.open(disk.crash(world.seeded(1)))
    assert await world.read(storage, 1, 1) == bytes(again.body)
    assert [await world.read(storage, 1, entry) for entry in (0, 2)] == [
        bytes(world.body(1, entry, b"%d" % entry * 100)) for entry in (0, 2)
    ]
    assert storage.entry_ids(1) == [0, 1, 2]
    storage.ledger(1).check_invariants()


async def test_it_is_acknowledged_when_it_is_durable(world: Any, disk: MemoryDisk) -> None:
    storage = await damaged_entry(world, disk)
    disk.hold("sync")
    answered = world.submit(storage, world.add(1, 1, b"1" * 100, recovery=True))
    await turns(100)
    assert storage.ledger(1).cached(1) is not None and not answered.done()
    disk.release("sync")
    assert await answered is OK


async def test_nobody_else_replaces_a_damaged_copy(world: Any, disk: MemoryDisk) -> None:
    storage = await damaged_entry(world, disk)
    assert await world.put(storage, world.add(1, 1, b"1" * 100)) == [V2Status.IO_ERROR]
    assert await world.put(storage, world.add(1, 1, b"1" * 99, recovery=True)) == [V2Status.BAD_REQUEST]
    assert isinstance(await world.read(storage, 1, 1), CorruptData)


async def test_a_copy_that_cannot_be_read_now_may_come_back_and_stays(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    await storage.checkpoint()
    disk.fail("read")
    assert await world.put(storage, world.add(1, 0, recovery=True)) == [V2Status.IO_ERROR]
    assert storage.ledger(1).place(0) is not None


async def test_a_ledger_is_validated_once_and_that_is_remembered(world: Any, disk: MemoryDisk, storage: Any) -> None:
    adds = [world.add(1, entry) for entry in range(3)]
    assert await world.put(storage, *adds) == [OK] * 3
    assert world.looks == [1]
    later = await world.open(disk.crash(world.seeded(1)))
    assert await world.put(later, world.add(1, 3)) == [OK]
    assert world.looks == [1]


async def test_a_ledger_that_does_not_name_us_is_refused_and_leaves_nothing(world: Any, disk: MemoryDisk) -> None:
    world.validations[1] = V2Status.FENCED
    storage = await world.open(disk)
    assert await world.put(storage, world.add(1, 0), world.add(1, 1)) == [V2Status.FENCED] * 2
    assert await world.read(storage, 1, 0) is V2Status.NO_LEDGER


async def test_an_entry_that_recovery_or_repair_brought_is_no_validation(world: Any, disk: MemoryDisk) -> None:
    world.validations[1] = V2Status.FENCED
    storage = await world.open(disk)
    assert await world.put(storage, world.add(1, 0, recovery=True)) == [OK]
    assert await world.put(storage, world.add(1, 1)) == [V2Status.FENCED]


async def test_first_adds_wait_for_the_metadata_bounded(world: Any, disk: MemoryDisk) -> None:
    gate = world.validate_after = asyncio.Event()
    storage = await world.open(disk, world.tiny(validation_waiting_bytes=300))
    first = [world.submit(storage, world.add(1, entry, bytes(100))) for entry in range(2)]
    assert await world.submit(storage, world.add(2, 0, bytes(100))) is V2Status.TOO_MANY_REQUESTS
    await turns()
    assert not any(one.done() for one in first)
    assert await world.read(storage, 1, 0) is V2Status.NO_LEDGER
    gate.set()
    assert [await one for one in first] == [OK, OK]


async def test_a_fence_that_comes_while_adds_wait_for_validation_wins(world: Any, disk: MemoryDisk) -> None:
    gate = world.validate_after = asyncio.Event()
    storage = await world.open(disk)
    add = world.submit(storage, world.add(1, 0))
    await turns()
    assert await world.fence(storage, 1) is OK
    gate.set()
    assert await add is V2Status.FENCED
