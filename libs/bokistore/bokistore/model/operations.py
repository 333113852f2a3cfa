"""Operations on an object, paths into it, and differences of its states. Pure.

Operations are total: one that is not possible changes nothing, for every reader and at any time.

An operation without a condition is in the log before it is known whether it is possible. All readers have to come to the same result
without looking at other objects, so an error is a value, and the state stays as it was.

| operation | effect | result |
|---|---|---|
| set(path, value) | sets a value; creates objects on the way; behind the end of an array it appends | None |
| make_object(path), make_array(path) | creates one, unless there is one | None |
| push(path, value, limit) | appends to an array, created if needed; with a limit drops from its head | its length |
| pop(path) | removes the last item of an array | the item |
| inc(path, delta) | adds to a number, 0 if there is none | the sum |
| delete(path) | removes the value | whether there was one |
| merge(path, patch) | merges a patch (RFC 7386) | None |

An object is a JSON object; it exists from its first operation that was possible. States share their unchanged parts, so none is ever
changed in place.

A path leads into an object: `a.b.0.c`. Its keys are separated by dots; a dot of a key is written `\\.`, a backslash `\\`. The empty path is
the object itself, so no path has an empty key alone; `a.` has one after `a`. In an array a key of digits is an index. Up to 64 keys.

`differences` compares two states. A change is (path, before, after), with MISSING where there was or is nothing. Objects are compared key
by key, arrays index by index; applied in order (set `after`, or delete) they turn one state into the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from boki_common.errors import InvalidArgument
from bokilib.records.arguments import check_text
from bokilib.records.codec import INT_MAX, INT_MIN, Json, JsonObject, check_json, copy_json
from bokilib.stacks import shown
from bokistore.errors import OperationFailed

Keys: TypeAlias = tuple[str, ...]

DEPTH: Final = 64
_KEY: Final = re.compile(r"(?:[^.\\]|\\[.\\])*")
_ESCAPE: Final = re.compile(r"\\(.)")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def parse(path: str) -> Keys:
    """Return the keys of a path. Raises InvalidArgument."""
    if not isinstance(path, str):
        raise InvalidArgument(f"expected a path like 'a.b.0', found {type(path).__name__}")
    return _parsed(path)


@lru_cache(maxsize=4_096)
def _parsed(path: str) -> Keys:
    check_text("a path", path)
    if path == "":
        return ()
    keys = []
    at = 0
    while True:
        found = _KEY.match(path, at)
        assert found is not None, "it matches nothing too"
        keys.append(_ESCAPE.sub(r"\1", found[0]))
        at = found.end()
        if at == len(path):
            break
        if path[at] != ".":
            raise InvalidArgument(
                f"expected '\\.' or '\\\\' for a dot or a backslash of a key, found {path[at : at + 2]!r} in {shown(path)}"
            )
        at += 1
    if len(keys) > DEPTH:
        raise InvalidArgument(f"expected a path of up to {DEPTH} keys, found {len(keys)}", found=len(keys))
    return tuple(keys)


def join(keys: Iterable[str | int]) -> str:
    """Return the path of keys."""
    return ".".join(str(key).replace("\\", "\\\\").replace(".", "\\.") for key in keys)


def index_of(key: str) -> int | None:
    """Return the array index that a key names, or None."""
    return int(key) if _INDEX.fullmatch(key) else None


class Missing:
    """The absence of a value: null is a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"  # there is one, also behind a copy


MISSING: Final = Missing()
MaybeJson: TypeAlias = Json | Missing


class Operation(msgspec.Struct, array_like=True, frozen=True):
    """Base of all operations. They are stored as `[name, path, …]`."""

    path: str


class Set(Operation, tag="set", frozen=True):
    """Sets a value."""

    value: Any  # JSON, checked by `checked`: msgspec knows no recursive aliases


class MakeObject(Operation, tag="make_object", frozen=True):
    """Creates an object."""


class MakeArray(Operation, tag="make_array", frozen=True):
    """Creates an array."""


class Push(Operation, tag="push", frozen=True):
    """Appends to an array; with a limit it keeps that many items."""

    value: Any  # JSON
    limit: int | None = None


class Pop(Operation, tag="pop", frozen=True):
    """Removes the last item of an array."""


class Inc(Operation, tag="inc", frozen=True):
    """Adds to a number."""

    delta: int | float


class Delete(Operation, tag="delete", frozen=True):
    """Removes the value at a path."""


class Merge(Operation, tag="merge", frozen=True):
    """Merges a patch."""

    patch: Any  # JSON


AnyOperation: TypeAlias = Set | MakeObject | MakeArray | Push | Pop | Inc | Delete | Merge


class Failed(msgspec.Struct, frozen=True):
    """An operation that changed nothing, and the reason."""

    operation: AnyOperation
    reason: str

    def error(self, name: str) -> OperationFailed:
        """Return the error for the caller of the operation."""
        kind = str(self.operation.__struct_config__.tag)
        return OperationFailed(
            f"{kind} at {self.operation.path!r} of {name!r} changed nothing: {self.reason}",
            object=name,
            path=self.operation.path,
            operation=kind,
            reason=self.reason,
        )


Result: TypeAlias = Json | Failed


class _Refused(Exception):
    """Raised within `apply` for an operation that is not possible."""


def checked(operation: AnyOperation) -> AnyOperation:
    """Return a copy of an operation that shares nothing with its caller. Raises InvalidArgument, NotEncodable."""
    parse(operation.path)
    if isinstance(operation, Set):
        return Set(operation.path, copy_json(check_json(operation.value)))
    if isinstance(operation, Merge):
        return Merge(operation.path, copy_json(check_json(operation.patch)))
    if isinstance(operation, Push):
        limit = operation.limit
        value = copy_json(check_json(operation.value))
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgument(f"expected a limit of 1 or more, or None, found {limit!r}")
        return Push(operation.path, value, limit)
    if isinstance(operation, Inc) and (
        isinstance(operation.delta, bool) or not isinstance(check_json(operation.delta), (int, float))
    ):
        raise InvalidArgument(f"expected a number to add, found {operation.delta!r}")
    return operation


def apply(value: JsonObject | Missing, operation: AnyOperation) -> tuple[JsonObject | Missing, Result]:
    """Return the object after an operation and the result, or the object as it was and a `Failed`. Never raises."""
    try:
        result: list[Json] = []
        keys = parse(operation.path)
        after = _changed(value, keys, 0, lambda found: _edit(found, operation, result), _creates(operation))
        if isinstance(after, Missing):
            if isinstance(value, Missing):
                return value, result[0]
            raise _Refused("an object is deleted as a whole by `store.delete(name)`")
        if not isinstance(after, dict):
            raise _Refused(f"an object is a JSON object, and would be {_kind(after)}")
        return after, result[0]
    except (_Refused, InvalidArgument, RecursionError) as refused:
        return value, Failed(operation, str(refused))


def merged(target: Json, patch: Json) -> Json:
    """Return a value after a patch: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def look(value: JsonObject | Missing, keys: Keys) -> MaybeJson:
    """Return the value at a path, or MISSING."""
    found: MaybeJson = value
    for key in keys:
        if isinstance(found, dict):
            found = found.get(key, MISSING)
        elif isinstance(found, list):
            index = index_of(key)
            found = found[index] if index is not None and index < len(found) else MISSING
        else:
            return MISSING
    return found


def _creates(operation: AnyOperation) -> bool:
    return not isinstance(operation, (Pop, Delete))


def _changed(value: MaybeJson, keys: Keys, at: int, edit: Callable[[MaybeJson], MaybeJson], creates: bool) -> MaybeJson:
    """Return a copy of the values on the way to a path, with the value there edited; the rest is shared."""
    if at == len(keys):
        return edit(value)
    key = keys[at]
    if isinstance(value, Missing):
        if not creates:
            return MISSING if edit(MISSING) is MISSING else value
        value = {}
    if isinstance(value, dict):
        child: MaybeJson = value.get(key, MISSING)
        new = _changed(child, keys, at + 1, edit, creates)
        if new is child:
            return value
        copied = dict(value)
        if isinstance(new, Missing):
            del copied[key]
        else:
            copied[key] = new
        return copied
    if isinstance(value, list):
        return _changed_array(value, keys, at, edit, creates)
    raise _Refused(f"{key!r} is wanted of {_kind(value)}")


def _changed_array(
    value: list[Json], keys: Keys, at: int, edit: Callable[[MaybeJson], MaybeJson], creates: bool
) -> MaybeJson:
    index = index_of(keys[at])
    if index is None:
        raise _Refused(f"an array has indexes, and no {keys[at]!r}")
    if index > len(value):
        raise _Refused(f"the array ends at {len(value)}, and {index} is behind it")
    child: MaybeJson = value[index] if index < len(value) else MISSING
    new = _changed(child, keys, at + 1, edit, creates)
    if new is child:
        return value
    copied = list(value)
    if isinstance(new, Missing):
        del copied[index]
    elif index == len(value):
        copied.append(new)
    else:
        copied[index] = new
    return copied


def _edit(found: MaybeJson, operation: AnyOperation, result: list[Json]) -> MaybeJson:
    """Return the new value for `found`, and append the operation's result to `result`."""
    if isinstance(operation, Inc):
        after: MaybeJson = _sum(found, operation.delta)
        result.append(after if not isinstance(after, Missing) else None)
        return after
    if isinstance(operation, Push):
        items = _array(found, "pushed to")
        pushed = [*items, operation.value]
        result.append(min(len(pushed), operation.limit or len(pushed)))
        return pushed if operation.limit is None else pushed[-operation.limit :]
    if isinstance(operation, Pop):
        items = _array(found, "popped from")
        if not items:
            raise _Refused("there is nothing to pop")
        result.append(items[-1])
        return items[:-1]
    if isinstance(operation, Delete):
        result.append(found is not MISSING)
        return MISSING
    result.append(None)
    if isinstance(operation, Set):
        return _json(operation.value)
    if isinstance(operation, Merge):
        return merged(None if isinstance(found, Missing) else found, _json(operation.patch))
    wanted: Json = {} if isinstance(operation, MakeObject) else []
    if isinstance(found, Missing):
        return wanted
    if type(found) is not type(wanted):
        raise _Refused(f"there is {_kind(found)} already")
    return found


def _json(value: Any) -> Json:
    """Narrow a value that was checked when it was made, or that came from a record."""
    json: Json = value
    return json


def _array(found: MaybeJson, what: str) -> list[Json]:
    if isinstance(found, Missing):
        return []
    if not isinstance(found, list):
        raise _Refused(f"{_kind(found)} cannot be {what}")
    return found


def _sum(found: MaybeJson, delta: int | float) -> MaybeJson:
    if isinstance(found, Missing):
        found = 0
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _Refused(f"nothing can be added to {_kind(found)}")
    try:
        total = found + delta
    except OverflowError as fault:
        raise _Refused("the sum is no number that can be stored") from fault
    if (isinstance(total, float) and not math.isfinite(total)) or (
        isinstance(total, int) and not INT_MIN <= total <= INT_MAX
    ):
        raise _Refused("the sum is no number that can be stored")
    return total


def _kind(value: MaybeJson) -> str:
    """Name the kind of a value, for people."""
    if isinstance(value, Missing):
        return "nothing"
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


class Change(NamedTuple):
    """A path at which two states differ."""

    path: str
    before: MaybeJson
    after: MaybeJson


def differences(before: JsonObject | Missing, after: JsonObject | Missing) -> list[Change]:
    """Return the changes in the order in which they can be applied; their values are copies.

    If one of the states does not exist, it is one change with the empty path.
    """
    found: list[Change] = []
    _compare((), before, after, found)
    return [Change(change.path, _copy(change.before), _copy(change.after)) for change in found]


def _copy(value: MaybeJson) -> MaybeJson:
    return value if isinstance(value, Missing) else copy_json(value)


def _compare(keys: tuple[str | int, ...], before: MaybeJson, after: MaybeJson, found: list[Change]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            _compare((*keys, key), before.get(key, MISSING), after.get(key, MISSING), found)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            if index < min(len(before), len(after)):
                _compare((*keys, index), before[index], after[index], found)
            elif index < len(after):
                found.append(Change(join((*keys, index)), MISSING, after[index]))
        for index in reversed(range(len(after), len(before))):
            found.append(Change(join((*keys, index)), before[index], MISSING))
    elif not same(before, after):
        found.append(Change(join(keys), before, after))


def same(one: MaybeJson, other: MaybeJson) -> bool:
    """Return whether two values are the same JSON: True is not 1, and 1.0 is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(left, right) for left, right in zip(one, other, strict=True))
    return one == other
