"""The entry log: large writes, neighbours in one read, rolling files, uncommitted bytes, damage."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie import entry_log as module
from boki_bookie.entry_log import EntryLog, EntryLogEnd
from boki_bookie.ledger_index import Place
from boki_common.errors import CorruptData, DiskFailed, DiskFull, StorageError
from boki_common.runtime.memory_disk import MemoryDisk

START = EntryLogEnd(1, 0)


def log_on(disk: MemoryDisk, world: Any, *, end: EntryLogEnd = START, open_files: int = 4) -> EntryLog:
    return EntryLog(disk, bookie_id=world.raw_id, end=end, file_bytes=16_384, open_files=open_files)


async def store(log: EntryLog, ledger_id: int, bodies: list[bytes], *, first: int = 0) -> list[tuple[int, Place]]:
    log.begin()
    by_entry = {first + number: memoryview(body) for number, body in enumerate(bodies)}
    locations = await log.append(ledger_id, by_entry, list(by_entry))
    await log.commit()
    return [
        (ledger_id, Place(entry_id, location, len(body)))
        for (entry_id, body), location in zip(by_entry.items(), locations, strict=True)
    ]


def told(found: list[memoryview | StorageError]) -> list[bytes | StorageError]:
    """What was read, in a form that compares with what was stored."""
    return [bytes(body) if isinstance(body, memoryview) else body for body in found]


async def test_entries_come_back_over_several_files(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    bodies = [bytes([number]) * 3_000 for number in range(40)]
    wanted = await store(log, 7, bodies)
    assert len(disk.all_names()) > 5
    assert told(await log.read(wanted)) == bodies
    fresh = log_on(disk, world, end=log.committed, open_files=1)
    assert told(await fresh.read(wanted[::-1])) == bodies[::-1]


async def test_neighbours_cost_one_read(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    wanted = await store(log, 7, [b"x" * 100] * 50)
    await log.read(wanted[:1])
    before = disk.steps
    assert len(await log.read(wanted)) == 50
    assert disk.steps - before == 1
    before = disk.steps
    await log.read(wanted[::2])
    assert disk.steps - before == 25


async def test_what_was_not_committed_is_overwritten(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    kept = await store(log, 1, [b"kept"])
    end = log.committed
    log.begin()
    await log.append(2, {0: memoryview(b"lost" * 10_000)}, [0])
    await log._flush()
    again = log_on(disk, world, end=end)
    new = await store(again, 3, [b"new"])
    assert told(await again.read(kept + new)) == [b"kept", b"new"]


async def test_a_full_disk_or_a_failed_flush_commits_nothing(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    disk.capacity_bytes = 10_000
    with pytest.raises(DiskFull):
        await store(log, 1, [bytes(20_000)])
    assert log.committed == START
    disk.capacity_bytes = 10**6
    disk.fail("sync")
    with pytest.raises(DiskFailed):
        await store(log, 1, [b"x"])
    assert log.committed == START
    assert told(await log.read(await store(log, 1, [b"x"]))) == [b"x"]


async def test_damage_is_told_for_the_entry_alone(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    wanted = await store(log, 7, [b"aaaa", b"bbbb", b"cccc"])
    name = module.file_name(1)
    disk.flip_bit(name, disk.contents(name).index(b"bbbb"))
    first, second, third = told(await log.read(wanted))
    assert (first, third) == (b"aaaa", b"cccc")
    assert isinstance(second, CorruptData)
    assert second.path.endswith(name)


async def test_a_lost_or_foreign_file_is_told_for_its_entries(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    wanted = await store(log, 7, [b"a"])
    await disk.remove(module.file_name(1))
    fresh = log_on(disk, world, end=log.committed)
    assert isinstance((await fresh.read(wanted))[0], CorruptData)
    disk.put(module.file_name(1), bytes(8_192))
    assert isinstance((await fresh.read(wanted))[0], CorruptData)
    disk.fail("open")
    assert isinstance((await fresh.read(wanted))[0], StorageError)
