"""Rows: from what is stored to what it means, through what the log has of it, and to what is to be stored. Pure.

A row is the fold of its records in the log. What a table stores of it may lack the newest of them, and never lacks one that is older
than one it has: a record is written only over the one before it. So a reader needs the stored row, and the records above its version.

| stored | holds |
|---|---|
| `boki_v` | the version: seqnum of the newest record that is in the row |
| `boki_absent` | columns that hold nothing, with commas between; `*`: there is no row |
| a column | what the newest record that names it has |

A versioned table has a row for each record, with all that the row was then, and `boki_v` in its key.

Every cell is written with the seqnum of its record as its time stamp, so an old write that comes late changes nothing, and one that is
repeated changes nothing. Nothing is ever deleted in the database: a deletion that it forgets lets older cells come back."""

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
    """Which row."""

    table: str
    key: str


class Cell(NamedTuple):
    """What is stored in one column, and with which time stamp."""

    value: Any
    written: int


Stored = Mapping[str, Cell]
"""A row as it is stored, by column; empty: nothing is."""


class Row(NamedTuple):
    """A row as of a place of the log. `version`: seqnum of its newest record, 0: none. `cells`: None: there is no row."""

    key: RowKey
    version: int
    cells: Mapping[str, Json] | None

    def value(self) -> JsonObject | None:
        """For users."""
        return None if self.cells is None else dict(self.cells)


def stored_row(key: RowKey, stored: Stored) -> Row:
    """What is stored, as a row. Raises ForeignWrite."""
    version = stored[VERSION].value if VERSION in stored else 0
    for column, cell in stored.items():
        if cell.written > version:
            raise ForeignWrite(
                f"row {key.key!r} of table {key.table!r} was written past the log: column {column!r} has the time stamp {cell.written}, "
                f"the row's newest record is {version}; write it through the log only",
                table=key.table,
                key=key.key,
                column=column,
                expected=version,
                found=cell.written,
            )
    absent = stored[ABSENT].value if ABSENT in stored else NO_ROW
    if absent == NO_ROW:
        return Row(key, version, None)
    nothing = set(absent.split(","))
    cells = {name: cell.value for name, cell in stored.items() if name not in nothing and name not in (VERSION, ABSENT)}
    return Row(key, version, cells)


def after(row: Row, records: Iterable[tuple[int, Written]]) -> Row:
    """The row after these records, ascending, all that there are above its version. Raises TableBehind."""
    for seqnum, written in records:
        if written.before != row.version:
            raise TableBehind(
                f"row {row.key.key!r} of table {row.key.table!r} is at version {row.version}, and the log's next record of it, {seqnum}, "
                f"follows {written.before}: was the table brought back from a backup?",
                table=row.key.table,
                key=row.key.key,
            )
        row = _after(row, seqnum, written)
    return row


def _after(row: Row, seqnum: int, written: Written) -> Row:
    if written.gone:
        return Row(row.key, seqnum, None)
    cells = {**(row.cells or {}), **written.cells}
    for name in written.absent:
        cells.pop(name, None)
    return Row(row.key, seqnum, cells)


class Change(NamedTuple):
    """What a transaction makes of a row. `anew`: of one that is not there, whatever was. `cells`: None: it ends."""

    anew: bool
    cells: Mapping[str, Json] | None


def put(change: Change | None, cells: Mapping[str, Json]) -> Change:
    """These cells on top of what the transaction made of it so far."""
    if change is None:
        return Change(False, dict(cells))
    if change.cells is None:
        return Change(True, dict(cells))
    return Change(change.anew, {**change.cells, **cells})


def changed(row: Row, change: Change | None) -> Row:
    """The row as the transaction sees it."""
    if change is None:
        return row
    if change.cells is None:
        return row._replace(cells=None)
    base = {} if change.anew else dict(row.cells or {})
    cells = {**base, **change.cells}
    return row._replace(cells={name: value for name, value in cells.items() if value is not None})


def written(row: Row, change: Change, schema: Schema) -> Written:
    """The record's event, from the row as it was."""
    then = changed(row, change)
    if then.cells is None:
        return Written(row.key.table, row.key.key, row.version, {}, [], gone=True)
    absent = [name for name in schema.columns if name not in then.cells]
    named = then.cells if schema.mode == "versioned" else change.cells or {}
    cells = {name: value for name, value in named.items() if value is not None}
    return Written(row.key.table, row.key.key, row.version, cells, absent)


def to_store(seqnum: int, event: Written) -> dict[str, Any]:
    """What is to be stored of a record, by column, with its seqnum as time stamp."""
    absent = NO_ROW if event.gone else ",".join(event.absent)
    return {**event.cells, VERSION: seqnum, ABSENT: absent}
