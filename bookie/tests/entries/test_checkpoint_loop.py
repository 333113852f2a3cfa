"""When checkpoints run, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.entries.tombstones import Run
from boki_bookie.formats.journal_format import RecordKind, encode_tombstone
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import DiskFull
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK


async def test_acks_are_held_and_adds_refused_by_a_filling_cache(world: Any, disk: MemoryDisk) -> None:
    settings = world.tiny(write_cache_bytes=8 * KIB, journal_segment_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    await world.put(storage, world.add(1, 0, bytes(700)))
    disk.hold("sync", under="entries")  # nothing leaves memory
    answered = [world.submit(storage, world.add(1, entry, bytes(700))) for entry in range(1, 12)]
    await turns(100)
    states = [future.result() if future.done() else None for future in answered]
    assert states[0] is OK or states[0] is None
    assert None in states, "acknowledgements are held above three quarters"
    assert states[-1] is V2Status.TOO_MANY_REQUESTS
    disk.release("sync")
    for future in answered:
        assert await future in (OK, V2Status.TOO_MANY_REQUESTS)
    await storage.checkpoint()
    assert await world.put(storage, world.add(1, 50, bytes(700))) == [OK]


async def test_no_ack_is_held_while_there_is_room(world: Any, disk: MemoryDisk) -> None:
    settings = world.tiny(write_cache_bytes=64 * KIB, journal_segment_bytes=256 * KIB)
    storage = await world.open(disk, settings)
    disk.hold("sync", under="entries")  # a checkpoint begins at half, and does not get on
    for entry in range(1, 40):
        if storage.cached_bytes + 2_000 >= 48 * KIB:
            break
        assert await world.put(storage, world.add(1, entry, bytes(1_000))) == [OK]
    assert storage.cached_bytes > 40 * KIB
    disk.release("sync")


async def test_held_acks_go_on_as_soon_as_a_stage_made_room(
    world: Any, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boki_bookie.entries.entry_log.WRITE_BYTES", 4_096)
    monkeypatch.setattr("boki_bookie.entries.checkpoint.SMALL_STAGE_BYTES", 1)
    settings = world.tiny(write_cache_bytes=16 * KIB, journal_segment_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    disk.hold("replace")  # no checkpoint ends
    disk.hold("sync", under="entries")
    answered = [world.submit(storage, world.add(1, entry, bytes(700))) for entry in range(14)]
    await turns(200)
    assert None in [future.result() if future.done() else None for future in answered]
    disk.release("sync")
    assert [await future for future in answered] == [OK] * 14
    assert storage.cached_bytes < 12 * KIB
    disk.release("replace")


async def test_an_idle_bookie_stores_what_it_has(world: Any, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_bookie.entries.checkpoint_loop.IDLE_LOOK_S", 0.001)
    settings = world.tiny(write_cache_bytes=16 * KIB, journal_segment_bytes=64 * KIB)
    storage = await world.open(disk, settings)
    assert await world.put(storage, world.add(1, 0, bytes(900))) == [OK]
    while storage.cached_bytes:
        await asyncio.sleep(0)
    assert await world.read(storage, 1, 0) == bytes(world.body(1, 0, bytes(900)))


async def test_many_segments_ask_for_a_checkpoint(world: Any, disk: MemoryDisk) -> None:
    storage = await world.open(disk, world.tiny(journal_live_segments=2))
    for entry in range(10):
        await world.put(storage, world.add(1, entry, bytes(6_000)))
    async with asyncio.timeout(10):
        while len(storage.journal.live) > 4:
            await asyncio.sleep(0)


async def test_checkpoints_at_the_same_time_run_one_after_the_other(world: Any, storage: Any) -> None:
    for entry in range(8):
        await world.put(storage, world.add(1, entry, bytes(6_000)))
    await asyncio.gather(*(storage.checkpoint() for _ in range(4)))
    assert len(storage.journal.live) == 1
    assert await world.put(storage, world.add(1, 8)) == [OK]


@pytest.mark.parametrize("finished", [False, True])
async def test_deletions_are_persisted_beside_a_checkpoint_that_a_full_disk_stopped(
    world: Any, disk: MemoryDisk, storage: Any, finished: bool
) -> None:
    for ledger_id in (1, 2, 3):
        await world.put(storage, world.add(ledger_id, 0, bytes(2_000)))
    await storage.checkpoint()
    await world.fence(storage, 1)
    await world.put(storage, world.add(2, 1, bytes(2_000)))
    used = sum(len(disk.contents(name)) for name in disk.all_names())
    disk.capacity_bytes = used
    with pytest.raises(DiskFull):
        await storage.checkpoint()
    storage.journal.append(RecordKind.TOMBSTONE, encode_tombstone(1, 20_000))
    storage._index.delete(Run(1, 1, 20_000))
    disk.capacity_bytes = used + 1_000
    await storage._checkpoints.persist_index()
    if finished:
        disk.capacity_bytes = 2**40
        await storage.checkpoint()
        await storage.checkpoint()
    crashed = disk.crash(world.seeded(1))
    crashed.capacity_bytes = 2**40
    later = await world.open(crashed)
    assert await world.read(later, 1, 0) is V2Status.NO_LEDGER
    assert await world.put(later, world.add(1, 1, recovery=True)) == [V2Status.FENCED]
    for ledger_id, entry_id in ((2, 0), (2, 1), (3, 0)):
        assert await world.read(later, ledger_id, entry_id) == bytes(world.body(ledger_id, entry_id, bytes(2_000)))


async def test_what_cannot_be_persisted_is_persisted_later(world: Any, disk: MemoryDisk, storage: Any) -> None:
    await world.put(storage, world.add(1, 0, bytes(2_000)), world.add(2, 0, bytes(2_000)))
    await storage.checkpoint()
    storage.journal.append(RecordKind.TOMBSTONE, encode_tombstone(1, 20_000))
    storage._index.delete(Run(1, 1, 20_000))
    disk.fail("replace", error=DiskFull("full"))
    with pytest.raises(DiskFull):
        await storage._checkpoints.persist_index()
    mark = storage._checkpointer.mark.number
    await storage._checkpoints.persist_index()
    assert storage._checkpointer.mark.number == mark + 1
    await storage._checkpoints.persist_index()
    assert storage._checkpointer.mark.number == mark + 1, "there was nothing to persist"
    later = await world.open(disk.crash(world.seeded(1)))
    assert await world.read(later, 1, 0) is V2Status.NO_LEDGER
