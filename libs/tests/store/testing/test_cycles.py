"""The check of histories, on anomalies by name. What it finds in stores with a broken rule is in `test_histories`."""

from __future__ import annotations

import pytest

from bokistore.testing.cycles import Transacted, anomalies


def one(number: int, read: dict[str, list[int]], **appended: int) -> Transacted:
    return Transacted(number, read, appended)


@pytest.mark.parametrize(
    ("what", "history", "last", "snapshot", "serializable"),
    [
        ("lost update", [one(1, {"a": []}, a=1), one(2, {"a": []}, a=2)], {"a": [1, 2]}, True, True),
        ("write skew", [one(1, {"a": []}, b=1), one(2, {"b": []}, a=2)], {"a": [2], "b": [1]}, False, True),
        ("read skew", [one(1, {}, a=1, b=1), one(2, {"a": [1], "b": []})], {"a": [1], "b": [1]}, True, True),
        (
            "long fork",
            [one(1, {}, a=1), one(2, {}, b=2), one(3, {"a": [1], "b": []}), one(4, {"a": [], "b": [2]})],
            {"a": [1], "b": [2]},
            True,
            True,
        ),
        ("dirty read", [one(1, {"a": [9]})], {"a": []}, True, True),
        ("an append twice", [one(1, {}, a=1)], {"a": [1, 1]}, True, True),
        ("an append that is gone", [one(1, {}, a=1)], {"a": []}, True, True),
        ("nothing", [one(1, {"a": []}, a=1), one(2, {"a": [1]}, a=2)], {"a": [1, 2]}, False, False),
    ],
)
def test_the_check_knows_anomalies_by_name(
    what: str, history: list[Transacted], last: dict[str, list[int]], snapshot: bool, serializable: bool
) -> None:
    assert bool(anomalies(history, last, serializable=False)) == snapshot, what
    assert bool(anomalies(history, last, serializable=True)) == serializable, what
