"""A hold of a repair is there after a crash, from the journal and from the index, and lets nobody write."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.entries.ledger_index import NO_HOLD
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.memory_disk import MemoryDisk


def hold_of(storage: Storage, ledger_id: int) -> int:
    ledger = storage.ledger(ledger_id)
    return NO_HOLD if ledger is None else ledger.hold


async def durable(world: Any, storage: Storage) -> None:
    await storage.journal.flushed()


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
async def test_the_highest_hold_survives_a_crash(world: Any, disk: MemoryDisk, checkpoints: int) -> None:
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0))
    for version in (4, 2):
        assert storage.hold(1, world.key, version) is V2Status.OK
        assert storage.hold(8, world.key, version) is V2Status.OK
    await durable(world, storage)
    for _ in range(checkpoints):
        await storage.checkpoint()
    for _ in range(2):
        disk = disk.crash(world.seeded(3))
        storage = await world.open(disk)
        assert (hold_of(storage, 1), hold_of(storage, 8)) == (4, 4)
        await storage.checkpoint()


async def test_a_hold_of_an_unknown_ledger_validates_nothing(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk)
    world.validations[5] = V2Status.FENCED
    assert storage.hold(5, world.key, 1) is V2Status.OK
    assert await world.put(storage, world.add(5, 0, recovery=True)) == [V2Status.OK], "the copy that follows it"
    assert await world.put(storage, world.add(5, 1)) == [V2Status.FENCED], "neither it nor the copy validates"


async def test_a_ledger_that_was_deleted_here_is_not_held(collected: Any, disk: MemoryDisk) -> None:
    world = collected.world
    storage = await collected.open(disk)
    await collected.ledger(1)
    await world.put(storage, world.add(1, 0))
    await storage.checkpoint()
    await collected.delete(storage, 1)
    assert storage.hold(1, world.key, 9) is V2Status.NO_LEDGER
    assert await world.put(storage, world.add(1, 0, recovery=True)) == [V2Status.FENCED]
