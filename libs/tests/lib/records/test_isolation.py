"""Expectations of transactions, against the rule of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
from bokilib.records.isolation import check_isolation, expectations, holds, lowest

TAGS = st.sampled_from("abc")
EXPECTED = st.dictionaries(TAGS, st.one_of(st.none(), st.integers(1, 9)))


def test_snapshot_expects_what_was_written_and_serializable_what_was_read_too() -> None:
    assert expectations("snapshot", 7, read=["a", "b"], written=["b", "c"]) == {"b": 7, "c": 7}
    assert expectations("serializable", 7, read=["a", "b"], written=["b", "c"]) == {"b": 7, "c": 7, "a": 7}


@given(st.lists(EXPECTED), st.dictionaries(TAGS, st.integers(1, 9)))
def test_the_lowest_of_several_holds_exactly_when_all_of_them_hold(
    several: list[dict[str, int | None]], newest: dict[str, int]
) -> None:
    assert holds(lowest(several), newest) == all(holds(one, newest) for one in several)


def test_of_two_snapshots_the_lower_is_expected() -> None:
    assert lowest([{"a": 7, "b": 3}, {"a": 5}, {"b": 4, "c": None}, {"c": 9}]) == {"a": 5, "b": 3, "c": None}


def test_what_is_no_isolation() -> None:
    assert check_isolation("snapshot") == "snapshot"
    with pytest.raises(boki.InvalidArgument, match="serializable"):
        check_isolation("repeatable read")
