"""The file LIMBO, and how a store answers while it is there: what it holds, and unknown for the rest."""

from __future__ import annotations

from typing import Any

import pytest

from boki_bookie.storage.limbo import COPY_NAME, LIMBO_NAME, Limbo
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import CorruptData, VersionMismatch
from boki_common.runtime.memory_disk import MemoryDisk

LISTED = {3: True, 5: False, 2**62: True}


async def test_the_list_comes_back_until_it_is_cleared(world: Any, disk: MemoryDisk) -> None:
    assert await Limbo.load(disk, world.raw_id) is None
    limbo = await Limbo.begin(disk, world.raw_id, LISTED)
    for found in (limbo, await Limbo.load(disk.crash(world.seeded(1)), world.raw_id)):
        assert found is not None
        assert found.ledgers == [3, 5, 2**62]
        assert [found.fences(ledger_id) for ledger_id in (3, 4, 5)] == [True, False, False]
    await limbo.clear([3, 4, 2**62])
    again = await Limbo.load(disk, world.raw_id)
    assert again is not None
    assert again.ledgers == [5]
    await again.list_more({7: True})
    await again.clear([5, 7])
    assert not again.is_over
    await again.end()
    assert not again.doubts(5, validated=False)
    assert await Limbo.load(disk, world.raw_id) is None


async def test_every_damaged_or_foreign_list_is_refused(world: Any, disk: MemoryDisk) -> None:
    """A list that cannot be read must not look like no list."""
    await Limbo.begin(disk, world.raw_id, LISTED)
    await disk.remove(COPY_NAME)
    good = disk.contents(LIMBO_NAME)
    for at in range(len(good)):
        disk.flip_bit(LIMBO_NAME, at, at % 8)
        with pytest.raises(CorruptData, match=r"LIMBO.*--salvage"):
            await Limbo.load(disk, world.raw_id)
        disk.flip_bit(LIMBO_NAME, at, at % 8)
    for end in range(len(good)):
        disk.put(LIMBO_NAME, good[:end])
        with pytest.raises(CorruptData, match="LIMBO"):
            await Limbo.load(disk, world.raw_id)
    disk.put(LIMBO_NAME, good)
    with pytest.raises(CorruptData, match="expected the limbo of bookie"):
        await Limbo.load(disk, bytes(16))


@pytest.mark.parametrize("name", [LIMBO_NAME, COPY_NAME])
async def test_one_of_its_files_may_be_damaged_or_gone(world: Any, disk: MemoryDisk, name: str) -> None:
    await Limbo.begin(disk, world.raw_id, LISTED)
    good = disk.contents(name)
    for data in (good[:-1], b"", bytes(len(good))):
        disk.put(name, data)
        found = await Limbo.load(disk, world.raw_id)
        assert found is not None
        assert found.ledgers == sorted(LISTED)
    await disk.remove(name)
    found = await Limbo.load(disk, world.raw_id)
    assert found is not None
    assert (found.ledgers, found.fences(3), found.fences(5)) == (sorted(LISTED), True, False)


async def test_where_a_crash_left_two_lists_both_count(world: Any, disk: MemoryDisk) -> None:
    await Limbo.begin(disk, world.raw_id, {1: False, 2: True})
    older = disk.contents(COPY_NAME)
    await Limbo.begin(disk, world.raw_id, {1: True, 3: False})
    disk.put(COPY_NAME, older)
    found = await Limbo.load(disk, world.raw_id)
    assert found is not None
    assert [(ledger_id, found.fences(ledger_id)) for ledger_id in found.ledgers] == [(1, True), (2, True), (3, False)]


async def test_a_newer_list_is_refused(world: Any, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boki_bookie.storage.limbo.FORMAT_VERSION", 2)
    await Limbo.begin(disk, world.raw_id, LISTED)
    monkeypatch.undo()
    with pytest.raises(VersionMismatch, match="expected limbo version 1, found 2"):
        await Limbo.load(disk, world.raw_id)


async def in_limbo(world: Any, disk: MemoryDisk, listed: dict[int, bool]) -> Storage:
    if not disk.all_names():
        await world.format(disk)
    limbo = await Limbo.load(disk, world.raw_id) or await Limbo.begin(disk, world.raw_id, listed)
    storage: Storage = await world.open(disk, limbo=limbo)
    return storage


async def test_in_limbo_what_is_held_is_read_and_nothing_is_denied(world: Any, disk: MemoryDisk) -> None:
    """DbLedgerStorageTest.testLimboState: positives are answered, negatives and the last entry are unknown."""
    unknown = V2Status.UNKNOWN_LEDGER_STATE
    storage = await in_limbo(world, disk, {1: True})
    assert await world.put(storage, world.add(1, 4, recovery=True)) == [V2Status.OK]
    assert await world.read(storage, 1, 4) == bytes(world.body(1, 4))
    assert await world.read(storage, 1, 3) is unknown
    assert await world.read(storage, 1, -1) is unknown
    assert await world.read(storage, 2, 0) is unknown, "a ledger nobody listed may be lost too"
    assert await world.read(storage, 1, -7) is V2Status.BAD_REQUEST
    await storage.checkpoint()
    assert await world.read(storage, 1, 4) == bytes(world.body(1, 4))
    assert await world.read(storage, 1, 3) is unknown


async def test_in_limbo_a_fence_is_taken_and_proves_nothing(world: Any, disk: MemoryDisk) -> None:
    storage = await in_limbo(world, disk, {1: True})
    for ledger_id in (1, 2):
        assert await world.fence(storage, ledger_id) is V2Status.OK
        assert await world.read(storage, ledger_id, 0) is V2Status.UNKNOWN_LEDGER_STATE
        assert await world.read(storage, ledger_id, -1) is V2Status.UNKNOWN_LEDGER_STATE
        assert await world.put(storage, world.add(ledger_id, 0)) == [V2Status.FENCED]
        assert await world.put(storage, world.add(ledger_id, 0, recovery=True)) == [V2Status.OK]


async def test_in_limbo_a_lost_ledger_takes_recovery_adds_alone(world: Any, disk: MemoryDisk) -> None:
    """Its fence is in the list only, for the store knows nothing of it; the metadata is not even asked."""
    storage = await in_limbo(world, disk, {1: True})
    assert await world.put(storage, world.add(1, 0)) == [V2Status.FENCED]
    assert await world.put(storage, world.add(1, 0, recovery=True)) == [V2Status.OK]
    assert await world.put(storage, world.add(1, 1)) == [V2Status.FENCED]
    assert world.looks == []


async def test_in_limbo_a_ledger_made_since_is_certain(world: Any, disk: MemoryDisk) -> None:
    storage = await in_limbo(world, disk, {1: True, 5: False})
    assert await world.put(storage, world.add(9, 0), world.add(5, 0)) == [V2Status.OK, V2Status.OK]
    assert await world.read(storage, 9, 1) is V2Status.NO_ENTRY
    assert await world.read(storage, 9, -1) == bytes(world.body(9, 0))
    assert await world.read(storage, 5, 1) is V2Status.UNKNOWN_LEDGER_STATE, "listed: it was there before"


async def test_limbo_survives_restarts_until_it_ends(world: Any, disk: MemoryDisk) -> None:
    storage = await in_limbo(world, disk, {1: True})
    await world.put(storage, world.add(1, 0, recovery=True), world.add(9, 0))
    for _ in range(2):
        disk = disk.crash(world.seeded(2))
        storage = await in_limbo(world, disk, {})
        assert await world.read(storage, 1, 1) is V2Status.UNKNOWN_LEDGER_STATE
        assert await world.put(storage, world.add(1, 1)) == [V2Status.FENCED]
        assert await world.read(storage, 9, 1) is V2Status.NO_ENTRY
    assert storage.limbo is not None
    await storage.limbo.clear([1])
    assert await world.read(storage, 1, 1) is V2Status.UNKNOWN_LEDGER_STATE, "not validated since"
    await storage.limbo.end()
    assert await world.read(storage, 1, 1) is V2Status.NO_ENTRY
    assert await world.read(storage, 2, 0) is V2Status.NO_LEDGER


async def test_the_flag_is_kept_when_the_disk_fails_to_clear_it(world: Any, disk: MemoryDisk) -> None:
    """DbLedgerStorageTest.testLimboStateFlushFailure: a list that was not written has not changed."""
    limbo = await Limbo.begin(disk, world.raw_id, {1: True, 2: True})
    disk.fail("replace")
    with pytest.raises(Exception, match="input/output error"):
        await limbo.clear([1])
    assert limbo.ledgers == [1, 2]
    disk.fail("replace", nth=2)
    with pytest.raises(Exception, match="input/output error"):
        await limbo.clear([1])
    assert limbo.ledgers == [1, 2]
    again = await Limbo.load(disk.crash(world.seeded(1)), world.raw_id)
    assert again is not None
    assert again.ledgers == [1, 2]
