"""What one change of terms does to a view: pure."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument, NoSequencer
from boki_metalog.entries.metalog_entry import MetalogEntry
from boki_metalog.errors import SpareTaken
from boki_metalog.terms import term_plan
from boki_metalog.terms.term_plan import Candidate, Offer, Plan
from boki_metalog.terms.term_record import TermRecord, record_of
from boki_metalog.terms.view import NewTerm, View, first_view

HALVES = (*[0] * 512, *[1] * 512)


def two_logs() -> View:
    """Log 0 in term 1 (sequencer a), log 1 in term 2 (b), half of the slots each; log 2 without term and slots."""
    view = first_view().with_logs([1]).spread_at_first({0: 1, 1: 1}).with_logs([2])
    return view.with_terms({0: NewTerm(10, "a", 0), 1: NewTerm(11, "b", 0)}, token="t")


def sealed(view: View, plan: Plan, **times_ms: int) -> dict[int, TermRecord]:
    records = {}
    for log in plan.sealed:
        installed = view.installed(log)
        if installed is not None:
            entry = MetalogEntry(0, 1, times_ms[f"log{log}"], ())
            records[log] = record_of(log, installed, view.slots_of(log), 0, entry)
    return records


def test_a_suspicion_names_a_term() -> None:
    view = two_logs()
    assert term_plan.replace(view, 0, 1) == Plan((0,))
    assert term_plan.replace(view, 0, 2) is None and term_plan.replace(view, 2, 0) == Plan((2,))


def test_a_move_concerns_sources_and_target() -> None:
    view = two_logs()
    plan = term_plan.move(view, (0, 511, 512), 2)
    assert plan is not None and plan.logs == plan.sealed == (0, 1, 2)
    assert plan.slots is not None and plan.slots[511:514] == (2, 2, 1)
    assert term_plan.move(view, (512,), 0) == Plan((0, 1), (*[0] * 513, *[1] * 511))
    assert term_plan.move(view, range(512), 0) is None
    with pytest.raises(InvalidArgument, match="boki log add"):
        term_plan.move(view, (0,), 3)


def test_a_spread_that_is_there_is_nothing() -> None:
    view = two_logs()
    assert term_plan.spread(view, {0: 1, 1: 1}) is None
    plan = term_plan.spread(view, {0: 1, 1: 1, 2: 2})
    assert plan is not None and plan.logs == (0, 1, 2)
    with pytest.raises(InvalidArgument):
        term_plan.spread(view, {0: 1, 7: 1})


def test_a_log_gives_all_away_and_leaves() -> None:
    view = two_logs()
    assert term_plan.remove(view, 1) == Plan((0,), (0,) * 1024, (1,)), "in proportion to what the others have"
    halves = term_plan.remove(first_view().with_logs([1, 2]), 0)
    assert halves is not None and (halves.logs, halves.without, halves.sealed) == ((1, 2), (0,), (0, 1, 2))
    assert term_plan.remove(view, 2) == Plan((), None, (2,)), "nobody takes anything"
    assert term_plan.remove(view, 3) is None
    with pytest.raises(InvalidArgument, match="only one"):
        term_plan.remove(first_view(), 0)


def test_one_value_has_slots_terms_and_times() -> None:
    view = two_logs()
    plan = term_plan.move(view, (512,), 2)
    assert plan is not None
    candidates = {1: Candidate("b", 21), 2: Candidate("c", 22)}
    after = term_plan.next_view(view, plan, candidates, sealed(view, plan, log1=700), "u")
    assert (after.term_of(0), after.term_of(1), after.term_of(2), after.next_term) == (1, 3, 4, 5)
    assert after.log_of(512) == 2 and after.log_of(513) == 1
    starts = [one.start_time_ms for log, one in sorted(after.logs.items()) if one is not None]
    assert starts == [0, 700, 700], "a log that takes slots begins no earlier than they ended"
    plain = term_plan.replace(view, 0, 1)
    assert plain is not None
    later = term_plan.next_view(view, plain, {0: Candidate("a", 20)}, sealed(view, plain, log0=650), "u")
    assert later.per_slot == HALVES and later.installed(0).start_time_ms == 650  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "candidate",
    [Candidate("c", 11), Candidate("b", 20), Candidate("c", 10)],
    ids=["metalog of the other log", "serves the other log", "metalog of this log"],
)
def test_a_candidate_that_is_in_the_view_is_refused(candidate: Candidate) -> None:
    with pytest.raises(SpareTaken, match="another spare"):
        term_plan.check_candidates(two_logs(), Plan((0,)), {0: candidate})


def test_one_candidate_for_two_logs_is_refused() -> None:
    for other in (Candidate("a", 21), Candidate("c", 20)):
        with pytest.raises(SpareTaken):
            term_plan.check_candidates(two_logs(), Plan((0, 1)), {0: Candidate("a", 20), 1: other})


def test_a_log_keeps_its_sequencer_and_a_new_one_gets_a_standby() -> None:
    view = two_logs()
    offers = {"x": Offer(30), "b": Offer(31), "a": Offer(32), "y": Offer(33)}
    assert term_plan.pair(view, (0, 1, 2), offers) == {
        0: Candidate("a", 32), 1: Candidate("b", 31), 2: Candidate("x", 30),
    }  # fmt: skip
    del offers["a"]
    assert term_plan.pair(view, (0, 2), offers) == {0: Candidate("x", 30), 2: Candidate("y", 33)}
    with pytest.raises(NoSequencer, match="log 2"):
        term_plan.pair(view, (0, 2), {"x": Offer(30), "b": Offer(31)})


def test_who_serves_one_log_only_gets_that_and_no_other() -> None:
    offers = {"x": Offer(30), "y": Offer(31, only=2), "z": Offer(32, only=7)}
    assert term_plan.pair(two_logs(), (2,), offers) == {2: Candidate("y", 31)}
    assert term_plan.pair(two_logs(), (0,), offers) == {0: Candidate("x", 30)}
    del offers["x"]
    with pytest.raises(NoSequencer, match="log 0"):
        term_plan.pair(two_logs(), (0,), offers)
