"""A real Cassandra is paused, slow, killed with -9, and wrong about the time, in each mode, while processes change rows: nothing is lost
or happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from boki.testing import MemoryCluster
from bokiflow.tables import Mode, OneRow, Schema, Tables, TableUnavailable, Transaction, WriteUnknown
from bokiflow.tables.cassandra_port import CassandraTables
from bokiflow.tables.schema import MODES
from bokilib.append.log import Log
from itests.support.cassandra import CassandraServer, find_faketime
from itests.support.fixtures import skip_or_fail
from itests.support.java_server import ServerMissing
from libs.tests.flow.tables.conftest import HOTEL

T = TypeVar("T")

pytestmark = [pytest.mark.cassandra, pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(400)]


@pytest.fixture
def own_cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """Yield a node for this test alone."""
    try:
        server = CassandraServer.start(tmp_path_factory.mktemp("cassandra"))
    except ServerMissing as error:
        skip_or_fail("cassandra", str(error))
    yield server
    server.kill()


async def add(tx: Transaction, key: str) -> None:
    row = await tx.get("hotel", key) or {"left_over": 0}
    count = row["left_over"]
    assert isinstance(count, int)
    tx.put("hotel", key, {"left_over": count + 1})


async def add_shared(row: OneRow) -> None:
    count = (row.value or {"left_over": 0})["left_over"]
    assert isinstance(count, int)
    row.put({"left_over": count + 1})


@asynccontextmanager
async def process(cluster: MemoryCluster, server: CassandraServer, mode: Mode) -> AsyncIterator[Tables]:
    async with (
        await again(
            lambda: CassandraTables.connect(["127.0.0.1"], port=server.port, keyspace="faults", timeout_s=2)
        ) as port,
        Tables(Log((await cluster.connect()).book("shop")), port, cached_rows=2) as tables,
    ):
        await again(lambda: tables.open(Schema(HOTEL.name, HOTEL.columns, mode)))
        yield tables


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until there is an answer: two seconds are little on a busy machine."""
    while True:
        try:
            return await ask()
        except (TableUnavailable, WriteUnknown):
            await asyncio.sleep(0.1)


class Adding:
    """A process that adds to rows, and retries while the database does not answer. `added` counts its additions."""

    def __init__(self, tables: Tables) -> None:
        self.added = 0
        self.failed = 0
        self._tables = tables

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                if self._tables.schema("hotel").mode == "lwt":
                    await self._tables.change("hotel", f"h{number % 5}", add_shared)
                else:
                    await self._tables.transact(add, f"h{number % 5}")
                self.added += 1
            except TableUnavailable:
                self.failed += 1
                await asyncio.sleep(0.05)


def has_faketime() -> None:
    """Skip the test if libfaketime is not installed."""
    try:
        find_faketime()
    except ServerMissing as error:
        skip_or_fail("faketime", str(error))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["pause", "slow", "kill", pytest.param("clock", marks=pytest.mark.faketime)])
async def test_nothing_is_lost_when_the_database_stops(
    cluster: MemoryCluster, own_cassandra: CassandraServer, fault: str, mode: Mode
) -> None:
    stop = asyncio.Event()
    if fault == "clock":
        has_faketime()
    async with process(cluster, own_cassandra, mode) as one, process(cluster, own_cassandra, mode) as other:
        adding = [Adding(one), Adding(other)]
        running = [asyncio.create_task(each.run(stop)) for each in adding]
        for number in range(2):
            await asyncio.sleep(1)
            if fault == "pause":
                own_cassandra.pause()
                await asyncio.sleep(4)
                own_cassandra.resume()
            elif fault == "slow":  # most of the time it stands still, but never for as long as a time-out
                for _ in range(8):
                    own_cassandra.pause()
                    await asyncio.sleep(0.4)
                    own_cassandra.resume()
                    await asyncio.sleep(0.1)
            else:  # with the fault "clock" its clock is an hour ahead, and then goes back
                await asyncio.to_thread(own_cassandra.kill)
                await asyncio.to_thread(own_cassandra.restart, ahead_s=3_600 if (fault, number) == ("clock", 0) else 0)
        await asyncio.sleep(3)
        stop.set()
        await asyncio.gather(*running)
        assert all(each.added for each in adding)
    async with process(cluster, own_cassandra, mode) as third:
        rows = await again(lambda: third.get_many("hotel", [f"h{number}" for number in range(5)]))
        counts = [row["left_over"] for row in rows if row is not None]
        assert sum(count for count in counts if isinstance(count, int)) == sum(each.added for each in adding)
        await again(lambda: third.settle("hotel"))
        if mode != "lwt":
            schema = third.schema("hotel")
            stored = [await again(lambda key=f"h{number}": third.port.read(schema, key)) for number in range(5)]  # type: ignore[misc]  # one more parameter, with its default
            assert [row["left_over"].value for row in stored] == counts, "and the database has it"
