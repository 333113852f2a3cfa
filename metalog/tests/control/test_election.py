"""One leader at a time, as far as the store can tell; the next one when it is gone."""

from __future__ import annotations

import asyncio
from typing import Any

from boki_common.metadata.memory import Fault, MemoryStore
from boki_metalog.control.election import Election

PATH = "/boki/leader"


def stand(cluster: Any, store: MemoryStore, name: bytes) -> tuple[Election, asyncio.Event]:
    """Who stands, and resigns at the end of the test; set when it leads no more."""
    changed = asyncio.Event()
    election = Election(store, PATH, name, on_change=changed.set)
    cluster._closing.append(election.resign)
    return election, changed


async def test_the_next_one_leads_when_the_leader_resigns(cluster: Any) -> None:
    first, _ = stand(cluster, await cluster.store(), b"a")
    second, _ = stand(cluster, await cluster.store(), b"b")
    await first.won()
    waiting = asyncio.ensure_future(second.won())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done() and await second.leader() == b"a"
    await first.resign()
    await waiting
    assert (first.leading, second.leading) == (False, True)
    await first.resign()
    assert await second.leader() == b"b", "who resigns twice takes nothing from the next"
    await second.resign()
    assert await second.leader() is None


async def test_who_stands_asks_again_when_something_changed_only(cluster: Any) -> None:
    """ZooKeeper's watches fire once for nothing when they are set."""
    first, _ = stand(cluster, await cluster.store(), b"a")
    await first.won()
    store = await cluster.store()
    asked: list[str] = []
    before = store.watch

    def spurious_watch(path: str) -> Any:
        watch = before(path)
        watch.notify()
        return watch

    def count(operation: str, path: str) -> Fault:
        asked.append(operation)
        return Fault.NONE

    store.watch = spurious_watch
    store.faults = count
    second, _ = stand(cluster, store, b"b")
    waiting = asyncio.ensure_future(second.won())
    for _ in range(200):
        await asyncio.sleep(0)
    assert asked.count("create") <= 3, "its parent, itself, and once more for nothing"
    await first.resign()
    await waiting


async def test_the_next_one_leads_when_the_session_ends(cluster: Any) -> None:
    store = await cluster.store()
    first, ended = stand(cluster, store, b"a")
    second, _ = stand(cluster, await cluster.store(), b"b")
    await first.won()
    waiting = asyncio.ensure_future(second.won())
    store.crash()
    store.expire_session()
    await waiting
    assert second.leading and not ended.is_set(), "the dead one learns nothing"


async def test_a_leader_whose_session_ended_learns_it(cluster: Any) -> None:
    store = await cluster.store()
    first, ended = stand(cluster, store, b"a")
    await first.won()
    store.expire_session()
    await ended.wait()
    assert not first.leading
    await first.won()
    assert first.leading


async def test_a_leader_whose_node_was_removed_learns_it(cluster: Any) -> None:
    first, ended = stand(cluster, await cluster.store(), b"a")
    await first.won()
    cluster.tree.delete(PATH, 0)
    await ended.wait()
    assert not first.leading


async def test_a_win_whose_answer_was_lost_is_a_win(cluster: Any) -> None:
    store = await cluster.store()
    first, _ = stand(cluster, store, b"a")
    left = [Fault.ANSWER_LOST]
    store.faults = lambda operation, path: left.pop() if (operation, path) == ("create", PATH) and left else Fault.NONE
    await first.won()
    assert first.leading and not left
