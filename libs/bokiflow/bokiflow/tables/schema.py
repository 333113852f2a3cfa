"""What a table's rows may hold: columns by name, each of one kind. Pure.

A table has a key, which is text, and columns. Kinds are those that can be written again and again with one result: no counters, no lists
that are appended to, nothing that a server's clock decides (`TTL`, `now()`).

| mode | who decides | for | what it cannot keep |
|---|---|---|---|
| `log` | the log | transactions of several rows, with steps of workflows | looking without a record: what was is gone |
| `versioned` | the log | the same, and looking without a record: the table has versions | tables that others write |
| `lwt` | the database | tables that others write too, each row by itself | two rows, or a row and a step, at once |
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
"""Names that begin so are the library's."""
KEY: Final = "id"
KEY_CHARS: Final = 1_024
COLUMNS: Final = 64
_INT: Final = 2**63


class Schema(msgspec.Struct, frozen=True):
    """A table.

    Attributes:
        name: of the table. columns: kind of each, by name. mode: how it is kept.
    """

    name: str
    columns: Mapping[str, Kind]
    mode: Mode = "log"


def check_schema(schema: Schema) -> Schema:
    """Raises InvalidArgument."""
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
    """Raises TableRefused: the table's mode cannot keep it; it names one that can."""
    if schema.mode not in modes:
        raise TableRefused(
            f"table {schema.name!r} is kept in mode {schema.mode!r}, which does not take {what}: the nearest mode that does is "
            f"{modes[0]!r}; a table keeps its mode, so make another one",
            table=schema.name,
            expected=list(modes),
            found=schema.mode,
        )


def merged(known: Schema, wanted: Schema) -> Schema:
    """The table as it is known, with what else is wanted of it. Raises TableRefused: it is another one."""
    if known.mode != wanted.mode:
        raise TableRefused(
            f"table {known.name!r} is kept in mode {known.mode!r}, and was opened in mode {wanted.mode!r}: all its users have one mode",
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
    """Raises InvalidArgument."""
    if not key or len(key) > KEY_CHARS:
        raise InvalidArgument(f"expected a key of 1 to {KEY_CHARS} characters, found {key[:80]!r}", found=key[:80])
    return key


def check_cells(schema: Schema, cells: Mapping[str, Json]) -> None:
    """Raises InvalidArgument, NotEncodable: not what the columns hold. None is always right: nothing."""
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
