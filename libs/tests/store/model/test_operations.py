"""Operations against a plain model that changes a copy in place, and what is refused."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
from bokilib.errors import NotEncodable
from bokilib.records.codec import Json, JsonObject
from bokistore import MISSING, AnyOperation, Delete, Inc, MakeArray, MakeObject, Merge, Missing, Pop, Push, Set
from bokistore.model.operations import Failed, apply, checked, look, merged, same
from libs.tests.store.strategies import OBJECTS, OPERATIONS, PATHS


class Refused(Exception):
    """The model cannot do it."""


def model(root: Any, operation: AnyOperation) -> tuple[Any, Any]:
    """The same by the book: a box around a deep copy, a walk to the container, a change in place."""
    box: Any = {"root": copy.deepcopy(root)} if root is not MISSING else {}
    container, key = box, "root"
    creates = not isinstance(operation, (Pop, Delete))
    for step in operation.path.split(".") if operation.path else []:
        if not there(container, key):
            if not creates:
                if isinstance(operation, Delete):
                    return root, False
                raise Refused
            put(container, key, {})
        container, key = container[at(container, key)], step
        if not isinstance(container, (dict, list)):
            raise Refused
        if isinstance(container, list) and (not key.isdigit() or int(key) > len(container)):
            raise Refused
    found = container[at(container, key)] if there(container, key) else MISSING
    result = change(container, key, found, operation)
    after = box.get("root", MISSING)
    if not isinstance(after, (dict, Missing)) or (after is MISSING and root is not MISSING):
        raise Refused
    return after, result


def at(container: Any, key: str) -> Any:
    return int(key) if isinstance(container, list) else key


def there(container: Any, key: str) -> bool:
    return int(key) < len(container) if isinstance(container, list) else key in container


def put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, list) and int(key) == len(container):
        container.append(value)
    else:
        container[at(container, key)] = value


def change(container: Any, key: str, found: Any, operation: AnyOperation) -> Any:
    """The change itself; raises Refused."""
    if isinstance(operation, Delete):
        if found is not MISSING:
            del container[at(container, key)]
        return found is not MISSING
    if isinstance(operation, Inc):
        number = 0 if found is MISSING else found
        if type(number) not in (int, float):
            raise Refused
        number += operation.delta
        if (isinstance(number, int) and not -(2**63) <= number < 2**63) or not math.isfinite(number):
            raise Refused
        put(container, key, number)
        return number
    if isinstance(operation, (Push, Pop)):
        items = [] if found is MISSING else found
        if not isinstance(items, list):
            raise Refused
        if isinstance(operation, Pop):
            if not items:
                raise Refused
            return items.pop()
        items.append(operation.value)
        del items[: max(0, len(items) - (operation.limit or len(items)))]
        put(container, key, items)
        return len(items)
    if isinstance(operation, (MakeObject, MakeArray)):
        wanted: Any = {} if isinstance(operation, MakeObject) else []
        if found is not MISSING and type(found) is not type(wanted):
            raise Refused
        if found is MISSING:
            put(container, key, wanted)
        return None
    value = (
        operation.value if isinstance(operation, Set) else merged(None if found is MISSING else found, operation.patch)
    )
    put(container, key, value)
    return None


@given(st.just(MISSING) | OBJECTS, st.lists(OPERATIONS, max_size=6))
def test_operations_do_what_the_model_does_and_refused_ones_change_nothing(
    root: JsonObject | Missing, operations: list[AnyOperation]
) -> None:
    for operation in operations:
        before = copy.deepcopy(root)
        after, result = apply(root, operation)
        assert same(root, before), "states are shared, and never changed in place"
        try:
            expected, expected_result = model(root, operation)
        except Refused:
            assert isinstance(result, Failed) and result.reason
            assert after is root
        else:
            assert not isinstance(result, Failed), result
            assert same(after, expected) and same(result, expected_result)
        root = after


@given(OPERATIONS)
def test_operations_travel(operation: AnyOperation) -> None:
    assert same(
        msgspec.to_builtins(msgspec.msgpack.decode(msgspec.msgpack.encode(checked(operation)), type=AnyOperation)),
        msgspec.to_builtins(operation),
    )


@given(OBJECTS, PATHS)
def test_looking_finds_what_is_there(root: JsonObject, path: str) -> None:
    keys = tuple(path.split(".")) if path else ()
    found: Any = root
    for key in keys:
        if isinstance(found, (dict, list)) and (isinstance(found, dict) or key.isdigit()) and there(found, key):
            found = found[at(found, key)]
        else:
            found = MISSING
            break
    assert look(root, keys) is found or same(look(root, keys), found)


@pytest.mark.parametrize(
    ("before", "operation", "reason"),
    [
        ({"a": 1}, Set("a.b", 1), "'b' is wanted of a number"),
        ({"a": []}, Set("a.b", 1), "an array has indexes, and no 'b'"),
        ({"a": []}, Set("a.1", 1), "the array ends at 0"),
        ({}, Set("", 5), "would be a number"),
        ({"a": True}, Inc("a", 1), "nothing can be added to a boolean"),
        ({"a": 2**63 - 1}, Inc("a", 1), "no number that can be stored"),
        ({"a": 1e308}, Inc("a", 1e308), "no number that can be stored"),
        ({"a": 2**62}, Inc("a", 1e308), None),
        ({}, Pop("a"), "nothing to pop"),
        ({"a": None}, Push("a", 1), "null cannot be pushed to"),
        ({"a": "x"}, MakeObject("a"), "there is a text already"),
        ({"a": {}}, Delete(""), "store.delete"),
    ],
)
def test_reasons_for_people(before: JsonObject, operation: AnyOperation, reason: str | None) -> None:
    after, result = apply(before, operation)
    if reason is None:
        assert not isinstance(result, Failed)
        return
    assert after is before and isinstance(result, Failed) and reason in result.reason
    error = result.error("x")
    assert error.object == "x" and error.path == operation.path and error.definite


@pytest.mark.parametrize(
    "operation",
    [
        Set("a", {1}),
        Set("a\\", 1),
        Push("a", object()),
        Push("a", 1, 0),
        Push("a", 1, True),
        Inc("a", True),
        Inc("a", math.inf),
        Inc("a", "1"),  # type: ignore[arg-type]
        Merge("a", {"b": b""}),
    ],
)
def test_what_is_refused_before_it_is_sent(operation: AnyOperation) -> None:
    with pytest.raises((boki.InvalidArgument, NotEncodable)):
        checked(operation)


def test_a_path_that_no_version_knows_changes_nothing() -> None:
    """What another version let through is an error of its operation, for everybody, not of the reader."""
    assert isinstance(apply({}, Set("a\\b", 1))[1], Failed)


RFC_7386 = """
{"a":"b"} | {"a":"c"} | {"a":"c"}
{"a":"b"} | {"b":"c"} | {"a":"b","b":"c"}
{"a":"b"} | {"a":null} | {}
{"a":"b","b":"c"} | {"a":null} | {"b":"c"}
{"a":["b"]} | {"a":"c"} | {"a":"c"}
{"a":"c"} | {"a":["b"]} | {"a":["b"]}
{"a":{"b":"c"}} | {"a":{"b":"d","c":null}} | {"a":{"b":"d"}}
{"a":[{"b":"c"}]} | {"a":[1]} | {"a":[1]}
["a","b"] | ["c","d"] | ["c","d"]
{"a":"b"} | ["c"] | ["c"]
{"a":"foo"} | null | null
{"a":"foo"} | "bar" | "bar"
{"e":null} | {"a":1} | {"e":null,"a":1}
[1,2] | {"a":"b","c":null} | {"a":"b"}
{} | {"a":{"bb":{"ccc":null}}} | {"a":{"bb":{}}}
"""


@pytest.mark.parametrize("line", RFC_7386.strip().splitlines())
def test_a_patch_merges_as_in_appendix_a_of_rfc_7386(line: str) -> None:
    target, patch, result = (json.loads(part) for part in line.split("|"))
    before = json.dumps(target)
    made: Json = merged(target, patch)
    assert made == result
    assert json.dumps(target) == before, "what is given is not changed"
