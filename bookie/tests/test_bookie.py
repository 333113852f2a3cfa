"""A bookie as a whole: start, serve, register, read-only and back, failure, and every refused start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.serve.requester import Requester
from tests.turns import prepared

from boki_bookie.bookie import Bookie
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.layout import available_bookies, bookie_address, ledger_path
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v2 import as_control, encode_add_body, encode_read
from boki_common.errors import (
    CorruptData,
    DirectoryInUse,
    DiskFailed,
    MetadataUnavailable,
    SettingsError,
    WrongDirectory,
)
from boki_common.net.connection import Address
from boki_common.runtime.memory_disk import MemoryDisk
from boki_common.runtime.ports import Disk
from boki_common.runtime.posix_disk import PosixDisk

Start = Callable[..., Awaitable[Bookie]]


async def add(client: Requester, world: Any, ledger_id: int, entry_id: int, *, recovery: bool = False) -> V2Status:
    body = world.body(ledger_id, entry_id)
    return V2Status((await client.ask(*encode_add_body([body], world.key, recovery=recovery))).status)


async def test_clients_get_the_name_and_port_of_a_proxy(world: Any, start: Start) -> None:
    bookie = await start(MemoryDisk(), host="proxy.example", port=4181)
    assert await bookie_address(world.store, bookie.bookie_id) == Address("proxy.example", 4181)
    assert bookie.address.port != 4181


@pytest.mark.parametrize("kind", ["memory", "posix"])
async def test_a_bookie_serves_registers_and_comes_back_with_everything(
    world: Any, start: Start, kind: str, tmp_path: Path
) -> None:
    memory = MemoryDisk()
    make: Callable[[], Disk] = memory.reopen if kind == "memory" else lambda: PosixDisk(tmp_path / "bookie")
    bookie = await start(make(), host="localhost")
    assert await available_bookies(world.store) == [bookie.bookie_id]
    assert await bookie_address(world.store, bookie.bookie_id) == Address("localhost", bookie.address.port)
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    assert [await add(client, world, 7, entry) for entry in range(20)] == [V2Status.OK] * 20
    assert await add(client, world, 8, 0) is V2Status.FENCED, "no metadata names this bookie for ledger 8"
    await bookie.close()
    await bookie.close()
    assert await available_bookies(world.store) == []
    assert not bookie.failed.done()

    again = await start(make(), seed=2)
    assert again.bookie_id == bookie.bookie_id
    client = await Requester.of(again.address)
    for entry in range(20):
        assert bytes((await client.ask(encode_read(7, entry))).body) == bytes(world.body(7, entry))
    assert await add(client, world, 7, 20) is V2Status.OK
    assert (await client.ask(encode_read(8, 0))).status is V2Status.NO_LEDGER


async def test_a_directory_in_use_is_refused(world: Any, start: Start) -> None:
    disk = MemoryDisk("/data/one")
    await start(disk.reopen())
    with pytest.raises(DirectoryInUse, match="/data/one is in use"):
        await start(disk.reopen())


async def test_a_port_in_use_is_refused_and_leaves_the_directory_free(world: Any, start: Start) -> None:
    first = await start(MemoryDisk("/data/one"))
    disk = MemoryDisk("/data/two")
    with pytest.raises(SettingsError, match="another process listens there"):
        await start(disk.reopen(), address=first.address, seed=2)
    second = await start(disk.reopen(), seed=2)
    assert sorted(await available_bookies(world.store)) == sorted([first.bookie_id, second.bookie_id])


async def test_unusable_settings_are_all_named(world: Any, start: Start) -> None:
    with pytest.raises(SettingsError, match=r"multiple of 4096.*expected host:port") as caught:
        await start(MemoryDisk(), address=Address("", 0, "/tmp/socket"), journal_segment_bytes=20_000)
    assert len(caught.value.faults) == 2


async def test_a_read_only_or_wiped_directory_is_refused(world: Any, start: Start) -> None:
    disk = MemoryDisk("/data/one")
    bookie = await start(disk.reopen())
    await bookie.close()
    frozen = disk.reopen()
    frozen.read_only = True
    with pytest.raises(WrongDirectory, match="read-only file system"):
        await start(frozen)
    with pytest.raises(WrongDirectory, match="--replace-lost-disk"):
        await start(MemoryDisk("/data/one"), seed=3)
    replaced = await start(MemoryDisk("/data/one"), seed=3, replace_lost_disk=True)
    assert replaced.bookie_id != bookie.bookie_id


async def test_a_journal_that_is_damaged_in_the_middle_is_refused_by_name_and_offset(world: Any, start: Start) -> None:
    disk = MemoryDisk("/data/one")
    bookie = await start(disk)
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    for entry in range(3):
        await add(client, world, 7, entry)
    crashed = disk.crash(world.seeded(1))
    name = next(name for name in crashed.all_names() if bytes(world.body(7, 1)) in crashed.contents(name))
    offset = crashed.contents(name).index(bytes(world.body(7, 1)))
    crashed.flip_bit(name, offset)
    with pytest.raises(CorruptData, match=f"/data/one/{name} at byte {offset // 4096 * 4096}"):
        await start(crashed)


async def test_a_failed_disk_ends_the_bookie_and_says_why(world: Any, start: Start) -> None:
    disk = MemoryDisk()
    bookie = await start(disk)
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    assert await add(client, world, 7, 0) is V2Status.OK
    await prepared(disk, 3)
    disk.fail("sync")
    assert await client.ask(*encode_add_body([world.body(7, 1)], world.key)) is None
    assert isinstance(await bookie.failed, DiskFailed)
    while await available_bookies(world.store):
        await asyncio.sleep(0)
    await bookie.close()
    again = await start(disk.crash(world.seeded(4)), seed=2)
    client = await Requester.of(again.address)
    assert (await client.ask(encode_read(7, 0))).status is V2Status.OK


async def test_a_full_disk_makes_it_read_only_until_there_is_space(world: Any, start: Start) -> None:
    disk = MemoryDisk(capacity_bytes=10**6)
    bookie = await start(disk, read_only_below_bytes=100_000, writable_above_bytes=200_000, disk_check_interval_s=0.01)
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    assert await add(client, world, 7, 0) is V2Status.OK
    disk.capacity_bytes = 10**6 - await disk.free_bytes() + 50_000
    await until(lambda: available_bookies(world.store, read_only=True), [bookie.bookie_id])
    assert await available_bookies(world.store) == []
    assert bookie.read_only
    assert await add(client, world, 7, 1) is V2Status.READ_ONLY
    assert await add(client, world, 7, 1, recovery=True) is V2Status.OK
    assert (await client.ask(encode_read(7, 0, fence_key=world.key))).status is V2Status.OK
    assert await add(client, world, 7, 2, recovery=True) is V2Status.OK
    disk.capacity_bytes = 10**6
    await until(lambda: available_bookies(world.store), [bookie.bookie_id])
    assert not bookie.read_only
    await world.ledger(9, bookie.bookie_id)
    assert await add(client, world, 9, 0) is V2Status.OK


async def test_control_entries_use_the_reserve_of_a_full_disk_and_no_more(world: Any, start: Start) -> None:
    disk = MemoryDisk(capacity_bytes=10**6)
    bookie = await start(
        disk, read_only_below_bytes=100_000, writable_above_bytes=200_000, control_reserve_bytes=30_000
    )
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    assert await add(client, world, 7, 0) is V2Status.OK
    disk.capacity_bytes = 10**6 - await disk.free_bytes() + 90_000
    await bookie._look_at_space()

    async def control(ledger_id: int, entry_id: int) -> V2Status:
        body = world.body(ledger_id, entry_id, bytes(2_000))
        return V2Status((await client.ask(*as_control(encode_add_body([body], world.key)))).status)

    assert await add(client, world, 7, 1) is V2Status.READ_ONLY
    await world.ledger(8, bookie.bookie_id)
    assert await control(8, 0) is V2Status.OK, "a new ledger, such as a snapshot's"
    taken = 1
    while await control(7, taken) is V2Status.OK:
        taken += 1
    assert taken == 4, "of 20,000 bytes, each counted twice"
    assert await control(7, 1) is V2Status.OK, "it is held"
    assert await add(client, world, 7, taken, recovery=True) is V2Status.OK
    await bookie.keep_read_only(True)
    disk.capacity_bytes = 10**6
    await bookie._look_at_space()
    assert await control(7, taken + 1) is V2Status.READ_ONLY, "an administrator wants none"


async def test_user_data_stop_above_the_reserve_however_fast_they_come(world: Any, start: Start) -> None:
    """The disk is looked at before its room can be used up, not only now and then."""
    disk = MemoryDisk(capacity_bytes=10**6)
    bookie = await start(
        disk, read_only_below_bytes=200_000, writable_above_bytes=300_000, disk_check_interval_s=3_600.0
    )
    await world.ledger(7, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    entry_id = 0
    async with asyncio.timeout(10):
        while True:
            frame = encode_add_body([world.body(7, entry_id, bytes(2_000))], world.key)
            if (await client.ask(*frame)).status is not V2Status.OK:
                break
            entry_id += 1
        await until(lambda: available_bookies(world.store, read_only=True), [bookie.bookie_id])
    assert entry_id > 10
    assert isinstance(bookie.storage, Storage)
    await bookie.storage.checkpoint()
    assert await disk.free_bytes() >= 150_000


async def until(look: Callable[[], Awaitable[Any]], expected: Any) -> None:
    async with asyncio.timeout(10):
        while await look() != expected:
            await asyncio.sleep(0)


async def test_without_metadata_adds_go_on_and_first_adds_wait(world: Any, start: Start) -> None:
    bookie = await start(MemoryDisk())
    await world.ledger(7, bookie.bookie_id)
    await world.ledger(8, bookie.bookie_id)
    client = await Requester.of(bookie.address)
    assert await add(client, world, 7, 0) is V2Status.OK
    world.store.disconnect()
    assert await add(client, world, 7, 1) is V2Status.OK
    waiting = asyncio.ensure_future(add(await Requester.of(bookie.address), world, 8, 0))
    assert await add(client, world, 7, 2) is V2Status.OK
    assert not waiting.done()
    world.store.reconnect()
    assert await waiting is V2Status.OK


async def test_without_metadata_there_is_no_start(world: Any, start: Start) -> None:
    disk = MemoryDisk()
    world.store.disconnect()
    with pytest.raises(MetadataUnavailable):
        await start(disk.reopen())
    world.store.reconnect()
    await start(disk.reopen())


async def test_one_connection_too_many_is_dropped_and_the_others_are_served(world: Any, start: Start) -> None:
    bookie = await start(MemoryDisk(), connections=2)
    first, second = [await Requester.of(bookie.address) for _ in range(2)]
    for client in (first, second):
        assert (await client.ask(encode_read(8, 0))).status is V2Status.NO_LEDGER
    assert await (await Requester.of(bookie.address)).frames.get() is None, "dropped"
    for client in (first, second):
        assert (await client.ask(encode_read(8, 0))).status is V2Status.NO_LEDGER
    first.connection.close()
    assert await first.frames.get() is None
    assert (await (await Requester.of(bookie.address)).ask(encode_read(8, 0))).status is V2Status.NO_LEDGER


async def test_a_bookie_deletes_what_the_metadata_has_no_longer(start: Start, world: Any, disk: MemoryDisk) -> None:
    bookie = await start(disk, gc_grace_s=0.0, gc_interval_s=0.01, gc_reads_per_s=10**9)
    await world.ledger(1, bookie.bookie_id)
    assert await world.put(bookie.storage, world.add(1, 0)) == [V2Status.OK]
    assert bookie.storage.ledger_count == 1
    await world.store.delete(ledger_path(1), version=0)
    while bookie.storage.ledger_count:
        await asyncio.sleep(0)
    assert isinstance(bookie.storage, Storage)
    assert bookie.storage.gc_state().deleted_ledgers == 1
