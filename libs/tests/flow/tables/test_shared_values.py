"""Rows and cells that callers change in place: neither the cache of a process nor a later transaction sees that."""

from __future__ import annotations

from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from bokiflow.tables import MemoryTables, Tables, Transaction
from bokilib import NotEncodable
from libs.tests.flow.tables.conftest import tables_of


async def more(tables: Tables) -> Any:
    row = await tables.get("hotel", "seven")
    assert row is not None
    return row["more"]


async def test_a_row_that_a_caller_changes_in_place_changes_no_other(cluster: MemoryCluster) -> None:
    port = MemoryTables()
    one, other = await tables_of(cluster, port), await tables_of(cluster, port)
    given: list[Any] = [1]

    async def make(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"more": given})
        given.append("behind the put")
        (await tx.get("hotel", "seven"))["more"].append("read back")  # type: ignore[index,union-attr]

    async def fail(tx: Transaction) -> None:
        row: Any = await tx.get("hotel", "seven")
        row["more"].append("never committed")
        tx.put("hotel", "seven", row)
        raise ValueError

    async def add(tx: Transaction) -> None:
        row: Any = await tx.get("hotel", "seven")
        row["more"].append(2)
        tx.put("hotel", "seven", row)

    await one.transact(make)
    with pytest.raises(ValueError):
        await one.transact(fail)
    (await more(one)).append("outside")
    for tables in (one, other, one):
        await tables.transact(add)
    assert await more(one) == await more(other) == [1, 2, 2, 2]


@pytest.mark.parametrize("key", [b"k", 5, None, "", "\ud800", "k" * 2_000])
async def test_a_key_that_is_no_text_is_refused(cluster: MemoryCluster, key: Any) -> None:
    tables = await tables_of(cluster, MemoryTables())

    async def put(tx: Transaction) -> None:
        tx.put("hotel", key, {"left_over": 1})

    with pytest.raises(InvalidArgument):
        await tables.transact(put)
    with pytest.raises(InvalidArgument):
        await tables.get("hotel", key)


async def test_a_text_that_cannot_be_encoded_is_refused(cluster: MemoryCluster) -> None:
    tables = await tables_of(cluster, MemoryTables())

    async def put(tx: Transaction) -> None:
        tx.put("hotel", "seven", {"name": "\ud800"})

    with pytest.raises(NotEncodable):
        await tables.transact(put)
