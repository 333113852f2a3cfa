"""What people read of operations, changes and values: on one line, whatever is in them."""

from __future__ import annotations

import pytest

from bokistore import MISSING, AnyOperation, Change, Delete, Inc, MakeArray, Merge, Pop, Push, Set
from bokistore_tools import wording


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
