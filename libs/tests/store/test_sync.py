"""The store without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

import boki
import bokistore.sync
from boki.testing import MemoryCluster
from bokistore import Change, Inc, StoreSettings, TransactionTimeout
from bokistore.sync import BokiStore, Transaction


@dataclass
class User:
    name: str


async def in_thread(cluster: MemoryCluster, script: Callable[[BokiStore], Any]) -> Any:
    def run() -> Any:
        with boki.sync.connect(cluster.url) as client:
            store = BokiStore(client.book("shop"))
            try:
                return script(store)
            finally:
                store.close()

    return await asyncio.to_thread(run)


async def test_objects_and_their_past(cluster: MemoryCluster) -> None:
    def script(store: BokiStore) -> None:
        x = store.object("x")
        x.set("a.b", 1)
        x.make_object("o")
        x.make_array("l")
        assert [x.push("l", 1, limit=1), x.push("l", 2, limit=1), x.pop("l"), x.inc("n", 2)] == [1, 1, 2, 2]
        x.merge("o", {"k": "v"})
        assert x.delete("a.b") and x.apply(Inc("n", 1)) == [3]
        at = x.send(Inc("n", 1))
        assert x.value() == {"a": {}, "o": {"k": "v"}, "l": [], "n": 4} and x.exists()
        x.inc("n")
        assert [x.get("n", at=at), x.get("n")] == [4, 5]
        assert x.diff(at) == [Change("n", 4, 5)] and len(x.history()) == 12
        assert store.values(["x", "y"])[1] is None
        with store.snapshot(at=at) as then:
            assert (then.at, then.get("x", "n", 0, type=int), then.values(["x"])[0], then.ids("user")) == (
                at,
                4,
                then.value("x"),
                [],
            )
        store.expire("x", 1)
        assert store.sweep(["x"]) == ["x"] and not store.delete("x")

    await in_thread(cluster, script)


async def test_transactions_of_threads(cluster: MemoryCluster) -> None:
    def script(store: BokiStore) -> None:
        @store.transactional(isolation="snapshot")
        def bump(tx: Transaction, name: str) -> None:
            found = tx[name].get("n", 0, type=int)
            tx[name].set("n", found + 1)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(bump, ["x"] * 12))
        assert store.object("x").get("n", type=int) == 12

        def move(tx: Transaction, by: int) -> int:
            assert tx["x"].exists() and tx["y"].value() is None and tx.values(["y"]) == [None]
            tx["x"].inc("n", -by)
            tx["y"].inc("n", by)
            return len(tx.ids("user"))

        assert store.transact(move, 5) == 0
        with store.transaction() as tx:
            tx.delete("y")
        assert tx.seqnum and store.values(["x", "y"]) == [{"n": 7}, None]
        with pytest.raises(KeyError), store.transaction() as tx:
            tx["x"].inc("n")
            raise KeyError
        with pytest.raises(boki.Conflict):
            store.transactional(retries=1)(lose)(store)
        assert store.object("x").get("n") == 10, "as often as in a task"

    def lose(tx: Transaction, store: BokiStore) -> None:
        tx["x"].get("n")
        store.object("x").inc("n")
        tx["x"].set("n", 0)

    await in_thread(cluster, script)


async def test_a_slow_body_commits_beside_a_process_that_commits_each_time_it_runs(cluster: MemoryCluster) -> None:
    """Threads claim what they lose again and again, as tasks do, and heed claims of others."""
    fast, changed, ended = (
        bokistore.BokiStore((await cluster.connect()).book("shop")),
        threading.Event(),
        asyncio.Event(),
    )

    async def change(tx: bokistore.Transaction) -> None:
        tx["x"].set("n", await tx["x"].get("n", 0))

    async def hammer() -> None:
        while not ended.is_set():
            await fast.transact(change)
            changed.set()
            await asyncio.sleep(0)

    def script(store: BokiStore) -> None:
        def slow(tx: Transaction) -> None:
            tx["x"].get("n")
            changed.clear()
            changed.wait(0.02)  # once the other process heeds the claim it commits nothing
            tx["x"].set("m", 1)

        store.transact(slow)

    hammering = asyncio.create_task(hammer())
    try:
        await in_thread(cluster, script)
    finally:
        ended.set()
        await hammering
    assert await fast.object("x").get("m") == 1


async def test_a_body_runs_in_the_thread_that_called_with_what_that_has(cluster: MemoryCluster) -> None:
    def script(store: BokiStore) -> None:
        local, around = threading.local(), ContextVar("around", default="")
        local.name = "mine"
        around.set("here")

        def body(tx: Transaction) -> str:
            around.set(f"{around.get()} {local.name}")
            store.transact(lambda inner: inner["y"].inc("n"))
            tx["x"].set("n", store.object("y").get("n"))
            return around.get()

        assert store.transact(body) == "here mine" == around.get()
        assert store.values(["x", "y"]) == [{"n": 1}, {"n": 1}]

    await in_thread(cluster, script)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(1), KeyError("x")]
)
async def test_an_error_of_a_body_is_its_callers_and_nothing_commits(
    cluster: MemoryCluster, error: BaseException
) -> None:
    def script(store: BokiStore) -> None:
        def body(tx: Transaction) -> None:
            tx["x"].inc("n")
            raise error

        expected = RuntimeError if isinstance(error, StopIteration) else type(error)
        with pytest.raises(expected):
            store.transact(body)
        assert store.object("x").get("n") is None
        store.transact(lambda tx: tx["x"].inc("n"))
        assert store.object("x").get("n") == 1, "the client goes on"

    await in_thread(cluster, script)


async def test_a_body_that_takes_too_long_is_told_so(cluster: MemoryCluster) -> None:
    def script(url: str) -> None:
        with boki.sync.connect(url) as client:
            store = BokiStore(client.book("shop"), settings=StoreSettings(grace_ms=50))
            late = threading.Event()

            def body(tx: Transaction) -> None:
                tx["x"].inc("n")
                late.wait(0.2)

            with pytest.raises(TransactionTimeout, match="body"):
                store.transact(body)
            assert store.object("x").get("n") is None
            store.close()

    await asyncio.to_thread(script, cluster.url)


async def test_collections(cluster: MemoryCluster) -> None:
    def script(store: BokiStore) -> None:
        users = store.collection("user", User)
        users.create("ann", User("Ann"))
        users.put("bob", User("Bob"))
        assert (users.get("ann"), users.ids(), users.delete("ann")) == (User("Ann"), ["ann", "bob"], True)
        assert users.scan() == [("bob", User("Bob"))]

    await in_thread(cluster, script)


def test_it_has_the_names_of_the_asynchronous_one() -> None:
    """All but what follows, which has no end without a loop."""
    without = {
        "StoreObject": {"watch", "view"},
        "BokiStore": {"begin", "commit", "stage", "tend", "carried"},
    }
    for name in ("BokiStore", "Collection", "Snapshot", "StoreObject"):
        ours, theirs = (
            {each for each in vars(getattr(module, name)) if not each.startswith("_")}
            for module in (bokistore.sync, bokistore)
        )
        assert theirs - ours - without.get(name, set()) - {"within", "object", "of", "json_of"} == set()
