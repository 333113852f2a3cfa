"""The types and keys of tables in Cassandra, and the check that an existing table fits its schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from bokiflow.tables.errors import TableRefused
from bokiflow.tables.schema import ABSENT, KEY, NO_ROW, VERSION, Kind, Mode, Schema
from bokiflow.tables.swap_rules import NOTHING, OP, OUTCOME, Standing, Swap

CQL: Final[Mapping[Kind, str]] = {"text": "text", "int": "bigint", "float": "double", "bool": "boolean", "json": "text"}
OURS: Final[Mapping[Mode, Mapping[str, str]]] = {
    "log": {VERSION: "bigint", ABSENT: "text"},
    "versioned": {VERSION: "bigint", ABSENT: "text"},
    "lwt": {OP: "text", OUTCOME: "text", ABSENT: "text"},
}
"""The library's own columns, by mode."""
KEYS: Final[Mapping[Mode, Mapping[str, str]]] = {
    "log": {KEY: "partition_key"},
    "versioned": {KEY: "partition_key", VERSION: "clustering"},
    "lwt": {KEY: "partition_key"},
}
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def to_database(kind: Kind | None, value: Any) -> Any:
    """Convert the value of a cell for the driver: JSON becomes text."""
    return _encode(value).decode() if kind == "json" else value


def from_database(kind: Kind | None, value: Any) -> Any:
    """Convert a value of the driver to that of a cell: the text of a JSON column is parsed."""
    return _decode(value) if kind == "json" and value is not None else value


def checked_columns(schema: Schema, there: Mapping[str, str], dropped: Sequence[str], ttl_s: int) -> None:
    """Check the columns and the TTL of an existing table.

    Args:
        schema: the schema that the table has to fit.
        there: the types of its columns, by name.
        dropped: columns that were dropped once.
        ttl_s: the TTL of its cells in seconds; 0 keeps them.

    Raises:
        TableRefused: the table does not fit.
    """
    expected = {KEY: "text", **OURS[schema.mode]}
    expected |= {name: CQL[kind] for name, kind in schema.columns.items()}
    for name, kind in expected.items():
        if there.get(name) != kind:
            raise _refused(
                schema, f"column {name!r} of type {kind}", f"{there.get(name)}", "give the column another name"
            )
        if name in dropped:
            raise _refused(
                schema,
                f"a column {name!r} that was never dropped",
                "a column that was dropped and added again",
                "Cassandra hides cells with time stamps from before the drop: give the column another name",
            )
    if ttl_s:
        raise _refused(schema, "a table without a TTL", f"a TTL of {ttl_s} s", "set default_time_to_live = 0")


def table_text(schema: Schema, table: str) -> str:
    """Return the statement that creates a table."""
    columns = {**OURS[schema.mode], **{name: CQL[kind] for name, kind in schema.columns.items()}}
    made = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    keys = ", ".join(KEYS[schema.mode])
    order = f" WITH CLUSTERING ORDER BY ({VERSION} DESC)" if schema.mode == "versioned" else ""
    return f"CREATE TABLE IF NOT EXISTS {table} ({KEY} text, {made}, PRIMARY KEY ({keys})){order}"


def checked_keys(schema: Schema, there: Mapping[str, str]) -> None:
    """Check that the key of an existing table is that of the schema's mode.

    Args:
        schema: the schema that the table has to fit.
        there: the kind of each column: "partition_key", "clustering" or "regular".

    Raises:
        TableRefused: the table was created in another mode or by another program.
    """
    keys = {name: kind for name, kind in there.items() if kind != "regular"}
    others = sorted(
        name for columns in OURS.values() for name in columns if name in there and name not in OURS[schema.mode]
    )
    if others:
        raise _refused(
            schema,
            f"a table of mode {schema.mode!r}",
            f"column {others[0]!r} of another mode",
            "all programs open a table in one mode: give this one another name",
        )
    if keys != KEYS[schema.mode]:
        raise _refused(
            schema,
            f"the keys of mode {schema.mode!r}, {dict(KEYS[schema.mode])}",
            f"{keys}",
            "it was created in another mode, or by another program: give this one another name",
        )


def standing_of(schema: Schema, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Standing:
    """Convert a row of mode `lwt` from the driver. `names` are the selected columns."""
    if not rows:
        return NOTHING
    row = dict(zip(names, rows[0], strict=True))
    cells = {name: from_database(kind, row[name]) for name, kind in schema.columns.items() if row[name] is not None}
    return Standing(row[OP], row[OUTCOME] or "", None if row[ABSENT] == NO_ROW else cells)


def swapped(schema: Schema, swap: Swap) -> dict[str, Any]:
    """Return the values that a swap writes, by column; None empties the column."""
    written: dict[str, Any] = {OP: swap.op, OUTCOME: swap.outcome}
    if swap.cells is not None:
        cells = swap.cells
        written |= {
            name: to_database(kind, cells[name]) if name in cells else None for name, kind in schema.columns.items()
        }
        written[ABSENT] = NO_ROW if swap.gone else None
    return written


def _refused(schema: Schema, expected: str, found: str, remedy: str) -> TableRefused:
    return TableRefused(
        f"table {schema.name!r}: expected {expected}, found {found}; {remedy}",
        table=schema.name,
        expected=expected,
        found=found,
    )
