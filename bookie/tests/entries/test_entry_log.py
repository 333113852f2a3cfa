"""The entry log: large writes, neighbours in one read, rolling files, uncommitted bytes, damage."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest

from boki_bookie.entries import entry_log as module
from boki_bookie.entries.entry_log import EntryLog, EntryLogEnd
from boki_bookie.entries.ledger_index import Extent, Place
from boki_bookie.formats.entry_log_format import unpack_location
from boki_common.errors import CorruptData, DiskFailed, DiskFull, StorageError
from boki_common.runtime.memory_disk import MemoryDisk

START = EntryLogEnd(1, 0)


def log_on(disk: MemoryDisk, world: Any, *, end: EntryLogEnd = START, open_files: int = 4) -> EntryLog:
    return EntryLog(disk, bookie_id=world.raw_id, end=end, file_bytes=16_384, open_files=open_files)


@pytest.fixture
def log(disk: MemoryDisk, world: Any) -> EntryLog:
    return log_on(disk, world)


async def store(log: EntryLog, ledger_id: int, bodies: list[bytes], *, first: int = 0) -> list[tuple[int, Place]]:
    log.tail.begin()
    by_entry = {first + number: memoryview(body) for number, body in enumerate(bodies)}
    locations: array[int] = array("Q")
    while len(locations) < len(by_entry):
        await log.tail.append_some(ledger_id, by_entry, list(by_entry), locations)
    await log.tail.commit()
    log.tail.release()
    return [
        (ledger_id, Place(entry_id, location, len(body)))
        for (entry_id, body), location in zip(by_entry.items(), locations, strict=True)
    ]


def values(found: list[memoryview | StorageError]) -> list[bytes | StorageError]:
    """What was read, in a form that compares with what was stored."""
    return [bytes(body) if isinstance(body, memoryview) else body for body in found]


async def test_entries_come_back_over_several_files(disk: MemoryDisk, world: Any, log: EntryLog) -> None:
    bodies = [bytes([number]) * 3_000 for number in range(40)]
    wanted = await store(log, 7, bodies)
    assert len(disk.all_names()) > 5
    assert values(await log.read(wanted)) == bodies
    fresh = log_on(disk, world, end=log.tail.committed, open_files=1)
    assert values(await fresh.read(wanted[::-1])) == bodies[::-1]


async def test_neighbours_cost_one_read(disk: MemoryDisk, log: EntryLog) -> None:
    wanted = await store(log, 7, [b"x" * 100] * 50)
    await log.read(wanted[:1])
    before = disk.steps
    assert len(await log.read(wanted)) == 50
    assert disk.steps - before == 1
    before = disk.steps
    await log.read(wanted[::2])
    assert disk.steps - before == 25


async def test_the_write_that_ends_a_stage_is_its_flush(
    disk: MemoryDisk, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_BYTES", 4_096)
    log = EntryLog(disk, bookie_id=world.raw_id, end=START, file_bytes=1 << 20, open_files=4)
    bodies = {number: memoryview(bytes([number]) * 4_000) for number in range(6)}
    locations: array[int] = array("Q")
    log.tail.begin()
    while log.tail.uncommitted_bytes < 12_288:
        await log.tail.append_some(7, bodies, list(bodies), locations, stage_bytes=12_288)
    steps = disk.steps
    await log.tail.commit()
    assert disk.steps == steps, "there was nothing left to flush"
    crashed = disk.crash(world.rng)
    again = EntryLog(crashed, bookie_id=world.raw_id, end=log.tail.committed, file_bytes=1 << 20, open_files=4)
    wanted = [(7, Place(number, location, 4_000)) for number, location in enumerate(locations)]
    assert wanted
    assert values(await again.read(wanted)) == [bytes(bodies[number]) for number in range(len(wanted))]
    await log.tail.append_some(7, bodies, list(bodies), locations)
    steps = disk.steps
    await log.tail.commit()
    assert disk.steps > steps, "what was not flushed with its write is flushed now"


async def test_what_was_not_committed_is_overwritten(disk: MemoryDisk, world: Any, log: EntryLog) -> None:
    kept = await store(log, 1, [b"kept"])
    end = log.tail.committed
    log.tail.begin()
    await log.tail.append_some(2, {0: memoryview(b"lost" * 10_000)}, [0], array("Q"))
    await log.tail._flush()
    again = log_on(disk, world, end=end)
    new = await store(again, 3, [b"new"])
    assert values(await again.read(kept + new)) == [b"kept", b"new"]


async def test_a_full_disk_or_a_failed_flush_commits_nothing(disk: MemoryDisk, log: EntryLog) -> None:
    disk.capacity_bytes = 10_000
    with pytest.raises(DiskFull):
        await store(log, 1, [bytes(20_000)])
    assert log.tail.committed == START
    disk.capacity_bytes = 10**6
    disk.fail("sync")
    with pytest.raises(DiskFailed):
        await store(log, 1, [b"x"])
    assert log.tail.committed == START
    assert values(await log.read(await store(log, 1, [b"x"]))) == [b"x"]


async def test_damage_is_an_error_of_that_entry_only(disk: MemoryDisk, log: EntryLog) -> None:
    wanted = await store(log, 7, [b"aaaa", b"bbbb", b"cccc"])
    name = module.file_name(1)
    disk.flip_bit(name, disk.contents(name).index(b"bbbb"))
    first, second, third = values(await log.read(wanted))
    assert (first, third) == (b"aaaa", b"cccc")
    assert isinstance(second, CorruptData)
    assert second.path.endswith(name)


async def test_a_lost_or_foreign_file_is_an_error_of_its_entries(disk: MemoryDisk, world: Any, log: EntryLog) -> None:
    wanted = await store(log, 7, [b"a"])
    await disk.remove(module.file_name(1))
    fresh = log_on(disk, world, end=log.tail.committed)
    assert isinstance((await fresh.read(wanted))[0], CorruptData)
    disk.put(module.file_name(1), bytes(8_192))
    assert isinstance((await fresh.read(wanted))[0], CorruptData)
    disk.fail("open")
    assert isinstance((await fresh.read(wanted))[0], StorageError)


async def test_files_that_are_written_are_not_finished(disk: MemoryDisk, log: EntryLog) -> None:
    await store(log, 1, [bytes(6_000)] * 9)
    assert sorted(log.finished()) == [1, 2]
    output = log.open_output()
    locations = await output.append(1, {9: memoryview(b"moved")}, [9])
    await output.commit()
    assert unpack_location(locations[0])[0] == 4
    await store(log, 2, [bytes(6_000)] * 3)
    assert sorted(log.files) == [1, 2, 3, 4, 5]
    assert sorted(log.finished()) == [1, 2, 3]
    log.close_output(output)
    assert sorted(log.finished()) == [1, 2, 3, 4]
    assert values(await log.read([(1, Place(9, locations[0], 5))])) == [b"moved"]
    assert log.stored_bytes == sum(len(disk.contents(name)) for name in disk.all_names())


async def test_a_removed_file_is_gone_and_its_number_is_not_used_again(disk: MemoryDisk, log: EntryLog) -> None:
    wanted = await store(log, 1, [bytes(6_000)] * 9)
    await log.read(wanted)
    for number in (1, 2):
        await log.remove(number)
    assert [isinstance(body, CorruptData) for body in await log.read(wanted[::8])] == [True, False]
    assert module.file_name(1) not in disk.all_names()
    log.close_output(log.open_output())
    assert log.new_number() == 5


async def test_what_is_being_read_is_read_though_its_file_is_removed(disk: MemoryDisk, log: EntryLog) -> None:
    wanted = await store(log, 1, [b"%d" % number * 3_000 for number in range(8)])
    await log.read(wanted[:1])
    disk.hold("read")
    reading = asyncio.ensure_future(log.read(wanted[:1]))
    await asyncio.sleep(0)
    removing = asyncio.ensure_future(log.remove(1))
    await asyncio.sleep(0)
    disk.release("read")
    await removing
    assert values(await reading) == [b"0" * 3_000]


async def test_a_checkpoint_that_starts_over_uses_the_files_it_had_begun(log: EntryLog) -> None:
    await store(log, 1, [b"first"])
    log.tail.begin()
    await log.tail.append(1, {entry: memoryview(bytes(6_000)) for entry in range(6)}, range(6))
    await store(log, 1, [bytes(6_000)] * 6)
    assert sorted(log.files) == [1, 2, 3]


async def test_what_is_found_at_start_is_known_and_not_overwritten(disk: MemoryDisk, world: Any, log: EntryLog) -> None:
    await store(log, 1, [b"first"])
    disk.put(module.file_name(7), bytes(5_000))
    disk.put("entries/notes.txt", b"not ours")
    again = log_on(disk, world, end=log.tail.committed)
    await again.find()
    assert again.finished() == {7: 5_000}
    assert again.new_number() == 8


def extent_of(wanted: list[tuple[int, Place]]) -> Extent:
    places = [place for _, place in wanted]
    locations, sizes = [place.location for place in places], [place.body_bytes for place in places]
    return Extent(places[0].entry_id, array("Q", locations), array("I", sizes))


async def test_an_extent_costs_few_reads_and_none_where_the_system_has_it(disk: MemoryDisk, world: Any) -> None:
    log = log_on(disk, world)
    bodies = [bytes([number]) * 900 for number in range(50)]
    extent = extent_of([*await store(log, 7, bodies[:25]), *await store(log, 7, bodies[25:], first=25)])
    files = len({location >> 40 for location in extent.locations})
    await log.read_extent(7, extent)
    before = disk.steps
    assert [bytes(body) for body in await log.read_extent(7, extent)] == bodies
    assert disk.steps - before <= files + 2
    assert log.extent_at_hand(7, extent) is None
    disk.cached, before = True, disk.steps
    found = log.extent_at_hand(7, extent)
    assert found is not None and [bytes(body) for body in found] == bodies
    one = log.at_hand(7, Place(3, extent.locations[3], extent.body_bytes[3]))
    assert one is not None and bytes(one) == bodies[3]
    assert disk.steps == before
    assert log_on(disk, world, end=log.tail.committed).extent_at_hand(7, extent) is None, "no file is opened at once"


@pytest.mark.parametrize("cached", [False, True])
async def test_an_extent_ends_before_damage_and_before_other_entries(
    disk: MemoryDisk, log: EntryLog, cached: bool
) -> None:
    wanted = await store(log, 7, [b"aaaa", b"bbbb", b"cccc"])
    extent = extent_of(wanted)
    assert len(await log.read_extent(7, extent)) == 3
    disk.cached = cached
    assert await log.read_extent(8, extent) == []
    assert await log.read_extent(7, extent._replace(first=1)) == []
    assert await log.read_extent(7, extent_of([wanted[0], wanted[2]])) == [b"aaaa"]
    name = module.file_name(1)
    disk.flip_bit(name, disk.contents(name).index(b"bbbb"))
    assert await log.read_extent(7, extent) == [b"aaaa"]
    assert log.extent_at_hand(7, extent) is None
    assert log.at_hand(7, wanted[1][1]) is None
    third = log.at_hand(7, wanted[2][1])
    assert (b"" if third is None else bytes(third)) == (b"cccc" if cached else b"")


async def test_an_extent_of_a_lost_file_is_empty(disk: MemoryDisk, log: EntryLog) -> None:
    extent = extent_of(await store(log, 7, [b"aaaa"]))
    await log.close()
    await disk.remove(module.file_name(1))
    assert await log.read_extent(7, extent) == []
