"""Every moment at which a bookie can die: the disk stops at each step of a script in turn, and a new bookie takes over.

After each crash: what was acknowledged is there, byte for byte; what is there was once sent; a fence that was answered
holds; and the directory is one that starts again. Some of the crashes are followed by another one during recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import pytest
from tests.storage.crashes import Recorded, crash_at, end_all_tasks, until_stopped

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

LEDGERS: Final = (1, 2, 3, 4)
ENTRIES: Final = range(12)


async def script(storage: Storage, recorded: Recorded) -> None:
    """Adds, recovery adds, fences, checkpoints and rolls, some of them at the same time."""
    await asyncio.gather(*(recorded.add(storage, 1, entry) for entry in range(6)))
    assert await recorded.fence(storage, 2) is V2Status.OK
    await asyncio.gather(storage.checkpoint(), *(recorded.add(storage, 3, entry) for entry in range(4)))
    assert await recorded.fence(storage, 1) is V2Status.OK
    await recorded.add(storage, 1, 7, recovery=True)
    await storage.checkpoint()
    adds = [recorded.add(storage, 3, entry) for entry in range(4, 12)]
    assert (await asyncio.gather(recorded.fence(storage, 4), *adds))[0] is V2Status.OK
    await recorded.add(storage, 2, 0, recovery=True)
    await storage.checkpoint()
    await recorded.add(storage, 3, 4)
    assert await recorded.fence(storage, 3) is V2Status.OK
    await storage.close()


async def opened_and_run(world: Any, disk: MemoryDisk, recorded: Recorded) -> None:
    await script(await world.open(disk), recorded)


async def check(world: Any, disk: MemoryDisk, recorded: Recorded) -> None:
    storage = await world.open(disk)
    for ledger_id in LEDGERS:
        for entry_id in ENTRIES:
            found = await world.read(storage, ledger_id, entry_id)
            place = ledger_id, entry_id
            if place in recorded.acknowledged:
                assert found == recorded.acknowledged[place], place
            elif isinstance(found, bytes):
                assert found == recorded.sent[place], place
            else:
                assert found in (V2Status.NO_ENTRY, V2Status.NO_LEDGER), place
        if ledger_id in recorded.fenced:
            add = world.add(ledger_id, 11 if ledger_id != 3 else 20)
            assert await world.put(storage, add) == [V2Status.FENCED], ledger_id
    for ledger in storage._ledgers.values():
        ledger.check_invariants()
    await storage.close()


async def formatted(world: Any) -> MemoryDisk:
    disk = MemoryDisk()
    await world.format(disk)
    return disk


@pytest.fixture(autouse=True)
def _small(world: Any) -> None:
    """Segments, entry log files and cache so small that the script rolls them all."""
    world.settings = world.tiny(write_cache_bytes=48 * KIB, entry_log_bytes=8 * KIB, journal_live_segments=3)


def copied(disk: MemoryDisk, world: Any) -> MemoryDisk:
    """The same bytes on a disk of its own."""
    return disk.crash(world.seeded(0))


@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_at_every_step_loses_nothing_that_was_acknowledged(world: Any, seed: int) -> None:
    start = await formatted(world)
    steps = 0
    while True:
        recorded, disk = Recorded(world), copied(start, world)
        survivor = await crash_at(world, disk, steps, 1_000 * seed + steps, opened_and_run(world, disk, recorded))
        if survivor is None:
            break
        await check(world, survivor, recorded)
        steps += 1
    assert steps > 150, "the script has many disk operations"
    assert len(recorded.acknowledged) == 20


@pytest.mark.parametrize("seed", range(5))
async def test_crashes_during_recovery_lose_nothing_either(world: Any, seed: int) -> None:
    start = await formatted(world)
    rng = world.seeded(seed)
    for _ in range(12):
        recorded, disk = Recorded(world), copied(start, world)
        work = opened_and_run(world, disk, recorded)
        survivor = await crash_at(world, disk, 40 + rng.below(150), rng.below(1_000), work)
        for _ in range(3):
            if survivor is None:
                break
            disk = survivor.reopen()
            disk.stop_after(rng.below(80))
            stopped = await until_stopped(disk, world.open(disk))
            if not stopped.early:
                disk.stopped.set()  # it is killed just when it is open
            survivor = disk.crash(world.seeded(rng.below(1_000)))
            await end_all_tasks(stopped)
        if survivor is not None:
            await check(world, survivor, recorded)


async def test_a_directory_survives_many_lives(world: Any) -> None:
    """Crash after crash on one directory: what an earlier life acknowledged stays."""
    rng = world.seeded(11)
    disk = await formatted(world)
    acknowledged: dict[tuple[int, int], bytes] = {}
    entry_id = 0
    for _ in range(25):
        storage = await world.open(disk)
        for (ledger, entry), body in acknowledged.items():
            assert await world.read(storage, ledger, entry) == body
        disk.stop_after(20 + rng.below(60))
        with contextlib.suppress(asyncio.CancelledError):
            running = asyncio.ensure_future(fill(world, storage, entry_id, acknowledged))
            await disk.stopped.wait()
            running.cancel()
        entry_id += 200
        disk = disk.crash(world.seeded(rng.below(1_000)))
        await end_all_tasks()
    assert len(acknowledged) > 50


async def fill(world: Any, storage: Storage, entry_id: int, acknowledged: dict[tuple[int, int], bytes]) -> None:
    while True:
        request = world.add(7, entry_id, bytes([entry_id % 251]) * 900)
        if (await world.put(storage, request))[0] is V2Status.OK:
            acknowledged[7, entry_id] = bytes(request.body)
        entry_id += 1
        if entry_id % 10 == 0:
            await storage.checkpoint()
