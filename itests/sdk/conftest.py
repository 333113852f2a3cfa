"""The clusters that the SDK's conformance suite runs on.

Every test of this folder takes `client`, `book` or `cluster` and runs once per provider. To add one, write an async context
manager that yields a `Cluster` and put it into `PROVIDERS`; a test must not see whether others used the cluster before it
(books are named after the test and a random number), so a provider may keep one cluster for all.

- memory: `boki.testing.MemoryCluster`, the model.
- socket: the same model behind a real server, so that every byte passes frames, messages and a Unix socket.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

import boki
import boki.testing
from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_common.errors import ConnectionLost
from boki_common.net.connection import Address
from boki_common.net.messages import MessageServer
from boki_common.runtime.process import SystemClock


class Cluster(Protocol):
    """What a provider yields."""

    url: str
    """For `boki.connect` and `boki.sync.connect`."""

    async def connect(self) -> boki.Client:
        """A new client, open. Whoever asks closes it."""


Provider = Callable[[Path], AbstractAsyncContextManager[Cluster]]


class ClusterAt:
    """A cluster that a URL says all about."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def connect(self) -> boki.Client:
        return await boki.connect(self.url)


@asynccontextmanager
async def memory(_folder: Path) -> AsyncIterator[Cluster]:
    async with boki.testing.MemoryCluster() as cluster:
        yield cluster


@asynccontextmanager
async def socket(folder: Path) -> AsyncIterator[Cluster]:
    engine = ModelEngine(Model(), SystemClock())
    server = await MessageServer.start(Address.parse(f"unix://{folder}/engine"), lambda _: engine)
    yield ClusterAt(str(server.address))
    engine.close()
    await server.close()


PROVIDERS: dict[str, Provider] = {"memory": memory, "socket": socket}


@pytest.fixture(params=PROVIDERS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with PROVIDERS[request.param](tmp_path) as provided:
        yield provided


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[boki.Client]:
    async with await cluster.connect() as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A book that no other test knows."""
    return f"{request.node.originalname}-{secrets.token_hex(6)}"


@pytest.fixture
def book(client: boki.Client, name: str) -> boki.Book:
    return client.book(name)


@pytest.fixture
def cut() -> Callable[[boki.Client], None]:
    """Breaks the client's connection, without a word to the engine: answers on their way are lost."""

    def now(client: boki.Client) -> None:
        connection = client._connection
        assert connection is not None and connection._peer is not None
        connection._peer.connection.abort(ConnectionLost("cut by the test"))

    return now


Collect = Callable[[boki.RecordIterator], Awaitable[list[boki.Record]]]


@pytest.fixture
def collect() -> Collect:
    """All records of an iterator that ends."""

    async def all_of(records: boki.RecordIterator) -> list[boki.Record]:
        return [record async for record in records]

    return all_of
