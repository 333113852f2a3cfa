"""Where a workflow stands."""

from __future__ import annotations

from bokiflow.history.instance_state import Held, held, status_of
from bokiflow.model.flow_events import Claimed, Ended, Started, Stepped, Tombed
from bokiflow.model.outcomes import CANCELLED_OUTCOME, Outcome, failed

STARTED = Started("x", "n", "d", [], 0, owner="a")


def ended(outcome: Outcome) -> Ended:
    return Ended("x", 1, "n", "d", outcome, 0)


def test_the_newest_record_of_the_fence_has_the_holder() -> None:
    end, claim = ended(Outcome(1)), Claimed("x", "b", start=2)
    assert held(3, [STARTED]) == Held(3, "a", newest=STARTED)
    assert held(4, [claim]) == Held(4, "b", newest=claim)
    assert held(5, [Stepped("x", "0:1", "s", "", 0, Outcome(1)), end]) == Held(5, "", end, newest=end)
    tomb = Tombed("x", end, 7, 8)
    assert held(9, [tomb]) == Held(9, "", end, 8, tomb)
    assert held(6, []) is None
    starts = [Held(3, "a", newest=STARTED).start, Held(4, "b", newest=claim).start, Held(9, "", end, 8, tomb).start]
    assert starts == [3, 2, 1]


def test_a_claim_that_gives_up_has_the_reason() -> None:
    given_up = held(4, [Claimed("x", "", blocked="NonDeterminism: …")])
    assert given_up is not None and status_of(given_up.ended, given_up.blocked) == "blocked"
    assert Held(3, "a", newest=STARTED).blocked == ""


def test_ends_are_distinguished() -> None:
    ends = [None, ended(Outcome(1)), ended(failed(ValueError())), ended(CANCELLED_OUTCOME)]
    assert [status_of(one) for one in ends] == ["running", "completed", "failed", "cancelled"]
