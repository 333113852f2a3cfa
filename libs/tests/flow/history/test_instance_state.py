"""Where a workflow stands."""

from __future__ import annotations

from bokiflow.history.instance_state import InstanceState, state_after, status_of
from bokiflow.model.flow_events import Claimed, Ended, Started, Stepped, Tombed
from bokiflow.model.outcomes import CANCELLED_OUTCOME, Outcome, failed

STARTED = Started("x", "n", "d", [], 0, owner="a")


def ended(outcome: Outcome) -> Ended:
    return Ended("x", 1, "n", "d", outcome, 0)


def test_the_newest_record_of_the_fence_has_the_holder() -> None:
    end, claim = ended(Outcome(1)), Claimed("x", "b", start=2)
    assert state_after(3, [STARTED]) == InstanceState(3, "a", newest=STARTED)
    assert state_after(4, [claim]) == InstanceState(4, "b", newest=claim)
    assert state_after(5, [Stepped("x", "0:1", "s", "", 0, Outcome(1)), end]) == InstanceState(5, "", end, newest=end)
    tomb = Tombed("x", end, 7, 8)
    assert state_after(9, [tomb]) == InstanceState(9, "", end, 8, tomb)
    assert state_after(6, []) is None
    starts = [
        InstanceState(3, "a", newest=STARTED).start,
        InstanceState(4, "b", newest=claim).start,
        InstanceState(9, "", end, 8, tomb).start,
    ]
    assert starts == [3, 2, 1]


def test_a_claim_that_gives_up_has_the_reason() -> None:
    given_up = state_after(4, [Claimed("x", "", blocked="NonDeterminism: …")])
    assert given_up is not None and status_of(given_up.ended, given_up.blocked) == "blocked"
    assert InstanceState(3, "a", newest=STARTED).blocked == ""


def test_ends_are_distinguished() -> None:
    ends = [None, ended(Outcome(1)), ended(failed(ValueError())), ended(CANCELLED_OUTCOME)]
    assert [status_of(one) for one in ends] == ["running", "completed", "failed", "cancelled"]
