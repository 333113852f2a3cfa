"""What a store promised holds after whatever death: fences, entries, torn records, flushes. Each names where it comes from."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.storage.crashes import end_all_tasks, until_stopped
from tests.turns import turns

from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_router import StorageRouter, directory_of
from boki_common.bookkeeper.status import V2Status
from boki_common.runtime.memory_disk import MemoryDisk

OK: Final = V2Status.OK
PAGE: Final = 4_096


@pytest.mark.parametrize("before", ["nothing", "entries in memory", "stored entries", "an empty checkpoint"])
@pytest.mark.parametrize("after", ["kill", "checkpoint and kill", "close"])
async def test_a_fence_that_was_answered_holds_after_a_restart(
    world: Any, disk: MemoryDisk, before: str, after: str
) -> None:
    """apache/bookkeeper TestFencing.testFencingAndRestartBookies; PR #4843: also with no entry and an empty write cache."""
    storage: Storage = await world.open(disk)
    if before != "nothing":
        assert await world.put(storage, world.add(1, 0), world.add(2, 0)) == [OK, OK]
    if before in ("stored entries", "an empty checkpoint"):
        await storage.checkpoint()
    if before == "an empty checkpoint":
        await storage.checkpoint()
    assert await world.fence(storage, 1) is OK
    if after == "checkpoint and kill":
        await storage.checkpoint()
    if after == "close":
        await storage.close()
    for seed in range(3):
        disk = disk.crash(world.seeded(seed))
        storage = await world.open(disk)
        assert storage.is_fenced(1)
        assert await world.put(storage, world.add(1, 1), world.add(2, 1)) == [V2Status.FENCED, OK]
        assert await world.put(storage, world.add(1, 1, recovery=True)) == [OK]


async def test_a_fence_is_not_answered_before_it_is_durable(world: Any, disk: MemoryDisk) -> None:
    """Apache's bookie answers "no entry" to a fencing read at once; a crash then forgets a fence that was counted."""
    storage: Storage = await world.open(disk)
    disk.hold("sync")
    called: list[object] = []
    assert storage.fence(9, world.key) is OK
    storage.journal.when_durable(called.append)
    await turns()
    assert called == []
    disk.release("sync")
    await turns()
    assert called == [None]
    assert (await world.open(disk.crash(world.seeded(0)))).is_fenced(9)


def last_group(disk: MemoryDisk) -> tuple[str, int]:
    """Segment and offset of the newest group."""
    places = [
        (int.from_bytes(data[at + 16 : at + 24], "little"), name, at)
        for name in disk.all_names()
        if name.endswith(".segment")
        for data in [disk.contents(name)]
        for at in range(PAGE, len(data), PAGE)
        if data[at : at + 4] == b"BKG1"
    ]
    _, name, at = max(places)
    return name, at


@pytest.mark.parametrize(
    ("cut", "junk"),
    [
        pytest.param(0, b"", id="nothing of it"),
        pytest.param(6, b"", id="in the group's header"),
        pytest.param(32, b"", id="after the group's header"),
        pytest.param(34, b"", id="in the record's length"),
        pytest.param(47, b"", id="in the record's header"),
        pytest.param(48, b"", id="before the body"),
        pytest.param(300, b"", id="in the body"),
        pytest.param(300, b"\x5a", id="junk ended"),
        pytest.param(0, b"\xa5", id="all junk"),
    ],
)
async def test_a_torn_record_is_never_readable(world: Any, disk: MemoryDisk, cut: int, junk: bytes) -> None:
    """apache/bookkeeper#4659, BookieJournalTest.testTruncatedInLen, InEntry, JunkEnded, AllJunk: there the junk was readable."""
    storage = await world.open(disk)
    await world.put(storage, world.add(1, 0, b"a" * 500))
    await world.put(storage, world.add(1, 1, b"b" * 500))
    killed = disk.crash(world.seeded(1))
    name, at = last_group(killed)
    killed.overwrite(name, at + cut, (junk * PAGE if junk else bytes(PAGE))[: PAGE - cut])
    later = await world.open(killed)
    assert await world.read(later, 1, 0) == bytes(world.body(1, 0, b"a" * 500))
    assert await world.read(later, 1, 1) is V2Status.NO_ENTRY
    assert await world.put(later, world.add(1, 1, b"c" * 500)) == [OK]
    again = await world.open(killed.crash(world.seeded(1)))
    assert await world.read(again, 1, 1) == bytes(world.body(1, 1, b"c" * 500))


@pytest.mark.parametrize("groups", [0, 1])
async def test_a_journal_with_a_header_alone_is_empty(world: Any, disk: MemoryDisk, storage: Any, groups: int) -> None:
    """apache/bookkeeper BookieJournalTest.testHeaderOnly, testEmpty."""
    if groups:
        await world.put(storage, world.add(1, 0))
    later = await world.open(disk.crash(world.seeded(1)))
    assert later.ledger_count == groups


async def test_no_add_is_answered_before_its_flush_and_one_flush_serves_many(world: Any, disk: MemoryDisk) -> None:
    """apache/bookkeeper BookieJournalForceTest.testAckAfterSync, testAckBeforeSync, testInterleavedRequests, testForceLedger."""
    storage: Storage = await world.open(disk)
    await world.put(storage, world.add(1, 0), world.add(2, 0))
    flushed = storage.journal.groups_written
    disk.hold("sync")
    order: list[str] = []
    first = world.submit(storage, world.add(1, 1))
    first.add_done_callback(lambda _: order.append("first"))
    await turns()
    rest = [world.submit(storage, world.add(ledger_id, entry)) for entry in range(2, 40) for ledger_id in (1, 2)]
    storage.journal.when_durable(lambda _: order.append("force"))
    rest[0].add_done_callback(lambda _: order.append("second"))
    await turns()
    assert order == []
    assert not any(one.done() for one in rest)
    disk.release("sync")
    assert [await one for one in (first, *rest)] == [OK] * 77
    assert sorted(order[:1]) == ["first"]
    assert set(order) == {"first", "second", "force"}
    assert storage.journal.groups_written - flushed <= 4, "the first alone, then the rest in groups of 8 KiB"


async def test_a_crash_in_the_checkpoint_of_any_directory_costs_no_directory_anything(world: Any) -> None:
    """apache/bookkeeper DbLedgerStorageTest.testMultiLedgerDirectoryCheckpoint, PR #4844: there one directory's checkpoint
    moved the mark past what another had not stored."""
    for crashing in (0, 1):
        steps = 0
        while True:
            disks = [MemoryDisk(f"/data/{number}") for number in range(2)]
            router = StorageRouter([await world.open(disk) for disk in disks])
            sent = {(ledger_id, entry): world.add(ledger_id, entry) for ledger_id in range(1, 7) for entry in range(3)}
            assert await world.put(router, *sent.values()) == [OK] * len(sent)
            for ledger_id in (1, 2, 3):
                assert await world.fence(router.of(ledger_id), ledger_id) is OK
            disks[crashing].stop_after(steps)
            stopped = await until_stopped(disks[crashing], world.checkpoint(router))
            survivors = [disk.crash(world.seeded(steps)) for disk in disks]
            await end_all_tasks(stopped)
            disks[crashing].stop_after(10**9)
            later = StorageRouter([await world.open(disk) for disk in survivors])
            for (ledger_id, entry), request in sent.items():
                assert await world.read(later, ledger_id, entry) == bytes(request.body)
            assert [later.of(ledger_id).is_fenced(ledger_id) for ledger_id in range(1, 7)] == [True] * 3 + [False] * 3
            for storage in later.storages:
                await storage.close()
            if not stopped.early:
                break
            steps += 2
        assert steps > 8
    assert {directory_of(ledger_id, 2) for ledger_id in range(1, 7)} == {0, 1}
