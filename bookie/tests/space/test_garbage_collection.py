"""Ledgers are deleted on positive proof and stay deleted; whatever else the metadata store says or does, they are kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_bookie.settings import BookieSettings
from boki_bookie.space.ledger_facts import REPAIR_LOCKS
from boki_bookie.storage.limbo import Limbo
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerState
from boki_common.bookkeeper.status import V2Status
from boki_common.metadata.memory import Fault
from boki_common.runtime.memory_disk import MemoryDisk

OK, FENCED, NO_LEDGER = V2Status.OK, V2Status.FENCED, V2Status.NO_LEDGER


async def held(collected: Any, disk: MemoryDisk, *ledgers: int, **changes: Any) -> Storage:
    """A storage with one stored entry of each ledger."""
    storage: Storage = await collected.open(disk, **changes)
    for ledger_id in ledgers:
        await collected.ledger(ledger_id)
        assert await collected.world.put(storage, collected.world.add(ledger_id, 0, b"x" * 100)) == [OK]
    await storage.checkpoint()
    return storage


@pytest.fixture
async def storage(collected: Any, disk: MemoryDisk) -> Storage:
    """With one ledger."""
    return await held(collected, disk, 1)


async def is_there(collected: Any, storage: Storage, ledger_id: int) -> bool:
    found = await collected.world.read(storage, ledger_id, 0)
    if found is NO_LEDGER:
        return False
    assert found == bytes(collected.world.body(ledger_id, 0, b"x" * 100))
    return True


class TestDeletedLedgers:
    async def test_go_at_the_second_proof(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await held(collected, disk, 1, 2)
        await collected.forget(1)
        state = await storage.collect_garbage()
        assert (state.candidates, state.deleted_ledgers) == (1, 0)
        assert await is_there(collected, storage, 1)
        state = await storage.collect_garbage()
        assert (state.candidates, state.deleted_ledgers, state.ledgers, state.tombstones) == (0, 1, 1, 1)
        assert not await is_there(collected, storage, 1)
        assert await is_there(collected, storage, 2)
        assert storage.entry_ids(1) is None

    async def test_wait_for_the_grace(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await held(collected, disk, 1, gc_grace_s=3_600.0)
        await collected.forget(1)
        for _ in range(5):
            assert (await storage.collect_garbage()).candidates == 1
        assert await is_there(collected, storage, 1)

    @pytest.mark.parametrize("stored", [False, True])
    async def test_cannot_be_made_again_by_a_stale_writer(self, collected: Any, disk: MemoryDisk, stored: bool) -> None:
        """apache/bookkeeper#4462, TestFencing.testWriteAfterDeleted."""
        world = collected.world
        storage = await held(collected, disk, 1)
        assert await world.fence(storage, 1) is OK
        await collected.delete(storage, 1)
        if stored:
            await storage.checkpoint()
            await storage.checkpoint()
        for life in (storage, await collected.open(disk.crash(world.seeded(1)))):
            assert await world.put(life, world.add(1, 1)) == [FENCED]
            assert await world.put(life, world.add(1, 1, recovery=True)) == [FENCED]
            assert await world.fence(life, 1) is OK
            assert life.write_lac(1, world.key, bytes(20)) is NO_LEDGER
            assert life.is_fenced(1)
            assert await world.read(life, 1, -1) is NO_LEDGER
            assert life.ledger_count == 0
        assert world.looks == [1], "nobody has to ask the metadata"

    async def test_go_while_their_first_adds_wait_for_validation(self, collected: Any, disk: MemoryDisk) -> None:
        """TestFencing.testConcurrentFenceAndDeleteLedger: the add is refused, not stored anew."""
        world = collected.world
        gate = world.validate_after = asyncio.Event()
        storage = await collected.open(disk)
        assert await world.fence(storage, 2) is OK
        await world.put(storage, world.add(1, 0, recovery=True))
        waiting = world.submit(storage, world.add(1, 1))
        await storage.checkpoint()
        await collected.delete(storage)
        assert storage.ledger_count == 0, "made by a fence or by recovery, they go by the same proof"
        gate.set()
        assert await waiting is FENCED

    async def test_go_with_entries_that_no_checkpoint_has_stored(self, collected: Any, disk: MemoryDisk) -> None:
        world = collected.world
        storage = await held(collected, disk, 1)
        await world.put(storage, world.add(1, 1, bytes(1_000)))
        await collected.delete(storage, 1)
        assert (storage.ledger_count, storage.cached_bytes) == (0, 0)
        later = await collected.open(disk.crash(world.seeded(2)))
        assert await world.put(later, world.add(1, 2)) == [FENCED]

    async def test_give_their_files_back(self, collected: Any, disk: MemoryDisk) -> None:
        storage = await collected.open(disk)
        for ledger_id in range(8):
            await collected.ledger(ledger_id)
            await collected.world.put(storage, collected.world.add(ledger_id, 0, bytes(12_000)))
            await storage.checkpoint()
        before = [name for name in disk.all_names() if name.endswith(".entries")]
        state = await collected.delete(storage, *range(7))
        after = [name for name in disk.all_names() if name.endswith(".entries")]
        assert len(before) > 3
        assert len(after) == 1
        assert state.removed_files == len(before) - 1
        assert state.reclaimed_bytes > 7 * 12_000
        later = await collected.open(disk.crash(collected.world.seeded(1)))
        assert isinstance(await collected.world.read(later, 7, 0), bytes)

    async def test_are_remembered_for_days_and_then_forgotten(self, collected: Any, storage: Storage) -> None:
        await collected.delete(storage, 1)
        collected.today += 7
        assert (await storage.collect_garbage()).tombstones == 1
        collected.today += 1
        assert (await storage.collect_garbage()).tombstones == 0
        collected.world.validations[1] = FENCED
        assert await collected.world.put(storage, collected.world.add(1, 1)) == [FENCED], (
            "first validation refuses it now"
        )


class TestNothingIsDeleted:
    async def test_by_a_listing(self, collected: Any, disk: MemoryDisk) -> None:
        """apache/bookkeeper#870: an iterator with a defect lost ledgers repeatedly."""
        storage = await held(collected, disk, 1, 2)
        collected.store.lists_nothing = True
        for _ in range(3):
            assert (await storage.collect_garbage()).candidates == 0
        assert await is_there(collected, storage, 1)

    async def test_by_a_node_that_was_missed_once(self, collected: Any, storage: Storage) -> None:
        """A read that lags is followed by one that does not: the proof begins anew each time."""
        collected.store.lists_nothing = True
        for _ in range(3):
            collected.store.hidden[layout.ledger_path(1)] = 1
            assert (await storage.collect_garbage()).candidates == 1
            assert (await storage.collect_garbage()).candidates == 0
        assert await is_there(collected, storage, 1)

    async def test_by_a_store_that_is_away(self, collected: Any, storage: Storage) -> None:
        await collected.forget(1)
        await storage.collect_garbage()
        works, collected.store.faults = collected.store.faults, lambda method, path: Fault.UNAVAILABLE
        for _ in range(3):
            assert (await storage.collect_garbage()).deleted_ledgers == 0
        assert await is_there(collected, storage, 1)
        collected.store.faults = works
        assert (await storage.collect_garbage()).deleted_ledgers == 1

    async def test_by_proofs_of_two_sessions(self, collected: Any, storage: Storage) -> None:
        await collected.forget(1)
        for _ in range(3):
            assert (await storage.collect_garbage()).deleted_ledgers == 0
            collected.store.expire_session()
        assert (await storage.collect_garbage()).deleted_ledgers == 0
        assert (await storage.collect_garbage()).deleted_ledgers == 1

    @pytest.mark.parametrize("lost", [layout.INSTANCE_ID, layout.LAYOUT, "cookie"])
    async def test_by_the_store_of_another_cluster(self, collected: Any, storage: Storage, lost: str) -> None:
        await collected.forget(1)
        await storage.collect_garbage()
        await collected.store.delete(layout.cookie_path(collected.bookie_id) if lost == "cookie" else lost, version=0)
        for _ in range(3):
            assert (await storage.collect_garbage(major=True)).deleted_ledgers == 0
        assert await is_there(collected, storage, 1)

    async def test_by_another_layout_of_the_same_cluster(self, collected: Any, storage: Storage) -> None:
        await collected.forget(1)
        elsewhere = layout.LedgerLayout.LONG_HIERARCHICAL
        await layout.create_ledger(collected.store, 1, b"cannot be read", elsewhere)
        for _ in range(3):
            assert (await storage.collect_garbage(major=True)).deleted_ledgers == 0

    async def test_without_facts(self, world: Any, disk: MemoryDisk) -> None:
        storage = await world.open(disk)
        await world.put(storage, world.add(1, 0))
        for _ in range(3):
            assert (await storage.collect_garbage(major=True)).deleted_ledgers == 0
        assert storage.ledger_count == 1


class TestOverReplicatedLedgers:
    async def test_lose_their_entries_and_stay_fenced(self, collected: Any, disk: MemoryDisk, world: Any) -> None:
        """GcOverreplicatedLedgerTest."""
        storage = await held(collected, disk, 1, 2)
        await collected.close_elsewhere(1)
        assert (await storage.collect_garbage()).candidates == 0, "only a major run reads what the listing has"
        assert (await storage.collect_garbage(major=True)).candidates == 1
        assert (await storage.collect_garbage()).emptied_ledgers == 1
        for life in (storage, await collected.open(disk.crash(world.seeded(1)))):
            assert await world.read(life, 1, 0) is V2Status.NO_ENTRY
            assert await world.put(life, world.add(1, 1)) == [FENCED]
            assert await is_there(collected, life, 2)
            assert (await life.collect_garbage(major=True)).candidates == 0, "there is nothing left to empty"
        assert await collected.store.children(REPAIR_LOCKS) == []

    async def test_are_kept_by_default_and_named(self, collected: Any, disk: MemoryDisk) -> None:
        """A repair that goes on by an old list may count on them: see `test_gc_rules_under_repair`."""
        storage = await held(collected, disk, 1, 2, 3, gc_empties_elsewhere=BookieSettings().gc_empties_elsewhere)
        await collected.close_elsewhere(1)
        await collected.close_elsewhere(3)
        runs = [await storage.collect_garbage(major=True) for _ in range(4)]
        state = runs[-1]
        assert (state.emptied_ledgers, state.candidates) == (0, 0)
        assert (state.elsewhere_ledgers, state.elsewhere) == (2, (1, 3))
        assert await is_there(collected, storage, 1)
        state = await collected.delete(storage, 1)
        assert (state.deleted_ledgers, state.elsewhere) == (1, (3,))

    async def test_are_kept_while_a_hold_is_as_new_as_the_metadata(
        self, collected: Any, disk: MemoryDisk, world: Any
    ) -> None:
        """Whatever the copies were looked at before: see `ledger/tests/models` for the loss without it."""
        storage = await held(collected, disk, 1)
        await collected.close_elsewhere(1)
        assert (await storage.collect_garbage(major=True)).candidates == 1
        assert storage.hold(1, world.key, 1) is OK
        await storage.journal.flushed()
        await storage.checkpoint()
        for life in (storage, await collected.open(disk.crash(world.seeded(1)))):
            for _ in range(3):
                assert (await life.collect_garbage(major=True)).emptied_ledgers == 0
        path = layout.ledger_path(1)
        await collected.store.set(path, (await collected.store.get(path)).value, version=1)
        assert (await storage.collect_garbage(major=True)).candidates == 1, "it was touched: no swap at 1 can land"
        assert (await storage.collect_garbage(major=True)).emptied_ledgers == 1

    async def test_are_kept_in_limbo(self, collected: Any, disk: MemoryDisk, world: Any) -> None:
        """What was salvaged may have forgotten its holds."""
        await held(collected, disk, 1)
        await collected.close_elsewhere(1)
        crashed = disk.crash(world.seeded(1))
        limbo = await Limbo.begin(crashed, world.raw_id, {})
        storage = await collected.open(crashed, limbo=limbo)
        for _ in range(3):
            assert (await storage.collect_garbage(major=True)).emptied_ledgers == 0
        await storage.end_limbo()
        await storage.collect_garbage(major=True)
        assert (await storage.collect_garbage(major=True)).emptied_ledgers == 1

    @pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
    async def test_are_kept_while_they_are_not_closed(
        self, collected: Any, disk: MemoryDisk, state: LedgerState
    ) -> None:
        storage = await collected.open(disk)
        await collected.ledger(1, state=state, here=False)
        await collected.world.put(storage, collected.world.add(1, 0, b"x" * 100, recovery=True))
        await storage.checkpoint()
        for _ in range(3):
            await storage.collect_garbage(major=True)
        assert await is_there(collected, storage, 1)

    @pytest.mark.parametrize("entry_id", [0, 1])
    async def test_are_kept_when_repair_copies_to_them(self, collected: Any, disk: MemoryDisk, entry_id: int) -> None:
        """apache/bookkeeper#4668: also a copy of what is there already counts."""
        world = collected.world
        storage = await held(collected, disk, 1)
        await collected.close_elsewhere(1)
        for _ in range(3):
            await storage.collect_garbage(major=True)
            await world.put(storage, world.add(1, entry_id, b"x" * 100, recovery=True))
            await storage.checkpoint()
            entry_id += entry_id  # 0 again and again, or a new one each time
        assert (await storage.collect_garbage(major=True)).emptied_ledgers == 0
        assert await is_there(collected, storage, 1)

    async def test_are_kept_while_repair_holds_the_lock(self, collected: Any, storage: Storage) -> None:
        await collected.close_elsewhere(1)
        await storage.collect_garbage(major=True)
        for folder in (REPAIR_LOCKS.rpartition("/")[0], REPAIR_LOCKS):
            await collected.store.create(folder)
        lock = f"{REPAIR_LOCKS}/urL0000000001"
        await collected.store.create(lock, b"somebody")
        for _ in range(3):
            assert (await storage.collect_garbage(major=True)).emptied_ledgers == 0
        await collected.store.delete(lock, version=0)
        assert (await storage.collect_garbage(major=True)).emptied_ledgers == 1

    async def test_take_what_repair_brings_afterwards(self, collected: Any, disk: MemoryDisk, world: Any) -> None:
        storage = await held(collected, disk, 1)
        await collected.close_elsewhere(1)
        await storage.collect_garbage(major=True)
        await storage.collect_garbage(major=True)
        assert await world.put(storage, world.add(1, 0, b"x" * 100, recovery=True)) == [OK]
        for life in (storage, await collected.open(disk.crash(world.seeded(1)))):
            assert await is_there(collected, life, 1)
            await life.checkpoint()
        assert await is_there(collected, await collected.open(disk.crash(world.seeded(1))), 1)


async def test_a_run_comes_by_itself_and_on_request(collected: Any, disk: MemoryDisk) -> None:
    storage = await held(collected, disk, 1, gc_interval_s=0.01)
    await collected.forget(1)
    while storage.gc_state().deleted_ledgers == 0:
        await asyncio.sleep(0)
    assert storage.gc_state().last_run_ms == collected.now_ms()
    await storage.close()
    later = await collected.open(disk.reopen())
    later.request_gc(major=True)
    while later.gc_state().runs == 0:
        await asyncio.sleep(0)
