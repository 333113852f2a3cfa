"""A node of Cassandra in a container serves once it is said to be started, at a port of this machine alone."""

from __future__ import annotations

import asyncio

import pytest
from cassandra.cluster import Cluster

from boki.testing.containers import CASSANDRA_IMAGE, Cassandra
from itests.containers.test_cluster import started

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]


def rows_after_a_write(port: int) -> list[tuple[int, str]]:
    cluster = Cluster(["127.0.0.1"], port=port)
    try:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, name text)")
        session.execute("INSERT INTO shop.items (id, name) VALUES (7, 'apple')")
        return [(row.id, row.name) for row in session.execute("SELECT id, name FROM shop.items")]
    finally:
        cluster.shutdown()


async def test_it_takes_statements_as_soon_as_it_is_started() -> None:
    async with started(Cassandra, CASSANDRA_IMAGE) as database:
        assert await asyncio.to_thread(rows_after_a_write, database.port) == [(7, "apple")]
