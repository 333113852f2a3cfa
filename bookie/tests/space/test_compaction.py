"""Files with little in them are rewritten: nothing is lost, nothing is dropped, and readers do not notice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_bookie.entries.entry_log import file_name
from boki_bookie.space.compaction import Compactor, file_use
from boki_bookie.space.gc_rules import FileUse
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, DiskFull
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

OK = V2Status.OK
SHORT, KEPT = (1, 2, 3, 4, 5, 6, 7), (8, 9)
"""Ledgers that are deleted, and those that stay."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    return bytes([ledger_id, entry_id]) * 500


async def scattered(collected: Any, disk: MemoryDisk, **changes: Any) -> Storage:
    """Every file has entries of every ledger."""
    world = collected.world
    storage: Storage = await collected.open(disk, **changes)
    for ledger_id in (*SHORT, *KEPT):
        await collected.ledger(ledger_id)
    for entry_id in range(8):
        adds = [world.add(ledger_id, entry_id, payload(ledger_id, entry_id)) for ledger_id in (*SHORT, *KEPT)]
        assert await world.put(storage, *adds) == [OK] * len(adds)
        await storage.checkpoint()
    return storage


@pytest.fixture
async def storage(collected: Any, disk: MemoryDisk) -> Storage:
    return await scattered(collected, disk)


async def all_there(collected: Any, storage: Storage) -> None:
    world = collected.world
    for ledger_id in KEPT:
        for entry_id in range(8):
            expected = bytes(world.body(ledger_id, entry_id, payload(ledger_id, entry_id)))
            assert await world.read(storage, ledger_id, entry_id) == expected, (ledger_id, entry_id)


def files(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.all_names() if name.endswith(".entries")]


async def test_live_entries_are_copied_and_their_files_go(collected: Any, disk: MemoryDisk, world: Any) -> None:
    """CompactionTest."""
    storage = await scattered(collected, disk)
    before = files(disk)
    await collected.delete(storage, *SHORT)
    state = storage.gc_state()
    assert state.removed_files >= len(before) - 1
    assert len(files(disk)) <= len(before) / 2
    assert state.live_bytes + state.dead_bytes == sum(len(disk.contents(file_name(n))) for n in finished(storage))
    for life in (storage, await collected.open(disk.crash(world.seeded(3)))):
        await all_there(collected, life)
        for ledger in life._ledgers.values():
            ledger.check_invariants()
        await life.checkpoint()
    await all_there(collected, await collected.open(disk.crash(world.seeded(4))))


def finished(storage: Storage) -> list[int]:
    return list(storage._entry_log.finished())


async def test_use_is_what_the_index_says(collected: Any, disk: MemoryDisk, world: Any) -> None:
    storage = await collected.open(disk, entry_log_bytes=8 * KIB)
    for entry_id in range(3):
        await world.put(storage, world.add(1, entry_id, bytes(9_000)))
        await storage.checkpoint()
    stored = len(world.body(1, 0, bytes(9_000))) + 24
    size = len(disk.contents(file_name(1)))
    assert await file_use(storage._index, storage._entry_log) == [FileUse(1, size, stored), FileUse(2, size, stored)]


async def test_a_file_whose_header_is_damaged_is_not_empty(collected: Any, disk: MemoryDisk, storage: Storage) -> None:
    """apache/bookkeeper#4607: a file that looked empty after a crash was deleted with everything in it."""
    await storage.close()
    for name in files(disk)[:-1]:
        disk.overwrite(name, 4_096, bytes(2_000))
    storage = await collected.open(disk.reopen())
    before = files(disk)
    for _ in range(3):
        await storage.collect_garbage(major=True)
    assert set(before) <= set(files(disk))
    assert storage.ledger_count == len(SHORT) + len(KEPT)


async def test_an_entry_that_cannot_be_read_ends_the_compaction_of_its_file(collected: Any, disk: MemoryDisk) -> None:
    """It is kept and reported, and the others stay readable."""
    world = collected.world
    storage = await scattered(collected, disk)
    number = storage.look_up(8, 2).place.location >> 40  # type: ignore[union-attr]
    contents = disk.contents(file_name(number))
    disk.flip_bit(file_name(number), contents.index(payload(8, 2)))
    await collected.delete(storage, *SHORT)
    state = await storage.collect_garbage(major=True)
    assert state.damaged_files == (number,)
    assert file_name(number) in files(disk)
    assert isinstance(await world.read(storage, 8, 2), CorruptData)
    for ledger_id in KEPT:
        for entry_id in range(8):
            if (ledger_id, entry_id) != (8, 2):
                assert isinstance(await world.read(storage, ledger_id, entry_id), bytes)


async def test_a_read_that_got_its_place_before_finds_the_entry_afterwards(collected: Any, disk: MemoryDisk) -> None:
    world = collected.world
    storage = await scattered(collected, disk)
    places = {entry_id: storage.look_up(8, entry_id).place for entry_id in range(8)}
    await collected.delete(storage, *SHORT)
    assert storage.look_up(8, 0).place != places[0]
    bodies = await storage.load([(8, place) for place in places.values() if place is not None])
    assert [bytes(body) for body in bodies if isinstance(body, memoryview)] == [
        bytes(world.body(8, entry_id, payload(8, entry_id))) for entry_id in range(8)
    ]


async def test_a_run_that_was_looked_up_before_is_read_afterwards(collected: Any, world: Any, storage: Storage) -> None:
    status, parts = storage.look_up_run(8, 1, count=100, room=1 << 20, overhead=4)
    assert status is V2Status.OK
    _, gone = storage.look_up_run(SHORT[0], 0, count=100, room=1 << 20, overhead=4)
    await collected.delete(storage, *SHORT)
    assert storage.look_up_run(8, 1, count=100, room=1 << 20, overhead=4).parts != parts
    assert await storage.load_run(8, parts) == [
        world.body(8, entry_id, payload(8, entry_id)) for entry_id in range(1, 8)
    ]
    assert await storage.load_run(SHORT[0], gone) == []


async def test_reads_at_any_moment_of_a_compaction_succeed(collected: Any, storage: Storage) -> None:
    deleting = asyncio.ensure_future(collected.delete(storage, *SHORT))
    rounds = 0
    while not deleting.done():
        await all_there(collected, storage)
        rounds += 1
    await deleting
    assert rounds > 5


async def test_a_repeated_add_is_compared_with_the_entry_where_it_is_now(collected: Any, disk: MemoryDisk) -> None:
    world = collected.world
    storage = await scattered(collected, disk)
    deleting = asyncio.ensure_future(collected.delete(storage, *SHORT))
    while not deleting.done():
        again = [world.add(8, entry_id, payload(8, entry_id)) for entry_id in range(8)]
        assert await world.put(storage, *again) == [OK] * 8
    await deleting


async def test_adds_and_deletions_during_a_compaction_are_kept(collected: Any, disk: MemoryDisk, world: Any) -> None:
    storage = await scattered(collected, disk)
    await collected.delete(storage, *SHORT[:-1])
    await collected.forget(SHORT[-1])
    await storage.collect_garbage()
    running = asyncio.ensure_future(storage.collect_garbage(major=True))
    for entry_id in range(8, 30):
        assert await world.put(storage, world.add(9, entry_id, bytes(900))) == [OK]
        if entry_id % 4 == 0:
            await storage.checkpoint()
    await running
    later = await collected.open(disk.crash(world.seeded(1)))
    await all_there(collected, later)
    for entry_id in range(8, 30):
        assert await world.read(later, 9, entry_id) == bytes(world.body(9, entry_id, bytes(900)))


async def test_a_copy_that_finds_no_space_leaves_everything_where_it_is(collected: Any, disk: MemoryDisk) -> None:
    storage = await scattered(collected, disk)
    compactor = Compactor(storage._index, storage._entry_log, bytes_per_s=2**40, is_busy=lambda: False)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFull):
        await compactor.compact(1)
    await all_there(collected, storage)
    disk.capacity_bytes = 2**40
    copied = await compactor.compact(1)
    assert copied.is_whole
    assert copied.entries > 0
    await all_there(collected, storage)
    assert (await file_use(storage._index, storage._entry_log))[0].live_bytes == 0


async def test_copying_waits_while_the_store_is_busy(storage: Storage) -> None:
    busy = [True] * 3 + [False] * 1_000
    compactor = Compactor(storage._index, storage._entry_log, bytes_per_s=2**40, is_busy=lambda: busy.pop(0))
    await compactor.compact(1)
    assert len(busy) < 1_000


class TestFullDisk:
    """CompactionTest.testCompactionWhenLedgerDirsAreFull."""

    async def test_dead_files_go_though_there_is_no_space_at_all(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await scattered(collected, disk, disk_reserve_bytes=64 * KIB)
        for ledger_id in (*SHORT, *KEPT[:1]):
            await collected.forget(ledger_id)
        await storage.collect_garbage()
        disk.capacity_bytes = sum(len(disk.contents(name)) for name in disk.all_names())
        storage.set_read_only(True)
        state = await storage.collect_garbage()
        assert state.deleted_ledgers == 8
        assert state.removed_files > 0

    async def test_compaction_goes_on_file_by_file(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await scattered(collected, disk, disk_reserve_bytes=64 * KIB)
        for ledger_id in SHORT:
            await collected.forget(ledger_id)
        await storage.collect_garbage()
        disk.capacity_bytes = sum(len(disk.contents(name)) for name in disk.all_names())
        assert await disk.free_bytes() == 0
        storage.set_read_only(True)
        state = await storage.collect_garbage()
        assert state.removed_files > 3
        assert await disk.free_bytes() > 30 * KIB
        await all_there(collected, storage)
        await all_there(collected, await collected.open(disk.crash(collected.world.seeded(1))))

    async def test_a_full_disk_asks_for_a_collection_by_itself(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await scattered(collected, disk, disk_reserve_bytes=64 * KIB)
        for ledger_id in SHORT:
            await collected.forget(ledger_id)
        await storage.collect_garbage()
        await collected.world.put(storage, collected.world.add(9, 8, bytes(3_000)))
        disk.capacity_bytes = sum(len(disk.contents(name)) for name in disk.all_names())
        storage.request_checkpoint()
        await asyncio.wait_for(storage._disk_full.wait(), 5)
        while storage.gc_state().removed_files == 0:
            await asyncio.sleep(0)
        storage.set_read_only(False)
        await storage.checkpoint()
        await all_there(collected, storage)
        assert storage.look_up(9, 8).place is not None
