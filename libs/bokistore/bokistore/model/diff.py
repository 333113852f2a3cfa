"""Differences between two states of an object. Pure.

A change is (path, before, after), with MISSING where there was or is nothing. Objects are compared key by key, arrays index by index;
applied in order (set `after`, or delete) they turn one state into the other.
"""

from __future__ import annotations

from typing import NamedTuple

from bokilib.records.codec import JsonObject, copy_json
from bokistore.model.dotted_paths import join
from bokistore.model.operations import MISSING, MaybeJson, Missing


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
