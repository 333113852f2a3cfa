"""Rewriting of messages: which ones a set leaves out, which are old, and when an owner's turn comes."""

from __future__ import annotations

from bokilib.records.dedup import DedupWindow
from bokiqueue.model.events import Id
from bokiqueue.model.old_rules import RewriteTimer, is_finished, is_old
from bokiqueue.model.shard_state import Progress


def test_what_a_checkpoint_had_not_come_to_is_never_left_out() -> None:
    group = Progress(3, DedupWindow(1_000))
    group.read = 6
    for id in (Id(4, 0), Id(7, 0)):
        group.ends(id)
    assert [is_finished(Id(seqnum, 0), group) for seqnum in range(2, 8)] == [True, False, True, False, False, False]
    group.begin_at(8)
    assert [is_finished(Id(seqnum, 0), group) for seqnum in range(5, 9)] == [True, True, False, False], "after a purge"


def test_what_is_half_as_old_is_carried_too_when_it_is_the_turn_of_its_queue() -> None:
    assert [is_old(time_ms, 100, 40) for time_ms in (79, 80, 81)] == [True, True, False]


def test_an_owner_has_his_turn_at_half_of_the_age_until_it_is_done() -> None:
    renewal = RewriteTimer(100)
    renewal.done(1_000)
    assert [renewal.look(1_049), renewal.look(1_050), renewal.look(1_010)] == [False, True, True]
    renewal.done(1_060)
    assert (renewal.look(1_100), renewal.due, renewal.look(1_110)) == (False, False, True)
