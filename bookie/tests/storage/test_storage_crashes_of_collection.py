"""The disk stops at each step of garbage collection in turn: deletions, tombstones, compaction, removal of files.

After each crash: what was acknowledged of a ledger that lives is there, byte for byte; what is there was once sent; a
deleted ledger that was durable stays deleted, and refuses to be made again; fences hold; and after two more collections no
file is left that nothing lives in.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from tests.storage.crashes import Recorded, crash_at

from boki_bookie.space.compaction import file_use
from boki_bookie.space.gc_rules import dead_files
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.status import V2Status
from boki_common.limits import KIB
from boki_common.runtime.memory_disk import MemoryDisk

DELETED: Final = (1, 2, 3)
ELSEWHERE: Final = 4
LIVING: Final = (5, 6)
LEDGERS: Final = (*DELETED, ELSEWHERE, *LIVING)
ENTRIES: Final = 6


class RecordedDeletions(Recorded):
    """Also which deletions were reported as done with everything durable."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.deleted: dict[int, None] = {}
        self.was_asked = False
        """Whether deletion had begun: from then on a deleted ledger may be there or not."""


async def prepared(collected: Any) -> tuple[MemoryDisk, RecordedDeletions]:
    """A disk with entries of all ledgers in every file; the metadata says what is to go."""
    disk, recorded = MemoryDisk(), RecordedDeletions(collected.world)
    storage = await collected.open(disk)
    for ledger_id in LEDGERS:
        await collected.ledger(ledger_id)
    for entry_id in range(ENTRIES):
        for ledger_id in LEDGERS:
            await recorded.add(storage, ledger_id, entry_id)
        await storage.checkpoint()
    assert await collected.world.fence(storage, 1) is V2Status.OK
    assert await collected.world.fence(storage, 5) is V2Status.OK
    await storage.close()
    for ledger_id in DELETED:
        await collected.forget(ledger_id)
    await collected.close_elsewhere(ELSEWHERE)
    return disk, recorded


async def script(collected: Any, storage: Storage, recorded: RecordedDeletions) -> None:
    """Collections with adds, checkpoints and a fence among them."""
    await recorded.add(storage, 6, ENTRIES)
    await storage.collect_garbage(major=True)
    recorded.was_asked = True
    await asyncio.gather(storage.collect_garbage(major=True), recorded.add(storage, 6, ENTRIES + 1))
    await storage.journal.flushed()
    recorded.deleted.update(dict.fromkeys(DELETED))
    await asyncio.gather(storage.checkpoint(), storage.collect_garbage(major=True))
    await recorded.add(storage, 6, ENTRIES + 2)
    await storage.checkpoint()
    await storage.close()


async def opened_and_run(collected: Any, disk: MemoryDisk, recorded: RecordedDeletions) -> None:
    await script(collected, await collected.open(disk), recorded)


async def check(collected: Any, disk: MemoryDisk, recorded: RecordedDeletions) -> None:
    world = collected.world
    storage = await collected.open(disk)
    for (ledger_id, entry_id), body in recorded.acknowledged.items():
        found = await world.read(storage, ledger_id, entry_id)
        if ledger_id in LIVING or (ledger_id in DELETED and not recorded.was_asked):
            assert found == body, (ledger_id, entry_id)
        elif ledger_id in recorded.deleted:
            assert found is V2Status.NO_LEDGER, (ledger_id, entry_id)
        else:
            assert found in (body, V2Status.NO_ENTRY, V2Status.NO_LEDGER), (ledger_id, entry_id)
    for ledger_id in recorded.deleted:
        assert await world.put(storage, world.add(ledger_id, 99, recovery=True)) == [V2Status.FENCED]
    for ledger_id in (1, 5):
        assert storage.is_fenced(ledger_id), ledger_id
    await storage.collect_garbage(major=True)
    state = await storage.collect_garbage(major=True)
    assert state.ledgers == 3
    assert dead_files(await file_use(storage._index, storage._entry_log)) == []
    on_disk = {int(name[8:18]) for name in disk.all_names() if name.startswith("entries/")}
    assert on_disk == set(storage._entry_log.files) | {storage._entry_log.tail.committed.file_number} & on_disk
    for ledger_id in LIVING:
        for entry_id in range(ENTRIES):
            assert await world.read(storage, ledger_id, entry_id) == recorded.acknowledged[ledger_id, entry_id]
    for ledger in storage._ledgers.values():
        ledger.check_invariants()
    await storage.close()


@pytest.fixture(autouse=True)
def _small(collected: Any) -> None:
    collected.settings = collected.world.tiny(
        gc_grace_s=0.0,
        gc_reads_per_s=10**9,
        compaction_bytes_per_s=2**40,
        write_cache_bytes=64 * KIB,
        entry_log_bytes=20 * KIB,
        journal_live_segments=3,
        compact_below=0.7,
    )


async def steps_of(collected: Any, stride: int, offset: int) -> int:
    start, recorded = await prepared(collected)
    steps = offset
    while True:
        now = RecordedDeletions(collected.world)
        now.acknowledged = dict(recorded.acknowledged)
        disk = start.crash(collected.world.seeded(0))
        survivor = await crash_at(collected.world, disk, steps, steps, opened_and_run(collected, disk, now))
        if survivor is None:
            return steps
        await check(collected, survivor, now)
        steps += stride


@pytest.mark.parametrize("offset", [0, 1, *(pytest.param(offset, marks=pytest.mark.nightly) for offset in (2, 3, 4))])
async def test_a_crash_at_any_step_of_a_collection_loses_nothing_and_raises_nothing(
    collected: Any, offset: int
) -> None:
    """Every fifth step in turn; the five together are all of them."""
    assert await steps_of(collected, 5, offset) > 150, "a collection has many disk operations"
