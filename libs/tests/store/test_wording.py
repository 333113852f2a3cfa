"""What people read of operations, changes and values: on one line, whatever is in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from bokistore import MISSING, AnyOperation, Change, Delete, Inc, MakeArray, Merge, Pop, Push, Set
from bokistore_tools import wording
from libs.tests.store.strategies import JSON


@pytest.mark.parametrize(
    ("text", "shown"),
    [("cart/7", "cart/7"), ("é 7", "é 7"), ("a\nb\x1b[2J", "a\\nb\\x1b[2J"), ("\u202e", "\\u202e"), ("\x85", "\\x85")],
)
def test_a_text_stays_on_its_line(text: str, shown: str) -> None:
    assert wording.printable(text) == shown


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (Set("a.b", {"n": 1}), 'set a.b {"n":1}'),
        (Set("", {}), "set (object) {}"),
        (Push("log", "x", 24), 'push log "x" limit 24'),
        (Push("log", "x"), 'push log "x"'),
        (Inc("n", -2), "inc n -2"),
        (Pop("log"), "pop log"),
        (Delete("a\nb"), "delete a\\nb"),
        (MakeArray("log"), "make_array log"),
        (Merge("", {"n": None}), 'merge (object) {"n":null}'),
    ],
)
def test_operations(operation: AnyOperation, text: str) -> None:
    assert wording.operation_text(operation) == text


def test_changes() -> None:
    made, gone, other = Change("a", MISSING, None), Change("b", 1, MISSING), Change("", {}, {"n": 1})
    assert [wording.change_text(one) for one in (made, gone, other)] == [
        "+ a  null", "- b  1", '~ (object)  {} → {"n":1}',
    ]  # fmt: skip
    assert wording.change_object(made) == {"path": "a", "after": None}
    assert wording.change_object(gone) == {"path": "b", "before": 1}


@given(JSON)
def test_a_value_is_json_and_its_preview_is_short(value: object) -> None:
    assert json.loads(wording.value_text(value)) == json.loads(wording.value_text(value, indent=2))
    short = wording.preview(value, 20)
    assert len(short) <= 20 and short.isprintable()
