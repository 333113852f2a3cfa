"""Names of tasks and calls."""

from __future__ import annotations

from bokiflow.runtime.step_paths import TaskPath


def test_tasks_and_calls_are_named_by_their_maker_and_their_order() -> None:
    root = TaskPath.root()
    first, second = root.child(), root.child()
    assert [root.key(), root.key(), first.key(), second.child().key()] == ["0:1", "0:2", "0/1:1", "0/2/1:1"]


def test_names_of_another_run_are_others() -> None:
    assert TaskPath.root(2).child().key() == "r2/0/1:1"
