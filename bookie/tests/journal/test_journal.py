"""Group commit: durable before the callback, one flush for many, nothing after a failure, rolling, full disks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from tests.turns import prepared, turns

from boki_bookie.formats.journal_format import RecordKind, SegmentScan
from boki_bookie.journal.journal import Journal
from boki_bookie.journal.journal_segments import SegmentFiles
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, ClosedError, DiskFailed, InvalidArgument, Overloaded
from boki_common.metrics import Metrics
from boki_common.runtime.memory_disk import MemoryDisk

ENTRY = RecordKind.ENTRY


@pytest.fixture(params=[False, True], ids=["slow", "quick"])
def disk(disk: MemoryDisk, request: pytest.FixtureRequest) -> MemoryDisk:
    """One whose writes are waited for, and one whose writes are made at once."""
    disk.quick = request.param
    return disk


async def start(disk: MemoryDisk, world: Any, settings: BookieSettings | None = None) -> Journal:
    chosen: BookieSettings = settings or world.tiny(journal_spare_segments=2)
    journal = Journal(SegmentFiles(disk, world.rng, world.raw_id, chosen), chosen, Metrics())
    await journal.start(1, 0)
    world.opened.append(journal)
    return journal


@pytest.fixture
async def journal(disk: MemoryDisk, world: Any) -> Journal:
    return await start(disk, world)


async def test_nothing_is_acknowledged_before_the_flush(disk: MemoryDisk, journal: Journal) -> None:
    results: list[BokiError | None] = []
    disk.hold("sync")
    journal.append(ENTRY, b"x" * 100)
    journal.when_durable(results.append)
    waiter = asyncio.ensure_future(journal.flushed())
    await turns(50)
    assert results == []
    assert not waiter.done()
    assert b"x" * 100 not in disk.crash(NoSectors()).contents("journal/0000000001.segment")
    disk.release("sync")
    await waiter
    assert results == [None]
    assert b"x" * 100 in disk.crash(NoSectors()).contents("journal/0000000001.segment")


class NoSectors:
    """A crash that loses everything that was not flushed."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def below(self, bound: int) -> int:
        return 0

    def shuffled(self, items: Any) -> Any:
        return list(items)


async def test_one_flush_serves_all_that_came_while_the_last_one_ran(disk: MemoryDisk, journal: Journal) -> None:
    order: list[int] = []

    def durable(number: int, _error: BokiError | None) -> None:
        order.append(number)

    disk.hold("sync")
    for number in range(100):
        journal.append(ENTRY, b"%d" % number)
        journal.when_durable(partial(durable, number))
        await asyncio.sleep(0)
    disk.release("sync")
    await journal.flushed()
    assert order == list(range(100))
    assert journal.groups_written == 2


async def test_when_everything_is_durable_the_callback_comes_at_once(journal: Journal) -> None:
    results: list[BokiError | None] = []
    journal.when_durable(results.append)
    assert results == [None]


async def test_a_full_queue_refuses_and_has_taken_nothing(disk: MemoryDisk, world: Any) -> None:
    journal = await start(disk, world, world.tiny(journal_queue_bytes=4_096, journal_queue_records=3))
    disk.hold("sync")
    with pytest.raises(Overloaded, match="wait for the journal"):
        journal.append(ENTRY, bytes(4_096))
    for _ in range(3):
        journal.append(ENTRY, b"x")
    with pytest.raises(Overloaded):
        journal.append(ENTRY, b"x")
    disk.release("sync")
    await journal.flushed()
    journal.append(ENTRY, b"x")
    await journal.flushed()


async def test_a_run_is_taken_whole_or_not_at_all(disk: MemoryDisk, world: Any) -> None:
    journal = await start(disk, world, world.tiny(journal_queue_bytes=4_096, journal_queue_records=4))
    disk.hold("sync")
    assert not journal.append_run(ENTRY, [b"x"] * 5, 5)
    assert not journal.append_run(ENTRY, [bytes(2_048)] * 2, 4_096)
    results: list[BokiError | None] = []
    journal.when_durable(results.append)
    assert results == [None], "nothing of them waits"
    assert journal.append_run(ENTRY, [b"x"] * 3, 3)
    assert not journal.append_run(ENTRY, [b"x"] * 2, 2)
    journal.append(ENTRY, b"y")
    journal.when_durable(results.append)
    assert results == [None]
    disk.release("sync")
    await journal.flushed()
    assert results == [None, None]
    await journal.close()
    assert not journal.append_run(ENTRY, [b"x"] * 2, 2), "closed"


async def test_a_record_no_segment_can_hold_is_refused(journal: Journal) -> None:
    with pytest.raises(InvalidArgument, match="at most 12240 bytes"):
        journal.append(ENTRY, bytes(12_241))
    journal.append(ENTRY, bytes(12_240))
    await journal.flushed()


async def test_a_failed_flush_is_final(disk: MemoryDisk, journal: Journal) -> None:
    results: list[BokiError | None] = []
    await prepared(disk, 2)
    disk.fail("sync")
    journal.append(ENTRY, b"first")
    journal.when_durable(results.append)
    if not disk.quick:
        await asyncio.sleep(0)
    journal.append(ENTRY, b"second")
    journal.when_durable(results.append)
    error = await journal.failed
    assert isinstance(error, DiskFailed)
    assert results == [error, error]
    written = disk.steps
    with pytest.raises(DiskFailed):
        journal.append(ENTRY, b"third")
    with pytest.raises(DiskFailed):
        await journal.flushed()
    await journal.close()
    assert disk.steps - written < 3, "nothing is written after a failed flush"


async def quick_one(disk: MemoryDisk, world: Any) -> Journal:
    """A journal that has seen that its disk is quick."""
    disk.quick = True
    journal = await start(disk, world)
    journal.append(ENTRY, b"warm")
    await journal.flushed()
    await prepared(disk, 2)
    return journal


async def test_on_a_quick_disk_a_turn_of_the_loop_is_one_write_at_its_end(disk: MemoryDisk, world: Any) -> None:
    journal = await quick_one(disk, world)
    results: list[BokiError | None] = []
    before = journal.groups_written
    journal.append(ENTRY, b"first")
    journal.when_durable(results.append)
    journal.append(ENTRY, b"second")
    journal.when_durable(results.append)
    assert results == []
    assert "bookie journal" not in [task.get_name() for task in asyncio.all_tasks()], "nobody waits for the disk"
    assert b"first" not in disk.contents("journal/0000000001.segment")
    await asyncio.sleep(0)
    assert results == [None, None]
    assert b"second" in disk.crash(NoSectors()).contents("journal/0000000001.segment")
    assert journal.groups_written == before + 1


async def test_a_disk_that_is_quick_no_more_is_waited_for_and_nothing_is_lost(disk: MemoryDisk, world: Any) -> None:
    journal = await quick_one(disk, world)
    order: list[int] = []

    def durable(number: int, _error: BokiError | None) -> None:
        order.append(number)

    for number in range(12):
        disk.quick = number % 4 != 2
        for part in range(2):
            journal.append(ENTRY, b"record %d of %d" % (part, number))
        journal.when_durable(partial(durable, number))
        await asyncio.sleep(0)
    await journal.flushed()
    assert order == list(range(12))
    await journal.close()
    files = SegmentFiles(disk, world.rng, world.raw_id, world.settings)
    found = []
    for generation in journal.live:
        header, data = await files.load(generation)
        found += [bytes(body) for group in SegmentScan(data, header, name="").groups() for body in group.bodies]
    assert found[1:] == [b"record %d of %d" % (part, number) for number in range(12) for part in range(2)]


async def test_what_a_callback_appends_is_written_after_it(disk: MemoryDisk, world: Any) -> None:
    journal = await quick_one(disk, world)
    results: list[BokiError | None] = []

    def again(_error: BokiError | None) -> None:
        journal.append(ENTRY, b"again")
        journal.when_durable(results.append)

    journal.append(ENTRY, b"first")
    journal.when_durable(again)
    await asyncio.sleep(0)
    assert results == [None]
    assert b"again" in disk.crash(NoSectors()).contents("journal/0000000001.segment")


async def test_a_flush_that_fails_at_once_is_final(disk: MemoryDisk, world: Any) -> None:
    journal = await quick_one(disk, world)
    results: list[BokiError | None] = []
    disk.fail("sync")
    journal.append(ENTRY, b"first")
    journal.when_durable(results.append)
    await asyncio.sleep(0)
    error = await journal.failed
    assert isinstance(error, DiskFailed)
    assert results == [error]
    with pytest.raises(DiskFailed):
        journal.append(ENTRY, b"second")
    journal.when_durable(results.append)
    assert results == [error, error]


async def test_closing_in_the_turn_of_an_append_writes_it(disk: MemoryDisk, world: Any) -> None:
    journal = await quick_one(disk, world)
    results: list[BokiError | None] = []
    journal.append(ENTRY, b"last words")
    journal.when_durable(results.append)
    await journal.close()
    assert results == [None]
    assert b"last words" in disk.contents("journal/0000000001.segment")
    assert isinstance(await journal.failed, ClosedError)


async def test_full_segments_are_followed_by_prepared_ones(disk: MemoryDisk, journal: Journal) -> None:
    for number in range(10):
        journal.append(ENTRY, bytes([number]) * 5_000)
        await journal.flushed()
    assert list(journal.live) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert journal.position == (10, 10)
    await journal.release(9)
    assert list(journal.live) == [9, 10]
    names = disk.all_names()
    assert [name for name in names if name.endswith(".segment")][:2] == [
        "journal/0000000009.segment",
        "journal/0000000010.segment",
    ]
    assert sum(name.endswith(".spare") for name in names) == 2


async def test_a_full_disk_makes_the_journal_wait_for_a_recycled_segment(disk: MemoryDisk, world: Any) -> None:
    disk.capacity_bytes = 2 * 16_384
    journal = await start(disk, world)
    await prepared(disk, 2)
    for _ in range(2):
        journal.append(ENTRY, bytes(8_000))
        await journal.flushed()
    journal.append(ENTRY, bytes(8_000))
    waiter = asyncio.ensure_future(journal.flushed())
    await turns(50)
    assert not waiter.done()
    assert not journal.failed.done()
    await journal.release(2)
    await waiter
    assert list(journal.live) == [2, 3]


async def test_closing_writes_what_was_appended_and_then_refuses(disk: MemoryDisk, journal: Journal) -> None:
    results: list[BokiError | None] = []
    journal.append(ENTRY, b"last words")
    journal.when_durable(results.append)
    await journal.close()
    await journal.close()
    assert results == [None]
    assert b"last words" in disk.contents("journal/0000000001.segment")
    with pytest.raises(ClosedError):
        journal.append(ENTRY, b"x")


async def test_closing_on_a_full_disk_ends(disk: MemoryDisk, world: Any) -> None:
    disk.capacity_bytes = 16_384
    journal = await start(disk, world)
    journal.append(ENTRY, bytes(8_000))
    await journal.flushed()
    journal.append(ENTRY, bytes(8_000))
    results: list[BokiError | None] = []
    journal.when_durable(results.append)
    await journal.close()
    assert len(results) == 1
    assert results[0] is not None
