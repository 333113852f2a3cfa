"""Digests of arguments."""

from __future__ import annotations

from bokiflow.model.outcomes import NONE, digest, digest_of_call


def test_the_order_of_keys_does_not_count_and_values_do() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


def test_arguments_that_are_no_json_are_not_compared() -> None:
    assert digest_of_call((object(),), {}) == NONE
    assert digest_of_call((1,), {"b": 2}) != digest_of_call((1,), {"b": 3})
