"""Columns added to a table while several processes change its rows, in each mode: no change is lost, and all processes learn of them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from boki.testing import MemoryCluster
from bokiflow.tables import Mode, OneRow, Schema, TablePort, Tables, Transaction
from bokiflow.tables.schema import MODES
from bokilib.append.log import Log
from bokilib.records.codec import JsonObject

ROUNDS = 6


async def opened(cluster: MemoryCluster, port: TablePort, mode: Mode, column: str) -> Tables:
    """Open the tables of another process, which knows a column of its own."""
    tables = Tables(Log((await cluster.connect()).book("shop")), port)
    await tables.open(Schema("stock", {"left": "int", column: "int"}, mode))
    return tables


def one_less(row: JsonObject | None, column: str) -> dict[str, int]:
    there = row or {}
    return {"left": cast(int, there.get("left", 100)) - 1, column: cast(int, there.get(column, 0)) + 1}


async def take(tx: Transaction, column: str) -> None:
    tx.put("stock", "seven", one_less(await tx.get("stock", "seven"), column))


async def take_shared(row: OneRow, column: str) -> None:
    row.put(one_less(row.value, column))


async def takes(tables: Tables, mode: Mode, column: str) -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)  # others come first now and then
        if mode == "lwt":
            await tables.change("stock", "seven", take_shared, column)
        else:
            await tables.transact(take, column)


@pytest.mark.parametrize("mode", MODES)
async def test_columns_that_are_added_under_load_lose_nothing(
    cluster: MemoryCluster, port: TablePort, mode: Mode
) -> None:
    one, other = [await opened(cluster, port, mode, column) for column in ("a", "b")]
    running = [asyncio.create_task(takes(tables, mode, column)) for tables, column in ((one, "a"), (other, "b"))]
    await asyncio.sleep(0)
    later = [await opened(cluster, port, mode, column) for column in ("c", "d")]
    running += [asyncio.create_task(takes(tables, mode, column)) for tables, column in zip(later, "cd", strict=True)]
    await asyncio.gather(*running)
    expected = {"left": 100 - 4 * ROUNDS, **dict.fromkeys("abcd", ROUNDS)}
    for tables in (one, other, *later):
        await tables.open(Schema("stock", dict.fromkeys("abcd", "int"), mode))
        assert await tables.get("stock", "seven") == expected
        await tables.applier.close()
