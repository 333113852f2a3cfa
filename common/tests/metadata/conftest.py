"""The three metadata stores, behind one fixture: `world` makes sessions on a tree of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boki_common.metadata.memory import MemoryStore, MemoryTree
from boki_common.metadata.open import open_store
from boki_common.metadata.store import MetadataStore, Watch

SESSION_TIMEOUT_S = 1.0

CHILD = """
import asyncio, sys
from boki_common.metadata.open import open_store

async def main():
    store = open_store(sys.argv[1], session_timeout_s=float(sys.argv[2]))
    await store.start()
    await store.create("/ephemeral", b"", ephemeral=True)
    print("made", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class World:
    """One tree and its sessions. `uri` is None for the store in memory, which no other process can reach."""

    def __init__(self, uri: str | None) -> None:
        self.uri = uri
        self.tree = MemoryTree()
        self.children: list[subprocess.Popen[bytes]] = []
        self._stores: list[MetadataStore] = []

    def store(self) -> MetadataStore:
        """A store that is not started yet; the world closes it."""
        if self.uri is None:
            store: MetadataStore = MemoryStore(self.tree)
        else:
            store = open_store(self.uri, session_timeout_s=SESSION_TIMEOUT_S)
        self._stores.append(store)
        return store

    async def session(self) -> Any:
        store = self.store()
        await store.start()
        return store

    async def process(self) -> subprocess.Popen[bytes]:
        """A child process with a session that made the ephemeral node /ephemeral."""
        assert self.uri is not None, "the store in memory lives in one process"
        command = [sys.executable, "-c", CHILD, self.uri, str(SESSION_TIMEOUT_S)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.children.append(child)
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"made\n"
        return child

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        for child in self.children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture(params=["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "memory":
        made = World(None)
    elif request.param == "sqlite":
        made = World(f"sqlite://{tmp_path / 'metadata.db'}")
    else:
        server = request.getfixturevalue("zookeeper")
        made = World(f"zk://{server.hosts}/test-{os.urandom(8).hex()}")
    yield made
    await made.close()


@pytest.fixture
async def store(world: World) -> Any:
    """A session."""
    return await world.session()


@pytest.fixture
async def other(world: World) -> Any:
    """Another session of the same tree."""
    return await world.session()


async def eventually(condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 10.0) -> None:
    """Polls until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def throughout(condition: Callable[[], Awaitable[bool]], duration_s: float) -> None:
    """Asserts that the condition holds all the time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + duration_s
    while loop.time() < end:
        assert await condition()
        await asyncio.sleep(0.02)


async def quiet(watch: Watch) -> None:
    """Ignores notifications of a watch, until none comes for a while."""
    while True:
        try:
            await asyncio.wait_for(watch.changed(), 0.25)
        except TimeoutError:
            return


@pytest.fixture
def tools() -> Any:
    """What tests of this folder share, since they import nothing from each other."""
    return SimpleNamespace(eventually=eventually, throughout=throughout, quiet=quiet)


@pytest.fixture
async def stores() -> AsyncIterator[list[MemoryStore]]:
    """Two sessions of one tree in memory."""
    tree = MemoryTree()
    made = [MemoryStore(tree), MemoryStore(tree)]
    for store in made:
        await store.start()
    yield made
    for store in made:
        await store.close()
