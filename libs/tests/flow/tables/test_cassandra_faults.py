"""A real Cassandra is paused, and killed with -9, while processes change rows: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from boki.testing import MemoryCluster
from bokiflow.tables import Tables, TableUnavailable, Transaction
from bokiflow.tables.cassandra_port import CassandraTables
from bokilib.log import Log
from itests.support.cassandra import CassandraMissing, CassandraServer
from itests.support.fixtures import skip_or_fail
from libs.tests.flow.tables.conftest import HOTEL

pytestmark = [pytest.mark.cassandra, pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(400)]


@pytest.fixture
def own_cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """A node for this test alone."""
    try:
        server = CassandraServer.start(tmp_path_factory.mktemp("cassandra"))
    except CassandraMissing as error:
        skip_or_fail("cassandra", str(error))
    yield server
    server.kill()


async def add(tx: Transaction, key: str) -> None:
    row = await tx.get("hotel", key) or {"left_over": 0}
    count = row["left_over"]
    assert isinstance(count, int)
    tx.put("hotel", key, {"left_over": count + 1})


@asynccontextmanager
async def process(cluster: MemoryCluster, server: CassandraServer) -> AsyncIterator[Tables]:
    async with (
        await CassandraTables.connect(["127.0.0.1"], port=server.port, keyspace="faults", timeout_s=2) as port,
        Tables(Log((await cluster.connect()).book("shop")), port, cached_rows=2) as tables,
    ):
        await tables.open(HOTEL)
        yield tables


class Adding:
    """Adds to rows, again while the database is not there. `added`: how often."""

    def __init__(self, tables: Tables) -> None:
        self.added = 0
        self.failed = 0
        self._tables = tables

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                await self._tables.transact(add, f"h{number % 5}")
                self.added += 1
            except TableUnavailable:
                self.failed += 1
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["pause", "kill"])
async def test_nothing_is_lost_when_the_database_stops(
    cluster: MemoryCluster, own_cassandra: CassandraServer, fault: str
) -> None:
    stop = asyncio.Event()
    async with process(cluster, own_cassandra) as one, process(cluster, own_cassandra) as other:
        adding = [Adding(one), Adding(other)]
        running = [asyncio.create_task(each.run(stop)) for each in adding]
        for _ in range(2):
            await asyncio.sleep(1)
            if fault == "pause":
                own_cassandra.pause()
                await asyncio.sleep(4)
                own_cassandra.resume()
            else:
                await asyncio.to_thread(own_cassandra.kill)
                await asyncio.to_thread(own_cassandra.restart)
        await asyncio.sleep(3)
        stop.set()
        await asyncio.gather(*running)
        assert all(each.added > 10 for each in adding)
        assert sum(each.failed for each in adding) > 0, "it was not there for a while"
    async with process(cluster, own_cassandra) as third:
        rows = await third.get_many("hotel", [f"h{number}" for number in range(5)])
        counts = [row["left_over"] for row in rows if row is not None]
        assert sum(count for count in counts if isinstance(count, int)) == sum(each.added for each in adding)
        await third.settle("hotel")
        found = [(await third.port.read(HOTEL, f"h{number}"))["left_over"].value for number in range(5)]
        assert found == counts, "and the database has it"
