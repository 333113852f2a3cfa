"""Quarantine against a plain model, with scripted time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common import limits
from boki_common.ids import BookieId
from boki_ledger.rules.quarantine import Quarantine

A, B = BookieId("a"), BookieId("b")


def made() -> Quarantine:
    return Quarantine(failures=3, window_s=10.0, quarantine_s=100.0)


def test_failures_within_the_window_lead_to_quarantine_and_it_ends() -> None:
    quarantine = made()
    assert [quarantine.failed(A, now) for now in (0.0, 5.0, 10.0)] == [False, False, True]
    assert quarantine.holds(A, 10.0) and quarantine.holds(A, 109.9) and not quarantine.holds(A, 110.0)
    assert not quarantine.holds(B, 10.0)


def test_failures_that_lie_apart_do_not() -> None:
    quarantine = made()
    assert not any(quarantine.failed(A, 6.0 * step) for step in range(50))


def test_the_slate_is_clean_afterwards_and_failures_meanwhile_do_not_lengthen_it() -> None:
    quarantine = made()
    for now in (0.0, 1.0, 2.0, 50.0, 101.0):
        quarantine.failed(A, now)
    assert not quarantine.holds(A, 102.0)
    assert [quarantine.failed(A, now) for now in (103.0, 104.0, 105.0)] == [False, False, True]


def test_no_quarantine_at_all() -> None:
    quarantine = Quarantine(failures=1, window_s=10.0, quarantine_s=0.0)
    assert not quarantine.failed(A, 0.0) and not quarantine.holds(A, 0.0)


def test_the_memory_is_bounded() -> None:
    quarantine = Quarantine(failures=1, window_s=1.0, quarantine_s=1e9)
    for number in range(limits.LEDGER_BOOKIES_WATCHED + 10):
        quarantine.failed(BookieId(f"b{number}"), 0.0)
    assert not quarantine.holds(BookieId("b9"), 0.0) and quarantine.holds(BookieId("b10"), 0.0)


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 30)), max_size=60))
def test_it_is_what_a_list_of_all_failures_says(steps: list[tuple[BookieId, int]]) -> None:
    quarantine = made()
    now, counted, until = 0, {A: list[int](), B: list[int]()}, {A: -1, B: -1}
    for bookie, pause in steps:
        now += pause
        quarantine.failed(bookie, now)
        if now >= until[bookie]:
            counted[bookie].append(now)
            if sum(one >= now - 10 for one in counted[bookie]) >= 3:
                until[bookie] = now + 100
                counted[bookie].clear()
        for one in (A, B):
            assert quarantine.holds(one, now) == (now < until[one])
