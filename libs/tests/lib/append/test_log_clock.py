"""The log's time between records runs by the process's own clock, and never falls."""

from __future__ import annotations

from bokilib.append.log_clock import LogClock


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
    """The log's time stands still: what is sent half a minute later has the same."""
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
