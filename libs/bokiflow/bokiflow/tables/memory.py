"""Tables in memory, for tests and examples; like Cassandra they have cells with time stamps, and the larger value wins a tie.

Several `Tables` may share an instance, as processes share a database. `fault` is called before and after each operation and may raise: if
it raises afterwards, the operation has happened and its answer is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bokiflow.tables.errors import TableRefused, WriteUnknown
from bokiflow.tables.schema import ABSENT, KEY, VERSION, Cell, Kind, Mode, RowKey, Schema, Stored
from bokiflow.tables.swap_rules import NOTHING, Standing, Swap


class MemoryTables:
    """A database in memory.

    Attributes:
        writes: writes so far.
        reads: reads so far.
        fault: called with the name of each operation, such as "write", and "after write" when it has happened.
    """

    def __init__(self, fault: Callable[[str], None] = lambda _: None) -> None:
        self.writes = 0
        self.reads = 0
        self.fault = fault
        self._columns: dict[str, dict[str, Kind]] = {}
        self._modes: dict[str, Mode] = {}
        self._owners: dict[str, str] = {}
        self._rows: dict[RowKey, dict[str, Cell]] = {}
        self._versions: dict[RowKey, dict[int, dict[str, Cell]]] = {}
        self._swapped: dict[RowKey, Standing] = {}
        self._late: list[Callable[[], bool]] = []
        """Swaps whose answer was lost and that have not arrived yet."""
        self._helped: dict[str, str] = {}

    async def ensure(self, schema: Schema) -> None:
        await self._operate("ensure")
        mode = self._modes.setdefault(schema.name, schema.mode)
        if mode != schema.mode:
            raise TableRefused(
                f"table {schema.name!r} was created in mode {mode!r}, expected {schema.mode!r}: give this one another name",
                table=schema.name,
                expected=schema.mode,
                found=mode,
            )
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
        await self._operate("claim")
        owner = self._owners.setdefault(table, token)
        self.fault("after claim")
        return owner

    async def read(self, schema: Schema, key: str) -> Stored:
        await self._operate("read")
        self.reads += 1
        self._check(schema, schema.columns)
        if schema.mode == "versioned":
            return self._newest(schema, key, None)
        return _known(schema, self._rows.get(RowKey(schema.name, key), {}))

    async def write(self, schema: Schema, key: RowKey, cells: Mapping[str, Any], timestamp: int) -> None:
        await self._operate("write")
        self._check(schema, cells)
        self.writes += 1
        if schema.mode == "versioned":
            row = self._versions.setdefault(key, {}).setdefault(timestamp, {})
        else:
            row = self._rows.setdefault(key, {})
        for name, value in cells.items():
            there = row.get(name)
            if there is None or (timestamp, repr(value)) > (there.written, repr(there.value)):
                row[name] = Cell(value, timestamp)
        self.fault("after write")

    async def keys(self, schema: Schema) -> AsyncIterator[str]:
        await self._operate("keys")
        for key in [*self._rows, *self._versions, *self._swapped]:
            if key.table == schema.name:
                yield key.key

    async def read_at(self, schema: Schema, key: str, at_most: int) -> Stored:
        await self._operate("read")
        self.reads += 1
        return self._newest(schema, key, at_most)

    def _newest(self, schema: Schema, key: str, at_most: int | None) -> Stored:
        there = self._versions.get(RowKey(schema.name, key), {})
        version = max((one for one in there if at_most is None or one <= at_most), default=None)
        return {} if version is None else _known(schema, there[version])

    async def drop_below(self, schema: Schema, key: str, version: int) -> None:
        await self._operate("drop")
        there = self._versions.get(RowKey(schema.name, key), {})
        for one in [one for one in there if one < version]:
            del there[one]

    async def standing(self, schema: Schema, key: str) -> Standing:
        await self._operate("standing")
        self.reads += 1
        self._check(schema, schema.columns)
        row = self._swapped.get(RowKey(schema.name, key), NOTHING)
        if row.cells is None:
            return row
        return row._replace(cells={name: value for name, value in row.cells.items() if name in schema.columns})

    async def swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        """Swap a row. After the fault "after swap" the swap is done; after "late swap" it is tried again by `arrive`."""
        await self._operate("swap")
        self._check(schema, swap.cells or {})
        try:
            self.fault("late swap")
        except WriteUnknown:
            self._late.append(lambda: self._swap(schema, key, seen, swap))
            raise
        made = self._swap(schema, key, seen, swap)
        self.fault("after swap")
        return made

    def arrive(self) -> None:
        """Let late swaps arrive: each is done if its row still has the expected operation."""
        late, self._late = self._late, []
        for swap in late:
            swap()

    def _swap(self, schema: Schema, key: str, seen: str | None, swap: Swap) -> bool:
        where = RowKey(schema.name, key)
        there = self._swapped.get(where, NOTHING)
        if there.op != seen:
            return False
        self.writes += 1
        cells = there.cells
        if swap.cells is not None:  # columns that are not in the schema of this process stay as they are
            others = {name: value for name, value in (there.cells or {}).items() if name not in schema.columns}
            cells = None if swap.gone else {**others, **swap.cells}
        self._swapped[where] = Standing(swap.op, swap.outcome, cells)
        return True

    async def help(self, op: str, outcome: str) -> None:
        await self._operate("help")
        self._helped.setdefault(op, outcome)
        self.fault("after help")

    async def helped(self, op: str) -> str | None:
        await self._operate("helped")
        return self._helped.get(op)

    async def helps(self) -> AsyncIterator[str]:
        await self._operate("helps")
        for op in list(self._helped):
            yield op

    async def unhelp(self, op: str) -> None:
        await self._operate("unhelp")
        self._helped.pop(op, None)

    def drop_column(self, table: str, column: str) -> None:
        """Drop a column and its cells, as `ALTER TABLE … DROP` does."""
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


def _known(schema: Schema, row: Mapping[str, Cell]) -> Stored:
    """Return the cells of a row in the columns of a schema, and those of the library."""
    wanted = {*schema.columns, VERSION, ABSENT}
    return {name: cell for name, cell in row.items() if name in wanted}
