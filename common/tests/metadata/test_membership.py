"""Membership: the node is there while its owner is, and nobody takes over another's."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

from boki_common.errors import CorruptData, MetadataUnavailable, NodeExists
from boki_common.metadata.membership import Membership, member_path, members
from boki_common.metadata.memory import Fault, MemoryStore
from boki_common.metadata.store import ensure_path
from boki_common.metadata.zookeeper import ZookeeperStore

PATH = member_path("engine", "e1")


async def holds(store: Any, value: bytes, path: str = PATH) -> bool:
    return bool(await store.exists(path)) and (await store.get(path)).value == value


async def test_members_come_and_go(store: Any, other: Any, tools: Any) -> None:
    assert await members(store, "engine") == {}
    one = await Membership.join(store, PATH, b'{"address":"a"}')
    two = await Membership.join(other, member_path("engine", "e0"), b'{"address":"b"}')
    assert await members(store, "engine") == {"e0": {"address": "b"}, "e1": {"address": "a"}}
    assert list(await members(store, "engine")) == ["e0", "e1"]
    await one.update(b'{"address":"c"}')
    assert (await members(other, "engine"))["e1"] == {"address": "c"}
    await two.leave()
    await two.leave()
    assert list(await members(store, "engine")) == ["e1"]
    await store.close()
    assert await members(other, "engine") == {}
    await one.leave()


async def test_a_node_that_was_removed_comes_back(store: Any, other: Any, tools: Any) -> None:
    membership = await Membership.join(store, PATH, b"{}")
    await other.delete(PATH, version=0)
    await tools.eventually(lambda: holds(other, b"{}"))
    await membership.leave()
    assert not await other.exists(PATH)


async def test_a_second_process_under_the_same_name_is_refused(store: Any, other: Any) -> None:
    membership = await Membership.join(store, PATH, b"{}")
    with pytest.raises(NodeExists, match="another process"):
        await Membership.join(other, PATH, b"{}", timeout_s=0.2)
    assert await holds(other, b"{}")
    await membership.leave()


async def test_a_successor_waits_for_its_predecessor(store: Any, other: Any) -> None:
    await Membership.join(store, PATH, b"{}")
    joining = asyncio.create_task(Membership.join(other, PATH, b"{}"))
    await asyncio.sleep(0)
    await store.close()
    membership = await asyncio.wait_for(joining, 5)
    assert await holds(other, b"{}")
    await membership.leave()


@pytest.mark.processes
@pytest.mark.parametrize("world", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True)
async def test_a_successor_of_a_killed_process(world: Any) -> None:
    store = await world.session()
    child = await world.process()
    child.kill()
    membership = await Membership.join(store, "/ephemeral", b"{}")
    assert await holds(store, b"{}", "/ephemeral")
    await membership.leave()


async def test_a_value_that_is_no_object_is_named() -> None:
    store = MemoryStore()
    await store.start()
    await ensure_path(store, "/boki/members/engine")
    await store.create(PATH, b"[1]")
    with pytest.raises(CorruptData, match=PATH):
        await members(store, "engine")


async def test_after_a_lost_session_it_is_a_member_again(stores: Any, tools: Any) -> None:
    store, other = stores
    membership = await Membership.join(store, PATH, b"{}")
    for _ in range(3):
        store.expire_session()
        assert not await other.exists(PATH)
        await tools.eventually(lambda: holds(other, b"{}"))
    await membership.leave()


async def test_an_outage_with_an_expired_session_and_a_new_value(stores: Any, tools: Any) -> None:
    store, other = stores
    membership = await Membership.join(store, PATH, b"{}")
    store.disconnect()
    store.expire_session()
    with pytest.raises(MetadataUnavailable):
        await membership.update(b'{"spares":[1]}')
    assert not await other.exists(PATH)
    store.reconnect()
    await tools.eventually(lambda: holds(other, b'{"spares":[1]}'))
    await membership.leave()


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST, Fault.DELAYED])
async def test_lost_answers(stores: Any, fault: Fault, tools: Any) -> None:
    store, other = stores
    await ensure_path(store, "/boki/members/engine")
    store.fail_next_write(fault)
    membership = await Membership.join(store, PATH, b"1")
    store.fail_next_write(fault)
    await membership.update(b"2")
    assert await holds(other, b"2")
    store.fail_next_write(fault)
    store.expire_session()
    await tools.eventually(lambda: holds(other, b"2"))
    store.tree.deliver_delayed()
    await membership.leave()
    assert not await other.exists(PATH)


async def test_a_name_taken_meanwhile_is_taken_back_when_free(stores: Any, tools: Any) -> None:
    store, other = stores
    membership = await Membership.join(store, PATH, b"mine")
    store.disconnect()
    store.expire_session()
    await other.create(PATH, b"theirs", ephemeral=True)
    store.reconnect()
    with pytest.raises(NodeExists):
        await membership.update(b"mine too")
    assert await holds(other, b"theirs")
    await other.delete(PATH, version=0)
    await tools.eventually(lambda: holds(other, b"mine too"))
    await membership.leave()


async def test_leaving_in_the_middle_of_a_write_leaves_nothing(stores: Any) -> None:
    store, other = stores
    for steps in range(8):
        membership = await Membership.join(store, PATH, b"{}")
        store.expire_session()
        for _ in range(steps):
            await asyncio.sleep(0)
        await membership.leave()
        for _ in range(8):
            await asyncio.sleep(0)
        assert not await other.exists(PATH), steps


@pytest.mark.zookeeper
@pytest.mark.processes
async def test_zookeeper_stopped_for_ten_seconds(own_zookeeper: Any, tools: Any) -> None:
    """Whether the session expires when the server goes on is a race of its own; the member is there in either case."""
    store = ZookeeperStore(own_zookeeper.hosts, session_timeout_s=2.0, call_timeout_s=1.0)
    await store.start()
    membership = await Membership.join(store, PATH, b"{}")
    await store.create("/a", b"0")
    own_zookeeper.pause()

    async def unreachable() -> bool:
        return not await _readable(store)

    await tools.throughout(unreachable, 10.0)
    with pytest.raises(MetadataUnavailable) as caught:
        await store.set("/a", b"1", version=0)
    assert caught.value.definite
    own_zookeeper.resume()
    await tools.eventually(lambda: _readable(store))
    await tools.eventually(lambda: holds(store, b"{}"))
    assert await store.set("/a", b"2", version=0) == 1
    observer = ZookeeperStore(own_zookeeper.hosts, session_timeout_s=2.0)
    await observer.start()
    await tools.throughout(lambda: holds(observer, b"{}"), 2.5)  # longer than the old session could live
    await membership.leave()
    await store.close()
    await observer.close()


async def _readable(store: Any) -> bool:
    try:
        return bool(await store.exists("/a"))
    except MetadataUnavailable:
        return False


JOINING_CHILD = f"""
import asyncio, sys
from boki_common.metadata.membership import Membership
from boki_common.metadata.open import open_store

async def main():
    store = open_store(sys.argv[1], session_timeout_s=0.6)
    await store.start()
    store.on_session_lost(lambda: print("lost", flush=True))
    await Membership.join(store, {PATH!r}, b"{{}}")
    print("joined", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("world", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True)
async def test_a_process_paused_for_longer_than_its_session_joins_again(world: Any, tools: Any) -> None:
    store = await world.session()
    child = subprocess.Popen([sys.executable, "-c", JOINING_CHILD, world.uri], stdout=subprocess.PIPE)
    world.children.append(child)
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == b"joined\n"
    assert await store.exists(PATH)
    child.send_signal(signal.SIGSTOP)

    async def gone() -> bool:
        return not await store.exists(PATH)

    await tools.eventually(gone)
    child.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(child.stdout.readline) == b"lost\n"
    await tools.eventually(lambda: holds(store, b"{}"))
