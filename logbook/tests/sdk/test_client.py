"""Clients keep a bounded number of books, and sessions share their connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

import boki
from boki import _client
from boki._dial import EngineHandler, EnginePeer, local_clusters
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import VirtualTimeLoop


async def test_a_book_is_made_once(memory: MemoryCluster) -> None:
    client = await memory.connect()
    assert client.book("a") is client.book("a")
    assert client.book("a") is not client.session().book("a")
    assert client.book(1) is client.book(1)


async def test_unused_books_are_dropped_and_busy_ones_kept(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "SESSION_BOOKS", 10)
    client = await memory.connect()
    busy = client.book("busy")
    ticket = busy.submit(b"x")
    for number in range(30):
        client.book(number)
    assert len(client._books) == 10
    assert client.book("busy") is busy
    await ticket


async def test_books_with_named_writers_are_dropped_and_stay_one_object_while_in_use(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "SESSION_BOOKS", 10)
    client = await memory.connect()
    held = await client.book("held").writer("w")
    await held.append(b"1")
    for number in range(30):
        await client.book(number).append(b"x", writer=("w", 1))
    assert len(client._books) == 10 and "held" not in client._books
    gc.collect()
    assert len(client._held) == 1, "of the others nothing is left"
    assert await client.book("held").writer("w") is held
    assert await client.book(0).append(b"x", writer=("w", 2)) > await client.book(0).append(b"x", writer=("w", 1))


@pytest.mark.parametrize("timeout", [-1, float("nan"), 541, "5"])
def test_the_time_out_of_a_client(timeout: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="timeout"):
        _ = boki.connect("boki://a", timeout=timeout)  # type: ignore[arg-type]


async def test_a_client_is_opened_by_with_or_await(memory: MemoryCluster) -> None:
    async with boki.connect(memory.url) as client:
        assert await client.book(1).append(b"x")
    opened = await boki.connect(memory.url)
    async with opened as same:
        assert same is opened
        assert await same.book(1).append(b"y")


class Late:
    """A `Dialer` whose engine begins to answer after a while."""

    engines = 1

    def __init__(self, cluster: MemoryCluster, after_s: float) -> None:
        self._cluster = cluster
        self._begins = asyncio.get_running_loop().time() + after_s

    async def dial(self, handler: EngineHandler) -> EnginePeer:
        if asyncio.get_running_loop().time() < self._begins:
            raise boki.Unreachable("not yet")
        return await self._cluster.dial(handler)

    def learn(self, addresses: Sequence[str]) -> None: ...


@pytest.mark.parametrize(("timeout", "found"), [(30.0, True), (10.0, False), (None, False)])
def test_connecting_waits_for_an_engine_as_long_as_it_is_told(
    timeout: float | None, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryCluster() as cluster:
            monkeypatch.setitem(local_clusters, "late", Late(cluster, 20.0))
            began = loop.time()
            try:
                client = await boki.connect("memory://late", timeout=timeout)
            except boki.Unreachable:
                assert not found and began <= loop.time() <= began + (timeout or 0)
            else:
                assert found and 20 <= loop.time() - began < 23
                await client.close()
            with pytest.raises(boki.Unreachable):
                monkeypatch.setitem(local_clusters, "late", Late(cluster, 20.0))
                _ = await boki.connect("memory://late", timeout=timeout).open(wait=False)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())
