"""Tables, their rows and their events: columns of one kind each, and the cells to store for a record. Pure.

A table has a key, which is text, and columns. Every kind can be written repeatedly with the same result: there are no counters, no lists
that grow by appending, and no values that a server's clock decides (a TTL, `now()`).

| mode | decided by | for | not for |
|---|---|---|---|
| `log` | the log | transactions of several rows, with steps of workflows | reads without a record, which need old versions |
| `versioned` | the log | the same, and reads without a record: the table keeps versions | tables that other programs write |
| `lwt` | the database | tables that other programs write, each row by itself | several rows, or a row and a step, in one change |

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

Events of tables in the log:

| stream | events |
|---|---|
| `table/row/<table>/<key>` | Written: each change of a row; its append expects that the row did not change since it was read |
| `table/rows/<table>` | Written, of all rows of a table: read to bring the table up to date |
| `table/cat/<table>` | Made: the definition of a table; each change of a row expects that it did not change |
| `table/floor/<table>` | Collected: the place below which versions of rows may be deleted |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from boki_common.errors import InvalidArgument
from bokiflow.tables.errors import ForeignWrite, TableBehind, TableRefused
from bokilib.records.arguments import check_text
from bokilib.records.codec import Json, JsonObject, check_json, copy_json
from bokilib.records.events import Event, Picker

Kind: TypeAlias = Literal["text", "int", "float", "bool", "json"]
Mode: TypeAlias = Literal["log", "versioned", "lwt"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
OURS: Final = "boki_"
"""Prefix of the library's own names."""
KEY: Final = "id"
KEY_CHARS: Final = 1_024
COLUMNS: Final = 64
_INT: Final = 2**63


class Schema(msgspec.Struct, frozen=True):
    """The definition of a table.

    Attributes:
        name: the name of the table: up to 40 small letters, digits and underscores.
        columns: the kind of each column, by name.
        mode: which changes the table supports, and whether the log or the database decides them.
    """

    name: str
    columns: Mapping[str, Kind]
    mode: Mode = "log"


def check_schema(schema: Schema) -> Schema:
    """Return the schema if its names, kinds and mode are valid.

    Raises:
        InvalidArgument: they are not.
    """
    for name in (schema.name, *schema.columns):
        if not NAME.match(name) or name.startswith(OURS) or name == KEY:
            raise InvalidArgument(
                f"expected a name of small letters, digits and _, up to 40, neither {KEY!r} nor one that begins with {OURS!r}, "
                f"found {name!r}",
                found=name,
            )
    for name, kind in schema.columns.items():
        if kind not in KINDS:
            raise InvalidArgument(
                f"expected the kind of {name!r} to be one of {list(KINDS)}, found {kind!r}", found=kind
            )
    if not 0 < len(schema.columns) <= COLUMNS:
        raise InvalidArgument(f"expected 1 to {COLUMNS} columns, found {len(schema.columns)}")
    if schema.mode not in MODES:
        raise InvalidArgument(f"expected the mode to be one of {list(MODES)}, found {schema.mode!r}", found=schema.mode)
    return schema


def check_mode(schema: Schema, modes: Sequence[Mode], what: str) -> None:
    """Check that a table has a mode that supports an operation.

    Args:
        schema: the table.
        modes: the modes that support the operation, the nearest first.
        what: the operation, for the message.

    Raises:
        TableRefused: the table has another mode.
    """
    if schema.mode not in modes:
        raise TableRefused(
            f"table {schema.name!r} has mode {schema.mode!r}, which does not support {what}: the nearest mode that does is "
            f"{modes[0]!r}; the mode of a table does not change, so create another table",
            table=schema.name,
            expected=list(modes),
            found=schema.mode,
        )


def merged(known: Schema, wanted: Schema) -> Schema:
    """Return the definition of a table with the columns that another definition adds.

    Raises:
        TableRefused: the mode, or the kind of a column, differs.
    """
    if known.mode != wanted.mode:
        raise TableRefused(
            f"table {known.name!r} has mode {known.mode!r}, and was opened in mode {wanted.mode!r}: all programs open it in one mode",
            table=known.name,
            expected=known.mode,
            found=wanted.mode,
        )
    for name, kind in wanted.columns.items():
        there = known.columns.get(name, kind)
        if there != kind:
            raise TableRefused(
                f"column {name!r} of table {known.name!r} is {there!r}, and was opened as {kind!r}: give it another name",
                table=known.name,
                expected=there,
                found=kind,
            )
    return Schema(known.name, {**known.columns, **wanted.columns}, known.mode)


def check_key(key: str) -> str:
    """Return a key that is text, neither empty nor too long.

    Raises:
        InvalidArgument: it is not.
    """
    if not 0 < len(check_text("a key", key)) <= KEY_CHARS:
        raise InvalidArgument(f"expected a key of 1 to {KEY_CHARS} characters, found {key[:80]!r}", found=key[:80])
    return key


def check_cells(schema: Schema, cells: Mapping[str, Json]) -> None:
    """Check that values fit their columns; None, which empties a cell, fits every column.

    Raises:
        InvalidArgument: a column does not exist, or a value is not of its kind.
        NotEncodable: a value of a JSON column is not JSON, or UTF-8 cannot encode a text.
    """
    for name, value in cells.items():
        kind = schema.columns.get(name)
        if kind is None:
            raise InvalidArgument(
                f"table {schema.name!r} has no column {name!r}, it has {sorted(schema.columns)}", found=name
            )
        if value is not None and not _fits(kind, value):
            raise InvalidArgument(
                f"expected {kind} in column {name!r} of {schema.name!r}, found {value!r:.80}", found=name
            )


def _fits(kind: Kind, value: Json) -> bool:
    if kind in ("json", "text"):
        check_json(value)
        return kind == "json" or isinstance(value, str)
    if kind == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) and -_INT <= value < _INT
    return isinstance(value, float) and math.isfinite(value)


class Made(Event, tag="table.made", frozen=True):
    """A table was created or got new columns.

    Attributes:
        id: the name of the table.
        mode: its mode.
        columns: the kind of each column, by name.
        token: the token of its owner: the same in all of its records, and in the database.
    """

    id: str
    mode: Mode
    columns: Mapping[str, Kind]
    token: str


class Collected(Event, tag="table.floor", frozen=True):
    """Versions of rows that only reads as of places below `floor` need may be deleted."""

    id: str
    floor: int


class Written(Event, tag="table.row", frozen=True):
    """A row changed.

    Attributes:
        id: the table.
        key: the key of the row.
        before: the seqnum of the row's change before; 0 for the first one.
        cells: the cells that changed; for a versioned table, all cells of the row.
        absent: the columns that are empty afterwards, also if the database has cells in them.
        gone: the row was deleted.
    """

    id: str
    key: str
    before: int
    cells: Mapping[str, Any]
    absent: list[str]
    gone: bool = False


AnyTableEvent: TypeAlias = Made | Written | Collected

PICKER: Final[Picker[AnyTableEvent]] = Picker("table", (Made, Written, Collected))

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
        """Return a copy of the cells for users, who may change it; None if the row does not exist."""
        return None if self.cells is None else copy_json(dict(self.cells))


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
    """Add copies of cells to the change that a transaction has made to a row so far."""
    copied = copy_json(dict(cells))
    if change is None:
        return Change(False, copied)
    if change.cells is None:
        return Change(True, copied)
    return Change(change.replaces, {**change.cells, **copied})


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
