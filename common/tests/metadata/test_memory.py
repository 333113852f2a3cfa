"""The fault hooks of the store in memory: each does what its name says, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki_common import limits
from boki_common.errors import BadVersion, ClosedError, MetadataUnavailable, MetadataUnknown, Overloaded
from boki_common.metadata import memory
from boki_common.metadata.memory import Fault, MemoryStore


@pytest.mark.parametrize(
    ("fault", "error", "applied_now", "applied_later"),
    [
        (Fault.UNAVAILABLE, MetadataUnavailable, False, False),
        (Fault.REQUEST_LOST, MetadataUnknown, False, False),
        (Fault.ANSWER_LOST, MetadataUnknown, True, True),
        (Fault.DELAYED, MetadataUnknown, False, True),
    ],
)
async def test_what_becomes_of_a_write(
    stores: Any, fault: Fault, error: type[Exception], applied_now: bool, applied_later: bool
) -> None:
    store, other = stores
    await store.create("/a", b"old")
    store.fail_next_write(fault)
    assert (await store.get("/a")).value == b"old", "a read takes no write's fault"
    with pytest.raises(error):
        await store.set("/a", b"new", version=0)
    assert ((await other.get("/a")).value == b"new") == applied_now
    store.tree.deliver_delayed()
    assert ((await other.get("/a")).value == b"new") == applied_later
    await store.create("/b")


async def test_a_plan_sees_every_call(stores: Any) -> None:
    store = stores[0]
    seen = []

    def plan(operation: str, path: str) -> Fault:
        seen.append((operation, path))
        return Fault.ANSWER_LOST if path == "/a" else Fault.NONE

    store.faults = plan
    with pytest.raises(MetadataUnknown):
        await store.create("/a")
    with pytest.raises(MetadataUnavailable):
        await store.get("/a")
    await store.create("/b")
    await store.children("/")
    await store.create_sequential("/c-")
    assert seen == [("create", "/a"), ("get", "/a"), ("create", "/b"), ("children", "/"), ("create_sequential", "/c-")]


async def test_delayed_writes_land_in_their_order_or_fail(stores: Any) -> None:
    store = stores[0]
    await store.create("/a", b"old")
    store.fail_next_write(Fault.DELAYED, count=3)
    for call in (
        store.set("/a", b"1", version=0),
        store.set("/a", b"2", version=0),
        store.create("/e", ephemeral=True),
    ):
        with pytest.raises(MetadataUnknown):
            await call
    outcomes = store.tree.deliver_delayed()
    assert [type(outcome) for outcome in outcomes] == [type(None), BadVersion, type(None)]
    assert (await store.get("/a")).value == b"1"
    assert store.tree.deliver_delayed() == []


async def test_a_delayed_write_dies_with_its_session(stores: Any) -> None:
    store, other = stores
    store.fail_next_write(Fault.DELAYED)
    with pytest.raises(MetadataUnknown):
        await store.create("/e", ephemeral=True)
    store.expire_session()
    assert [type(outcome) for outcome in store.tree.deliver_delayed()] == [MetadataUnavailable]
    assert not await other.exists("/e")


async def test_delayed_writes_are_bounded(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "DELAYED_WRITES", 1)
    store = stores[0]
    store.fail_next_write(Fault.DELAYED, count=2)
    with pytest.raises(MetadataUnknown):
        await store.create("/a")
    with pytest.raises(Overloaded):
        await store.create("/b")


async def test_a_disconnected_store_keeps_its_session(stores: Any, tools: Any) -> None:
    store, other = stores
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/e", ephemeral=True)
    watch = store.watch("/a")
    store.disconnect()
    for call in (store.get("/e"), store.create("/a")):
        with pytest.raises(MetadataUnavailable):
            await call
    await other.create("/a")
    assert await other.exists("/e")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch.changed(), 0.05)
    store.reconnect()
    await asyncio.wait_for(watch.changed(), 1)
    assert await store.exists("/e")
    assert lost == []


async def test_an_expiry_is_learned_on_reconnecting(stores: Any) -> None:
    store, other = stores
    lost: list[bool] = []
    store.on_session_lost(lambda: lost.append(True))
    await store.create("/e", ephemeral=True)
    store.disconnect()
    store.expire_session()
    assert not await other.exists("/e")
    assert lost == []
    store.reconnect()
    assert lost == [True]
    await store.create("/e", ephemeral=True)
    store.expire_session()
    assert lost == [True, True]
    assert not await store.exists("/e")


async def test_a_tree_that_is_away_is_away_for_all(stores: Any) -> None:
    tree = stores[0].tree
    watch = stores[0].watch("/a")
    tree.disconnect()
    for store in stores:
        with pytest.raises(MetadataUnavailable):
            await store.create("/a")
    late = MemoryStore(tree)
    with pytest.raises(MetadataUnavailable):
        await late.start()
    stores[1].expire_session()
    tree.reconnect()
    await asyncio.wait_for(watch.changed(), 1)
    await late.start()
    await stores[1].create("/a", ephemeral=True)
    await late.close()


async def test_a_crash_leaves_the_session_until_it_expires(stores: Any) -> None:
    store, other = stores
    await store.create("/e", ephemeral=True)
    store.crash()
    with pytest.raises(ClosedError):
        await store.get("/e")
    assert await other.exists("/e")
    store.expire_session()
    assert not await other.exists("/e")


async def test_an_ephemeral_node_of_a_session_that_expired_on_the_way_is_not_made(stores: Any) -> None:
    store, other = stores
    making = asyncio.create_task(store.create("/e", ephemeral=True))
    await asyncio.sleep(0)
    store.expire_session()
    with pytest.raises(MetadataUnavailable, match="expired"):
        await making
    assert not await other.exists("/e")


async def test_watches_are_bounded(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_WATCHES", 1)
    watch = stores[0].watch("/a")
    with pytest.raises(Overloaded):
        stores[0].watch("/b")
    watch.close()
    stores[0].watch("/b").close()


async def test_calls_give_way_to_each_other(stores: Any) -> None:
    """Two read-modify-writes started together meet: the store shows races instead of hiding them."""
    await stores[0].create("/a", b"0")

    async def increment(store: Any) -> bool:
        value, version = await store.get("/a")
        try:
            await store.set("/a", b"%d" % (int(value) + 1), version=version)
        except BadVersion:
            return False
        return True

    assert sorted(await asyncio.gather(*(increment(store) for store in stores))) == [False, True]
