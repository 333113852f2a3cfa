"""Tables in memory, and in a real Cassandra: one server for the whole run, a keyspace for each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokiflow.tables import MemoryTables, Schema, TablePort, Tables
from bokiflow.tables.cassandra_port import CassandraTables
from bokilib.append.log import Log
from itests.support.cassandra import shared
from itests.support.fixtures import skip_or_fail
from itests.support.java_server import ServerMissing

HOTEL = Schema("hotel", {"left_over": "int", "name": "text", "price": "float", "open": "bool", "more": "json"})


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of a Cassandra for the whole run; use a keyspace of your own, and mark the test `cassandra`."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the processes of a run have folders side by side
        folder = folder.parent
    try:
        with shared(folder / "cassandra") as port:
            yield port
    except ServerMissing as error:
        skip_or_fail("cassandra", str(error))


@pytest.fixture
def keyspace() -> str:
    return f"k{os.urandom(8).hex()}"


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.timeout(240)])])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[TablePort]:
    """Yield each implementation of the port."""
    if request.param == "memory":
        yield MemoryTables()
        return
    number: int = request.getfixturevalue("cassandra")
    name: str = request.getfixturevalue("keyspace")
    async with await CassandraTables.connect(["127.0.0.1"], port=number, keyspace=name, timeout_s=60) as opened:
        yield opened


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as opened:
        yield opened


async def tables_of(cluster: MemoryCluster, port: TablePort, **options: Any) -> Tables:
    """Return the tables of another process, with a session of its own and nothing in memory."""
    tables = Tables(Log((await cluster.connect()).book("shop")), port, **options)
    await tables.open(HOTEL)
    return tables
