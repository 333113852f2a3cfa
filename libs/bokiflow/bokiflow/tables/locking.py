"""Transactions with locks, over steps and children: rows are locked as they are read, until all that was written is one record (2PL).

    async def move(tx: LockingTransaction, a: str, b: str) -> None:      # code of a workflow: it may await steps and children
        one = await tx.get("hotel", a)
        paid = await pay(one)                                            # a step
        tx.put("hotel", a, {"paid": paid})
        await tx.join(await rebook(b))                                   # a child, which returns `staged(tables, …)`

    await locked(tables, move, "7", "8")

- The record that has the writes decides. It expects that no row that was read has changed: somebody who takes no locks may have.
- Nobody waits for himself (`bokiflow.lock`): whoever has locks and meets an older workflow releases them all, waits for the one that
  it could not have, and begins again. Nothing was written until then.
- A process that dies between a lock and the record, or between the record and the release, changes nothing: a workflow goes on
  elsewhere with its locks, and its end releases them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import xxhash

from boki_common.errors import BokiError, InvalidArgument
from bokiflow.errors import LockRefused, NotInWorkflow
from bokiflow.locks.locks import lock
from bokiflow.model.lock_rules import NAME_BYTES
from bokiflow.model.plain import as_json
from bokiflow.runtime.calls import Step, StepOptions, context
from bokiflow.runtime.in_workflow import transact
from bokiflow.runtime.instance import Instance
from bokiflow.tables.errors import WrittenUnlocked
from bokiflow.tables.rows import Change, Row, RowKey, changed, put
from bokiflow.tables.schema import check_cells, check_key, check_mode
from bokiflow.tables.tables import Tables
from bokiflow.tables.transactions import Transaction
from bokilib.pauses import pauses
from bokilib.records.codec import Json, JsonObject

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS: Final = 32
FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 2.0
_LOCK: Final = "row"


def lock_name(table: str, key: str) -> str:
    """Of a row. Rows with long keys may share one, which costs waiting and no more."""
    name = f"{_LOCK}/{table}/{key}"
    if len(name.encode()) <= NAME_BYTES:
        return name
    return f"{_LOCK}/{table}/~{xxhash.xxh3_128_hexdigest(key.encode())}"


class LockingTransaction:
    """See the module. `wanted`: the lock that was asked for last."""

    def __init__(self, tables: Tables, instance: Instance, stack: AsyncExitStack) -> None:
        self.wanted = ""
        self._tables: Final = tables
        self._instance: Final = instance
        self._stack: Final = stack
        self._locks: Final[set[str]] = set()
        self._rows: Final[dict[RowKey, Row]] = {}
        self._versions: Final[dict[RowKey, int]] = {}
        """Of rows that were read, here or by a child."""
        self._changes: Final[dict[RowKey, Change]] = {}

    async def lock(self, name: str) -> None:
        """Takes a lock, unless this has it. Raises LockRefused."""
        if name not in self._locks:
            self.wanted = name
            await self._stack.enter_async_context(lock(name))
            self._locks.add(name)

    async def get(self, table: str, key: str) -> JsonObject | None:
        """A row, own writes included, which nobody changes from here on; None: there is none. Raises LockRefused."""
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
                f"row {where.key!r} of table {where.table!r} changed between two who read it",
                table=where.table,
                key=where.key,
            )

    async def _read(self, where: RowKey) -> Row:
        tables = self._tables
        schema = tables.schema(where.table)
        check_mode(schema, ("log", "versioned"), "transactions with locks")
        if schema.mode == "versioned":
            (row,) = await self._instance.look(lambda place: tables.rows_as_of(where.table, [where.key], place))
            return cast(Row, row)

        async def read_row(table: str, key: str) -> list[Any]:
            pause = pauses()
            while True:
                try:
                    tx = await tables.begin()
                    return [await tx.get(table, key), tx.version(table, key)]
                except BokiError as error:
                    if not error.retryable:
                        raise
                await asyncio.sleep(pause.next())

        cells, version = await self._step(read_row, *where)
        return Row(where, version, cells)

    async def _step(self, function: Callable[..., Awaitable[Any]], *args: Json) -> Any:
        step: Step[..., Any] = Step(function, function.__name__, StepOptions())
        return await self._instance.run_step(step, args, {})

    def put(self, table: str, key: str, cells: Mapping[str, Json]) -> None:
        """Writes cells of a row that was read; None: nothing is in it any more. Raises InvalidArgument, NotEncodable."""
        where = self._known(table, key)
        check_cells(self._tables.schema(table), cells)
        self._changes[where] = put(self._changes.get(where), {name: as_json(value) for name, value in cells.items()})

    def delete(self, table: str, key: str) -> None:
        """Ends a row that was read, if there is one."""
        self._changes[self._known(table, key)] = Change(True, None)

    def _known(self, table: str, key: str) -> RowKey:
        where = RowKey(table, key)
        if where not in self._rows:
            raise InvalidArgument(
                f"expected a row that this transaction has read, found {key!r} of {table!r}: await tx.get first"
            )
        return where

    async def join(self, made: Any) -> Any:
        """Takes over what a child has `staged`; returns what its body returned. Raises LockRefused, WrittenUnlocked, InvalidArgument."""
        for table, key, version, anew, cells, changes in made["rows"]:
            where = RowKey(table, key)
            await self.lock(lock_name(table, key))
            self._saw(where, version)
            if where in self._changes:
                raise InvalidArgument(
                    f"row {key!r} of table {table!r} is changed by this transaction already: join before it"
                )
            if changes:
                self._changes[where] = Change(anew, cells)
        return made["result"]

    async def commit(self) -> None:
        """Writes all, or nothing. Raises WrittenUnlocked."""
        rows = [[*where, version, *_change(self._changes.get(where))] for where, version in self._versions.items()]
        if rows:
            await transact(self._tables, write_rows, rows)


def _change(change: Change | None) -> list[Any]:
    """A change as JSON: anew, cells, whether there is one at all."""
    return [False, None, False] if change is None else [change.anew, change.cells, True]


async def write_rows(tx: Transaction, rows: list[Any]) -> None:
    """The one record: every row as it was read, and then as it shall be."""
    tables = dict.fromkeys(table for table, *_ in rows)
    for table in tables:
        await tx.get_many(table, [key for of, key, *_ in rows if of == table])
    for table, key, version, anew, cells, changes in rows:
        if tx.version(table, key) != version:
            raise WrittenUnlocked(
                f"row {key!r} of table {table!r} was changed by somebody who takes no locks: nothing was written",
                table=table,
                key=key,
            )
        if changes and (anew or cells is None):
            tx.delete(table, key)
        if changes and cells is not None:
            tx.put(table, key, cells)


async def locked(
    tables: Tables, body: Callable[Concatenate[LockingTransaction, P], Awaitable[R]], *args: P.args, **options: P.kwargs
) -> R:
    """In a workflow: runs `body(tx, …)`, which is workflow code, with all rows locked that it reads; all that it writes is one record.

    It is run again when it meets older workflows that have what it wants, steps and children included.

    Raises:
        LockRefused, WrittenUnlocked: it lost too often. What the body raised: nothing was written.
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
                    await tx.lock(first)  # while it has no other, it may wait
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
    """In a child: runs `body(tx, …)` on rows and writes nothing; returns what its parent's transaction takes over by `join`."""
    instance = cast(Instance | None, context())
    if instance is None:
        raise NotInWorkflow("only code of a workflow stages rows for its parent; elsewhere: tables.transact")

    async def stage(*args: Any, **options: Any) -> dict[str, Any]:
        pause = pauses()
        while True:
            try:
                tx = await tables.begin()
                result = as_json(await body(tx, *args, **options))
                rows = [[*where, version, *_change(change)] for where, version, change in await tx.read_and_changed()]
                return {"result": result, "rows": rows}
            except BokiError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(pause.next())

    stage.__name__ = getattr(body, "__name__", "stage")
    step: Step[..., Any] = Step(stage, stage.__name__, StepOptions())
    return cast(JsonObject, await instance.run_step(step, args, options))
