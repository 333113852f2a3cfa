"""What the leader decides: pure."""

from __future__ import annotations

import pytest

from boki_common.errors import CorruptData, VersionMismatch
from boki_metalog.control.controller_rules import (
    Absent,
    ClosedSpare,
    Vacant,
    decode_weights,
    encode_weights,
    is_named,
    may_delete,
    wanted_weights,
)
from boki_metalog.sequencer.standby_rules import Presence
from boki_metalog.terms.view import NewTerm, View, first_view


def view_of(next_ledger: int = 10) -> View:
    return first_view().with_term(0, ledger_id=next_ledger, sequencer="a", token="t", start_time_ms=0)


def test_weights_are_these_bytes() -> None:
    assert encode_weights({1: 2, 0: 1}) == b'{"version":1,"weights":{"0":1,"1":2}}'
    assert decode_weights(encode_weights({1: 2, 0: 1})) == {0: 1, 1: 2}
    with pytest.raises(CorruptData, match="at least 0"):
        decode_weights(encode_weights({0: -1}))
    with pytest.raises(VersionMismatch, match="upgrade"):
        decode_weights(b'{"version":2}')


def test_a_log_that_is_not_named_weighs_one() -> None:
    view = view_of().with_logs([1, 2])
    assert wanted_weights(view, {1: 3, 9: 5}) == {0: 1, 1: 3, 2: 1}
    assert wanted_weights(view, {0: 0, 1: 0, 2: 0}) is None


def test_a_log_is_due_after_the_grace_of_its_present_term() -> None:
    vacant, view = Vacant(), view_of()
    gone = {0: Presence.GONE}
    assert vacant.due(view, gone, grace_s=2.0, now_s=10.0) == []
    assert vacant.due(view, gone, grace_s=2.0, now_s=11.9) == []
    assert vacant.due(view, gone, grace_s=2.0, now_s=12.0) == [0]
    later = view.with_terms({0: NewTerm(11, "b", 0)}, token="t")
    assert vacant.due(later, gone, grace_s=2.0, now_s=12.1) == [], "the suspicion does not carry over"
    assert vacant.due(later, {0: Presence.UNKNOWN}, grace_s=2.0, now_s=13.0) == []
    assert vacant.due(later, gone, grace_s=2.0, now_s=14.5) == [], "it answered in between"
    assert vacant.due(later.with_logs([1]), {0: Presence.SERVES}, grace_s=0.0, now_s=15.0) == [1]


def test_a_maker_is_absent_after_looks_over_the_whole_time() -> None:
    absent = Absent()
    assert absent.due(["a", "b"], ["b"], absent_s=5.0, now_s=0.0) == []
    assert absent.due(["a", "b"], ["a", "b"], absent_s=5.0, now_s=4.0) == []
    assert absent.due(["a", "b"], ["b"], absent_s=5.0, now_s=6.0) == []
    assert absent.due(["a", "b"], ["b"], absent_s=5.0, now_s=11.0) == ["a"]
    absent.forget()
    assert absent.due(["a", "b"], ["b"], absent_s=5.0, now_s=12.0) == []


SPARE = ClosedSpare(50, version=7, next_term=2)


def test_a_spare_goes_after_a_later_write_of_the_view() -> None:
    view = view_of()
    assert may_delete(SPARE, view, 7, {}) is None, "a stalled driver may still swap at this version"
    assert may_delete(SPARE, view, 8, {}) is True
    assert not is_named(view, 50)


def test_a_spare_that_a_term_has_or_had_stays() -> None:
    named = view_of().with_terms({0: NewTerm(50, "b", 0)}, token="t")
    assert is_named(named, 50) and may_delete(SPARE, named, 8, {}) is False
    replaced = named.with_terms({0: NewTerm(51, "c", 0)}, token="t")
    assert may_delete(SPARE, replaced, 9, {2: 50}) is False
    assert may_delete(SPARE, replaced, 9, {2: 49}) is True
    assert may_delete(SPARE, replaced, 9, {}) is None, "a term whose metalog is not known may have had it"
