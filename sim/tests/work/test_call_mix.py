"""CallMix: every activity is some client's, and each client appends."""

from __future__ import annotations

from random import Random

from boki_sim.work.call_mix import ACTIVITIES, BURST, LATER_ACTIVITIES, MANY, ONE, draw_call_mix
from boki_sim.work.operations import TAIL, TRIM


def test_every_activity_is_drawn_and_everybody_appends() -> None:
    drawn = [draw_call_mix(Random(seed)) for seed in range(60)]
    assert all(mix.weights[ONE] for mix in drawn)
    for kind in (*ACTIVITIES, *LATER_ACTIVITIES, TRIM):
        assert sum(mix.weights[kind] > 0 for mix in drawn) > 0, kind
    assert {mix.forget > 0 for mix in drawn} == {False, True}
    assert len({mix.give_up_s for mix in drawn}) > 1


def test_a_crowd_appends_and_reads_one_record_at_a_time() -> None:
    for seed in range(20):
        mix = draw_call_mix(Random(seed), crowded=True)
        assert (mix.tasks, mix.weights[BURST], mix.weights[MANY]) == (4, 0, 0)
        assert mix.weights[ONE]
        assert mix.weights[TAIL]
