"""What records join and expect."""

from __future__ import annotations

from bokiflow.model import records
from bokiflow.model.flow_events import Claimed, Emitted, Ended, Signalled, Started
from bokiflow.model.outcomes import Outcome
from bokilib.records import tags

PLACE = records.InstanceStreams("x", "g")
K = tags.partition_of("x")


def started(owner: str) -> Started:
    return Started("x", "n", "d", [], 0, group="g", owner=owner, attributes={"color": "red"})


def test_a_start_with_an_owner_expects_its_partition_and_one_without_joins_it() -> None:
    mine, others = records.start(started("me"), 7), records.start(started(""), 0)
    joined = ("flow/own/x", "flow/wf/x", f"flow/part/g/{K}", f"flow/attr/{K}/color=red")
    assert (mine.tags, dict(mine.expect)) == (joined, {"flow/own/x": None, f"flow/partown/g/{K}": 7})
    assert (others.tags, dict(others.expect)) == ((*joined, f"flow/to/g/{K}"), {"flow/own/x": None})


def test_a_claim_expects_the_claim_before_and_its_partition() -> None:
    one = records.claim(PLACE, Claimed("x", "me"), 5, 7)
    assert (one.tags, dict(one.expect)) == (("flow/own/x",), {"flow/own/x": 5, f"flow/partown/g/{K}": 7})


def test_the_executor_expects_its_fence_without_joining_it_until_the_end() -> None:
    held = {"flow/own/x": 5}
    emitted = records.worker_event(PLACE, Emitted("x", "0:1", "t", 1), held)
    assert (emitted.tags, dict(emitted.expect)) == (("flow/wf/x", "flow/out/x/t"), held)
    end = records.end(PLACE, Ended("x", 1, "n", "d", Outcome(1), 0), held)
    assert (end.tags, dict(end.expect)) == (("flow/own/x", "flow/wf/x", f"flow/done/g/{K}"), held)


def test_what_others_say_has_no_condition() -> None:
    one = records.send(PLACE, Signalled("x", "t", 1))
    assert (one.tags, dict(one.expect)) == (("flow/wf/x", f"flow/to/g/{K}"), {})
    assert PLACE.partition_owner == f"flow/partown/g/{K}"
