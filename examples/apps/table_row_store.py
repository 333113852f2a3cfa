"""Data of an application in tables of Apache Cassandra: what is before ":" in a row's name is its table, which has one column of JSON,
and versions, so that all rows can be looked at as of one place.

A database that is down for a while is waited for: what reads is asked again, what writes is decided by the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

import bokiflow
from boki_common.errors import BokiError
from bokiflow.tables import Schema, Tables, Transaction
from bokilib.codec import JsonObject
from bokilib.log import Log
from examples.apps.row_store import RowTransaction

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

COLUMN: Final = "value"
ROWS_AT_ONCE: Final = 100
AGAIN_S: Final = 0.1
WAIT_S: Final = 100.0
"""For a database that does not answer."""


class TableTransaction:
    """Rows of tables in a transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx: Final = tx

    async def value(self, name: str) -> JsonObject | None:
        """See `RowTransaction`."""
        return _value(await self._tx.get(*_place(name)))

    def put(self, name: str, value: JsonObject) -> None:
        """See `RowTransaction`."""
        self._tx.put(*_place(name), {COLUMN: value})


class TableRowStore:
    """See the module."""

    def __init__(self, tables: Tables, names: Sequence[str]) -> None:
        """`names`: of the application's tables, which are open."""
        self._tables: Final = tables
        self._names: Final = names

    @classmethod
    async def opened(cls, tables: Tables, names: Sequence[str]) -> TableRowStore:
        """Opens the tables, which are made where they are not there."""
        for name in names:
            await with_retries(lambda name=name: tables.open(Schema(name, {COLUMN: "json"}, "versioned")))  # type: ignore[misc]  # one more parameter, with its default
        return cls(tables, names)

    @property
    def log(self) -> Log:
        """See `RowStore`."""
        return self._tables.log

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `RowStore`."""

        async def together() -> list[JsonObject | None]:
            tx = await self._tables.begin()
            by_table: dict[str, list[str]] = {}
            for name in names:
                table, key = _place(name)
                by_table.setdefault(table, []).append(key)
            found: dict[str, JsonObject | None] = {}
            for table, keys in by_table.items():
                for key, row in zip(keys, await tx.get_many(table, keys), strict=True):
                    found[f"{table}:{key}"] = _value(row)
            return [found[name] for name in names]

        return await with_retries(together)

    async def look(self, names: Sequence[str]) -> list[JsonObject | None]:
        """In a workflow: rows of one table as of the last delivery, without a record."""
        keys = [_place(name)[1] for name in names]
        return [_value(row) for row in await self._tables.look_many(_place(names[0])[0], keys)]

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """See `RowStore`."""

        async def on_rows(tx: Transaction, /, *args: P.args, **options: P.kwargs) -> R:
            return await body(TableTransaction(tx), *args, **options)

        update_wrapper(on_rows, body)  # a history names it
        return await bokiflow.transact(self._tables, on_rows, *args, **options)

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """See `RowStore`."""
        names = sorted(rows)

        async def fill(tx: Transaction, some: Iterable[str]) -> None:
            for name in some:
                if await tx.get(*_place(name)) is None:
                    tx.put(*_place(name), {COLUMN: rows[name]})

        async def some(names: Sequence[str]) -> None:
            tx = await self._tables.begin()  # rows of one table together are read in one round trip
            by_table: dict[str, list[str]] = {}
            for name in names:
                by_table.setdefault(_place(name)[0], []).append(_place(name)[1])
            for table, keys in by_table.items():
                await tx.get_many(table, keys)
            await fill(tx, names)
            await self._tables.commit(tx)

        for start in range(0, len(names), ROWS_AT_ONCE):
            await with_retries(lambda start=start: some(names[start : start + ROWS_AT_ONCE]))  # type: ignore[misc]  # as above

    async def all(self) -> dict[str, JsonObject]:
        """See `RowStore`."""
        place = await self._tables.log.book.now(consistency="linearizable")
        found: dict[str, JsonObject] = {}
        for name in self._names:
            keys = await with_retries(lambda name=name: self._tables.keys_at(name, place))  # type: ignore[misc]  # as above
            for start in range(0, len(keys), ROWS_AT_ONCE):
                some = keys[start : start + ROWS_AT_ONCE]
                rows = await with_retries(lambda name=name, some=some: self._tables.as_of(name, some, place))  # type: ignore[misc]  # as above
                found.update(
                    (f"{name}:{key}", cast(JsonObject, row[COLUMN]))
                    for key, row in zip(some, rows, strict=True)
                    if row is not None
                )
        return found

    async def settle(self) -> None:
        """Brings the database up to date with the log, which need not keep it any more then."""
        for name in self._names:
            await with_retries(lambda name=name: self._tables.settle(name))  # type: ignore[misc]  # as above

    async def close(self) -> None:
        """See `RowStore`."""
        await self._tables.applier.close()


def _place(name: str) -> tuple[str, str]:
    table, _, key = name.partition(":")
    return table, key


def _value(row: JsonObject | None) -> JsonObject | None:
    return None if row is None else cast(JsonObject, row[COLUMN])


async def with_retries(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks until there is an answer, for as long as what fails may be better the next time."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while True:
        try:
            return await ask()
        except BokiError as error:
            if not error.retryable or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(AGAIN_S)
