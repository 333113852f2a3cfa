"""What every metadata store promises (`boki_common.metadata.store`), run on memory, SQLite and ZooKeeper."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import (
    BadVersion,
    ClosedError,
    InvalidArgument,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    NotEmpty,
)
from boki_common.metadata.store import Versioned, ensure_path

# The store in memory lives in one process.
across_processes = pytest.mark.parametrize(
    "world", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True
)


async def test_a_new_node_has_version_zero_and_each_set_adds_one(store: Any) -> None:
    await store.create("/a", b"one")
    assert await store.get("/a") == Versioned(b"one", 0)
    assert await store.set("/a", b"two", version=0) == 1
    assert await store.set("/a", b"", version=1) == 2
    assert await store.get("/a") == Versioned(b"", 2)


async def test_sessions_see_each_others_nodes(store: Any, other: Any) -> None:
    await store.create("/a", b"1")
    assert (await other.get("/a")).value == b"1"
    await other.set("/a", b"2", version=0)
    assert await store.get("/a") == Versioned(b"2", 1)


async def test_a_stale_version_is_refused_and_changes_nothing(store: Any) -> None:
    await store.create("/a", b"one")
    await store.set("/a", b"two", version=0)
    for version in (0, 2):
        for refused in (store.set("/a", b"three", version=version), store.delete("/a", version=version)):
            with pytest.raises(BadVersion):
                await refused
    assert await store.get("/a") == Versioned(b"two", 1)


async def test_a_swap_makes_nodes_besides_or_does_nothing(store: Any, other: Any) -> None:
    await store.create("/a", b"one")
    await store.create("/terms")
    assert await store.set("/a", b"two", version=0, creating={"/terms/1": b"first", "/terms/2": b"second"}) == 1
    assert await other.get("/a") == Versioned(b"two", 1)
    assert await other.get("/terms/1") == Versioned(b"first", 0)
    assert await other.children("/terms") == ["1", "2"]
    refused: list[tuple[int, dict[str, bytes], type[Exception]]] = [
        (1, {"/terms/3": b"", "/terms/2": b"again"}, NodeExists),
        (1, {"/terms/3": b"", "/nowhere/4": b""}, NoNode),
        (0, {"/terms/3": b"", "/terms/2": b"again"}, BadVersion),
        (0, {"/terms/3": b""}, BadVersion),
    ]
    for version, creating, error in refused:
        with pytest.raises(error):
            await store.set("/a", b"three", version=version, creating=creating)
    with pytest.raises(NoNode):
        await store.set("/b", b"", version=0, creating={"/terms/3": b""})
    for creating in ({"/": b""}, {"/terms/3": b"x" * (limits.METADATA_VALUE_BYTES + 1)}):
        with pytest.raises(InvalidArgument):
            await store.set("/a", b"three", version=1, creating=creating)
    assert await store.get("/a") == Versioned(b"two", 1)
    assert await store.children("/terms") == ["1", "2"]


async def test_watches_see_nodes_made_by_a_swap(store: Any, tools: Any) -> None:
    await store.create("/a")
    await store.create("/terms")
    watches = [store.watch(path) for path in ("/a", "/terms", "/terms/1")]
    for watch in watches:
        await tools.quiet(watch)
    await store.set("/a", b"", version=0, creating={"/terms/1": b""})
    for watch in watches:
        await asyncio.wait_for(watch.changed(), 10)
        watch.close()


async def test_what_is_not_there(store: Any) -> None:
    assert not await store.exists("/a")
    for refused in (
        store.get("/a"),
        store.children("/a"),
        store.set("/a", b"", version=0),
        store.delete("/a", version=0),
        store.create("/a/b"),
        store.create_sequential("/a/b-"),
    ):
        with pytest.raises(NoNode):
            await refused


async def test_a_node_made_anew_was_created_later(store: Any) -> None:
    with pytest.raises(NoNode):
        await store.created("/a")
    await store.create("/a", b"one")
    first = await store.created("/a")
    await store.create("/b")
    await store.set("/a", b"two", version=0)
    assert await store.created("/a") == first, "a change is no creation"
    await store.delete("/a", version=1)
    await store.create("/a", b"one")
    second, between = await store.created("/a"), await store.created("/b")
    if first is not None:
        assert first < between < second


async def test_a_node_is_made_once(store: Any) -> None:
    await store.create("/a", b"first")
    with pytest.raises(NodeExists):
        await store.create("/a", b"second")
    assert (await store.get("/a")).value == b"first"
    await store.delete("/a", version=0)
    await store.create("/a", b"again")
    assert await store.get("/a") == Versioned(b"again", 0)


async def test_children_are_names_in_order(store: Any) -> None:
    assert await store.children("/") == []
    await ensure_path(store, "/a/b/c")
    for name in ("z", "10", "9", "é", "B"):
        await store.create(f"/a/{name}")
    assert await store.children("/a") == ["10", "9", "B", "b", "z", "é"]
    assert await store.children("/a/b") == ["c"]
    assert await store.children("/a/b/c") == []
    with pytest.raises(NotEmpty):
        await store.delete("/a/b", version=0)
    await store.delete("/a/b/c", version=0)
    await store.delete("/a/b", version=0)
    assert "b" not in await store.children("/a")


async def test_making_a_path_twice_at_once(store: Any, other: Any) -> None:
    await asyncio.gather(*(ensure_path(each, "/a/b/c") for each in (store, other) for _ in range(3)))
    assert await store.exists("/a/b/c")


async def test_sequential_numbers_are_never_given_twice(store: Any, other: Any) -> None:
    await store.create("/ids")
    made = await asyncio.gather(
        *(each.create_sequential("/ids/ID-", b"x") for each in (store, other) for _ in range(20))
    )
    assert len(set(made)) == 40
    assert all(path.startswith("/ids/ID-") and len(path) == len("/ids/ID-") + 10 for path in made)
    for path in made:
        await store.delete(path, version=0)
    later = await store.create_sequential("/ids/ID-", ephemeral=True)
    assert later > max(made)
    assert await store.create_sequential("/ids/") > "/ids/"


async def test_of_many_writers_at_one_version_one_wins(world: Any) -> None:
    stores = [await world.session() for _ in range(2)]
    await stores[0].create("/counter", b"0")
    lost = unknown = 0

    async def increment(store: Any) -> None:
        nonlocal lost, unknown
        while True:
            value, version = await store.get("/counter")
            try:
                await store.set("/counter", b"%d" % (int(value) + 1), version=version)
                return
            except BadVersion:
                lost += 1
            except MetadataUnknown:  # ZooKeeper's connection broke: this machine is busy
                unknown += 1
                return

    await asyncio.gather(*(increment(stores[number % 2]) for number in range(100)))
    value, version = await stores[0].get("/counter")
    assert int(value) == version and 100 - unknown <= version <= 100, "each won once"
    assert lost > 0, "the writers never met: this tested nothing"


@pytest.mark.parametrize(
    "path", ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/..", "/a\x00", "/a\n", "/\ud800", "/" + "x" * 2_000]
)
async def test_bad_paths(store: Any, path: str) -> None:
    for call in (
        store.get(path),
        store.exists(path),
        store.children(path),
        store.create(path),
        store.set(path, b"", version=0),
        store.delete(path, version=0),
    ):
        with pytest.raises(InvalidArgument, match="expected"):
            await call
    with pytest.raises(InvalidArgument):
        store.watch(path)


@pytest.mark.parametrize("prefix", ["", "a", "a/b-", "/a//b", "/../b", "/a\x00", "/" + "x" * 2_000])
async def test_bad_prefixes(store: Any, prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="expected"):
        await store.create_sequential(prefix)


async def test_the_root_cannot_be_made_or_deleted(store: Any) -> None:
    assert await store.exists("/")
    for refused in (store.create("/"), store.delete("/", version=0)):
        with pytest.raises(InvalidArgument):
            await refused


async def test_a_negative_version_is_not_any_version(store: Any) -> None:
    await store.create("/a", b"kept")
    for refused in (store.set("/a", b"", version=-1), store.delete("/a", version=-1)):
        with pytest.raises(InvalidArgument):
            await refused
    assert await store.get("/a") == Versioned(b"kept", 0)


async def test_values_up_to_the_limit(store: Any) -> None:
    largest = bytes(range(256)) * (limits.METADATA_VALUE_BYTES // 256)
    await store.create("/a", largest)
    assert (await store.get("/a")).value == largest
    for call in (
        store.create("/b", largest + b"x" * 256),
        store.create_sequential("/b", largest + b"x" * 256),
        store.set("/a", largest + b"x" * 256, version=0),
    ):
        with pytest.raises(InvalidArgument, match="at most"):
            await call


async def test_an_ephemeral_node_ends_with_its_session(store: Any, other: Any) -> None:
    await ensure_path(store, "/members")
    await store.create("/members/a", b"here", ephemeral=True)
    await store.create_sequential("/members/s-", b"here", ephemeral=True)
    await other.create("/members/b", b"", ephemeral=True)
    assert len(await other.children("/members")) == 3
    await store.close()
    assert await other.children("/members") == ["b"]


async def test_an_ephemeral_node_has_no_children(store: Any) -> None:
    await store.create("/a", ephemeral=True)
    for refused in (store.create("/a/b"), store.create_sequential("/a/b-")):
        with pytest.raises(InvalidArgument, match="ephemeral"):
            await refused
    assert await store.children("/a") == []


@pytest.mark.processes
@across_processes
async def test_an_ephemeral_node_ends_with_a_killed_process(world: Any, store: Any, tools: Any) -> None:
    watch = store.watch("/ephemeral")
    child = await world.process()
    assert await store.exists("/ephemeral")
    await tools.quiet(watch)
    child.kill()
    async with asyncio.timeout(10):
        while await store.exists("/ephemeral"):
            await watch.changed()
    await store.create("/ephemeral", b"successor", ephemeral=True)


@pytest.mark.processes
@across_processes
async def test_an_ephemeral_node_ends_with_a_paused_process(world: Any, store: Any, tools: Any) -> None:
    child = await world.process()
    child.send_signal(signal.SIGSTOP)

    async def gone() -> bool:
        return not await store.exists("/ephemeral")

    await tools.eventually(gone)
    child.send_signal(signal.SIGCONT)


async def test_a_watch_notifies_of_changes_of_its_node(store: Any, other: Any, tools: Any) -> None:
    watch = store.watch("/a")
    await tools.quiet(watch)
    for change in (
        other.create("/a", b"1"),
        other.set("/a", b"2", version=0),
        other.create("/a/b"),
        other.delete("/a/b", version=0),
        other.delete("/a", version=1),
        other.create("/a", b"1"),
        store.set("/a", b"own", version=0),
    ):
        await change
        await asyncio.wait_for(watch.changed(), 5)
        await tools.quiet(watch)
    watch.close()
    watch.close()
    with pytest.raises(ClosedError):
        await watch.changed()


async def test_a_watch_remembers_what_nobody_waited_for(store: Any, other: Any, tools: Any) -> None:
    await other.create("/a")
    watch = store.watch("/a")
    await tools.quiet(watch)
    for version in range(3):
        await other.set("/a", b"", version=version)
    await asyncio.wait_for(watch.changed(), 5)
    assert (await store.get("/a")).version == 3


async def test_watching_and_reading_never_misses_the_last_change(store: Any, other: Any) -> None:
    await other.create("/a", b"0")
    watch = store.watch("/a")

    async def write() -> None:
        for version in range(50):
            await other.set("/a", b"%d" % (version + 1), version=version)

    writing = asyncio.create_task(write())
    async with asyncio.timeout(20):
        while (await store.get("/a")).value != b"50":
            await watch.changed()
    await writing


async def test_a_cancelled_wait_loses_no_change(store: Any, other: Any, tools: Any) -> None:
    watch = store.watch("/a")
    await tools.quiet(watch)
    waiting = asyncio.create_task(watch.changed())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await other.create("/a")
    await asyncio.wait_for(watch.changed(), 5)


async def test_a_watch_does_not_notify_of_other_paths(store: Any, tools: Any) -> None:
    await ensure_path(store, "/a/b")
    watch = store.watch("/a")
    await tools.quiet(watch)
    await store.create("/c")
    await store.create("/a/b/c")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch.changed(), 0.3)


async def test_a_closed_store_refuses(store: Any) -> None:
    watch = store.watch("/a")
    waiting = asyncio.create_task(watch.changed())
    await store.close()
    await store.close()
    for call in (
        store.get("/a"),
        store.create("/a"),
        store.children("/"),
    ):
        with pytest.raises(ClosedError):
            await call
    with pytest.raises(ClosedError):
        store.watch("/a")
    if list(await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 5)) == [None]:
        with pytest.raises(ClosedError):  # a spurious change at the start; the next wait finds it closed
            await watch.changed()


async def test_a_store_refuses_before_its_start(world: Any) -> None:
    store = world.store()
    with pytest.raises(ClosedError):
        await store.get("/a")
    await store.start()
    await store.start()
    assert not await store.exists("/a")


async def test_calls_of_one_session_take_effect_in_their_order(store: Any) -> None:
    await store.create("/a")
    await asyncio.gather(*(store.set("/a", b"%d" % version, version=version) for version in range(20)))
    assert await store.get("/a") == Versioned(b"19", 20)


async def test_a_cancelled_call_breaks_nothing(store: Any) -> None:
    await store.create("/a")
    calls = [asyncio.create_task(store.set("/a", b"x", version=0)) for _ in range(5)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    for call in calls:
        assert call.cancelled() or call.exception() is None or isinstance(call.exception(), BadVersion)
    value, version = await store.get("/a")
    assert (value, version) in ((b"", 0), (b"x", 1))


async def test_an_error_of_a_store_is_one_of_ours(store: Any) -> None:
    await store.create("/a")
    with pytest.raises(NodeExists) as caught:
        await store.create("/a")
    assert caught.value.facts["path"] == "/a"
    assert caught.value.definite
    assert not isinstance(caught.value, MetadataUnavailable)
