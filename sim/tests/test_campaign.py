"""Adding up outcomes, and telling one failure from another."""

from __future__ import annotations

from itertools import islice

from boki_sim.campaign import Summary, jobs, rules_of
from boki_sim.faults.faults import KINDS, PROFILES
from boki_sim.outcome import Outcome
from boki_sim.world.steps import STEPS


def test_seeds_go_through_the_profiles_in_turn() -> None:
    assert list(jobs(7, 3, ["calm", "harsh"])) == [(7, "calm"), (8, "harsh"), (9, "calm")]
    assert list(islice(jobs(1, None, ["disk"]), 2)) == [(1, "disk"), (2, "disk")]


def test_failures_are_compared_by_rule() -> None:
    assert rules_of(["1.5 s  [1 acked] ledger 7 [sic]", "2.5 s  [liveness] x"]) == {"1 acked", "liveness"}
    assert rules_of([]) == set()


def test_a_summary_adds_up() -> None:
    summary = Summary()
    summary.add(Outcome(1, "disk", [], happened={"kill × idle": 2}, operations=5, outcomes={"ok": 5}, virtual_s=3))
    summary.add(Outcome(2, "disk", [], 3.0, ["1 s  [liveness] x"], happened={"kill × checkpoint": 1, "kill × idle": 1}))
    printed = summary.as_json(wall_s=4)
    assert (printed["seeds"], printed["failed"], printed["seeds_per_s"], printed["operations"]) == (2, 1, 0.5, 5)
    assert {kind: steps for kind, steps in printed["faults"].items() if steps} == {"kill": {"checkpoint": 1, "idle": 3}}
    assert list(printed["faults"]) == [kind for kind in KINDS if kind in PROFILES["disk"]], "empty rows are shown"
    assert {step: kinds for step, kinds in printed["faults_by_step"].items() if kinds} == {
        "checkpoint": {"kill": 1},
        "idle": {"kill": 3},
    }
    assert list(printed["faults_by_step"]) == list(STEPS)
    assert summary.coverage() == (2, len(PROFILES["disk"]) * len(STEPS))
    assert printed["failures"][0]["replay"] == "boki sim replay 2 --profile disk --seconds 3"
