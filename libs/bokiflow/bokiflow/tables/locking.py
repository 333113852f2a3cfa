"""Transactions with locks over steps and children: rows are locked as they are read, and all writes are one record (two-phase locking).

    async def move(tx: LockingTransaction, a: str, b: str) -> None:      # code of a workflow: it may await steps and children
        one = await tx.get("hotel", a)
        paid = await pay(one)                                            # a step
        tx.put("hotel", a, {"paid": paid})
        await tx.join(await rebook(b))                                   # a child, which returns `staged(tables, …)`

    await locked(tables, move, "7", "8")

- The record with the writes decides. Its append expects that no row that was read has changed, since writers without locks may change it.
- There are no deadlocks (`bokiflow.lock`): a workflow that holds locks and meets an older workflow releases all of its locks, waits for
  the lock that it could not get, and runs the body again. Nothing was written until then.
- A process may die between a lock and the record, or between the record and the release: another worker resumes the workflow with its
  locks, and the end of the workflow releases them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import xxhash

from boki_common.errors import InvalidArgument
from bokiflow.errors import LockRefused, NotInWorkflow
from bokiflow.locks.locks import lock
from bokiflow.model.lock_rules import NAME_BYTES
from bokiflow.model.outcomes import as_json
from bokiflow.runtime.calls import Step, StepOptions, context
from bokiflow.runtime.in_workflow import transact
from bokiflow.runtime.instance import Instance
from bokiflow.tables.errors import WrittenUnlocked
from bokiflow.tables.schema import Change, RowKey, TableRow, changed, check_cells, check_key, check_mode, put
from bokiflow.tables.tables import Tables
from bokiflow.tables.transactions import Transaction
from bokilib.pauses import retried
from bokilib.records.codec import Json, JsonObject

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS: Final = 32
FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 2.0
_LOCK: Final = "row"


def lock_name(table: str, key: str) -> str:
    """Return the name of a row's lock. Rows with long keys may share a lock: they wait for each other, which is harmless."""
    name = f"{_LOCK}/{table}/{key}"
    if len(name.encode()) <= NAME_BYTES:
        return name
    return f"{_LOCK}/{table}/~{xxhash.xxh3_128_hexdigest(key.encode())}"


class LockingTransaction:
    """A transaction of workflow code: its locks, the rows that it has read, and the changes that it will write.

    Attributes:
        wanted: the lock that was requested last.
    """

    def __init__(self, tables: Tables, instance: Instance, stack: AsyncExitStack) -> None:
        self.wanted = ""
        self._tables: Final = tables
        self._instance: Final = instance
        self._stack: Final = stack
        self._locks: Final[set[str]] = set()
        self._rows: Final[dict[RowKey, TableRow]] = {}
        self._versions: Final[dict[RowKey, int]] = {}
        """Version of each row that was read, here or by a child."""
        self._changes: Final[dict[RowKey, Change]] = {}

    async def lock(self, name: str) -> None:
        """Acquire a lock, unless the transaction holds it.

        Raises:
            LockRefused: an older workflow holds the lock, and this one holds others.
        """
        if name not in self._locks:
            self.wanted = name
            await self._stack.enter_async_context(lock(name))
            self._locks.add(name)

    async def get(self, table: str, key: str) -> JsonObject | None:
        """Lock and read a row.

        Args:
            table: an open table.
            key: the key of the row.

        Returns:
            The row with the changes of this transaction; None if it does not exist.

        Raises:
            LockRefused: an older workflow holds the lock of the row, and this one holds others.
            WrittenUnlocked: the row changed since a child of the workflow read it.
        """
        where = RowKey(table, check_key(key))
        if where not in self._rows:
            await self.lock(lock_name(table, key))
            row = await self._read(where)
            self._saw(where, row.version)
            self._rows[where] = row
        return changed(self._rows[where], self._changes.get(where)).value()

    def _saw(self, where: RowKey, version: int) -> None:
        if self._versions.setdefault(where, version) != version:
            raise WrittenUnlocked(
                f"row {where.key!r} of table {where.table!r} changed between two reads of this transaction",
                table=where.table,
                key=where.key,
            )

    async def _read(self, where: RowKey) -> TableRow:
        tables = self._tables
        schema = tables.schema(where.table)
        check_mode(schema, ("log", "versioned"), "transactions with locks")
        if schema.mode == "versioned":
            (row,) = await self._instance.look(lambda place: tables.rows_as_of(where.table, [where.key], place))
            return cast(TableRow, row)

        async def read_row(table: str, key: str) -> list[Any]:
            async def attempt() -> list[Any]:
                tx = await tables.begin()
                return [await tx.get(table, key), tx.version(table, key)]

            return await retried(attempt)

        cells, version = await self._step(read_row, *where)
        return TableRow(where, version, cells)

    async def _step(self, function: Callable[..., Awaitable[Any]], *args: Json) -> Any:
        step: Step[..., Any] = Step(function, function.__name__, StepOptions())
        return await self._instance.run_step(step, args, {})

    def put(self, table: str, key: str, cells: Mapping[str, Json]) -> None:
        """Write cells of a row that was read; None empties a cell.

        Raises:
            InvalidArgument: the row was not read, or a cell does not fit its column.
            NotEncodable: a value is not JSON.
        """
        where = self._known(table, key)
        check_cells(self._tables.schema(table), cells)
        self._changes[where] = put(self._changes.get(where), {name: as_json(value) for name, value in cells.items()})

    def delete(self, table: str, key: str) -> None:
        """Delete a row that was read."""
        self._changes[self._known(table, key)] = Change(True, None)

    def _known(self, table: str, key: str) -> RowKey:
        where = RowKey(table, key)
        if where not in self._rows:
            raise InvalidArgument(
                f"expected a row that this transaction has read, found {key!r} of {table!r}: await tx.get first"
            )
        return where

    async def join(self, made: Any) -> Any:
        """Add the reads and changes that a child has `staged` to this transaction.

        Args:
            made: the result of the child.

        Returns:
            The result of the child's body.

        Raises:
            LockRefused: an older workflow holds the lock of a row, and this one holds others.
            WrittenUnlocked: a row changed since the child read it.
            InvalidArgument: this transaction has changed one of the rows already.
        """
        for table, key, version, replaces, cells, changes in made["rows"]:
            where = RowKey(table, key)
            await self.lock(lock_name(table, key))
            self._saw(where, version)
            if where in self._changes:
                raise InvalidArgument(
                    f"row {key!r} of table {table!r} is changed by this transaction already: join before it"
                )
            if changes:
                self._changes[where] = Change(replaces, cells)
        return made["result"]

    async def commit(self) -> None:
        """Write all changes in one record.

        Raises:
            WrittenUnlocked: a row that was read has changed; nothing was written.
        """
        rows = [[*where, version, *_change(self._changes.get(where))] for where, version in self._versions.items()]
        if rows:
            await transact(self._tables, write_rows, rows)


def _change(change: Change | None) -> list[Any]:
    """Return a change as JSON: whether it replaces the row, its cells, and whether there is a change at all."""
    return [False, None, False] if change is None else [change.replaces, change.cells, True]


async def write_rows(tx: Transaction, rows: list[Any]) -> None:
    """Check that each row still has the version that was read, and apply its change; the body of the one transaction.

    Args:
        tx: the transaction.
        rows: for each row its table, key, version and change, as `_change` writes it.
    """
    tables = dict.fromkeys(table for table, *_ in rows)
    for table in tables:
        await tx.get_many(table, [key for of, key, *_ in rows if of == table])
    for table, key, version, replaces, cells, changes in rows:
        if tx.version(table, key) != version:
            raise WrittenUnlocked(
                f"row {key!r} of table {table!r} was changed by a writer without locks: nothing was written",
                table=table,
                key=key,
            )
        if changes and (replaces or cells is None):
            tx.delete(table, key)
        if changes and cells is not None:
            tx.put(table, key, cells)


async def locked(
    tables: Tables, body: Callable[Concatenate[LockingTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
) -> R:
    """Run a body as a transaction with locks: the rows that it reads are locked, and all its writes are one record.

    Only workflow code may call this. The body is workflow code, too: it may await steps and children. It runs again, steps and children
    included, when it needs a lock that an older workflow holds.

    Args:
        tables: the tables.
        body: called as `body(tx, *args, **options)`. An error that it raises is raised here; nothing was written then.
        *args: arguments of the body.
        **options: keyword arguments of the body.

    Returns:
        The result of the body.

    Raises:
        LockRefused: older workflows held its locks in each of `ATTEMPTS` runs.
        WrittenUnlocked: writers without locks changed its rows in each of `ATTEMPTS` runs.
        NotInWorkflow: the caller is not code of a workflow.
    """
    instance = cast(Instance | None, context())
    if instance is None:
        raise NotInWorkflow("only code of a workflow holds locks over steps; elsewhere: tables.transact")
    first, pause_s = "", FIRST_PAUSE_S
    for attempt in range(ATTEMPTS):
        if attempt > 1:
            await asyncio.sleep(pause_s)
            pause_s = min(LAST_PAUSE_S, 2 * pause_s)
        async with AsyncExitStack() as stack:
            tx = LockingTransaction(tables, instance, stack)
            try:
                if first:
                    await tx.lock(first)  # a workflow without other locks may wait for it
                result = await body(tx, *args, **options)
                await tx.commit()
                return result
            except (LockRefused, WrittenUnlocked):
                if attempt == ATTEMPTS - 1:
                    raise
                first = tx.wanted
    raise AssertionError("it returns or raises")


async def staged(
    tables: Tables, body: Callable[Concatenate[Transaction, P], Awaitable[object]], *args: P.args, **options: P.kwargs
) -> JsonObject:
    """Run a body on rows in a child workflow without writing: its parent's transaction adds the changes with `join`.

    Args:
        tables: the tables.
        body: called as `body(tx, *args, **options)`.
        *args: arguments of the body.
        **options: keyword arguments of the body.

    Returns:
        The result of the body, and the rows that it read and changed, for `LockingTransaction.join`.

    Raises:
        NotInWorkflow: the caller is not code of a workflow.
    """
    instance = cast(Instance | None, context())
    if instance is None:
        raise NotInWorkflow("only code of a workflow stages rows for its parent; elsewhere: tables.transact")

    async def stage(*args: Any, **options: Any) -> dict[str, Any]:
        async def attempt() -> dict[str, Any]:
            tx = await tables.begin()
            result = as_json(await body(tx, *args, **options))
            rows = [[*where, version, *_change(change)] for where, version, change in await tx.read_and_changed()]
            return {"result": result, "rows": rows}

        return await retried(attempt)

    stage.__name__ = getattr(body, "__name__", "stage")
    step: Step[..., Any] = Step(stage, stage.__name__, StepOptions())
    return cast(JsonObject, await instance.run_step(step, args, options))
