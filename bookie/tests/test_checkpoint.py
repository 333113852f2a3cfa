"""Checkpoints: their order, what a full disk does to them, and an index file that does not grow without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_bookie.checkpoint import INDEX_SLACK_BYTES, MARK_NAME, Checkpointer
from boki_bookie.journal import JournalPosition
from boki_common.errors import CorruptData, DiskFull
from boki_common.runtime.memory_disk import MemoryDisk


class FakeJournal:
    """A journal that says what it is told to."""

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


async def test_the_mark_waits_for_the_journal(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
    journal = FakeJournal(JournalPosition(2, 17))
    journal.durable.clear()
    before = disk.contents(MARK_NAME)
    running = asyncio.ensure_future(checkpointer.run(journal))
    for _ in range(50):
        await asyncio.sleep(0)
    assert disk.contents(MARK_NAME) == before
    assert journal.released == []
    journal.durable.set()
    await running
    assert checkpointer.mark[:3] == (2, 17, 1)
    assert journal.released == [2]
    assert (await loaded(disk, world)).mark == checkpointer.mark


async def test_what_comes_during_a_checkpoint_belongs_to_the_next_one(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
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


async def test_an_index_file_of_old_news_is_replaced(disk: MemoryDisk, world: Any) -> None:
    checkpointer = await loaded(disk, world)
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
