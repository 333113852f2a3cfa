"""Logs are rolled and slots are moved while clients work, with controllers beside; nothing is lost."""

from __future__ import annotations

import pytest

from boki_sim.clusters.shape import draw_shape
from boki_sim.faults.faults import Fault
from boki_sim.run import run_seed
from boki_sim.world.randomness import stream

pytestmark = [pytest.mark.blocking_allowed, pytest.mark.timeout(300)]  # the guard stands in; machines may be busy


def test_rolls_and_moves_happen_and_the_cluster_holds() -> None:
    seed = next(seed for seed in range(1, 100) if draw_shape(stream(seed, "shape")).logs > 1)
    script = [Fault(1.5, "roll", "all"), Fault(2.0, "move", "all"), Fault(2.5, "roll", "all", step="data add")]
    outcome = run_seed(seed, "calm", script=script, work_s=4)
    assert outcome.ok, outcome.violations
    assert sum(outcome.happened.values()) == 3
    assert outcome.terms > 3


def test_seeds_have_several_logs_and_controllers_and_a_sequencer_for_each_log() -> None:
    shapes = [draw_shape(stream(seed, "shape")) for seed in range(1, 200)]
    assert {shape.logs for shape in shapes} == {1, 2, 3}
    assert {shape.controllers for shape in shapes} == {0, 1, 2}
    assert all(shape.sequencers >= shape.logs for shape in shapes)
