"""Shrinking against failures whose cause is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_sim.faults.faults import Fault
from boki_sim.shrink import SHORTEST_S, shrink


def fault(number: int, seconds: float = 0.0) -> Fault:
    return Fault(float(number), "kill", f"bookie-{number}", seconds)


@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=4))
def test_exactly_the_causes_remain(count: int, wanted: set[int]) -> None:
    script = [fault(number) for number in range(count)]
    causes = {fault(number) for number in wanted if number < count}
    assert set(shrink(script, lambda part: causes <= set(part), tries=2_000)) == causes


def test_what_lasts_is_made_shorter() -> None:
    script = [fault(1, 10.0), fault(2, 10.0)]
    (smallest,) = shrink(script, lambda part: any(one.target == "bookie-2" and one.seconds > 1 for one in part))
    assert smallest.target == "bookie-2"
    assert 1 < smallest.seconds <= 2


def test_without_tries_the_script_stays_as_it_is() -> None:
    asked = []

    def fails(part: list[Fault]) -> bool:
        asked.append(part)
        return len(part) > 3

    script = [fault(number, SHORTEST_S) for number in range(20)]
    assert len(shrink(script, fails, tries=3)) > 3
    assert len(asked) == 3
