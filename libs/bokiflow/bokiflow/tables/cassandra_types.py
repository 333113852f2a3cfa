"""Kinds of columns as Cassandra has them, and what a table that is there must not be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from bokiflow.tables.errors import TableRefused
from bokiflow.tables.rows import ABSENT, VERSION
from bokiflow.tables.schema import KEY, Kind, Schema

CQL: Final[Mapping[Kind, str]] = {"text": "text", "int": "bigint", "float": "double", "bool": "boolean", "json": "text"}
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def to_database(kind: Kind | None, value: Any) -> Any:
    """A cell's value for the driver."""
    return _encode(value).decode() if kind == "json" else value


def from_database(kind: Kind | None, value: Any) -> Any:
    """A cell's value as the driver gave it."""
    return _decode(value) if kind == "json" and value is not None else value


def checked_columns(schema: Schema, there: Mapping[str, str], dropped: Sequence[str], ttl_s: int) -> None:
    """Raises TableRefused: the table cannot be kept so.

    Args:
        there: types of columns. dropped: columns that once were. ttl_s: after which the table forgets cells; 0: never.
    """
    expected = {KEY: "text", VERSION: "bigint", ABSENT: "text"}
    expected |= {name: CQL[kind] for name, kind in schema.columns.items()}
    for name, kind in expected.items():
        if there.get(name) != kind:
            raise _refused(
                schema, f"column {name!r} of type {kind}", f"{there.get(name)}", "give the column another name"
            )
        if name in dropped:
            raise _refused(
                schema,
                f"column {name!r} never to have been dropped",
                "that it was, and added again",
                "Cassandra hides what has a time stamp from before the drop: give the column another name",
            )
    if ttl_s:
        raise _refused(schema, "a table that forgets nothing", f"a TTL of {ttl_s} s", "set default_time_to_live = 0")


def _refused(schema: Schema, expected: str, found: str, remedy: str) -> TableRefused:
    return TableRefused(
        f"table {schema.name!r}: expected {expected}, found {found}; {remedy}",
        table=schema.name,
        expected=expected,
        found=found,
    )
