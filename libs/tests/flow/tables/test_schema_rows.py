"""Rows folded from stored cells and newer records, compared with a plain dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bokiflow.tables import ForeignWrite, Schema, TableBehind
from bokiflow.tables.schema import Cell, RowKey, TableRow, Written, after, changed, put, stored_row, to_store, written
from bokiflow.tables.schema import Change as RowChange

KEY = RowKey("t", "k")
SCHEMA = Schema("t", {"a": "int", "b": "int", "c": "int"})

CELLS = st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), max_size=3)
CHANGES = st.lists(st.one_of(st.none(), st.lists(CELLS, min_size=1, max_size=2)), max_size=6)


def store(cells: dict[str, Cell], columns: Mapping[str, Any], timestamp: int) -> None:
    for name, value in columns.items():
        if name not in cells or cells[name].written <= timestamp:
            cells[name] = Cell(value, timestamp)


@given(CHANGES, st.data())
def test_a_row_is_its_records_whatever_of_them_is_stored(changes: list[Any], data: st.DataObject) -> None:
    model: dict[str, int] | None = None
    row = TableRow(KEY, 0, None)
    records: list[tuple[int, Written]] = []
    for number, steps in enumerate(changes, 1):
        change: RowChange | None = None
        if steps is None:
            model, change = None, RowChange(True, None)
        else:
            for cells in steps:
                change = put(change, cells)
                model = {name: value for name, value in {**(model or {}), **cells}.items() if value is not None}
        assert change is not None
        assert changed(row, change).cells == model
        records.append((number, written(row, change, SCHEMA)))
        row = after(row, records[-1:])
        assert (row.version, row.cells) == (number, model)
    stored: dict[str, Cell] = {}
    upto = data.draw(st.integers(0, len(records)))
    again = data.draw(st.lists(st.sampled_from(records[:upto]), max_size=3)) if upto else []
    for seqnum, event in [*records[:upto], *again]:
        store(stored, to_store(seqnum, event), seqnum)
    found = stored_row(KEY, stored)
    assert found.version == upto
    assert after(found, [record for record in records if record[0] > found.version]) == row


def test_a_deletion_and_a_new_row_in_one_transaction_keep_nothing_of_before() -> None:
    row = TableRow(KEY, 4, {"a": 1, "b": 2})
    change = put(RowChange(True, None), {"b": 3})
    assert changed(row, change).cells == {"b": 3}
    assert written(row, change, SCHEMA) == Written("t", "k", 4, {"b": 3}, ["a", "c"])
    assert written(row, RowChange(True, None), SCHEMA).gone


def test_a_record_that_follows_another_one_is_no_news() -> None:
    with pytest.raises(TableBehind, match="backup"):
        after(TableRow(KEY, 3, {"a": 1}), [(9, Written("t", "k", 5, {"a": 2}, []))])


def test_a_cell_above_the_version_is_foreign() -> None:
    with pytest.raises(ForeignWrite, match="'a' has the time stamp 9") as caught:
        stored_row(KEY, {"boki_v": Cell(4, 4), "boki_absent": Cell("", 4), "a": Cell(1, 9)})
    assert (caught.value.facts["expected"], caught.value.facts["found"]) == (4, 9)
    with pytest.raises(ForeignWrite):
        stored_row(KEY, {"a": Cell(1, 9)})
