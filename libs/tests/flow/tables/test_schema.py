"""Schemas of tables, and two programs that open a table with different ones."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from bokiflow.tables import Schema, TableRefused
from bokiflow.tables.schema import check_key, check_schema, merged


@pytest.mark.parametrize(
    "schema",
    [
        Schema("Hotel", {"a": "int"}),
        Schema("boki_hotel", {"a": "int"}),
        Schema("hotel", {}),
        Schema("hotel", {"id": "int"}),
        Schema("hotel", {"boki_v": "int"}),
        Schema("hotel", {"a b": "int"}),
        Schema("hotel", {f"c{number}": "int" for number in range(65)}),
    ],
)
def test_names_are_those_that_every_database_takes(schema: Schema) -> None:
    with pytest.raises(boki.InvalidArgument):
        check_schema(schema)


def test_kinds_and_modes_are_those_that_can_be_kept() -> None:
    wrong: Any = "counter"
    with pytest.raises(boki.InvalidArgument, match="counter"):
        check_schema(Schema("hotel", {"a": wrong}))
    with pytest.raises(boki.InvalidArgument, match="mode"):
        check_schema(Schema("hotel", {"a": "int"}, wrong))


def test_who_opens_a_table_adds_columns_and_changes_none() -> None:
    known = Schema("hotel", {"a": "int"})
    assert merged(known, Schema("hotel", {"b": "text"})).columns == {"a": "int", "b": "text"}
    with pytest.raises(TableRefused, match="'a'"):
        merged(known, Schema("hotel", {"a": "text"}))
    other: Any = "lwt"
    with pytest.raises(TableRefused, match="mode"):
        merged(known, Schema("hotel", {"a": "int"}, other))


@pytest.mark.parametrize("key", ["", "x" * 1_025])
def test_keys_have_a_length(key: str) -> None:
    with pytest.raises(boki.InvalidArgument):
        check_key(key)
