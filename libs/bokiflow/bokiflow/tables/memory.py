"""Tables in memory, which behave as those of Cassandra do: cells with time stamps, of two equal ones the larger value.

For tests and examples. Several `Tables` share one, as processes share a database; `fault` is called before and after each operation and
may raise: what happened and raises after it has lost its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bokiflow.tables.errors import TableRefused
from bokiflow.tables.rows import ABSENT, VERSION, Cell, RowKey, Stored
from bokiflow.tables.schema import KEY, Kind, Schema


class MemoryTables:
    """See the module. `writes`, `reads`: so far."""

    def __init__(self, fault: Callable[[str], None] = lambda _: None) -> None:
        self.writes = 0
        self.reads = 0
        self.fault = fault
        self._columns: dict[str, dict[str, Kind]] = {}
        self._owners: dict[str, str] = {}
        self._rows: dict[RowKey, dict[str, Cell]] = {}

    async def ensure(self, schema: Schema) -> None:
        """See `TablePort`."""
        await self._operate("ensure")
        there = self._columns.setdefault(schema.name, {})
        for name, kind in schema.columns.items():
            if there.setdefault(name, kind) != kind:
                raise TableRefused(
                    f"column {name!r} of table {schema.name!r} is stored as {there[name]!r}, expected {kind!r}",
                    table=schema.name,
                    expected=kind,
                    found=there[name],
                )

    async def claim(self, table: str, token: str) -> str:
        """See `TablePort`."""
        await self._operate("claim")
        owner = self._owners.setdefault(table, token)
        self.fault("after claim")
        return owner

    async def read(self, schema: Schema, key: str) -> Stored:
        """See `TablePort`."""
        await self._operate("read")
        self.reads += 1
        self._check(schema, schema.columns)
        wanted = {*schema.columns, VERSION, ABSENT}
        row = self._rows.get(RowKey(schema.name, key), {})
        return {name: cell for name, cell in row.items() if name in wanted}

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        """See `TablePort`."""
        await self._operate("write")
        self._check(schema, cells)
        self.writes += 1
        row = self._rows.setdefault(key, {})
        for name, value in cells.items():
            there = row.get(name)
            if there is None or (timestamp, repr(value)) > (there.written, repr(there.value)):
                row[name] = Cell(value, timestamp)
        self.fault("after write")

    async def keys(self, schema: Schema) -> AsyncIterator[str]:
        """See `TablePort`."""
        await self._operate("keys")
        for key in list(self._rows):
            if key.table == schema.name:
                yield key.key

    def drop_column(self, table: str, column: str) -> None:
        """As `ALTER TABLE … DROP` does."""
        del self._columns[table][column]
        for key, row in self._rows.items():
            if key.table == table:
                row.pop(column, None)

    async def _operate(self, what: str) -> None:
        await asyncio.sleep(0)
        self.fault(what)

    def _check(self, schema: Schema, columns: Mapping[str, object]) -> None:
        there = self._columns.get(schema.name)
        unknown = set(columns) - {*(there or ()), VERSION, ABSENT, KEY}
        if there is None or unknown:
            raise TableRefused(
                f"table {schema.name!r} has no columns {sorted(unknown)}: were they dropped?",
                table=schema.name,
                expected=sorted(columns),
                found=sorted(there or ()),
            )
