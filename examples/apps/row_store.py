"""The interface between an application and its storage: rows by name (`hotel:7`), which are read in snapshots and changed in steps.

An application knows the protocols `RowStore` and `RowTransaction` only. Its rows are objects of a `BokiStore` (`ObjectRowStore`, here) or
rows of tables (`TableRowStore` in `examples.apps.table_row_store`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import bokiflow
from bokilib.append.log import Log
from bokilib.records.codec import JsonObject
from bokistore import BokiStore, Transaction

P = ParamSpec("P")
R = TypeVar("R")

ROWS_AT_ONCE: Final = 200


class RowTransaction(Protocol):
    """Transaction of a row store: its body reads and writes rows."""

    async def value(self, name: str) -> JsonObject | None:
        """Return a row as the transaction sees it, its own writes included, or None."""

    def put(self, name: str, value: JsonObject) -> None:
        """Write a whole row."""


class RowStore(Protocol):
    """Storage of an application's rows."""

    @property
    def log(self) -> Log:
        """The log of the rows. The worker uses it too, so that a row and a step change in one record."""

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """Return rows of one snapshot, None for each that does not exist."""

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """Run a transaction as a step of the running workflow, and return the result of its body."""

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """Write the initial rows; rows that exist stay as they are."""

    async def all(self) -> dict[str, JsonObject]:
        """Return all rows by name, in a snapshot that has every acknowledged change."""

    async def settle(self) -> None:
        """Bring storage outside of the log up to date with the log."""

    async def close(self) -> None:
        """Stop background work; without it nothing is lost."""


class ObjectTransaction:
    """Transaction whose rows are objects."""

    def __init__(self, tx: Transaction) -> None:
        self._tx: Final = tx

    async def value(self, name: str) -> JsonObject | None:
        """See `RowTransaction.value`."""
        return await self._tx[name].value()

    def put(self, name: str, value: JsonObject) -> None:
        """See `RowTransaction.put`."""
        self._tx[name].set("", value)


class ObjectRowStore:
    """Row store whose rows are objects of a BokiStore."""

    def __init__(self, store: BokiStore) -> None:
        self._store: Final = store

    @property
    def log(self) -> Log:
        """See `RowStore.log`."""
        return self._store.log

    async def read(self, names: Sequence[str]) -> list[JsonObject | None]:
        """See `RowStore.read`."""
        return await self._store.values(names)

    async def transact(
        self, body: Callable[Concatenate[RowTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
    ) -> R:
        """See `RowStore.transact`."""

        async def on_objects(tx: Transaction, /, *args: P.args, **options: P.kwargs) -> R:
            return await body(ObjectTransaction(tx), *args, **options)

        update_wrapper(on_objects, body)  # the history names the step after the body
        return await bokiflow.transact(self._store, on_objects, *args, **options)

    async def fill(self, rows: Mapping[str, JsonObject]) -> None:
        """See `RowStore.fill`."""
        names = sorted(rows)
        for start in range(0, len(names), ROWS_AT_ONCE):
            await self._store.transact(_fill, {name: rows[name] for name in names[start : start + ROWS_AT_ONCE]})

    async def all(self) -> dict[str, JsonObject]:
        """See `RowStore.all`."""
        at = await self._store.log.book.now(consistency="linearizable")
        found: dict[str, JsonObject] = {}
        names = await self._store.names(at=at)
        for start in range(0, len(names), ROWS_AT_ONCE):
            some = names[start : start + ROWS_AT_ONCE]
            values = await self._store.values(some, at=at)
            found.update((name, value) for name, value in zip(some, values, strict=True) if value is not None)
        return found

    async def settle(self) -> None:
        """Do nothing: the log has all of it."""

    async def close(self) -> None:
        """See `RowStore.close`."""
        await self._store.close()


async def _fill(tx: Transaction, rows: Mapping[str, JsonObject]) -> None:
    there = await tx.values(list(rows))
    for (name, value), known in zip(rows.items(), there, strict=True):
        if known is None:
            tx[name].set("", value)
