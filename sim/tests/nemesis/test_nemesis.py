"""Each kind of fault happens, is counted, and is over after its time or at the healing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boki_sim.faults.faults import CLOCKS, CONNECTIONS, DAMAGE, DISKS, METADATA, PROCESSES, SLEEP, Fault
from boki_sim.outcome import Outcome
from boki_sim.run import run_seed
from boki_sim.world.steps import BARRIER_ANSWERED, BARRIER_ASKED, ENTRY_CARRIED

pytestmark = pytest.mark.blocking_allowed  # the simulator's guard stands in for it

TARGETS = {
    "crash": "client-1",
    "partition": "engine-1,bookie-1",
    "clog": "engine-1>bookie-1",
    "reset": "engine-1>sequencer-1",
    "metadata-down": "all",
    **dict.fromkeys(("slow-disk", "disk-error", "disk-full"), "bookie-1"),
    **dict.fromkeys(("expire", "cut-off", "lost-answer", "lost-request", "delayed-write"), "sequencer-1"),
}


PLAIN_CONNECTIONS = tuple(kind for kind in reversed(CONNECTIONS) if kind != "fence-race")


def run_with(*script: Fault) -> Outcome:
    return run_seed(2, "calm", script=script, work_s=1.5)


@pytest.mark.parametrize(
    "kinds", [PROCESSES, PLAIN_CONNECTIONS, DISKS, METADATA + CLOCKS, SLEEP], ids=lambda kinds: kinds[0]
)
def test_each_kind_happens_and_the_cluster_holds(kinds: tuple[str, ...]) -> None:
    script = [Fault(1.2 + at, kind, TARGETS.get(kind, "engine-1"), 0.5, 20.0) for at, kind in enumerate(kinds)]
    outcome = run_seed(2, "calm", script=script, work_s=1.2 + len(kinds))
    assert outcome.ok, outcome.violations
    assert sorted(name.partition(" × ")[0] for name in outcome.happened) == sorted(kinds)
    assert set(outcome.happened.values()) == {1}


@pytest.mark.parametrize("kind", DAMAGE)
def test_one_bookie_loses_data_and_the_cluster_holds(kind: str) -> None:
    outcome = run_with(Fault(1.2, kind, "bookie-2", 0.5, 3.0))
    assert outcome.ok, outcome.violations
    assert sum(outcome.happened.values()) == 1


def test_no_second_machine_loses_data_and_none_after_a_wipe() -> None:
    outcome = run_with(
        Fault(1.0, "flip-bits", "bookie-2", 0.0, 3.0),
        Fault(1.1, "misdirect", "bookie-1"),
        Fault(1.2, "wipe", "bookie-2", 0.2),
        Fault(1.45, "flip-bits", "bookie-2", 0.0, 3.0),
    )
    assert {name.partition(" × ")[0]: count for name, count in outcome.happened.items()} == {"flip-bits": 1, "wipe": 1}


def test_what_lasts_for_ever_ends_when_the_work_is_over() -> None:
    outcome = run_with(
        Fault(0.9, "partition", "engine-1", 1e6),
        Fault(1.0, "power", "bookie-1", 1e6),
        Fault(1.1, "pause", "bookie-2", 1e6),
        Fault(1.2, "cut-off", "sequencer-1", 1e6),
        Fault(1.3, "disk-full", "bookie-3", 1e6, 10.0),
        Fault(1.4, "slow-link", "client-1", 1e6, 1_000.0),
    )
    assert outcome.ok, outcome.violations
    assert len(outcome.happened) == 6
    assert outcome.virtual_s < 200


def test_the_dead_cannot_be_killed_and_the_unknown_not_be_hit() -> None:
    twice = run_with(Fault(1.0, "power", "bookie-1", 0.9), Fault(1.2, "kill", "bookie-1", 0.1))
    assert sum(twice.happened.values()) == 1
    unknown = run_with(Fault(1.0, "isolate", "bookie-77", 0.1))
    assert "found 'bookie-77'" in unknown.violations[0]


@pytest.mark.parametrize("role", ["engine", "sequencer"])
def test_while_an_entry_is_carried_the_role_is_met_that_was_meant(role: str, planted: Any) -> None:
    planted.shape(lambda drawn: replace(drawn, engine=replace(drawn.engine, carried_entry_bytes=4_096)))
    script = [Fault(0.1 * nth, "power", f"{role}-1", 0.1, step=ENTRY_CARRIED, nth=1) for nth in range(1, 6)]
    outcome = run_seed(2, "calm", script=script, work_s=4)
    assert outcome.ok, outcome.violations
    assert outcome.happened["power × entry carried"] >= 1
    lines = [line for line in outcome.trace if " fault power " in line]
    assert [line for line in lines if f"{role}-" not in line] == []


@pytest.mark.parametrize("step", [BARRIER_ASKED, BARRIER_ANSWERED])
@pytest.mark.parametrize("kind", ["kill", "partition"])
def test_faults_meet_a_sequencer_or_an_engine_at_a_barrier(step: str, kind: str) -> None:
    target = "bookie-1,client-1" if kind == "partition" else "bookie-1"
    outcome = run_seed(2, "calm", script=[Fault(0.0, kind, target, 0.3, step=step, nth=3)], work_s=4, keep_trace=True)
    assert outcome.ok, outcome.violations
    assert outcome.happened == {f"{kind} × {step}": 1}
    (lines,) = [line for line in outcome.trace if f" fault {kind} " in line]
    assert f" {kind} sequencer-" in lines or f" {kind} engine-" in lines


def test_a_fault_with_a_step_waits_for_it_and_meets_who_takes_part() -> None:
    outcome = run_with(
        Fault(0.0, "power", "sequencer-1", 0.3, step="journal flush", nth=40),
        Fault(0.0, "reset", "client-1>client-2", step="metalog add", nth=3),
        Fault(0.0, "kill", "bookie-1", 0.3, step="term over", nth=9_999),
    )
    assert outcome.ok, outcome.violations
    assert outcome.happened == {"power × journal flush": 1, "reset × metalog add": 1}
    lines = [line for line in outcome.trace if " fault power " in line]
    assert [line for line in lines if "bookie-" not in line] == []
