"""Habits: every activity is some client's, and each client appends."""

from __future__ import annotations

from random import Random

from boki_sim.work.habits import ACTIVITIES, BURST, LATER_ACTIVITIES, MANY, ONE, draw_habits
from boki_sim.work.operations import TAIL, TRIM


def test_every_activity_is_drawn_and_everybody_appends() -> None:
    drawn = [draw_habits(Random(seed)) for seed in range(60)]
    assert all(habits.weights[ONE] for habits in drawn)
    for kind in (*ACTIVITIES, *LATER_ACTIVITIES, TRIM):
        assert sum(habits.weights[kind] > 0 for habits in drawn) > 0, kind
    assert {habits.forget > 0 for habits in drawn} == {False, True}
    assert len({habits.give_up_s for habits in drawn}) > 1


def test_a_crowd_appends_and_reads_one_record_at_a_time() -> None:
    for seed in range(20):
        habits = draw_habits(Random(seed), crowded=True)
        assert (habits.tasks, habits.weights[BURST], habits.weights[MANY]) == (4, 0, 0)
        assert habits.weights[ONE]
        assert habits.weights[TAIL]
