"""Who is given what: each record and gap once a subscription, in order, whatever is read twice."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokilib.follow.follow_rules import CURSOR_TAGS, Subscriptions


@pytest.fixture
def some() -> Subscriptions[str]:
    found: Subscriptions[str] = Subscriptions()
    found.add("a", 1, "A")
    found.add("b", 5, "B")
    return found


def test_a_record_is_given_to_each_of_its_tags_from_where_they_begin_and_once(some: Subscriptions[str]) -> None:
    assert some.of_record(("a", "b", "other", 7), 4) == ["A"]
    assert some.of_record(("a", "b"), 5) == ["A", "B"]
    assert some.of_record(("a", "b"), 5) == []
    assert some.starts() == [("a", 6), ("b", 6)]


def test_who_comes_later_is_given_what_others_were_given_before(some: Subscriptions[str]) -> None:
    some.of_record(("a", "c"), 4)
    some.add("c", 1, "C")
    assert some.of_record(("a", "c"), 4) == ["C"]


def test_a_gap_is_its_tags_and_once_and_what_was_lost_is_everybodys(some: Subscriptions[str]) -> None:
    assert some.of_gap("b", 1, 9) == ["B"]
    assert some.of_gap("b", 1, 9) == [] and some.of_record(("b",), 9) == []
    assert some.of_record(("b",), 10) == ["B"]
    assert some.of_gap(None, 12, 12) == ["A", "B"]


def test_who_is_gone_is_given_nothing(some: Subscriptions[str]) -> None:
    some.discard("a")
    some.discard("never")
    assert some.of_record(("a",), 9) == [] and some.of_gap(None, 1, 20) == ["B"]
    assert "a" not in some and len(some) == 1


def test_bounds(some: Subscriptions[str]) -> None:
    with pytest.raises(InvalidArgument, match="already"):
        some.add("a", 1, "again")
    with pytest.raises(InvalidArgument, match="at least 1"):
        some.add("c", 0, "C")
    for number in range(CURSOR_TAGS - 2):
        assert not some.full
        some.add(str(number), 1, "")
    assert some.full
