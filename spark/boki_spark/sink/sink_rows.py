"""Columns that a frame may have when it is written, and the records that its rows become. Pure.

data        binary or string; the record's bytes
tags        optional: array of strings (names) or of bigints (ids, u64 as two's complement)
tag_names   optional: array of strings; names for some of the ids in `tags`, as a read returns them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from boki_spark.errors import BadSchema, SinkBadRow
from boki_spark.sink.sink_rules import SinkRow, Tag

ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("binary", "string"),
    "tags": ("array<string>", "array<bigint>"),
    "tag_names": ("array<string>",),
}
"""Columns, and the allowed types of each as Spark names them."""

U64: Final = 2**64


def check_columns(columns: Sequence[tuple[str, str]]) -> None:
    """Check the columns of a frame, given as (name, type).

    Raises:
        BadSchema: a column is unknown, missing or has another type.
    """
    names = [name for name, _ in columns]
    wrong = [name for name in names if name not in ALLOWED]
    if wrong or "data" not in names or len(set(names)) < len(names):
        raise BadSchema(
            f"expected the columns data (binary or string) and, if you like, tags and tag_names; found {', '.join(names) or 'none'}: "
            'choose them with select(…), e.g. df.select(F.to_json(F.struct("*")).alias("data"))'
        )
    for name, kind in columns:
        if kind not in ALLOWED[name]:
            raise BadSchema(f"expected the column {name} to be {' or '.join(ALLOWED[name])}, found {kind}")
    if dict(columns).get("tags") == "array<string>" and "tag_names" in names:
        raise BadSchema("expected names in tags or in tag_names, found both")


def rows_of(columns: Mapping[str, Sequence[object]]) -> list[SinkRow]:
    """Return the rows of some columns.

    Raises:
        SinkBadRow: a row has no data or a malformed tag.
    """
    data = columns["data"]
    nothing: Sequence[object] = (None,) * len(data)
    numbers, names = columns.get("tags", nothing), columns.get("tag_names", nothing)
    return [
        SinkRow(_bytes(one), _tags(some_numbers, some_names))
        for one, some_numbers, some_names in zip(data, numbers, names, strict=True)
    ]


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise SinkBadRow("expected data in every row, found null")


def _tags(numbers: object, names: object) -> tuple[Tag, ...]:
    if numbers is None:
        numbers = [None] * (len(names) if isinstance(names, list) else 0)
    assert isinstance(numbers, list)
    if names is None:
        names = [None] * len(numbers)
    assert isinstance(names, list)
    if len(names) != len(numbers):
        raise SinkBadRow(f"expected as many tag_names as tags in every row, found {len(names)} and {len(numbers)}")
    return tuple(_pairs(numbers, names))


def _pairs(numbers: Iterable[object], names: Iterable[object]) -> Iterable[Tag]:
    for number, name in zip(numbers, names, strict=True):
        if isinstance(name, str):
            yield name
        elif isinstance(number, str):
            yield number
        elif isinstance(number, int):
            yield number % U64
        else:
            raise SinkBadRow("expected a name or a number for every tag, found null")
