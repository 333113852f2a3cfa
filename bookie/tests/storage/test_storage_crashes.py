"""Every moment at which a bookie can die: the disk stops at each step of a script in turn, and a new bookie takes over.

After each crash: what was acknowledged is there, byte for byte; what is there was once sent; a fence that was answered
holds; and the directory is one that starts again. Some of the crashes are followed by another one during recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import pytest

from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

LEDGERS: Final = (1, 2, 3, 4)
ENTRIES: Final = range(12)


class Told:
    """What the script sent, and what it was answered."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], bytes] = {}
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.fenced: dict[int, None] = {}


async def script(world: Any, storage: Storage, told: Told) -> None:
    """Adds, recovery adds, fences, checkpoints and rolls, some of them at the same time."""

    async def add(ledger_id: int, entry_id: int, *, recovery: bool = False) -> None:
        request = world.add(ledger_id, entry_id, bytes([ledger_id, entry_id]) * 700, recovery=recovery)
        told.sent[ledger_id, entry_id] = bytes(request.body)
        if (await world.put(storage, request))[0] is V2Status.OK:
            told.acknowledged[ledger_id, entry_id] = bytes(request.body)

    async def fence(ledger_id: int) -> None:
        assert await world.fence(storage, ledger_id) is V2Status.OK
        told.fenced[ledger_id] = None

    await asyncio.gather(*(add(1, entry) for entry in range(6)))
    await fence(2)
    await asyncio.gather(storage.checkpoint(), *(add(3, entry) for entry in range(4)))
    await fence(1)
    await add(1, 7, recovery=True)
    await storage.checkpoint()
    await asyncio.gather(*(add(3, entry) for entry in range(4, 12)), fence(4))
    await add(2, 0, recovery=True)
    await storage.checkpoint()
    await add(3, 4)
    await fence(3)
    await storage.close()


async def end_all_tasks() -> None:
    """What a killed process leaves: nothing runs on. A stopped disk also stops what tasks do while they end."""
    current = asyncio.current_task()
    while tasks := [task for task in asyncio.all_tasks() if task is not current]:
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()


async def crash_at(world: Any, start: MemoryDisk, steps: int, seed: int, told: Told) -> MemoryDisk | None:
    """Runs the script until the disk stops; None when it ended before that."""

    async def run() -> None:
        storage = await world.open(disk)
        await script(world, storage, told)

    disk = start.reopen()
    disk.stop_after(steps)
    running = asyncio.ensure_future(run())
    stopped = asyncio.ensure_future(disk.stopped.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
        stopped.cancel()
        return None
    survivor = disk.crash(world.seeded(seed))
    await end_all_tasks()
    return survivor


async def check(world: Any, disk: MemoryDisk, told: Told) -> None:
    storage = await world.open(disk)
    for ledger_id in LEDGERS:
        for entry_id in ENTRIES:
            found = await world.read(storage, ledger_id, entry_id)
            place = ledger_id, entry_id
            if place in told.acknowledged:
                assert found == told.acknowledged[place], place
            elif isinstance(found, bytes):
                assert found == told.sent[place], place
            else:
                assert found in (V2Status.NO_ENTRY, V2Status.NO_LEDGER), place
        if ledger_id in told.fenced:
            add = world.add(ledger_id, 11 if ledger_id != 3 else 20)
            assert await world.put(storage, add) == [V2Status.FENCED], ledger_id
    for ledger in storage._ledgers.values():
        ledger.check_invariants()
    await storage.close()


async def formatted(world: Any) -> MemoryDisk:
    disk = MemoryDisk()
    await world.format(disk, SETTINGS)
    return disk


SETTINGS: Any = None


@pytest.fixture(autouse=True)
def _small(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, entry log files and cache so small that the script rolls them all."""
    settings = world.tiny(write_cache_bytes=48 * KIB, entry_log_bytes=8 * KIB, journal_live_segments=3)
    monkeypatch.setitem(globals(), "SETTINGS", settings)
    real = world.open
    monkeypatch.setattr(world, "open", lambda disk, *, settings=settings: real(disk, settings))


def copied(disk: MemoryDisk, world: Any) -> MemoryDisk:
    """The same bytes on a disk of its own."""
    return disk.crash(world.seeded(0))


@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_at_every_step_loses_nothing_that_was_acknowledged(world: Any, seed: int) -> None:
    start = await formatted(world)
    steps = 0
    while True:
        told = Told()
        survivor = await crash_at(world, copied(start, world), steps, 1_000 * seed + steps, told)
        if survivor is None:
            break
        await check(world, survivor, told)
        steps += 1
    assert steps > 150, "the script has many disk operations"
    assert len(told.acknowledged) == 20


@pytest.mark.parametrize("seed", range(5))
async def test_crashes_during_recovery_lose_nothing_either(world: Any, seed: int) -> None:
    start = await formatted(world)
    rng = world.seeded(seed)
    for _ in range(12):
        told = Told()
        survivor = await crash_at(world, copied(start, world), 40 + rng.below(150), rng.below(1_000), told)
        for _ in range(3):
            if survivor is None:
                break
            disk = survivor.reopen()
            disk.stop_after(rng.below(80))
            opening = asyncio.ensure_future(world.open(disk))
            stopped = asyncio.ensure_future(disk.stopped.wait())
            await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                disk.stopped.set()  # it is killed just when it is open
            survivor = disk.crash(world.seeded(rng.below(1_000)))
            await end_all_tasks()
        if survivor is not None:
            await check(world, survivor, told)


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
