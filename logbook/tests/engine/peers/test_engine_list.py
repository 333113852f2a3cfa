"""The list of engines follows the members, also through an outage of the metadata store."""

from __future__ import annotations

import asyncio

import msgspec

from boki_common.metadata.membership import MEMBERS
from boki_common.metadata.memory import MemoryStore
from boki_logbook.peers.engine_list import LISTED_ENGINES, keep_engine_list, listed_addresses
from boki_metalog.terms.index_slots import EngineMember


async def test_members_come_and_go() -> None:
    store = MemoryStore()
    await store.start()
    lists: list[list[str]] = []
    news = asyncio.Event()

    def tell(engines: list[EngineMember]) -> None:
        lists.append(listed_addresses(engines))
        news.set()

    async def until(expected: list[str]) -> None:
        while not lists or lists[-1] != expected:
            news.clear()
            await asyncio.wait_for(news.wait(), 10)

    keeping = asyncio.create_task(keep_engine_list(store, "engine", tell, retry_s=0.001))
    await until([])
    for path in ("/boki", MEMBERS, f"{MEMBERS}/engine"):
        await store.create(path, b"{}")
    await store.create(f"{MEMBERS}/engine/b", msgspec.json.encode({"addresses": ["b:1", "unix:///b"]}))
    await until(["b:1", "unix:///b"])
    await store.create(f"{MEMBERS}/engine/a", msgspec.json.encode({"addresses": ["a:1"]}))
    await until(["a:1", "b:1", "unix:///b"])
    await store.delete(f"{MEMBERS}/engine/b", version=(await store.get(f"{MEMBERS}/engine/b")).version)
    await until(["a:1"])
    many = msgspec.json.encode({"addresses": [f"m:{port}" for port in range(1, 100)]})
    await store.create(f"{MEMBERS}/engine/many", many)
    await until(["a:1", *(f"m:{port}" for port in range(1, LISTED_ENGINES))])
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_a_store_that_is_away_changes_nothing() -> None:
    store = MemoryStore()
    await store.start()
    lists: list[list[str]] = []
    news = asyncio.Event()

    def tell(engines: list[EngineMember]) -> None:
        lists.append(listed_addresses(engines))
        news.set()

    store.reachable = False
    keeping = asyncio.create_task(keep_engine_list(store, "engine", tell, retry_s=0.001))
    for _ in range(10):
        await asyncio.sleep(0)
    assert lists == []
    store.reachable = True
    await asyncio.wait_for(news.wait(), 10)
    assert lists == [[]]
    keeping.cancel()
    await asyncio.wait([keeping])
