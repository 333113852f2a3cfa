"""Habits: every activity is some client's, and each client appends."""

from __future__ import annotations

from random import Random

from boki_sim.habits import ACTIVITIES, LATER_ACTIVITIES, ONE, draw_habits
from boki_sim.operations import TRIM


def test_every_activity_is_drawn_and_everybody_appends() -> None:
    drawn = [draw_habits(Random(seed)) for seed in range(60)]
    assert all(habits.weights[ONE] for habits in drawn)
    for kind in (*ACTIVITIES, *LATER_ACTIVITIES, TRIM):
        assert sum(habits.weights[kind] > 0 for habits in drawn) > 0, kind
    assert {habits.forget > 0 for habits in drawn} == {False, True}
    assert len({habits.give_up_s for habits in drawn}) > 1
