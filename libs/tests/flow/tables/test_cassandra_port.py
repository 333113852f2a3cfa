"""Requests that a real Cassandra refuses, and the errors when no node answers."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from bokiflow.tables import Schema, TableRefused, TableUnavailable, WriteUnknown
from bokiflow.tables.cassandra_port import CassandraTables
from bokiflow.tables.schema import RowKey
from libs.tests.flow.conftest import Inline
from libs.tests.flow.tables.conftest import HOTEL

pytestmark = pytest.mark.timeout(240)


class Silent:
    """A driver that never answers."""

    def prepare(self, text: str) -> str:
        return text

    def execute_async(self, *_: object) -> Silent:
        return self

    def add_callbacks(self, *_: object) -> None:
        pass


async def test_a_driver_that_says_nothing_is_not_waited_for_for_ever() -> None:
    silent: Any = Silent()
    port = CassandraTables(silent, silent, "k", Inline(), 0, 0.001)
    with pytest.raises(TableUnavailable, match="has not answered"):
        await port.read(HOTEL, "seven")
    with pytest.raises(WriteUnknown, match="has not answered"):
        await port.write(HOTEL, RowKey("hotel", "seven"), {"left_over": 1}, 1)


@pytest.mark.cassandra
async def test_a_table_that_cannot_keep_what_the_log_says_is_refused(cassandra: int, keyspace: str) -> None:
    async with await CassandraTables.connect(["127.0.0.1"], port=cassandra, keyspace=keyspace, timeout_s=60) as port:
        await port.ensure(HOTEL)
        for text, schema, message in (
            (f'ALTER TABLE {keyspace}."hotel" DROP name', None, ""),
            (f'ALTER TABLE {keyspace}."hotel" ADD name text', HOTEL, "that was never dropped"),
            (
                f"CREATE TABLE {keyspace}.counts (id text PRIMARY KEY, n counter)",
                Schema("counts", {"n": "int"}),
                "counter",
            ),
            (
                f"CREATE TABLE {keyspace}.short (id text PRIMARY KEY, n bigint) WITH default_time_to_live = 60",
                Schema("short", {"n": "int"}),
                "a TTL of 60 s",
            ),
            (
                f"CREATE TABLE {keyspace}.wrong (id int PRIMARY KEY, n bigint)",
                Schema("wrong", {"n": "int"}),
                "'id' of type text",
            ),
        ):
            await port._change(text, "hotel")
            if schema is not None:
                with pytest.raises(TableRefused, match=message):
                    await port.ensure(schema)


@pytest.mark.cassandra
async def test_words_of_cql_are_names_as_others(cassandra: int, keyspace: str) -> None:
    schema = Schema("select", {"from": "text", "order": "int", "token": "bool"})
    async with await CassandraTables.connect(["127.0.0.1"], port=cassandra, keyspace=keyspace, timeout_s=60) as port:
        await port.ensure(schema)
        await port.write(schema, RowKey("select", "a'; DROP"), {"from": "x", "order": 1, "token": True}, 3)
        found = await port.read(schema, "a'; DROP")
        assert {name: cell.value for name, cell in found.items()} == {"from": "x", "order": 1, "token": True}


@pytest.mark.cassandra
async def test_who_cannot_be_reached_and_what_is_no_keyspace(cassandra: int) -> None:
    with pytest.raises(TableUnavailable, match="no Cassandra answers"):
        await CassandraTables.connect(["127.0.0.1"], port=1, keyspace="faults", timeout_s=2)
    with pytest.raises(boki.InvalidArgument, match="keyspace"):
        await CassandraTables.connect(["127.0.0.1"], port=cassandra, keyspace="a b")
    with pytest.raises(boki.InvalidArgument, match="QUORUM"):
        await CassandraTables.connect(["127.0.0.1"], port=cassandra, keyspace="a", consistency="ONE")
