"""The life of a workflow, with and without a kept history."""

from __future__ import annotations

from bokiflow.model.flow_events import Claimed, Ended, Started
from bokiflow.model.outcomes import Outcome
from bokiflow_tools.timeline import Life

STARTED = Started("x", "f", "", [[], {}], 1_000, owner="a")
ENDED = Ended("x", 1, "f", "", Outcome(1), 2_000)


def test_who_runs_it() -> None:
    assert Life("x", STARTED, [], None, [], 1).owner == "a"
    assert Life("x", STARTED, [(5, Claimed("x", "b"))], None, [], 1).owner == "b"
    assert Life("x", STARTED, [], ENDED, [], 1).owner == ""
    assert Life("x", None, [], None, [], 1).owner == ""


def test_without_its_start_it_has_its_name_from_its_end() -> None:
    found = Life("x", None, [], ENDED, None, 1)
    assert (found.name, found.status, found.timeline) == ("f", "completed", None)
    assert Life("x", None, [], None, None, 1).name == ""
