"""Schemas of tables: a mode, and columns by name, each of one kind. Pure.

A table has a key, which is text, and columns. Every kind can be written repeatedly with the same result: there are no counters, no lists
that grow by appending, and no values that a server's clock decides (a TTL, `now()`).

| mode | decided by | for | not for |
|---|---|---|---|
| `log` | the log | transactions of several rows, with steps of workflows | reads without a record, which need old versions |
| `versioned` | the log | the same, and reads without a record: the table keeps versions | tables that other programs write |
| `lwt` | the database | tables that other programs write, each row by itself | several rows, or a row and a step, in one change |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from boki_common.errors import InvalidArgument
from bokiflow.tables.errors import TableRefused
from bokilib.records.codec import Json, check_json

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
    """Return a key that is neither empty nor too long.

    Raises:
        InvalidArgument: it is.
    """
    if not key or len(key) > KEY_CHARS:
        raise InvalidArgument(f"expected a key of 1 to {KEY_CHARS} characters, found {key[:80]!r}", found=key[:80])
    return key


def check_cells(schema: Schema, cells: Mapping[str, Json]) -> None:
    """Check that values fit their columns; None, which empties a cell, fits every column.

    Raises:
        InvalidArgument: a column does not exist, or a value is not of its kind.
        NotEncodable: a value of a JSON column is not JSON.
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
    if kind == "json":
        check_json(value)
        return True
    if kind == "text":
        return isinstance(value, str)
    if kind == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) and -_INT <= value < _INT
    return isinstance(value, float) and math.isfinite(value)
