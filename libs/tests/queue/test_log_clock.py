"""The log's time between records runs by the process's own clock, and never falls."""

from __future__ import annotations

from bokiqueue.log_clock import LogClock


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
