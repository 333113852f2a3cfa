"""What was old by two clocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.upkeep.watched_time import SAMPLES, WatchedTime

AGE_S = 100.0


def test_nothing_is_old_before_somebody_looked_for_so_long() -> None:
    watched = WatchedTime(AGE_S)
    assert watched.bound(1_000, 0, 10**9) == 0
    watched.look(1_000, {0: 7_000})
    assert watched.bound(1_099, 0, 10**9) == 0
    assert watched.bound(1_100, 0, 10**9) == 7_000
    assert watched.bound(1_100, 1, 10**9) == 0, "nobody looked at that log"


def test_the_time_of_the_log_counts_as_well() -> None:
    watched = WatchedTime(AGE_S)
    watched.look(0, {0: 7_000})
    assert watched.bound(5_000, 0, 7_500) == 7_500 - 100_000


@given(
    st.lists(st.tuples(st.floats(0, 40), st.integers(-(10**6), 10**7)), max_size=200),
    st.integers(0, 1),
)
def test_whatever_the_log_says_what_is_old_was_there_so_long_ago(steps: list[tuple[float, int]], log: int) -> None:
    """Times of a log only grow, by steps of any size."""
    watched, now_s, time_ms = WatchedTime(AGE_S), 0.0, 0
    seen: list[tuple[float, int]] = []
    for later_s, forward_ms in steps:
        now_s, time_ms = now_s + later_s, time_ms + max(forward_ms, 0)
        watched.look(now_s, {log: time_ms})
        seen.append((now_s, time_ms))
        bound = watched.bound(now_s, log, time_ms)
        there = [ms for at, ms in seen if at <= now_s - AGE_S]
        assert bound <= max(there, default=0)
        assert bound <= max(time_ms - AGE_S * 1000, 0)
        late = [ms for at, ms in seen if at <= now_s - AGE_S * (1 + 1 / SAMPLES) - 40]
        assert bound >= min(max(late, default=0), time_ms - AGE_S * 1000)
        assert len(watched._samples) <= SAMPLES + 2
