"""Checks of existing tables of Cassandra against a schema."""

from __future__ import annotations

import pytest

from bokiflow.tables import Schema, TableRefused
from bokiflow.tables.cassandra_types import KEYS, OURS, checked_columns, checked_keys, from_database, to_database
from bokiflow.tables.schema import MODES, Mode

SCHEMA = Schema("hotel", {"left_over": "int", "more": "json"})
THERE = {
    "id": "text",
    "boki_v": "bigint",
    "boki_absent": "text",
    "left_over": "bigint",
    "more": "text",
    "other": "set<text>",
}


def test_a_table_that_fits_is_taken_with_what_else_it_has() -> None:
    checked_columns(SCHEMA, THERE, ["gone"], 0)


@pytest.mark.parametrize(
    ("there", "dropped", "ttl_s", "message"),
    [
        ({"left_over": "counter"}, [], 0, "of type bigint, found counter"),
        ({"boki_v": "text"}, [], 0, "'boki_v' of type bigint"),
        ({"id": "int"}, [], 0, "'id' of type text, found int"),
        ({}, ["more"], 0, "that was never dropped"),
        ({}, [], 3_600, "a TTL of 3600 s"),
    ],
)
def test_a_table_that_cannot_keep_what_the_log_says_is_refused(
    there: dict[str, str], dropped: list[str], ttl_s: int, message: str
) -> None:
    with pytest.raises(TableRefused, match=message):
        checked_columns(SCHEMA, THERE | there, dropped, ttl_s)


def test_json_is_stored_as_text() -> None:
    stored = to_database("json", {"a": [1, None]})
    assert stored == '{"a":[1,null]}'
    assert from_database("json", stored) == {"a": [1, None]}
    assert (from_database("json", None), to_database("int", 7), from_database(None, 7)) == (None, 7, 7)


@pytest.mark.parametrize(
    ("mode", "there", "message"),
    [
        ("log", {"id": "partition_key", "boki_v": "clustering"}, "keys of mode 'log'"),
        ("versioned", {"id": "partition_key", "boki_v": "regular"}, "keys of mode 'versioned'"),
        ("lwt", {"id": "partition_key", "boki_v": "regular"}, "column 'boki_v' of another mode"),
        ("log", {"id": "partition_key", "boki_op": "regular"}, "column 'boki_op' of another mode"),
        ("log", {"id": "partition_key", "day": "partition_key"}, "keys of mode 'log'"),
    ],
)
def test_a_table_of_another_mode_or_other_keys_is_refused(mode: Mode, there: dict[str, str], message: str) -> None:
    with pytest.raises(TableRefused, match=message):
        checked_keys(Schema("t", {"a": "int"}, mode), there)


def test_a_table_of_its_mode_fits() -> None:
    for mode in MODES:
        kinds = {name: KEYS[mode].get(name, "regular") for name in ("id", "a", *OURS[mode])}
        checked_keys(Schema("t", {"a": "int"}, mode), kinds)
