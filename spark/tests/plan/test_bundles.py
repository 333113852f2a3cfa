"""Bundles keep order and small size, and have each partition once; ten thousand terms are planned and read in few tasks."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_logbook.scan.facts import COMMITTED
from boki_logbook.scan.limited import limited
from boki_logbook.scan.partitions import bounds_of, cut
from boki_logbook.state.state import DecisionState
from boki_logbook.testing.cluster import RecordSpec, RunSpec
from boki_logbook.testing.plans import apply, begin, everything, plan_of
from boki_spark.plan.bundles import BUNDLE, BUNDLE_POSITIONS, UNBUNDLED, bundled, together

TERMS = 10_000


class Span(NamedTuple):
    start_pos: int
    stop_pos: int


@given(st.lists(st.integers(1, 3 * BUNDLE_POSITIONS) | st.integers(1, 40), max_size=300))
def test_each_partition_is_in_one_bundle_in_order_and_none_is_large(sizes: list[int]) -> None:
    partitions = [Span(7, 7 + size) for size in sizes]
    bundles = bundled(partitions)
    assert [one for bundle in bundles for one in bundle] == partitions
    assert all(
        len(bundle) == 1 or (len(bundle) <= BUNDLE and sum(stop - start for start, stop in bundle) <= BUNDLE_POSITIONS)
        for bundle in bundles
    )
    if len(sizes) <= UNBUNDLED:
        assert len(bundles) == len(sizes)
    assert len(bundled(partitions, least=len(sizes))) == len(sizes)


@pytest.fixture(scope="module")
def tiny() -> DecisionState:
    """Ten thousand terms of one record each."""
    state = DecisionState()
    for term in range(1, TERMS + 1):
        places = begin(state, term)
        apply(state, places, RunSpec(7, b"w".ljust(16, b"\0"), term, (RecordSpec((), b"x"),), 1))
        if term < TERMS:
            state.end_term(term)
    return state


def test_ten_thousand_terms_are_read_in_few_tasks_again_the_same(tiny: DecisionState) -> None:
    plan = plan_of(tiny, everything(tiny), COMMITTED)
    partitions = cut(plan)
    assert len(partitions) == TERMS == plan.rows
    bundles = bundled(partitions)
    assert len(bundles) <= TERMS / BUNDLE + 1
    assert all(len(pickle.dumps(bundle)) <= 256 * limits.KIB for bundle in bundles)
    assert bundled(cut(plan, bounds=bounds_of(partitions))) == bundles


def test_a_stream_goes_through_ten_thousand_terms_in_steps(tiny: DecisionState) -> None:
    asked = everything(tiny)
    steps = 0
    while asked.start != asked.end:
        plan = plan_of(tiny, asked, COMMITTED)
        end = limited(plan, max_rows=4_000)
        asked = asked._replace(start=end)
        steps += 1
    assert steps == 3


@given(st.lists(st.floats(0.001, 3.0), max_size=200), st.integers(1, 20))
def test_pieces_that_are_read_together_are_in_order_and_fill_no_task_twice(fills: list[float], least: int) -> None:
    bundles = together(fills, lambda one: one, least=least)
    assert [one for bundle in bundles for one in bundle] == fills
    assert all(len(bundle) == 1 or (sum(bundle) <= 1.001 and len(bundle) <= BUNDLE) for bundle in bundles)


def test_small_pieces_are_dealt_out_to_as_many_tasks_as_are_wanted() -> None:
    assert [len(one) for one in together([0.01] * 16, lambda one: one, least=4)] == [4, 4, 4, 4]
    assert [len(one) for one in together([0.01] * 3, lambda one: one, least=4)] == [1, 1, 1]
    assert [len(one) for one in together([0.01] * 16, lambda one: one)] == [16]
    assert together([], lambda one: 1.0) == []
