"""The list of engines follows the members, also through an outage of the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from boki_common.metadata.membership import MEMBERS
from boki_common.metadata.memory import MemoryStore
from boki_logbook.peers.engine_list import LISTED_ENGINES, keep_engine_list, listed_addresses
from boki_metalog.terms.index_slots import EngineMember


class Lists:
    """A list that is kept, and each that was announced."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.announced: list[list[str]] = []
        self._changed = asyncio.Event()

    def keep(self) -> None:
        self.keeping = asyncio.create_task(keep_engine_list(self.store, "engine", self._announce, retry_s=0.001))

    def _announce(self, engines: list[EngineMember]) -> None:
        self.announced.append(listed_addresses(engines))
        self._changed.set()

    async def until(self, expected: list[str]) -> None:
        while not self.announced or self.announced[-1] != expected:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)

    async def add(self, name: str, *addresses: str) -> None:
        await self.store.create(f"{MEMBERS}/engine/{name}", msgspec.json.encode({"addresses": addresses}))


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    store = MemoryStore()
    await store.start()
    made = Lists(store)
    yield made
    made.keeping.cancel()
    await asyncio.wait([made.keeping])


async def test_members_come_and_go(lists: Lists) -> None:
    lists.keep()
    await lists.until([])
    for path in ("/boki", MEMBERS, f"{MEMBERS}/engine"):
        await lists.store.create(path, b"{}")
    await lists.add("b", "b:1", "unix:///b")
    await lists.until(["b:1", "unix:///b"])
    await lists.add("a", "a:1")
    await lists.until(["a:1", "b:1", "unix:///b"])
    await lists.store.delete(f"{MEMBERS}/engine/b", version=0)
    await lists.until(["a:1"])
    await lists.add("many", *(f"m:{port}" for port in range(1, 100)))
    await lists.until(["a:1", *(f"m:{port}" for port in range(1, LISTED_ENGINES))])


async def test_a_store_that_is_away_changes_nothing(lists: Lists) -> None:
    lists.store.reachable = False
    lists.keep()
    for _ in range(10):
        await asyncio.sleep(0)
    assert lists.announced == []
    lists.store.reachable = True
    await lists.until([])
    assert lists.announced == [[]]
