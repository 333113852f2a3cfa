"""Columns of a frame that is written, and the records of its rows."""

from __future__ import annotations

import pytest

from boki_spark.errors import BadSchema, SinkBadRow
from boki_spark.sink.sink_rows import check_columns, rows_of
from boki_spark.sink.sink_rules import SinkRow


def test_rows_become_records_with_names_or_numbers_as_tags() -> None:
    assert rows_of({"data": [b"a", "ä"]}) == [SinkRow(b"a"), SinkRow("ä".encode())]
    assert rows_of({"data": [b"a"], "tags": [["x", "y"]]}) == [SinkRow(b"a", ("x", "y"))]
    assert rows_of({"data": [b"a", b"b"], "tags": [[7, -1 - 1], None]}) == [
        SinkRow(b"a", (7, 2**64 - 2)),
        SinkRow(b"b"),
    ]
    assert rows_of({"data": [b"a"], "tags": [[7, 8]], "tag_names": [["x", None]]}) == [SinkRow(b"a", ("x", 8))]
    assert rows_of({"data": [b"a"], "tag_names": [["x"]]}) == [SinkRow(b"a", ("x",))]


@pytest.mark.parametrize(
    "columns",
    [{"data": [None]}, {"data": [b"a"], "tags": [[None]]}, {"data": [b"a"], "tags": [[1]], "tag_names": [["x", "y"]]}],
)
def test_rows_that_can_be_no_records_are_refused(columns: dict[str, list[object]]) -> None:
    with pytest.raises(SinkBadRow, match="expected"):
        rows_of(columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("value", "string")], "expected the columns data"),
        ([], "found none"),
        ([("data", "binary"), ("seqnum", "bigint")], "select"),
        ([("data", "int")], "binary or string, found int"),
        ([("data", "binary"), ("tags", "string")], "found string"),
        ([("data", "binary"), ("tags", "array<string>"), ("tag_names", "array<string>")], "found both"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        check_columns(columns)


def test_columns_of_a_read_fit() -> None:
    check_columns([("data", "binary"), ("tags", "array<bigint>"), ("tag_names", "array<string>")])
