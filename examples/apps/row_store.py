"""Data of an application: rows by name (`hotel:7`), of which several are read of one snapshot, and changed in one step of a workflow.

An application knows these ports; where the rows are is another's business: objects of a `BokiStore` (`ObjectRowStore`), or rows of tables
(`examples.apps.table_row_store`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import bokiflow
from bokilib.codec import JsonObject
from bokilib.log import Log
from bokistore import BokiStore, Transaction

P = ParamSpec("P")
R = TypeVar("R")

ROWS_AT_ONCE: Final = 200


class RowTransaction(Protocol):
    """Rows within a transaction."""

    async def value(self, name: str) -> JsonObject | None:
        """A row, own writes included."""

    def put(self, name: str, value: JsonObject) -> None:
        """Writes a whole row."""


class RowStore(Protocol):
    """Where an application keeps its rows."""

    @property
    def log(self) -> Log:
        """What the worker is made of, so that a row and a step change in one record."""

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Rows of one snapshot."""

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """In a workflow: changes rows, as a step."""

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """Writes what is there when an application begins; whoever does it again changes nothing."""

    async def all(self) -> dict[str, JsonObject]:
        """Every row, as of now, which is behind all that was acknowledged."""

    async def settle(self) -> None:
        """What is elsewhere than in the log is brought up to date with it."""

    async def close(self) -> None:
        """Nothing is lost without it."""


class ObjectTransaction:
    """Objects in a transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx: Final = tx

    async def value(self, name: str) -> JsonObject | None:
        """See `RowTransaction`."""
        return await self._tx[name].value()

    def put(self, name: str, value: JsonObject) -> None:
        """See `RowTransaction`."""
        self._tx[name].set("", value)


class ObjectRowStore:
    """Rows are objects of a store."""

    def __init__(self, store: BokiStore) -> None:
        self._store: Final = store

    @property
    def log(self) -> Log:
        """See `RowStore`."""
        return self._store.log

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `RowStore`."""
        return await self._store.values(names)

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """See `RowStore`."""

        async def on_objects(tx: Transaction, /, *args: P.args, **options: P.kwargs) -> R:
            return await body(ObjectTransaction(tx), *args, **options)

        update_wrapper(on_objects, body)  # a history names it
        return await bokiflow.transact(self._store, on_objects, *args, **options)

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """See `RowStore`."""
        names = sorted(rows)
        for start in range(0, len(names), ROWS_AT_ONCE):
            await self._store.transact(_fill, {name: rows[name] for name in names[start : start + ROWS_AT_ONCE]})

    async def all(self) -> dict[str, JsonObject]:
        """See `RowStore`."""
        at = await self._store.log.book.now(consistency="linearizable")
        found: dict[str, JsonObject] = {}
        names = await self._store.names(at=at)
        for start in range(0, len(names), ROWS_AT_ONCE):
            some = names[start : start + ROWS_AT_ONCE]
            values = await self._store.values(some, at=at)
            found.update((name, value) for name, value in zip(some, values, strict=True) if value is not None)
        return found

    async def settle(self) -> None:
        """See `RowStore`. Nothing is elsewhere."""

    async def close(self) -> None:
        """See `RowStore`."""
        await self._store.close()


async def _fill(tx: Transaction, rows: Mapping[str, JsonObject]) -> None:
    there = await tx.values(list(rows))
    for (name, value), known in zip(rows.items(), there, strict=True):
        if known is None:
            tx[name].set("", value)
