"""Who may start on which directory: every row of the table, and crashes while a directory is formatted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.storage.crashes import end_all_tasks, until_stopped

from boki_bookie.begin.identity import IDENTITY_NAME, Identity, establish
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper.layout import COOKIES, INSTANCE_ID, cookie_path, decode_cookie
from boki_common.errors import CorruptData, DiskFull, MetadataUnavailable, VersionMismatch, WrongDirectory
from boki_common.metadata.memory import MemoryStore
from boki_common.runtime.memory_disk import MemoryDisk


async def start_all(
    disks: Sequence[MemoryDisk],
    world: Any,
    *,
    host: str = "here",
    replace: bool = False,
    store: MemoryStore | None = None,
    seed: int = 1,
) -> Identity:
    rng = world.seeded(seed)

    async def format_store(disk: Any, raw: bytes) -> None:
        await Storage.format(disk, raw, rng, world.settings)

    return await establish(
        disks, store or world.store, host=host, rng=rng, replace_lost_disk=replace, format_store=format_store
    )


async def start(disk: MemoryDisk, world: Any, **options: Any) -> Identity:
    return await start_all([disk], world, **options)


async def test_an_empty_directory_becomes_a_bookie_and_stays_it(world: Any) -> None:
    disk = MemoryDisk("/data/one")
    identity = await start(disk, world)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", identity.bookie_id)
    assert len(identity.raw) == 16
    cookie = decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value)
    assert (cookie.journal_dir, cookie.instance_id) == ("here:/data/one", identity.instance_id)
    assert await start(disk, world, seed=2) == identity
    assert await world.store.children(COOKIES) == [identity.bookie_id]


async def test_two_directories_are_two_bookies(world: Any) -> None:
    one = await start(MemoryDisk("/data/one"), world)
    two = await start(MemoryDisk("/data/two"), world, seed=2)
    three = await start(MemoryDisk("/data/one"), world, host="there", seed=3)
    assert len({one.bookie_id, two.bookie_id, three.bookie_id}) == 3


async def test_a_wiped_directory_is_refused_and_may_be_replaced(world: Any) -> None:
    lost = await start(MemoryDisk("/data/one"), world)
    wiped = MemoryDisk("/data/one")
    with pytest.raises(WrongDirectory, match="--replace-lost-disk") as caught:
        await start(wiped, world, seed=2)
    assert caught.value.expected == lost.bookie_id
    assert wiped.all_names() == []
    new = await start(wiped, world, seed=2, replace=True)
    assert new.bookie_id != lost.bookie_id
    assert await world.store.children(COOKIES) == [new.bookie_id]
    assert await start(wiped, world, seed=3, replace=True) == new


@pytest.mark.parametrize("name", ["photo.jpg", "journal/0000000001.segment", "entries/0000000001.entries"])
async def test_files_without_identity_are_refused(world: Any, disk: MemoryDisk, name: str) -> None:
    disk.put(name, b"x")
    with pytest.raises(WrongDirectory, match=f"expected the file identity, found {name}"):
        await start(disk, world)


async def test_a_directory_of_another_cluster_is_refused(world: Any, disk: MemoryDisk) -> None:
    await start(disk, world)
    other = MemoryStore()
    await other.start()
    with pytest.raises(WrongDirectory, match="belongs to another cluster"):
        await start(disk, world, store=other, seed=5)
    await other.close()


async def test_a_lost_bookie_is_retired_before_the_new_one_can_serve(world: Any) -> None:
    lost = await start(MemoryDisk("/data/one"), world)

    async def cut_short(disk: object, raw: bytes) -> None:
        raise DiskFull("no space left")

    with pytest.raises(DiskFull):
        await establish(
            [MemoryDisk("/data/one")],
            world.store,
            host="here",
            rng=world.seeded(2),
            replace_lost_disk=True,
            format_store=cut_short,
        )
    assert not await world.store.exists(cookie_path(lost.bookie_id))


async def test_a_retired_bookie_is_refused(world: Any, disk: MemoryDisk) -> None:
    identity = await start(disk, world)
    await world.store.delete(cookie_path(identity.bookie_id), version=0)
    with pytest.raises(WrongDirectory, match="was retired, or is foreign"):
        await start(disk, world)


async def test_a_moved_directory_is_the_same_bookie_and_its_old_place_is_free(world: Any) -> None:
    disk = MemoryDisk("/data/one")
    identity = await start(disk, world)
    moved = MemoryDisk("/data/moved")
    for name in disk.all_names():
        moved.put(name, disk.contents(name))
    assert (await start(moved, world)).bookie_id == identity.bookie_id
    cookie = decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value)
    assert cookie.journal_dir == "here:/data/moved"
    assert (await start(MemoryDisk("/data/one"), world, seed=2)).bookie_id != identity.bookie_id


async def test_a_damaged_or_newer_identity_is_refused(world: Any, disk: MemoryDisk) -> None:
    await start(disk, world)
    good = disk.contents(IDENTITY_NAME)
    for bad in (b"", b"{", b"[]", good.replace(b'"ready"', b'"rotten"'), good.replace(b"ready", b"re\xe1dy")):
        disk.put(IDENTITY_NAME, bad)
        with pytest.raises((CorruptData, VersionMismatch), match="identity"):
            await start(disk, world)
    disk.put(IDENTITY_NAME, good.replace(b'"version": 2', b'"version": 3'))
    with pytest.raises(VersionMismatch, match="expected identity version 2, found 3"):
        await start(disk, world)


async def test_an_identity_of_the_version_before_is_one_directory(world: Any, disk: MemoryDisk) -> None:
    identity = await start(disk, world)
    older = msgspec.json.decode(disk.contents(IDENTITY_NAME), type=dict[str, Any]) | {"version": 1}
    del older["ordinal"], older["directories"]
    disk.put(IDENTITY_NAME, msgspec.json.encode(older))
    assert await start(disk, world) == identity


async def test_without_metadata_there_is_no_start(world: Any, disk: MemoryDisk) -> None:
    world.store.disconnect()
    with pytest.raises(MetadataUnavailable):
        await start(disk, world)
    assert disk.all_names() == []
    world.store.reconnect()
    await start(disk, world)
    assert (await world.store.get(INSTANCE_ID)).value


# -- several directories


def directories(count: int = 3) -> list[MemoryDisk]:
    return [MemoryDisk(f"/data/{number}") for number in range(count)]


async def test_several_directories_are_one_bookie(world: Any) -> None:
    disks = directories()
    identity = await start_all(disks, world)
    cookie = decode_cookie((await world.store.get(cookie_path(identity.bookie_id))).value)
    assert cookie.ledger_dirs == ("here:/data/0", "here:/data/1", "here:/data/2")
    assert await start_all(disks, world, seed=2) == identity
    assert await world.store.children(COOKIES) == [identity.bookie_id]


async def test_a_directory_that_was_cleared_is_refused(world: Any) -> None:
    """Origin: apache/bookkeeper CookieTest.testDirectoryCleared."""
    disks = directories()
    identity = await start_all(disks, world)
    cleared = [disks[0], MemoryDisk("/data/1"), disks[2]]
    for replace in (False, True):
        with pytest.raises(
            WrongDirectory, match=rf"/data/1 is empty: expected directory 2 of 3 of bookie {identity.bookie_id}"
        ):
            await start_all(cleared, world, replace=replace)
    assert cleared[1].all_names() == []


async def test_a_directory_that_was_added_is_refused(world: Any) -> None:
    """Origin: apache/bookkeeper CookieTest.testDirectoryAdded."""
    disks = directories()
    await start_all(disks, world)
    with pytest.raises(WrongDirectory, match=r"/data/new was added: expected the 3 directories .* start another"):
        await start_all([*disks, MemoryDisk("/data/new")], world)


async def test_a_missing_directory_and_a_wrong_order_are_refused(world: Any) -> None:
    disks = directories()
    await start_all(disks, world)
    with pytest.raises(WrongDirectory, match=r"expected 3 directories .* found 2"):
        await start_all(disks[:2], world)
    with pytest.raises(WrongDirectory, match=r"/data/1: expected directory 1 .* found directory 2.* in the order"):
        await start_all([disks[1], disks[0], disks[2]], world)
    with pytest.raises(WrongDirectory, match=r"expected 3 directories .* found 1"):
        await start_all(disks[2:], world)


async def test_a_directory_of_another_bookie_is_refused(world: Any) -> None:
    """Origin: apache/bookkeeper CookieTest.testBadJournalCookie and testNewBookieStartingWithAnotherBookiesPort."""
    disks = directories()
    mine = await start_all(disks, world)
    other = MemoryDisk("/data/other")
    theirs = await start(other, world, seed=2)
    with pytest.raises(
        WrongDirectory, match=rf"/data/other belongs to another bookie: expected .*{mine.bookie_id}.*{theirs.bookie_id}"
    ):
        await start_all([disks[0], other, disks[2]], world)


async def test_wiped_directories_are_another_bookie(world: Any) -> None:
    """Origin: apache/bookkeeper#4812: a bookie that is made again at the same place is not the one that was there."""
    lost = await start_all(directories(), world)
    with pytest.raises(WrongDirectory, match="--replace-lost-disk"):
        await start_all(directories(), world, seed=2)
    made = await start_all(directories(), world, seed=2, replace=True)
    assert made.bookie_id != lost.bookie_id
    assert await world.store.children(COOKIES) == [made.bookie_id]


@pytest.mark.parametrize(("count", "least"), [(1, 15), (2, 10)], ids=["one directory", "the second of two"])
async def test_a_crash_at_any_moment_of_formatting_is_repaired_by_the_next_start(
    world: Any, count: int, least: int
) -> None:
    steps = 0
    while True:
        store = world.store = MemoryStore()
        await store.start()
        disks = directories(count)
        disks[-1].stop_after(steps)
        stopped = await until_stopped(disks[-1], start_all(disks, world))
        survivors = [disk.crash(world.seeded(steps)) for disk in disks]
        await end_all_tasks(stopped)
        identity = await start_all(survivors, world, seed=9)
        assert await store.children(COOKIES) == [identity.bookie_id]
        assert await start_all(survivors, world, seed=10) == identity
        await store.close()
        if not stopped.early:
            break
        steps += 1
    assert steps > least
    await world.store.start()
