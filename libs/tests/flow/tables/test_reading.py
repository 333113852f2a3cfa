"""The place at which a transaction on tables reads: questions to the log, and their answers."""

from __future__ import annotations

import pytest

from bokiflow.tables import RowsMoved
from bokiflow.tables.reading import Reading
from bokiflow.tables.schema import RowKey, TableRow, Written

A, B, C = (RowKey("t", key) for key in "abc")
CATALOG = {"table/cat/t": 2}


def first(version: int = 5, place: int = 10) -> Reading:
    reading = Reading()
    ask = reading.ask([TableRow(A, version, {"n": 1})], CATALOG)
    assert (dict(ask.seen), ask.at_most) == ({"table/cat/t": 2, "table/row/t/a": version}, None)
    reading.answered(ask, place, {})
    return reading


def test_the_first_answer_is_the_place_and_news_are_added() -> None:
    reading = Reading()
    ask = reading.ask([TableRow(A, 5, {"n": 1}), TableRow(B, 0, None)], CATALOG)
    found = reading.answered(
        ask, 10, {A: [(5, Written("t", "a", 3, {"n": 0}, [])), (8, Written("t", "a", 5, {"n": 2}, []))]}
    )
    assert found == {A: TableRow(A, 8, {"n": 2}), B: TableRow(B, 0, None)}
    assert reading.place == 10


def test_what_is_read_later_is_read_there() -> None:
    reading = first()
    ask = reading.ask([TableRow(B, 7, {"n": 3})], CATALOG)
    assert (dict(ask.seen), ask.at_most) == ({**CATALOG, "table/row/t/b": 7}, 10)
    reading.answered(ask, 10, {B: [(9, Written("t", "b", 7, {"n": 4}, []))]})
    assert reading.rows[B] == TableRow(B, 9, {"n": 4})
    assert reading.place == 10


def test_a_row_that_is_stored_newer_moves_the_place_if_nothing_else_changed() -> None:
    reading = first()
    ask = reading.ask([TableRow(B, 12, {"n": 3})], CATALOG)
    assert (dict(ask.seen), ask.at_most) == ({"table/cat/t": 2, "table/row/t/a": 5, "table/row/t/b": 12}, None)
    reading.answered(ask, 14, {})
    assert reading.place == 14
    assert reading.rows[B].version == 12


def test_else_the_transaction_is_run_again() -> None:
    reading = first()
    ask = reading.ask([TableRow(B, 12, {"n": 3})], CATALOG)
    with pytest.raises(RowsMoved, match="'a'"):
        reading.answered(ask, 14, {A: [(11, Written("t", "a", 5, {"n": 9}, []))]})
    assert RowsMoved.retryable
