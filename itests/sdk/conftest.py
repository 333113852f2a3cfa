"""The clusters that the SDK's conformance suite runs on.

Every test of this folder takes `client`, `book` or `cluster` and runs once per provider. A test must not see whether others
used the cluster before it (books are named after the test and a random number), so a provider may keep one cluster for all.

- memory: `boki.testing.MemoryCluster`, the model.
- socket: the same model behind a real server, so that every byte passes frames, messages and a Unix socket.
- dev: `boki dev`, one process, for the whole run.
- processes: three bookies, a sequencer and an engine as separate processes on a real ZooKeeper, for the whole run.
- containers: a whole cluster in Docker, reached through published ports; `make test-containers`.
- halves: two engines that index half of the slots each, as processes; the client knows one, which forwards half of the books.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

import boki
import boki.testing
from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_cli.demo.local_cluster import LocalCluster, Place
from boki_common.net.connection import Address
from boki_common.net.messages import serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.runtime.process import SystemClock
from itests.support.fixtures import zookeeper  # noqa: F401 - a fixture
from itests.support.processes import running, throughout
from itests.support.zookeeper import ZookeeperServer


class Cluster(Protocol):
    """What a provider yields."""

    @property
    def url(self) -> str:
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
    server = await serve_messages(
        Address.parse(f"unix://{folder}/engine"), lambda _: engine, strangers=BEFORE_FIRST_FRAME
    )
    yield ClusterAt(str(server.address))
    engine.close()
    await server.close()


@pytest.fixture(scope="session")
def dev_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One `boki dev` for all tests."""
    folder = tmp_path_factory.mktemp("dev")
    with throughout(running("dev", "--data", folder, "--listen", "127.0.0.1:0", log=folder / "log")) as dev:
        yield dev.url


@pytest.fixture(scope="session")
def processes_url(
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: ZookeeperServer,  # noqa: F811
) -> Iterator[str]:
    """One cluster of processes for all tests."""
    metadata = f"zk://{zookeeper.hosts}/sdk-suite"
    with throughout(LocalCluster(tmp_path_factory.mktemp("processes"), metadata, bookies=3)) as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def halves_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One cluster for all tests. Which half is the client's is left to the hash of the books' names."""
    slots = {"engine-1": "0-255,512-767", "engine-2": "256-511,768-1023"}
    places = {name: Place(settings={"BOKI_ENGINE_INDEX_SLOTS": mine}) for name, mine in slots.items()}
    with throughout(LocalCluster(tmp_path_factory.mktemp("halves"), bookies=2, engines=2, places=places)) as cluster:
        yield f"boki://{cluster.address('engine-1')}"


@pytest.fixture(scope="session")
def containers_url(request: pytest.FixtureRequest) -> str:
    """The cluster of the suite on containers."""
    return str(request.getfixturevalue("containers").url)


@asynccontextmanager
async def served(url: str) -> AsyncIterator[Cluster]:
    yield ClusterAt(url)


@pytest.fixture(
    params=[
        "memory",
        "socket",
        pytest.param("dev", marks=pytest.mark.processes),
        pytest.param("processes", marks=[pytest.mark.processes, pytest.mark.zookeeper]),
        pytest.param("halves", marks=pytest.mark.processes),
        # The first of them waits for the cluster.
        pytest.param("containers", marks=[pytest.mark.containers, pytest.mark.alone, pytest.mark.timeout(600)]),
    ]
)
def provider(request: pytest.FixtureRequest) -> Provider:
    if request.param == "memory":
        return memory
    if request.param == "socket":
        return socket
    url = request.getfixturevalue(f"{request.param}_url")
    return lambda _: served(url)


@pytest.fixture
async def cluster(provider: Provider, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with provider(tmp_path) as provided:
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
