"""Rows: the fold of stored cells and newer records, and the cells to store for a record. Pure.

A row is the fold of its records in the log. The stored row may lack the newest records, and has all records before its version: a record
is written only over the record before it. So a reader needs the stored row and the records above its version.

| stored | holds |
|---|---|
| `boki_v` | the version: seqnum of the newest record in the row |
| `boki_absent` | the empty columns, separated by commas; `*`: the row does not exist |
| a column | the value in the newest record that names the column |

A versioned table has a row for each record, with all cells of that version, and `boki_v` in its key.

Every cell is written with the seqnum of its record as time stamp, so late and repeated writes change nothing. Rows and cells are never
deleted in the database: once it forgets a deletion, older cells reappear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from bokiflow.tables.errors import ForeignWrite, TableBehind
from bokiflow.tables.schema import Schema
from bokiflow.tables.table_events import Written
from bokilib.records.codec import Json, JsonObject

VERSION: Final = "boki_v"
ABSENT: Final = "boki_absent"
NO_ROW: Final = "*"


class RowKey(NamedTuple):
    """The table and the key of a row."""

    table: str
    key: str


class Cell(NamedTuple):
    """The stored value of a column, and its time stamp."""

    value: Any
    written: int


Stored = Mapping[str, Cell]
"""The stored cells of a row, by column; empty if the row is not stored."""


class TableRow(NamedTuple):
    """A row as of a place of the log.

    Attributes:
        key: the row's table and key.
        version: the seqnum of its newest record; 0 if it has none.
        cells: its values by column; None if the row does not exist.
    """

    key: RowKey
    version: int
    cells: Mapping[str, Json] | None

    def value(self) -> JsonObject | None:
        """Return the cells as a dict for users; None if the row does not exist."""
        return None if self.cells is None else dict(self.cells)


def stored_row(key: RowKey, stored: Stored) -> TableRow:
    """Return the row of stored cells.

    Raises:
        ForeignWrite: a cell has a time stamp above the row's version.
    """
    version = stored[VERSION].value if VERSION in stored else 0
    for column, cell in stored.items():
        if cell.written > version:
            raise ForeignWrite(
                f"row {key.key!r} of table {key.table!r} was written without the log: column {column!r} has the time stamp "
                f"{cell.written}, the row's newest record is {version}; write it through the log only",
                table=key.table,
                key=key.key,
                column=column,
                expected=version,
                found=cell.written,
            )
    absent = stored[ABSENT].value if ABSENT in stored else NO_ROW
    if absent == NO_ROW:
        return TableRow(key, version, None)
    nothing = set(absent.split(","))
    cells = {name: cell.value for name, cell in stored.items() if name not in nothing and name not in (VERSION, ABSENT)}
    return TableRow(key, version, cells)


def after(row: TableRow, records: Iterable[tuple[int, Written]]) -> TableRow:
    """Apply to a row all records above its version.

    Args:
        row: the row.
        records: seqnums and events, ascending.

    Raises:
        TableBehind: a record does not follow the version before it.
    """
    for seqnum, written in records:
        if written.before != row.version:
            raise TableBehind(
                f"row {row.key.key!r} of table {row.key.table!r} is at version {row.version}, and the log's next record of it, {seqnum}, "
                f"follows {written.before}: was the table restored from a backup?",
                table=row.key.table,
                key=row.key.key,
            )
        row = _after(row, seqnum, written)
    return row


def _after(row: TableRow, seqnum: int, written: Written) -> TableRow:
    if written.gone:
        return TableRow(row.key, seqnum, None)
    cells = {**(row.cells or {}), **written.cells}
    for name in written.absent:
        cells.pop(name, None)
    return TableRow(row.key, seqnum, cells)


class Change(NamedTuple):
    """The change that a transaction makes to a row.

    Attributes:
        replaces: the row's old cells are dropped: the transaction deleted the row before.
        cells: the cells that are written; None deletes the row.
    """

    replaces: bool
    cells: Mapping[str, Json] | None


def put(change: Change | None, cells: Mapping[str, Json]) -> Change:
    """Add cells to the change that a transaction has made to a row so far."""
    if change is None:
        return Change(False, dict(cells))
    if change.cells is None:
        return Change(True, dict(cells))
    return Change(change.replaces, {**change.cells, **cells})


def changed(row: TableRow, change: Change | None) -> TableRow:
    """Return the row with a transaction's change."""
    if change is None:
        return row
    if change.cells is None:
        return row._replace(cells=None)
    base = {} if change.replaces else dict(row.cells or {})
    cells = {**base, **change.cells}
    return row._replace(cells={name: value for name, value in cells.items() if value is not None})


def written(row: TableRow, change: Change, schema: Schema) -> Written:
    """Return the event for a change of a row that was read."""
    then = changed(row, change)
    if then.cells is None:
        return Written(row.key.table, row.key.key, row.version, {}, [], gone=True)
    absent = [name for name in schema.columns if name not in then.cells]
    named = then.cells if schema.mode == "versioned" else change.cells or {}
    cells = {name: value for name, value in named.items() if value is not None}
    return Written(row.key.table, row.key.key, row.version, cells, absent)


def to_store(seqnum: int, event: Written) -> dict[str, Any]:
    """Return the cells to store for a record, by column; their time stamp is the record's seqnum."""
    absent = NO_ROW if event.gone else ",".join(event.absent)
    return {**event.cells, VERSION: seqnum, ABSENT: absent}
