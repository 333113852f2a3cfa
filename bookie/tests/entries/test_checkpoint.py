"""Checkpoints: their order, what a full disk does to them, and an index file that does not grow without end."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.entries.checkpoint import INDEX_SLACK_BYTES, MARK_NAME, Checkpointer
from boki_bookie.entries.ledger_index import Ledger, LedgerIndex
from boki_bookie.entries.tombstones import Run
from boki_bookie.journal.journal import JournalPosition
from boki_common.errors import CorruptData, DiskFull, StorageError
from boki_common.runtime.memory_disk import MemoryDisk


class FakeJournal:
    """A journal that answers what a test sets."""

    def __init__(self, position: JournalPosition) -> None:
        self.position = position
        self.durable = asyncio.Event()
        self.durable.set()
        self.released: list[int] = []

    async def flushed(self) -> None:
        await self.durable.wait()

    async def release(self, generation: int) -> None:
        self.released.append(generation)


async def loaded(disk: MemoryDisk, world: Any) -> Checkpointer:
    if MARK_NAME not in disk.all_names():
        await Checkpointer.format(disk, world.raw_id)
    return await Checkpointer.load(disk, world.raw_id, world.settings)


@pytest.fixture
async def checkpointer(disk: MemoryDisk, world: Any) -> Checkpointer:
    return await loaded(disk, world)


async def test_the_mark_waits_for_the_journal(disk: MemoryDisk, world: Any, checkpointer: Checkpointer) -> None:
    journal = FakeJournal(JournalPosition(2, 17))
    journal.durable.clear()
    before = disk.contents(MARK_NAME)
    running = asyncio.ensure_future(checkpointer.run(journal))
    await turns(50)
    assert disk.contents(MARK_NAME) == before
    assert journal.released == []
    journal.durable.set()
    await running
    assert checkpointer.mark[:3] == (2, 17, 1)
    assert journal.released == [2]
    assert (await loaded(disk, world)).mark == checkpointer.mark


async def test_what_comes_during_a_checkpoint_belongs_to_the_next_one(world: Any, checkpointer: Checkpointer) -> None:
    index = checkpointer.index
    ledger = index.create(1, world.key)
    index.put(ledger, 0, memoryview(b"early"))
    journal = FakeJournal(JournalPosition(1, 5))
    journal.durable.clear()
    running = asyncio.ensure_future(checkpointer.run(journal))
    await asyncio.sleep(0)
    journal.position = JournalPosition(3, 8)
    index.put(ledger, 1, memoryview(b"late"))
    journal.durable.set()
    await running
    assert checkpointer.mark[:2] == (1, 5)
    assert ledger.place(0) is not None
    assert ledger.place(1) is None
    assert list(ledger.fresh) == [1]


async def test_a_full_disk_stops_it_at_its_step_and_it_goes_on_there(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
    index = checkpointer.index
    ledger = index.create(1, world.key)
    ledger.fenced = True
    index.put(ledger, 0, memoryview(bytes(5_000)))
    journal = FakeJournal(JournalPosition(1, 5))
    disk.capacity_bytes = 2_000
    with pytest.raises(DiskFull):
        await checkpointer.run(journal)
    assert ledger.cached(0) is not None
    disk.capacity_bytes = 16_000
    journal.position = JournalPosition(4, 50)
    disk.fail("replace", error=DiskFull("no space left"))
    with pytest.raises(DiskFull):
        await checkpointer.run(journal)
    assert ledger.place(0) is not None
    await checkpointer.run(journal)
    assert checkpointer.mark[:2] == (1, 5), "the first cut's position, though the journal went on"
    again = await loaded(disk, world)
    assert again.index.ledgers[1].fenced
    assert again.index.ledgers[1].place(0) == ledger.place(0)


class EveryWrite:
    """Wants room after each write, and looks at what is in memory then."""

    room_is_wanted = True

    def __init__(self, index: LedgerIndex) -> None:
        self._index = index
        self.cached: list[int] = []

    async def wrote(self, seconds: float) -> None:
        assert seconds >= 0
        self.cached.append(self._index.cached_bytes)
        for ledger in self._index.ledgers.values():
            ledger.check_invariants()


def filled(checkpointer: Checkpointer, world: Any, *, ledgers: int, entries: int, size: int) -> list[Ledger]:
    index = checkpointer.index
    made = [index.create(number, world.key) for number in range(1, ledgers + 1)]
    for ledger in made:
        for entry_id in range(entries):
            index.put(ledger, entry_id, memoryview(bytes([ledger.ledger_id, entry_id % 256]) * (size // 2)))
    return made


async def test_entries_leave_memory_write_by_write(
    disk: MemoryDisk, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boki_bookie.entries.entry_log.WRITE_BYTES", 8_192)
    monkeypatch.setattr("boki_bookie.entries.checkpoint.SMALL_STAGE_BYTES", 1)
    checkpointer = await loaded(disk, world)
    filled(checkpointer, world, ledgers=5, entries=9, size=2_000)
    before = checkpointer.index.cached_bytes
    stages = EveryWrite(checkpointer.index)
    await checkpointer.run(FakeJournal(JournalPosition(1, 5)), stages=stages)
    assert len(stages.cached) >= 7
    assert stages.cached == sorted(stages.cached, reverse=True)
    assert max(a - b for a, b in itertools.pairwise([before, *stages.cached])) <= 7 * 2_200, "a write at a time"
    again = await loaded(disk, world)
    for number in range(1, 6):
        ledger = again.index.ledgers[number]
        wanted = [(number, place) for entry_id in range(9) if (place := ledger.place(entry_id)) is not None]
        found = [bytes(body) for body in await again.entry_log.read(wanted) if not isinstance(body, StorageError)]
        assert found == [bytes([number, entry_id]) * 1_000 for entry_id in range(9)]


async def test_without_need_a_stage_is_large(disk: MemoryDisk, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_bookie.entries.entry_log.WRITE_BYTES", 8_192)
    monkeypatch.setattr("boki_bookie.entries.checkpoint.STAGE_BYTES", 40_000)
    checkpointer = await loaded(disk, world)
    filled(checkpointer, world, ledgers=1, entries=60, size=2_000)
    stages = EveryWrite(checkpointer.index)
    stages.room_is_wanted = False
    await checkpointer.run(FakeJournal(JournalPosition(1, 5)), stages=stages)
    assert 2 <= len(set(stages.cached)) <= 5 < len(stages.cached)


async def test_stages_before_a_full_disk_are_not_written_again(
    disk: MemoryDisk, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boki_bookie.entries.entry_log.WRITE_BYTES", 8_192)
    monkeypatch.setattr("boki_bookie.entries.checkpoint.SMALL_STAGE_BYTES", 1)
    checkpointer = await loaded(disk, world)
    one, other = filled(checkpointer, world, ledgers=2, entries=12, size=2_000)
    fence_only = checkpointer.index.create(3, world.key)
    fence_only.fenced = True
    journal = FakeJournal(JournalPosition(1, 5))
    disk.fail("write", nth=4, error=DiskFull("no space left"))
    with pytest.raises(DiskFull):
        await checkpointer.run(journal, stages=EveryWrite(checkpointer.index))
    stored = {entry_id: place for entry_id in range(12) if (place := one.place(entry_id)) is not None}
    assert 0 < len(stored) < 24 and other.flushing
    for ledger in (one, other):
        ledger.check_invariants()
    await checkpointer.run(journal)
    assert {entry_id: one.place(entry_id) for entry_id in stored} == stored
    again = await loaded(disk, world)
    assert again.index.ledgers[3].fenced
    for ledger in (one, other):
        held = again.index.ledgers[ledger.ledger_id]
        assert held.places.columns() == ledger.places.columns()
        assert len(held.places) == 12


async def test_a_file_that_the_mark_names_stays_while_a_checkpoint_is_unfinished(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
    (ledger,) = filled(checkpointer, world, ledgers=1, entries=1, size=2_000)
    await checkpointer.run(FakeJournal(JournalPosition(1, 5)))
    named = checkpointer.mark.entry_file
    checkpointer.index.delete(Run(ledger.ledger_id, ledger.ledger_id, 20_000))
    for entry_id in range(30):
        checkpointer.index.put(checkpointer.index.create(10 + entry_id, world.key), 0, memoryview(bytes(2_000)))
    disk.fail("replace", error=DiskFull("no space left"))
    with pytest.raises(DiskFull):
        await checkpointer.run(FakeJournal(JournalPosition(2, 9)))
    assert checkpointer.entry_log.tail.committed.file_number > named
    assert named not in checkpointer.entry_log.finished(), "without it the bookie would not start"
    await checkpointer.run(FakeJournal(JournalPosition(2, 9)))
    assert named in checkpointer.entry_log.finished()


async def test_an_index_file_of_old_news_is_replaced(disk: MemoryDisk, world: Any, checkpointer: Checkpointer) -> None:
    index = checkpointer.index
    ledgers = [index.create(number, world.key) for number in range(3_000)]
    journal = FakeJournal(JournalPosition(1, 1))
    for _ in range(12):
        for ledger in ledgers:
            index.touch(ledger)
        await checkpointer.run(journal)
    assert checkpointer.mark.index_file > 1
    assert checkpointer.mark.index_bytes < 2 * index.encoded_bytes + INDEX_SLACK_BYTES
    assert len(await disk.names("index")) == 1
    assert sorted((await loaded(disk, world)).index.ledgers) == list(range(3_000))


async def test_foreign_and_cut_checkpoints_are_refused(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
    checkpointer.index.create(1, world.key)
    await checkpointer.run(FakeJournal(JournalPosition(1, 1)))
    with pytest.raises(CorruptData, match="files of two bookies are mixed"):
        await Checkpointer.load(disk, bytes(16), world.settings)
    disk.put("index/0000000001.index", disk.contents("index/0000000001.index")[:-1])
    with pytest.raises(CorruptData, match="the file was cut"):
        await loaded(disk, world)
    await disk.remove("index/0000000001.index")
    with pytest.raises(CorruptData, match="found none"):
        await loaded(disk, world)
