"""Replay across segments: what follows a torn end, what is missing, and what a checkpoint already covers."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.begin.journal_replay import JournalReplay
from boki_bookie.formats.journal_format import PAGE_BYTES, encode_group
from boki_bookie.journal.journal_segments import SegmentFiles, segment_name
from boki_common.errors import CorruptData, DiskFailed
from boki_common.runtime.memory_disk import MemoryDisk

Groups = dict[int, list[int]]


class Journal:
    """Writes segments with one-page groups."""

    def __init__(self, disk: MemoryDisk, world: Any) -> None:
        self.disk = disk
        self.files = SegmentFiles(disk, world.rng, world.raw_id, world.tiny(journal_spare_segments=0))

    async def write(self, groups: Groups) -> None:
        for generation, numbers in groups.items():
            segment = await self.files.prepare(generation)
            for page, number in enumerate(numbers, 1):
                buffers, _ = encode_group(segment.header, number, [1], [b"body %d" % number])
                await segment.file.write(page * PAGE_BYTES, buffers, durable=True)

    async def begun(self, generation: int, group: int) -> JournalReplay:
        found = await self.files.find()
        return JournalReplay(self.disk, self.files, found, first_generation=generation, first_group=group)

    async def replay(self, generation: int, group: int) -> tuple[Any, list[int]]:
        replay = await self.begun(generation, group)
        end = await replay.verify()
        numbers: list[int] = []
        async for _, groups in replay.segments():
            numbers.extend(found.number for found in groups)
        return end, numbers

    async def settle(self, generation: int, group: int) -> None:
        replay = await self.begun(generation, group)
        await replay.repair_end(await replay.verify())


@pytest.fixture
def journal(disk: MemoryDisk, world: Any) -> Journal:
    return Journal(disk, world)


async def test_groups_from_the_mark_on_are_replayed(journal: Journal) -> None:
    await journal.write({1: [0, 1], 2: [2, 3, 4], 3: [5], 4: []})
    end, numbers = await journal.replay(2, 3)
    assert numbers == [3, 4, 5]
    assert end == (6, 3, "", 2 * PAGE_BYTES, range(PAGE_BYTES, 2 * PAGE_BYTES), (4,))


async def test_an_empty_journal_goes_on_at_the_mark(journal: Journal) -> None:
    await journal.write({7: []})
    assert await journal.replay(7, 42) == ((42, 7, "", PAGE_BYTES, range(0), ()), [])


async def test_segments_behind_the_last_group_are_spares_again_and_the_mark_keeps_its_own(journal: Journal) -> None:
    await journal.write({7: [], 8: [], 9: []})
    await journal.settle(7, 42)
    assert await journal.disk.names("journal") == ["0000000007.segment", "0000000008.spare", "0000000009.spare"]
    await journal.write({8: [42], 9: []})
    assert (await journal.replay(7, 42))[1] == [42]
    await journal.settle(7, 42)
    assert await journal.disk.names("journal") == ["0000000007.segment", "0000000008.segment", "0000000009.spare"]


@pytest.mark.parametrize("how", ["not flushed", "a failed flush"])
async def test_a_last_group_that_may_be_in_memory_only_is_durable_once_the_end_is_known(
    journal: Journal, disk: MemoryDisk, world: Any, how: str
) -> None:
    await journal.write({1: [0, 1]})
    segment = await journal.files.resume(1)
    buffers, _ = encode_group(segment.header, 2, [1], [b"body 2"])
    disk.forgets_failed = True
    if how == "a failed flush":
        disk.fail("sync")
        with pytest.raises(DiskFailed):
            await segment.file.write(3 * PAGE_BYTES, buffers, durable=True)
        await segment.file.sync()
    else:
        await segment.file.write(3 * PAGE_BYTES, buffers, durable=False)
    assert (await journal.replay(1, 0))[1] == [0, 1, 2]
    crashed = [(await Journal(disk.crash(world.seeded(seed)), world).replay(1, 0))[1] for seed in range(20)]
    assert [0, 1] in crashed, "it was not durable"
    await journal.settle(1, 0)
    for seed in range(20):
        later = Journal(disk.crash(world.seeded(seed)), world)
        assert (await later.replay(1, 0))[1] == [0, 1, 2]


async def test_a_torn_end_is_erased_where_it_lies(journal: Journal, disk: MemoryDisk, world: Any) -> None:
    await journal.write({1: [0, 1, 2]})
    disk.flip_bit(segment_name(1), 3 * PAGE_BYTES + 50)
    await journal.settle(1, 0)
    for later in (journal, Journal(disk.crash(world.seeded(1)), world)):
        end, numbers = await later.replay(1, 0)
        assert numbers == [0, 1]
        assert (end.next_group, end.torn, end.offset) == (2, "", 3 * PAGE_BYTES)


async def test_a_torn_end_is_dropped_also_when_prepared_segments_follow(journal: Journal, disk: MemoryDisk) -> None:
    await journal.write({1: [0, 1, 2], 2: [], 3: []})
    disk.flip_bit(segment_name(1), 3 * PAGE_BYTES + 50)
    end, numbers = await journal.replay(1, 0)
    assert numbers == [0, 1]
    assert (end.next_group, end.generation, end.empty) == (2, 1, (2, 3))
    assert "group 2" in end.torn


async def test_a_torn_first_group_of_the_last_segment_is_dropped(journal: Journal, disk: MemoryDisk) -> None:
    await journal.write({1: [0, 1, 2], 2: [3]})
    disk.flip_bit(segment_name(2), PAGE_BYTES + 50)
    end, numbers = await journal.replay(1, 0)
    assert numbers == [0, 1, 2]
    assert end.next_group == 3


@pytest.mark.parametrize("byte", [0, 10, 33, 50])
async def test_damage_at_the_end_of_a_segment_is_corruption_when_the_next_one_goes_on(
    journal: Journal, disk: MemoryDisk, byte: int
) -> None:
    await journal.write({1: [0, 1, 2], 2: [3]})
    disk.flip_bit(segment_name(1), 3 * PAGE_BYTES + byte)
    with pytest.raises(CorruptData, match=r"0000000001.segment at byte 12288.*though group 3 of segment 2") as caught:
        await journal.replay(1, 0)
    assert caught.value.offset == 3 * PAGE_BYTES
    assert caught.value.path.endswith("journal/0000000001.segment")


async def test_damage_in_the_middle_of_a_segment_is_corruption(journal: Journal, disk: MemoryDisk) -> None:
    await journal.write({1: [0, 1, 2]})
    disk.flip_bit(segment_name(1), 2 * PAGE_BYTES + 50)
    with pytest.raises(CorruptData, match=r"at byte 8192.*group 2 follows"):
        await journal.replay(1, 0)


async def test_a_missing_segment_is_named(journal: Journal, disk: MemoryDisk) -> None:
    await journal.write({1: [0], 2: [1], 3: [2]})
    await disk.remove(segment_name(2))
    with pytest.raises(CorruptData, match=r"0000000002.segment, found none"):
        await journal.replay(1, 0)
    await disk.remove(segment_name(3))
    with pytest.raises(CorruptData, match=r"0000000005.segment, found none"):
        await journal.replay(5, 0)


async def test_a_journal_that_ends_before_the_mark_is_corruption(journal: Journal) -> None:
    await journal.write({1: [0, 1]})
    with pytest.raises(CorruptData, match=r"expected journal group 2, found .* group 5"):
        await journal.replay(1, 5)


async def test_a_journal_that_begins_after_the_mark_is_corruption(journal: Journal) -> None:
    await journal.write({1: [3, 4]})
    with pytest.raises(CorruptData, match="expected journal group 2, where the last checkpoint ended, found group 3"):
        await journal.replay(1, 2)
