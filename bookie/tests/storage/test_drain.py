"""A bookie that follows its mark: it refuses all adds while it drains, is emptied on proof, and says so; read-only outlives restarts."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.turns import turns

from boki_bookie.bookie import Bookie
from boki_bookie.entries.checkpoint import MARK_NAME
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper import layout
from boki_common.bookkeeper.bookie_mark import BookieMark, cancelled, draining, retired
from boki_common.bookkeeper.bookie_marks import read_mark, write_mark
from boki_common.bookkeeper.ledger_metadata import decode
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BadVersion, MetadataUnavailable, WrongDirectory
from boki_common.runtime.memory_disk import MemoryDisk

Start = Callable[..., Awaitable[Bookie]]
OK, READ_ONLY = V2Status.OK, V2Status.READ_ONLY
QUICK = {"gc_grace_s": 0.0, "gc_reads_per_s": 10**9}


async def set_mark(world: Any, bookie_id: str, change: Callable[[BookieMark], BookieMark]) -> None:
    """What a person or a controller does."""
    seen = await read_mark(world.store, bookie_id)
    await write_mark(world.store, bookie_id, change(seen.mark), seen=seen, rng=world.seeded(9))


async def drain(world: Any, bookie: Bookie) -> None:
    await set_mark(world, bookie.bookie_id, lambda mark: draining(mark, bookie.bookie_id))
    await bookie._drain.look()


async def mark_of(world: Any, bookie: Bookie) -> BookieMark:
    return (await read_mark(world.store, bookie.bookie_id)).mark


@pytest.fixture
async def bookie(world: Any, start: Start, disk: MemoryDisk) -> Bookie:
    """With one entry in each of ledgers 1 and 2."""
    made = await start(disk, **QUICK)
    for ledger_id in (1, 2):
        await world.ledger(ledger_id, made.bookie_id)
        assert await world.put(made.storage, world.add(ledger_id, 0)) == [OK]
    return made


def storage_of(bookie: Bookie) -> Storage:
    assert isinstance(bookie.storage, Storage)
    return bookie.storage


async def refuses_everything(world: Any, storage: Storage) -> None:
    assert await world.put(storage, world.add(1, 1)) == [READ_ONLY]
    assert await world.put(storage, world.add(1, 1, recovery=True)) == [READ_ONLY]
    assert await world.put(storage, world.add(5, 0, recovery=True)) == [READ_ONLY], "a copy of an unknown ledger"
    assert storage.hold(1, world.key, 3) is READ_ONLY
    assert await world.read(storage, 1, 0) == bytes(world.body(1, 0)), "reads go on"
    assert await world.fence(storage, 2) is OK, "fences too"


async def test_all_adds_are_refused_and_then_the_mark_says_so(world: Any, bookie: Bookie) -> None:
    await drain(world, bookie)
    await refuses_everything(world, storage_of(bookie))
    mark = await mark_of(world, bookie)
    assert (mark.refuses, mark.empty, mark.ledgers) == (True, False, 2)
    while await layout.available_bookies(world.store, read_only=True) != [bookie.bookie_id]:
        await turns(1)
    assert [reason.reason for reason in await bookie.reasons()] == ["draining"]
    assert bookie.kept_by == ["drain"]


@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_refuses_before_anybody_is_served(
    world: Any, start: Start, bookie: Bookie, disk: MemoryDisk, crash: bool
) -> None:
    await set_mark(world, bookie.bookie_id, lambda mark: draining(mark, bookie.bookie_id))
    copy = disk.crash(world.seeded(1)) if crash else disk
    await bookie.close()
    again = await start(copy.reopen(), seed=2, **QUICK)
    await refuses_everything(world, storage_of(again))
    assert await layout.available_bookies(world.store) == []


async def test_adds_that_waited_for_validation_are_refused_too(world: Any, bookie: Bookie, answers: Any) -> None:
    await world.ledger(7, bookie.bookie_id)
    heard = answers()
    assert storage_of(bookie).add(world.add(7, 0), heard) is None
    storage_of(bookie).drains = True
    assert await heard.next() is READ_ONLY
    await drain(world, bookie)
    assert (await mark_of(world, bookie)).ledgers == 2


async def test_the_store_is_emptied_on_proof_and_the_mark_says_when(world: Any, bookie: Bookie) -> None:
    storage = storage_of(bookie)
    await drain(world, bookie)
    for _ in range(3):
        await storage.checkpoint()
        await storage.collect_garbage(major=True)
    assert (await mark_of(world, bookie)).ledgers == 2, "they are written still, and name it"
    await world.close_elsewhere(1)
    path = layout.ledger_path(2)
    await world.store.delete(path, version=(await world.store.get(path)).version)
    for _ in range(3):
        await storage.checkpoint()
        await storage.collect_garbage(major=True)
    await bookie._drain.look()
    mark = await mark_of(world, bookie)
    assert (mark.refuses, mark.empty, mark.ledgers) == (True, True, 0)
    assert await world.read(storage, 1, 0) is V2Status.NO_ENTRY
    assert storage.is_fenced(1), "a fence is never lifted"


async def test_a_hold_that_is_left_over_is_overcome_by_a_touch(world: Any, bookie: Bookie) -> None:
    """Whoever gave it can swap no more: its version is gone."""
    storage = storage_of(bookie)
    await world.close_elsewhere(1)
    version = (await world.store.get(layout.ledger_path(1))).version
    assert storage.hold(1, world.key, version) is OK
    await storage.checkpoint()
    for _ in range(3):
        await storage.collect_garbage(major=True)
    before = await world.store.get(layout.ledger_path(1))
    assert (before.version, await world.read(storage, 1, 0)) == (version, bytes(world.body(1, 0)))
    await drain(world, bookie)
    for _ in range(4):
        await storage.collect_garbage(major=True)
    after = await world.store.get(layout.ledger_path(1))
    assert after.version == version + 1
    assert dataclasses.replace(decode(after.value), ctoken=0) == dataclasses.replace(decode(before.value), ctoken=0)
    assert decode(after.value).ctoken != decode(before.value).ctoken
    assert await world.read(storage, 1, 0) is V2Status.NO_ENTRY


async def test_without_a_drain_what_lies_elsewhere_stays(world: Any, bookie: Bookie) -> None:
    await world.close_elsewhere(1)
    await storage_of(bookie).checkpoint()
    for _ in range(3):
        await storage_of(bookie).collect_garbage(major=True)
    assert await world.read(storage_of(bookie), 1, 0) == bytes(world.body(1, 0))


async def test_a_drain_that_is_cancelled_takes_adds_again(world: Any, bookie: Bookie) -> None:
    await drain(world, bookie)
    before = await read_mark(world.store, bookie.bookie_id)
    await set_mark(world, bookie.bookie_id, lambda mark: cancelled(mark, bookie.bookie_id))
    await bookie._drain.look()
    assert await world.put(bookie.storage, world.add(1, 1)) == [OK]
    assert await mark_of(world, bookie) == msgspec.structs.replace(
        BookieMark(), token=(await mark_of(world, bookie)).token
    )
    with pytest.raises(BadVersion):
        await write_mark(world.store, bookie.bookie_id, retired(before.mark), seen=before, rng=world.seeded(3))
    while await layout.available_bookies(world.store) != [bookie.bookie_id]:
        await turns(1)


async def test_one_that_is_retired_stops_and_does_not_start_again(
    world: Any, start: Start, bookie: Bookie, disk: MemoryDisk
) -> None:
    await drain(world, bookie)
    await set_mark(world, bookie.bookie_id, retired)
    error = await bookie.failed
    assert isinstance(error, WrongDirectory) and "was drained and is retired" in str(error)
    await bookie.close()
    with pytest.raises(WrongDirectory, match="was drained and is retired"):
        await start(disk.reopen(), seed=2)


async def test_an_older_mark_is_not_followed(world: Any, bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new session may read from a server that lags behind."""
    before = await world.store.exists("/boki/bookies")
    assert not before
    await drain(world, bookie)
    real = world.store.get

    async def lagging(path: str) -> Any:
        if path.startswith("/boki/bookies/"):
            return (await real(path))._replace(version=0, value=msgspec.json.encode(BookieMark()))
        return await real(path)

    monkeypatch.setattr(world.store, "get", lagging)
    with pytest.raises(BadVersion):
        await write_mark(
            world.store,
            bookie.bookie_id,
            BookieMark(),
            seen=await read_mark(world.store, bookie.bookie_id),
            rng=world.rng,
        )
    await bookie._drain.look()
    assert await world.put(bookie.storage, world.add(1, 1, recovery=True)) == [READ_ONLY]


async def test_what_was_salvaged_is_told_and_kept(world: Any, start: Start, bookie: Bookie, disk: MemoryDisk) -> None:
    """Its holds may have been forgotten, so nothing proves that it is surplus."""
    await storage_of(bookie).checkpoint()
    crashed = disk.crash(world.seeded(1))
    await bookie.close()
    await crashed.remove(MARK_NAME)
    salvaged = await start(crashed.reopen(), seed=2, salvage=True, **QUICK)
    for ledger_id in (1, 2):
        await world.close_elsewhere(ledger_id)
    await drain(world, salvaged)
    mark = await mark_of(world, salvaged)
    assert (mark.ledgers, mark.held_for_good, mark.empty, mark.in_limbo) == (2, 2, False, True)


async def test_read_only_by_hand_outlives_a_restart(world: Any, start: Start, bookie: Bookie, disk: MemoryDisk) -> None:
    await bookie.keep_read_only(True)
    assert await world.put(bookie.storage, world.add(1, 1)) == [READ_ONLY]
    await bookie.close()
    again = await start(disk.reopen(), seed=2)
    assert await layout.available_bookies(world.store) == []
    assert await world.put(again.storage, world.add(1, 1)) == [READ_ONLY]
    assert await world.put(again.storage, world.add(1, 1, recovery=True)) == [OK], "copies are taken"
    assert again.kept_by == ["administrator"]
    await again.keep_read_only(False)
    assert await world.put(again.storage, world.add(1, 2)) == [OK]


async def test_what_cannot_be_noted_is_not_set(world: Any, bookie: Bookie) -> None:
    world.store.disconnect()
    with pytest.raises(MetadataUnavailable):
        await bookie.keep_read_only(True)
    world.store.reconnect()
    assert await world.put(bookie.storage, world.add(1, 1)) == [OK]


async def test_a_drain_ends_with_read_only_as_it_began(world: Any, bookie: Bookie) -> None:
    await bookie.keep_read_only(True)
    await drain(world, bookie)
    assert bookie.kept_by == ["administrator", "drain"]
    await set_mark(world, bookie.bookie_id, lambda mark: cancelled(mark, bookie.bookie_id))
    await bookie._drain.look()
    assert bookie.kept_by == ["administrator"]
    assert await world.put(bookie.storage, world.add(1, 1)) == [READ_ONLY]
    assert await world.put(bookie.storage, world.add(1, 1, recovery=True)) == [OK]
