"""What can be read of a damaged store is there afterwards, nothing else is, and the store opens like any other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.crashes import end_all_tasks, until_stopped

from boki_bookie.begin.salvage import Salvage, Salvaged
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.entries.ledger_index import HELD_FOR_GOOD
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

LEDGERS = (1, 2, 3)
STORED = range(20)
JOURNALED = range(20, 24)


def payload(ledger_id: int, entry_id: int) -> bytes:
    return bytes([ledger_id, entry_id]) * 300


async def filled(world: Any, disk: MemoryDisk) -> None:
    """Three ledgers: some entries in the entry log, the rest and a fence in the journal alone; then a kill."""
    storage = await world.open(disk)
    for ledger_id in LEDGERS:
        await world.put(storage, *(world.add(ledger_id, entry, payload(ledger_id, entry)) for entry in STORED))
    await storage.checkpoint()
    for ledger_id in LEDGERS:
        for entry in JOURNALED:
            await world.put(storage, world.add(ledger_id, entry, payload(ledger_id, entry)))
    await world.fence(storage, 3)


@pytest.fixture
async def damaged(world: Any) -> MemoryDisk:
    disk = MemoryDisk()
    await filled(world, disk)
    return disk.crash(world.seeded(1))


async def salvage(world: Any, disk: MemoryDisk, *, keys: Any = None, open_ledgers: tuple[int, ...] = ()) -> Salvaged:
    return await Salvage(
        disk,
        world.raw_id,
        rng=world.seeded(7),
        settings=world.settings,
        keys=keys or {},
        may_stay_open=lambda found: found in open_ledgers,
    ).run()


async def held(world: Any, storage: Storage) -> dict[tuple[int, int], bytes]:
    found = {}
    for ledger_id in LEDGERS:
        for entry_id in range(40):
            body = await world.read(storage, ledger_id, entry_id)
            if isinstance(body, bytes):
                found[ledger_id, entry_id] = body
            else:
                assert body in (V2Status.NO_ENTRY, V2Status.NO_LEDGER), body
    return found


def sent(world: Any, *entries: int) -> dict[tuple[int, int], bytes]:
    return {
        (ledger_id, entry): bytes(world.body(ledger_id, entry, payload(ledger_id, entry)))
        for ledger_id in LEDGERS
        for entry in entries
    }


async def test_a_whole_store_keeps_everything_is_fenced_and_unvalidated(world: Any, damaged: MemoryDisk) -> None:
    await salvage(world, damaged, open_ledgers=(2,))
    storage = await world.open(damaged)
    assert await held(world, storage) == sent(world, *STORED, *JOURNALED)
    looks = len(world.looks)
    assert await world.put(storage, *(world.add(ledger_id, 30) for ledger_id in LEDGERS)) == [
        V2Status.FENCED,
        V2Status.OK,
        V2Status.FENCED,
    ]
    assert world.looks[looks:] == [2]
    assert await world.put(storage, world.add(1, 30, recovery=True)) == [V2Status.OK]
    assert [storage.ledger(one).hold for one in LEDGERS] == [HELD_FOR_GOOD] * 3, "holds may be among what was lost"


async def test_without_checkpoint_and_index_entries_are_found_in_the_entry_log(world: Any, damaged: MemoryDisk) -> None:
    await damaged.remove(MARK_NAME)
    await damaged.remove("index/0000000001.index")
    with pytest.raises(CorruptData):
        await world.open(damaged)
    await salvage(world, damaged, keys=dict.fromkeys(LEDGERS, world.key))
    storage = await world.open(damaged)
    assert await held(world, storage) == sent(world, *STORED, *JOURNALED)
    assert storage.fence(1, world.other_key) is V2Status.UNAUTHORIZED


async def test_a_ledger_without_any_key_is_left_out(world: Any, damaged: MemoryDisk) -> None:
    await damaged.remove("index/0000000001.index")
    for name in await damaged.names("journal"):
        await damaged.remove(f"journal/{name}")
    await salvage(world, damaged, keys={2: world.key})
    storage = await world.open(damaged)
    assert sorted(await held(world, storage)) == [(2, entry) for entry in STORED]


async def test_a_damaged_group_costs_that_group_alone(world: Any, damaged: MemoryDisk) -> None:
    names = [f"journal/{name}" for name in await damaged.names("journal") if name.endswith(".segment")]
    full = [name for name in names if damaged.contents(name)[8192:8196] == b"BKG1"][-1]
    damaged.flip_bit(full, 4096 + 100)
    with pytest.raises(CorruptData, match="--salvage"):
        await world.open(damaged)
    await salvage(world, damaged)
    everything = sent(world, *STORED, *JOURNALED)
    found = await held(world, await world.open(damaged))
    assert found.items() <= everything.items()
    assert len(everything) - len(found) == 1


@pytest.mark.parametrize("where", ["length", "body", "header"])
async def test_a_damaged_stored_entry_costs_that_entry_alone(world: Any, damaged: MemoryDisk, where: str) -> None:
    name = "entries/0000000001.entries"
    stop = 4096 + 24 + len(world.body(1, 0, payload(1, 0)))
    damaged.flip_bit(name, stop + {"length": 5, "body": 200, "header": 12}[where], 1)
    await damaged.remove(MARK_NAME)
    await salvage(world, damaged)
    found = await held(world, await world.open(damaged))
    assert sorted(set(sent(world, *STORED, *JOURNALED)) - set(found)) == [(1, 1)]


async def test_files_of_another_bookie_are_left_aside(world: Any, damaged: MemoryDisk) -> None:
    """Its own journal is gone; another bookie's lies there."""
    foreign = MemoryDisk()
    await Storage.format(foreign, bytes(16), world.seeded(5), world.settings)
    for name in await damaged.names("journal"):
        await damaged.remove(f"journal/{name}")
    damaged.put("journal/0000000001.segment", foreign.contents("journal/0000000001.segment"))
    found = await salvage(world, damaged)
    assert found.entries == len(LEDGERS) * len(STORED)
    assert await held(world, await world.open(damaged)) == sent(world, *STORED)


async def test_what_a_disk_cannot_read_is_left_out(world: Any, damaged: MemoryDisk) -> None:
    damaged.fail("read", nth=4)
    found = await salvage(world, damaged)
    assert found.unreadable >= 1
    everything = sent(world, *STORED, *JOURNALED)
    assert (await held(world, await world.open(damaged))).items() <= everything.items()


@pytest.mark.parametrize("seed", range(2))
async def test_a_crash_at_every_step_is_met_by_another_try(world: Any, damaged: MemoryDisk, seed: int) -> None:
    await damaged.remove(MARK_NAME)
    expected = sent(world, *STORED, *JOURNALED)
    steps = 0
    while True:
        disk = damaged.crash(world.seeded(seed)).reopen()
        disk.stop_after(steps)
        stopped = await until_stopped(disk, salvage(world, disk))
        survivor = disk.crash(world.seeded(steps))
        await end_all_tasks(stopped)
        await salvage(world, survivor)
        storage = await world.open(survivor)
        assert await held(world, storage) == expected
        await storage.close()
        if not stopped.early:
            break
        steps += 3
    assert steps > 30


async def test_memory_of_the_scan_is_bounded_by_windows(
    world: Any, monkeypatch: pytest.MonkeyPatch, disk: MemoryDisk
) -> None:
    """Entries across the borders of windows are found once each."""
    monkeypatch.setattr("boki_bookie.begin.salvage.SCAN_BYTES", 8 * KIB)
    monkeypatch.setattr("boki_bookie.begin.salvage.FRAME_BYTES", 4 * KIB)
    storage = await world.open(disk, world.tiny(entry_log_bytes=256 * KIB))
    await world.put(storage, *(world.add(1, entry, payload(1, entry)) for entry in range(100)))
    await storage.checkpoint()
    survivor = disk.crash(world.seeded(1))
    await survivor.remove(MARK_NAME)
    for name in await survivor.names("journal"):
        await survivor.remove(f"journal/{name}")
    assert (await salvage(world, survivor)).entries == 100
