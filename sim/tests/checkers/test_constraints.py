"""The graph by itself: cycles, clocks, and what is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_sim.checkers.constraints import Constraints, Step
from boki_sim.checkers.history import Operation


def calls(*spans: tuple[float, float | None]) -> list[Operation]:
    return [Operation("c", "read", "b", start, end) for start, end in spans]


def test_no_cycle_in_what_follows_one_another() -> None:
    graph = Constraints(3)
    graph.before(0, "x", 1)
    graph.before(1, "x", 2)
    assert graph.cycle() == []


def test_a_cycle_is_printed_in_its_steps_without_the_instants() -> None:
    graph = Constraints(2)
    graph.clock(calls((0, 1), (2, 3)), "before", entering=(0, 1), leaving=(0, 1))
    graph.before(1, "missed", 0)
    assert sorted(graph.cycle()) == [Step(0, "before", 1), Step(1, "missed", 0)]
    graph.forget(1)
    assert graph.cycle() == []


def test_calls_that_overlap_or_touch_are_in_no_order() -> None:
    for spans in (((0, 2), (1, 3)), ((0, 1), (1, 2)), ((0, None), (5, 6))):
        graph = Constraints(2)
        graph.clock(calls(*spans), "before", entering=(0, 1), leaving=(0, 1))
        graph.before(1, "missed", 0)
        assert graph.cycle() == [], spans


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] != edge[1]), max_size=14))
def test_an_order_is_found_exactly_where_there_is_no_cycle(edges: list[tuple[int, int]]) -> None:
    graph = Constraints(8)
    for first, second in edges:
        graph.before(first, "x", second)
    assert graph._is_ordered() == (not graph._component())


def test_of_several_cycles_one_of_the_fewest_calls_is_reported() -> None:
    graph = Constraints(5)
    for first, second in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 4)):
        graph.before(first, f"{first}", second)
    assert [step.before for step in sorted(graph.cycle())] == [0, 1, 4]
