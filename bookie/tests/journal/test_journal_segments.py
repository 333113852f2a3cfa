"""Files of the journal: prepared, found, recycled; foreign and cut ones refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.journal.test_journal import NoSectors

from boki_bookie.journal import journal_segments
from boki_bookie.journal.journal_segments import SegmentFiles
from boki_common.errors import CorruptData, DiskFull
from boki_common.runtime import memory_disk
from boki_common.runtime.memory_disk import MemoryDisk


@pytest.fixture
def files(disk: MemoryDisk, world: Any) -> SegmentFiles:
    return made(disk, world)


def made(disk: MemoryDisk, world: Any, *, raw_id: bytes | None = None, size: int = 16_384) -> SegmentFiles:
    settings = world.tiny(journal_segment_bytes=size, journal_spare_segments=1)
    return SegmentFiles(disk, world.rng, raw_id or world.raw_id, settings)


async def test_a_prepared_segment_is_zero_filled_and_loads(files: SegmentFiles, disk: MemoryDisk) -> None:
    segment = await files.prepare(3)
    assert segment.header.generation == 3
    assert disk.all_names() == ["journal/0000000003.segment"]
    header, data = await files.load(3)
    assert header == segment.header
    assert bytes(data[4_096:]) == bytes(12_288)
    assert await files.find() == [3]


async def test_recycled_segments_become_the_next_ones_and_others_are_removed(
    files: SegmentFiles, disk: MemoryDisk
) -> None:
    first = await files.prepare(1)
    await files.prepare(2)
    await first.file.write(8_192, [b"stale"], durable=True)
    await files.recycle(1)
    await files.recycle(2)
    assert disk.all_names() == ["journal/0000000001.spare"]
    third = await files.prepare(3)
    assert disk.all_names() == ["journal/0000000003.segment"]
    assert third.header.salt != first.header.salt
    _, data = await files.load(3)
    assert bytes(data[8_192:8_197]) == b"stale"


async def test_a_file_is_filled_and_flushed_piece_by_piece(
    files: SegmentFiles, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_disk, "FILL_PIECE_BYTES", 1_024)
    monkeypatch.setattr(journal_segments, "_FLUSH_BYTES", 6_000)
    filled: list[float] = []

    async def rest(seconds: float, done: float) -> None:
        assert seconds >= 0
        filled.append(done)
        assert len(disk.crash(NoSectors()).contents("journal/preparing")) >= int(done * 16_384)

    await files.prepare(1, rest=rest)
    assert filled == [6_000 / 16_384, 12_000 / 16_384, 1.0]
    _, data = await files.load(1)
    assert bytes(data[4_096:]) == bytes(12_288)


async def test_a_segment_may_be_recycled_while_another_is_filled(
    files: SegmentFiles, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_segments, "_FLUSH_BYTES", 4_096)
    await (await files.prepare(1)).file.close()

    async def rest(_seconds: float, done: float) -> None:
        if done == 0.5:
            await files.recycle(1)

    second = await files.prepare(2, rest=rest)
    assert (await files.load(2))[0] == second.header
    assert disk.all_names() == ["journal/0000000001.spare", "journal/0000000002.segment"]
    third = await files.prepare(3)
    assert (await files.load(3))[0] == third.header


async def test_leftovers_of_a_crash_are_sorted_out(disk: MemoryDisk, world: Any) -> None:
    disk.put("journal/preparing", b"half")
    disk.put("journal/0000000001.spare", bytes(16_384))
    disk.put("journal/0000000002.spare", bytes(100))
    files = made(disk, world)
    assert await files.find() == []
    assert disk.all_names() == ["journal/0000000001.spare"]
    await files.prepare(5)
    assert disk.all_names() == ["journal/0000000005.segment"]


async def test_segments_of_another_size_are_not_used_again(disk: MemoryDisk, world: Any) -> None:
    before = made(disk, world, size=32_768)
    await before.prepare(1)
    files = made(disk, world)
    assert await files.find() == [1]
    await files.prepare(2)
    await files.recycle(1)
    assert disk.all_names() == ["journal/0000000002.segment"]
    disk.fail("open")
    await files.recycle(2)
    assert disk.all_names() == ["journal/0000000002.spare"], "its own segments need no look"


async def test_a_full_disk_leaves_nothing_half_made(disk: MemoryDisk, world: Any) -> None:
    disk.capacity_bytes = 10_000
    with pytest.raises(DiskFull):
        await made(disk, world).prepare(1)
    assert disk.all_names() == []


async def test_foreign_and_cut_segments_are_refused(files: SegmentFiles, disk: MemoryDisk, world: Any) -> None:
    await files.prepare(1)
    with pytest.raises(CorruptData, match="was cut or is foreign"):
        await made(disk, world, raw_id=bytes(16)).load(1)
    disk.put("journal/0000000002.segment", disk.contents("journal/0000000001.segment"))
    with pytest.raises(CorruptData, match="expected generation 2"):
        await files.load(2)
    disk.put("journal/0000000001.segment", disk.contents("journal/0000000001.segment")[:8_192])
    with pytest.raises(CorruptData, match="8192 bytes"):
        await files.load(1)
    with pytest.raises(CorruptData, match="found none"):
        await files.load(9)
