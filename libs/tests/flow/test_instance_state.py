"""Where a workflow stands."""

from __future__ import annotations

from bokiflow.flow_events import Claimed, Ended, Started, Stepped
from bokiflow.instance_state import Held, held, status_of
from bokiflow.outcomes import CANCELLED_OUTCOME, Outcome, failed

STARTED = Started("x", "n", "d", [], 0, owner="a")


def ended(outcome: Outcome) -> Ended:
    return Ended("x", 1, "n", "d", outcome, 0)


def test_the_newest_record_of_the_fence_says_who_holds_it() -> None:
    assert held(3, [STARTED]) == Held(3, "a")
    assert held(4, [Claimed("x", "b")]) == Held(4, "b")
    assert held(5, [Stepped("x", "0:1", "s", "", 0, Outcome(1)), ended(Outcome(1))]) == Held(5, "", ended(Outcome(1)))
    assert held(6, []) is None


def test_ends_are_told_apart() -> None:
    ends = [None, ended(Outcome(1)), ended(failed(ValueError())), ended(CANCELLED_OUTCOME)]
    assert [status_of(one) for one in ends] == ["running", "completed", "failed", "cancelled"]
