"""Schedules as decisions: commands, what is due, what is skipped, and the state as a history has it."""

from __future__ import annotations

from typing import Any

from bokiflow import Skipped, Timing
from bokiflow.model import schedule_rules
from bokiflow.model.delivery_order import RecordedEvents
from bokiflow.model.flow_events import Fired, Invoked, Restarted, Signalled, Started
from bokiflow.model.history_fold import History
from bokiflow.model.outcomes import as_json
from bokiflow.model.schedule_rules import (
    COMMANDS,
    PlannedCall,
    ScheduleCommand,
    ScheduleState,
    ScheduleView,
    after,
    fold,
    pending_change,
)

ID = "schedule/nightly"
MINUTE = PlannedCall("report", [[], {}], Timing(every_s=60, missed="skip", late_s=10))
REMOVED = ScheduleState()


def test_commands_change_a_schedule_and_make_nothing_up() -> None:
    plan = PlannedCall("report", [[], {}], Timing(every_s=60))
    other = PlannedCall("report", [[], {}], Timing(every_s=90))
    state = after(ScheduleState(), ScheduleCommand("set", plan), 5)
    assert state == ScheduleState(plan, False, 5)
    assert after(state, ScheduleCommand("set", plan), 9) == state, "set twice, nothing due between is lost"
    paused = after(state, ScheduleCommand("pause"), 9)
    assert after(paused, ScheduleCommand("set", other), 11) == ScheduleState(other, True, 11), "a pause stays"
    assert after(paused, ScheduleCommand("resume"), 12) == ScheduleState(plan, False, 12)
    assert after(state, ScheduleCommand("resume"), 12) == state
    assert after(paused, ScheduleCommand("remove"), 13) == ScheduleState()
    for kind in ("pause", "resume"):
        assert after(ScheduleState(), ScheduleCommand(kind), 14) == ScheduleState()


def test_what_is_due_and_what_is_skipped_is_decided_together() -> None:
    state = ScheduleState(MINUTE, after_ms=0)
    assert schedule_rules.due(state, 60_000, 60_000) == (ScheduleState(MINUTE, after_ms=60_000), (60_000,), None)
    late = schedule_rules.due(state, 200_000, 200_000)
    assert late == (ScheduleState(MINUTE, after_ms=200_000), (), Skipped(3, 60_000, 180_000))


def history(*records: RecordedEvents, restarted: Restarted | None = None) -> History:
    return History(
        Started(ID, "boki.schedule", "d", [[as_json(ScheduleState())], {}], 1_000), 5, restarted, records, 5, 0
    )


def sent(seqnum: int, time_ms: int, kind: Any, planned: PlannedCall | None = None) -> RecordedEvents:
    command = as_json(ScheduleCommand(kind, planned))
    return RecordedEvents(seqnum, time_ms, 0, incoming=(Signalled(ID, COMMANDS, command, "t"),))


def fired(seqnum: int, seen: int, at_ms: int) -> RecordedEvents:
    """A timer fired, and something was started."""
    return RecordedEvents(seqnum, at_ms, seen, (Fired(ID, "k", at_ms), Invoked(ID, "k", "child", "report", "d")))


def test_a_history_has_the_state_the_last_firing_and_the_last_skip() -> None:
    begun = (sent(6, 1_000, "set", MINUTE), fired(8, 6, 60_001))
    assert fold(history()) == ScheduleView(REMOVED, REMOVED)
    one = ScheduleState(MINUTE, after_ms=60_001)
    assert fold(history(*begun)) == ScheduleView(one, one, 60_000)
    found = fold(history(*begun, fired(9, 6, 300_500)))
    assert (found.fired_ms, found.skipped, found.state.after_ms) == (300_000, Skipped(3, 120_000, 240_000), 300_500)


def test_a_schedule_that_was_deleted_and_set_again_has_not_fired_yet() -> None:
    begun = (sent(6, 1_000, "set", MINUTE), fired(8, 6, 60_001), fired(9, 6, 300_500))
    deleted = fold(history(*begun, sent(10, 301_000, "remove"), fired(11, 10, 302_000)))
    assert deleted.state == REMOVED and deleted.fired_ms == 300_000 and not deleted.recreated
    again = (sent(10, 301_000, "remove"), sent(11, 302_000, "set", MINUTE), fired(12, 11, 360_000))
    found = fold(history(*begun, *again[:2], RecordedEvents(12, 302_001, 11, (Invoked(ID, "k", "c", "r", "d"),))))
    assert (found.state, found.fired_ms, found.skipped) == (ScheduleState(MINUTE, after_ms=302_000), None, None)
    assert found.recreated
    assert fold(history(*begun, *again)).fired_ms == 360_000
    begins = Started(ID, "boki.schedule", "d", [[as_json(REMOVED)], {}], 1_000)
    restarted = history(
        sent(6, 1_000, "set", MINUTE), fired(8, 6, 60_001), restarted=Restarted(ID, 1, begins, 5, (), 9)
    )
    assert fold(restarted).recreated, "it was deleted when its history began"


def test_what_no_worker_took_yet_is_asked_and_fires_nothing() -> None:
    """Though it comes after the next time: whoever takes it decides that."""
    begun = (sent(6, 1_000, "set", MINUTE), fired(8, 6, 60_001))
    state = ScheduleState(MINUTE, after_ms=60_001)
    other = PlannedCall("report", [[], {}], Timing(every_s=90))
    for words, commands in (
        ("deletion", [sent(9, 500_000, "remove")]),
        ("pause", [sent(9, 500_000, "pause")]),
        ("", [sent(9, 500_000, "resume")]),
        ("change", [sent(9, 500_000, "set", other)]),
        ("", [sent(9, 500_000, "pause"), sent(10, 500_000, "resume")]),
    ):
        view = fold(history(*begun, *commands))
        assert (view.state, view.fired_ms, pending_change(view)) == (state, 60_000, words)
    taken = fold(history(*begun, sent(9, 70_000, "pause"), fired(11, 9, 80_000)))
    assert taken.state.paused and pending_change(taken) == ""
    assert (
        pending_change(
            fold(history(*begun, sent(9, 70_000, "pause"), fired(11, 9, 80_000), sent(12, 90_000, "resume")))
        )
        == "resume"
    )


def test_after_a_restart_it_has_the_state_and_the_commands_that_were_handed_on() -> None:
    begins = Started(ID, "boki.schedule", "d", [[as_json(ScheduleState(MINUTE, after_ms=60_000))], {}], 1_000)
    mail = ((COMMANDS, as_json(ScheduleCommand("pause"))), ("other", 1))
    restarted = Restarted(ID, 1, begins, 5, mail, 90_000)
    assert fold(history(restarted=restarted)).state == ScheduleState(MINUTE, True, 60_000)
