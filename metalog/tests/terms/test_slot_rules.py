"""Slots on logs: shares by weight, the least movement, ranges and back, what people write."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.errors import InvalidArgument
from boki_metalog.terms import slot_rules

ALL_ON_0 = (0,) * limits.SLOTS
assignments = st.lists(st.tuples(st.integers(1, limits.SLOTS), st.integers(0, 6)), min_size=1, max_size=12).map(
    lambda runs: ([log for length, log in runs for _ in range(length)] * limits.SLOTS)[: limits.SLOTS]
)
weights_of_logs = st.dictionaries(st.integers(0, 6), st.integers(0, 9), min_size=1).filter(lambda w: any(w.values()))


@given(assignments, weights_of_logs)
def test_each_log_gets_its_share_within_one_slot(logs: list[int], weights: dict[int, int]) -> None:
    after = slot_rules.spread(logs, weights)
    assert slot_rules.spread(after, weights) == after, "spreading again moves nothing"
    assert slot_rules.concerned(after, after) == ()
    counts = Counter(after)
    assert sum(counts.values()) == limits.SLOTS
    for log, weight in weights.items():
        exact = Fraction(limits.SLOTS * weight, sum(weights.values()))
        assert abs(counts[log] - exact) < 1
        assert weight > 0 or counts[log] == 0
    assert set(counts) <= set(weights)


@given(assignments, weights_of_logs)
def test_no_spread_with_such_shares_moves_fewer_slots(logs: list[int], weights: dict[int, int]) -> None:
    """The lower bound: what a log holds beyond its share rounded up must go, and what it lacks to it rounded down must
    come. Between the two, only as many logs may be rounded up as there are slots for."""
    after = slot_rules.spread(logs, weights)
    moved = sum(old != new for old, new in zip(logs, after, strict=True))
    held, total = Counter(logs), sum(weights.values())
    exact = {log: Fraction(limits.SLOTS * weight, total) for log, weight in weights.items()}
    fractional = [log for log, share in exact.items() if share.denominator != 1]
    ups = limits.SLOTS - sum(int(share) for share in exact.values())
    useful = min(ups, sum(held[log] > int(exact[log]) for log in fractional))
    stay = sum(min(held[log], int(exact[log])) for log in exact) + useful
    assert moved == limits.SLOTS - stay


@given(assignments, st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), min_size=1, unique_by=lambda one: one[0]))
def test_the_order_in_which_weights_are_named_does_not_matter(logs: list[int], pairs: list[tuple[int, int]]) -> None:
    assert slot_rules.spread(logs, dict(pairs)) == slot_rules.spread(logs, dict(reversed(pairs)))


@given(assignments)
def test_ranges_and_back(logs: list[int]) -> None:
    ranges = slot_rules.to_ranges(logs)
    assert slot_rules.per_slot(ranges) == tuple(logs)
    assert all(one.log != other.log for one, other in pairwise(ranges)), "the fewest ranges"


def test_a_second_log_takes_half_from_the_end() -> None:
    after = slot_rules.spread(ALL_ON_0, {0: 1, 1: 1})
    assert slot_rules.to_ranges(after) == ((0, 511, 0), (512, 1023, 1))
    assert slot_rules.concerned(ALL_ON_0, after) == (0, 1)
    third = slot_rules.spread(after, {0: 1, 1: 1, 2: 1})
    assert sum(old != new for old, new in zip(after, third, strict=True)) == 341
    assert slot_rules.concerned(after, third) == (0, 1, 2)


def test_logs_without_weight_lose_all_slots() -> None:
    two = slot_rules.spread(ALL_ON_0, {0: 1, 1: 1})
    assert set(slot_rules.spread(two, {0: 1, 1: 0})) == {0}
    assert set(slot_rules.spread(two, {1: 3})) == {1}, "a log that is not named has none"


@pytest.mark.parametrize("weights", [{}, {0: 0}, {0: -1}, {0: slot_rules.WEIGHT_MAX + 1}])
def test_weights_that_cannot_be(weights: dict[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="weight"):
        slot_rules.spread(ALL_ON_0, weights)


def test_moving_chosen_slots() -> None:
    after = slot_rules.moved(ALL_ON_0, (5, 6, 1023), 3)
    assert slot_rules.to_ranges(after) == ((0, 4, 0), (5, 6, 3), (7, 1022, 0), (1023, 1023, 3))
    assert slot_rules.concerned(ALL_ON_0, after) == (0, 3)
    with pytest.raises(InvalidArgument, match="1024"):
        slot_rules.moved(ALL_ON_0, (1024,), 3)


def test_what_people_write() -> None:
    assert slot_rules.parse_slots("0-2, 7,1-3") == (0, 1, 2, 7, 3)
    assert slot_rules.parse_weights("0=1, 1=2") == {0: 1, 1: 2}
    assert slot_rules.slots_text([(0, 2), (7, 7)]) == "0-2,7" and slot_rules.slots_text([]) == "none"


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-2", "1024", "0-1024", "1,,2"])
def test_slots_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidArgument, match="slots"):
        slot_rules.parse_slots(text)


@pytest.mark.parametrize("text", ["", "1", "0=", "0=x", "0=1,0=2", "0=-1"])
def test_weights_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidArgument, match="weight"):
        slot_rules.parse_weights(text)
