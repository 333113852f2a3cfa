"""For how long bookies are away: by this process's own looks, in one session."""

from __future__ import annotations

from boki_common.ids import BookieId
from boki_ledger.repair.away import Away
from boki_ledger.repair.plan import FOR_GOOD

A, B, C = map(BookieId, "abc")


def test_time_is_counted_from_the_first_look_that_missed_a_bookie() -> None:
    away = Away()
    assert away.seen([A, B], [A, B], [A, B], now_s=0.0) == {}
    assert away.seen([A, B], [B], [A, B], now_s=10.0) == {A: 0.0}
    assert away.seen([A, B], [B], [A, B], now_s=15.0) == {A: 5.0}
    assert away.seen([A, B], [A, B], [A, B], now_s=16.0) == {}
    assert away.seen([A, B], [B], [A, B], now_s=17.0) == {A: 0.0}, "it was there in between"


def test_a_bookie_without_a_cookie_is_away_for_good() -> None:
    away = Away()
    assert away.seen([A], [B], [B, C], now_s=1.0) == {A: FOR_GOOD, C: 0.0}
    assert away.seen([A], [A, B], [B, C], now_s=2.0) == {C: 1.0}, "one that is registered is there, whatever it lacks"


def test_an_answer_or_a_lost_session_makes_the_count_begin_again() -> None:
    away = Away()
    for now_s in (0.0, 5.0):
        away.seen([A, B], [], [A, B], now_s=now_s)
    away.answered(A)
    assert away.seen([A, B], [], [A, B], now_s=6.0) == {A: 0.0, B: 6.0}
    away.forget()
    assert away.seen([A, B], [], [A, B], now_s=7.0) == {A: 0.0, B: 0.0}
