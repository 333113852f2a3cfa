"""Runs of entries out of a store: from memory, from what is at hand, from the disk, and what is missing ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.turns import turns

from boki_bookie.entries.ledger_index import Extent
from boki_bookie.storage.storage import Storage
from boki_bookie.storage.storage_reads import LOADS_AT_ONCE
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import StorageError
from boki_common.runtime.memory_disk import MemoryDisk

COUNT = 8
FILE = "entries/0000000001.entries"


@pytest.fixture
async def storage(world: Any, disk: MemoryDisk) -> Storage:
    """Entries 0 … 7 of ledger 1, the first half stored."""
    opened: Storage = await world.open(disk)
    await world.put(opened, *(world.add(1, entry, payload(entry)) for entry in range(COUNT // 2)))
    await opened.checkpoint()
    await world.put(opened, *(world.add(1, entry, payload(entry)) for entry in range(COUNT // 2, COUNT)))
    return opened


def payload(entry: int) -> bytes:
    return b"%d" % entry * 100


def bodies(world: Any, *entries: int) -> list[bytes]:
    return [bytes(world.body(1, entry, payload(entry))) for entry in entries]


async def loaded(storage: Storage, first: int, count: int = 100, room: int = 1 << 20) -> list[bytes]:
    parts = storage.look_up_run(1, first, count=count, room=room, overhead=4).parts
    return [bytes(body) for body in await storage.load_run(1, parts)]


async def test_a_run_goes_from_what_is_stored_to_what_is_cached(world: Any, storage: Storage) -> None:
    found = storage.look_up_run(1, 0, count=100, room=1 << 20, overhead=4)
    assert found.status is V2Status.OK
    assert [isinstance(part, Extent) for part in found.parts] == [True, False]
    assert await loaded(storage, 0) == bodies(world, *range(COUNT))
    assert await loaded(storage, 3, count=2) == bodies(world, 3, 4)
    assert await loaded(storage, 2, room=2 * len(bodies(world, 2)[0]) + 8) == bodies(world, 2, 3)


async def test_a_run_that_does_not_begin_says_why(storage: Storage) -> None:
    def status(ledger_id: int, first: int) -> V2Status:
        found = storage.look_up_run(ledger_id, first, count=5, room=1 << 20, overhead=4)
        assert not found.parts
        return found.status

    assert status(1, COUNT) is V2Status.NO_ENTRY
    assert status(2, 0) is V2Status.NO_LEDGER
    assert status(1, -1) is V2Status.BAD_REQUEST


async def test_a_run_ends_before_an_entry_that_is_damaged(world: Any, storage: Storage, disk: MemoryDisk) -> None:
    disk.flip_bit(FILE, disk.contents(FILE).index(payload(2)))
    assert await loaded(storage, 0) == bodies(world, 0, 1)
    assert await loaded(storage, 2) == []
    assert await loaded(storage, 3) == bodies(world, *range(3, COUNT))


async def test_what_is_at_hand_is_the_same(world: Any, storage: Storage) -> None:
    parts = storage.look_up_run(1, 0, count=100, room=1 << 20, overhead=4).parts
    at_hand = storage.run_at_hand(1, parts)
    assert at_hand is None or [bytes(body) for body in at_hand] == bodies(world, *range(COUNT))
    cached = storage.look_up_run(1, COUNT // 2, count=100, room=1 << 20, overhead=4).parts
    assert [bytes(body) for body in storage.run_at_hand(1, cached) or ()] == bodies(world, *range(COUNT // 2, COUNT))


@pytest.mark.parametrize("at_hand", [False, True])
async def test_many_at_hand_are_what_each_of_them_is(
    world: Any, storage: Storage, disk: MemoryDisk, at_hand: bool
) -> None:
    """Whatever is cached; what is stored, with gaps, if the system has it in memory and it is sound."""
    gaps = (3, 4, 9, 11)
    await world.put(storage, *(world.add(5, entry, payload(entry)) for entry in gaps))
    await storage.checkpoint()
    await world.put(storage, world.add(5, 20, payload(20)))
    disk.flip_bit(FILE, disk.contents(FILE).index(bytes(world.body(5, 9, payload(9)))) + 50)
    disk.cached = at_hand
    await storage.load([(5, place) for place in [storage.look_up(5, 3).place] if place])  # the file is open
    wanted = [(ledger_id, entry_id) for ledger_id in (1, 5, 6) for entry_id in range(-2, 25)]
    found = storage.bodies_at_hand(wanted, 1 << 20)
    expected = []
    for ledger_id, entry_id in wanted:
        _, body, place = storage.look_up(ledger_id, entry_id) if entry_id >= 0 else (None, None, None)
        expected.append(body if place is None else storage.at_hand(ledger_id, place))
    assert [body and bytes(body) for body in found] == [body and bytes(body) for body in expected]
    held = {entry for entry in range(25) if storage.look_up(5, entry).status is V2Status.OK}
    assert held == {*gaps, 20}, "what lies between them is absent, not unreadable"
    sound = {(5, entry) for entry in (3, 4, 11)} | {(1, entry) for entry in range(COUNT)} if at_hand else set()
    assert {one for one, body in zip(wanted, found, strict=True) if body is not None} == sound | {(5, 20)}


async def test_no_more_is_had_at_hand_than_there_is_room_for(world: Any, storage: Storage) -> None:
    wanted = [(1, entry) for entry in range(COUNT // 2, COUNT)]
    size = len(bodies(world, COUNT - 1)[0])
    for room, count in ((0, 0), (1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (100 * size, COUNT // 2)):
        assert len(storage.bodies_at_hand(wanted, room)) == count


async def test_single_entries_are_read_a_few_at_a_time_and_come_in_order(
    world: Any, storage: Storage, disk: MemoryDisk
) -> None:
    await storage.checkpoint()
    disk.flip_bit(FILE, disk.contents(FILE).index(payload(6)))
    entries = [5, 1, 7, 3, 0, 6, 2, 4, 1, 3, 5, 7]
    places = [storage.look_up(1, entry).place for entry in entries]
    wanted = [(1, place) for place in places if place is not None]
    for count in range(1, len(wanted) + 1):
        found = await storage.load(wanted[:count])
        expected = [None if entry == 6 else bytes(world.body(1, entry, payload(entry))) for entry in entries[:count]]
        assert [None if isinstance(body, StorageError) else bytes(body) for body in found] == expected
    assert await storage.load([]) == []
    begun: list[str] = []

    def plan(kind: str, name: str) -> float:
        begun.append(kind)
        return 0.0

    disk.plan = plan
    disk.hold("read")
    loading = asyncio.ensure_future(storage.load(wanted))
    await turns(50)
    assert begun == ["read"] * LOADS_AT_ONCE and not loading.done()
    disk.release("read")
    assert len(await loading) == len(wanted)


async def test_held_entries_are_those_of_memory_and_disk(storage: Storage) -> None:
    assert storage.entry_ids(1) == list(range(COUNT))
    assert storage.entry_ids(2) is None
    await storage.checkpoint()
    assert storage.entry_ids(1) == list(range(COUNT))
