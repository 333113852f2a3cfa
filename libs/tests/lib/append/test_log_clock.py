"""The clock of the log between records, and the time that is left."""

from __future__ import annotations

import pytest

from bokilib.append.log_clock import LogClock, left_ms


def test_time_goes_on_between_records_and_never_back() -> None:
    clock = LogClock()
    assert clock.now_ms(5.0) == 0
    clock.observe(1_000, 10.0)
    assert clock.now_ms(10.5) == 1_500
    clock.observe(1_200, 10.5)
    assert clock.now_ms(10.5) == 1_500
    clock.observe(9_000, 11.0)
    assert (clock.now_ms(11.0), clock.now_ms(10.0)) == (9_000, 9_000)
    assert (clock.when_s(9_500, 11.0), clock.when_s(8_000, 11.0)) == (11.5, 11.0)


def test_it_is_not_later_than_what_was_sent_then_was_ordered_at() -> None:
    """The log's time stands still: a record sent half a minute later has the same time."""
    clock = LogClock()
    clock.observe(1_000, 10.0)
    clock.at_most(1_000, 40.0)
    assert (clock.now_ms(40.0), clock.now_ms(41.0)) == (1_000, 2_000)


def test_an_older_send_does_not_set_back_the_clock() -> None:
    clock = LogClock()
    clock.observe(9_000, 10.0)
    clock.at_most(1_000, 5.0)
    assert clock.now_ms(10.0) == 9_000
    clock.at_most(9_600, 10.5)
    assert clock.now_ms(10.5) == 9_500, "it is not later than that"


@pytest.mark.parametrize(
    ("set_ms", "now_ms", "left", "without_set"),
    [(0, 0, 10, 10), (0, 4, 6, 6), (4, 0, 6, 10), (12, 3, 0, 7), (0, 12, 0, 0)],
)
def test_no_more_time_is_left_than_was_set_and_a_calendar_waits_for_the_log(
    set_ms: int, now_ms: int, left: int, without_set: int
) -> None:
    assert left_ms(10, set_ms, now_ms) == left
    assert left_ms(10, 0, now_ms) == without_set
