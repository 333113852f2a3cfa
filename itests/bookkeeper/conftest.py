"""Apache bookies, started once for the folder, and ledger clients of ours on their ZooKeeper tree."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from boki_common.metadata.open import open_store
from boki_common.runtime.process import SystemRandom
from boki_ledger.client import LedgerClient
from itests.bookkeeper.both_kinds import BothKinds
from itests.bookkeeper.clients import Placement
from itests.bookkeeper.java_service import JavaService
from itests.support.apache_bookkeeper import ApacheBookkeeper
from itests.support.fixtures import skip_or_fail, zookeeper
from itests.support.java_server import ServerMissing
from itests.support.zookeeper import ZookeeperServer

__all__ = ["zookeeper"]

BOOKIES = 4
"""Three for a ledger, and a spare."""

MakeClient = Callable[[str], Awaitable[LedgerClient]]
MakeApache = Callable[[str], ApacheBookkeeper]


@pytest.fixture(scope="session")
def make_apache(zookeeper: ZookeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeApache]:
    """Apache's programs on a tree of their own, without bookies yet."""
    made: list[ApacheBookkeeper] = []
    numbers = itertools.count(1)

    def make(name: str) -> ApacheBookkeeper:
        chroot = f"/{name}-{next(numbers)}"
        try:
            one = ApacheBookkeeper.prepare(zookeeper.hosts, chroot, tmp_path_factory.mktemp(name))
        except ServerMissing as error:
            skip_or_fail("bookkeeper", str(error))
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def apache(make_apache: MakeApache) -> ApacheBookkeeper:
    """Four Apache bookies on a cluster that Apache's shell laid out."""
    made = make_apache("apache")
    made.format()
    made.start_bookies(BOOKIES)
    return made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def both_kinds(make_apache: MakeApache, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BothKinds]:
    """Three bookies of each kind on one tree, for the whole run: leave them running and the doors open."""
    apache = make_apache("both-kinds")
    async with BothKinds.start(apache, tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def java(both_kinds: BothKinds) -> AsyncIterator[JavaService]:
    """Apache's client on that tree, one process for the whole run."""
    try:
        service = await JavaService.start(both_kinds.apache)
    except ServerMissing as error:
        skip_or_fail("bookkeeper", str(error))
    yield service
    await service.close()


@pytest.fixture(params=["ours", "Apache's", "both kinds"])
def placement(request: pytest.FixtureRequest, both_kinds: BothKinds) -> Placement:
    """Where a ledger goes, for tests that say the same of all bookies."""
    ours, theirs = both_kinds.ours, both_kinds.theirs
    ensembles = {"ours": ours, "Apache's": theirs, "both kinds": [ours[1], theirs[1], theirs[2]]}
    return Placement(tuple(ensembles[request.param]), ours[2])


@pytest.fixture
async def make_client() -> AsyncIterator[MakeClient]:
    """Ledger clients of ours on the metadata of an address."""
    async with AsyncExitStack() as stack:

        async def make(uri: str) -> LedgerClient:
            store = open_store(uri, session_timeout_s=4.0)
            await store.start()
            stack.push_async_callback(store.close)
            client = LedgerClient(metadata=store, rng=SystemRandom())
            await client.start()
            stack.push_async_callback(client.close)
            return client

        yield make
