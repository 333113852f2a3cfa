"""Differences: applied in order, they make one state of the other."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given

from bokilib.records.codec import JsonObject
from bokistore import MISSING, Change, Delete, Missing, Set
from bokistore.model.operations import Failed, apply, differences, same
from libs.tests.store.strategies import OBJECTS


@given(OBJECTS, OBJECTS)
def test_changes_applied_in_order_make_one_of_the_other(before: JsonObject, after: JsonObject) -> None:
    found: Any = copy.deepcopy(before)
    for change in differences(before, after):
        assert not same(change.before, change.after)
        done = Delete(change.path) if isinstance(change.after, Missing) else Set(change.path, change.after)
        found, result = apply(found, done)
        assert not isinstance(result, Failed), (change, result)
    assert same(found, after)


@given(OBJECTS)
def test_equal_states_have_none(value: JsonObject) -> None:
    assert differences(value, copy.deepcopy(value)) == []


def test_what_people_see() -> None:
    before: JsonObject = {"name": "ann", "tags": ["a", "b", "c"], "n": 1, "gone": {}}
    after: JsonObject = {"name": "bob", "tags": ["a", "x"], "n": True, "new.key": None}
    assert differences(before, after) == [
        Change("name", "ann", "bob"),
        Change("tags.1", "b", "x"),
        Change("tags.2", "c", MISSING),
        Change("n", 1, True),
        Change("gone", {}, MISSING),
        Change("new\\.key", MISSING, None),
    ]
    assert differences(MISSING, {"a": 1}) == [Change("", MISSING, {"a": 1})]
    assert differences({"a": 1}, MISSING) == [Change("", {"a": 1}, MISSING)]
    assert differences(MISSING, MISSING) == []
    assert repr(MISSING) == "MISSING"
