"""A row store in Apache Cassandra: the part of a row's name before ":" is its table, the rest its key.

Each table has one column of JSON and keeps versions, so that a snapshot of all rows can be read. While the database is down, reads are
retried and writes wait for it; no outcome depends on the database, since the log decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

import bokiflow
from boki_common.errors import BokiError
from bokiflow.tables import Schema, Tables, Transaction
from bokilib.append.log import Log
from bokilib.records.codec import JsonObject
from examples.apps.row_store import RowTransaction

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

COLUMN: Final = "value"
ROWS_AT_ONCE: Final = 100
RETRY_S: Final = 0.1
WAIT_S: Final = 100.0
"""How long calls are retried while the database does not answer."""


class TableTransaction:
    """Transaction whose rows are rows of tables."""

    def __init__(self, tx: Transaction) -> None:
        self._tx: Final = tx

    async def value(self, name: str) -> JsonObject | None:
        """See `RowTransaction.value`."""
        return _value(await self._tx.get(*_table_and_key(name)))

    def put(self, name: str, value: JsonObject) -> None:
        """See `RowTransaction.put`."""
        self._tx.put(*_table_and_key(name), {COLUMN: value})


class TableRowStore:
    """Row store whose rows are rows of tables."""

    def __init__(self, tables: Tables, names: Sequence[str]) -> None:
        """Use the open tables of these names; see `opened`."""
        self._tables: Final = tables
        self._names: Final = names

    @classmethod
    async def opened(cls, tables: Tables, names: Sequence[str]) -> TableRowStore:
        """Open the tables of these names, creating those that do not exist, and return their row store."""
        for name in names:
            await with_retries(lambda name=name: tables.open(Schema(name, {COLUMN: "json"}, "versioned")))  # type: ignore[misc]  # mypy takes the default argument for a second parameter
        return cls(tables, names)

    @property
    def log(self) -> Log:
        """See `RowStore.log`."""
        return self._tables.log

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `RowStore.read`."""

        async def snapshot() -> list[JsonObject | None]:
            tx = await self._tables.begin()
            by_table: dict[str, list[str]] = {}
            for name in names:
                table, key = _table_and_key(name)
                by_table.setdefault(table, []).append(key)
            found: dict[str, JsonObject | None] = {}
            for table, keys in by_table.items():
                for key, row in zip(keys, await tx.get_many(table, keys), strict=True):
                    found[f"{table}:{key}"] = _value(row)
            return [found[name] for name in names]

        return await with_retries(snapshot)

    async def look(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Return rows of one table without a record, in a workflow: as of the last event delivered to it."""
        keys = [_table_and_key(name)[1] for name in names]
        return [_value(row) for row in await self._tables.look_many(_table_and_key(names[0])[0], keys)]

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """See `RowStore.transact`."""

        async def on_rows(tx: Transaction, /, *args: P.args, **options: P.kwargs) -> R:
            return await body(TableTransaction(tx), *args, **options)

        update_wrapper(on_rows, body)  # the history names the step after the body
        return await bokiflow.transact(self._tables, on_rows, *args, **options)

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """See `RowStore.fill`."""
        names = sorted(rows)

        async def fill(tx: Transaction, some: Iterable[str]) -> None:
            for name in some:
                if await tx.get(*_table_and_key(name)) is None:
                    tx.put(*_table_and_key(name), {COLUMN: rows[name]})

        async def fill_some(names: Sequence[str]) -> None:
            tx = await self._tables.begin()  # reads the rows of each table in one round trip
            by_table: dict[str, list[str]] = {}
            for name in names:
                by_table.setdefault(_table_and_key(name)[0], []).append(_table_and_key(name)[1])
            for table, keys in by_table.items():
                await tx.get_many(table, keys)
            await fill(tx, names)
            await self._tables.commit(tx)

        for start in range(0, len(names), ROWS_AT_ONCE):
            await with_retries(lambda start=start: fill_some(names[start : start + ROWS_AT_ONCE]))  # type: ignore[misc]  # as above

    async def all(self) -> dict[str, JsonObject]:
        """See `RowStore.all`."""
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
        """Bring the tables up to date with the log, which may trim the changes then."""
        for name in self._names:
            await with_retries(lambda name=name: self._tables.settle(name))  # type: ignore[misc]  # as above

    async def close(self) -> None:
        """See `RowStore.close`."""
        await self._tables.applier.close()


def _table_and_key(name: str) -> tuple[str, str]:
    table, _, key = name.partition(":")
    return table, key


def _value(row: JsonObject | None) -> JsonObject | None:
    return None if row is None else cast(JsonObject, row[COLUMN])


async def with_retries(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while its error is retryable, for up to WAIT_S.

    Raises:
        BokiError: the call's last error.
    """
    end = asyncio.get_running_loop().time() + WAIT_S
    while True:
        try:
            return await ask()
        except BokiError as error:
            if not error.retryable or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(RETRY_S)
