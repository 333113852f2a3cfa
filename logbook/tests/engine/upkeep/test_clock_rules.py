"""When two clocks certainly differ by too much, and what is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.upkeep.clock_rules import ClockReading, warning

BOUND_MS = 5_000
NOW = 1_700_000_000_000


def test_clocks_that_agree_say_nothing() -> None:
    reading = ClockReading(NOW, NOW + 20, NOW + 12, NOW - 60_000)
    assert (reading.ahead_ms, reading.uncertain_ms, reading.log_ahead_ms) == (2, 10, 0)
    assert warning(reading, BOUND_MS) is None


@pytest.mark.parametrize(("ahead_ms", "words"), [(5_001, "5.0 s ahead of"), (-65_000, "65.0 s behind")])
def test_a_clock_that_differs_is_reported_with_how_much_and_what_was_expected(ahead_ms: int, words: str) -> None:
    text = warning(ClockReading(NOW, NOW, NOW + ahead_ms, NOW), BOUND_MS)
    assert text is not None
    assert f"{words} this engine's, expected at most 5 s" in text


def test_at_the_bound_nothing_is_said() -> None:
    assert warning(ClockReading(NOW, NOW, NOW + BOUND_MS, NOW), BOUND_MS) is None


def test_a_process_that_was_stopped_while_it_asked_raises_no_alarm() -> None:
    assert warning(ClockReading(NOW, NOW + 60_000, NOW + 60_000, NOW), BOUND_MS) is None
    assert warning(ClockReading(NOW, NOW - 60_000, NOW, NOW), BOUND_MS) is None, "this clock was set back meanwhile"


def test_a_log_whose_time_is_in_the_future_is_reported_though_its_clock_is_right() -> None:
    text = warning(ClockReading(NOW, NOW + 2, NOW + 1, NOW + 3_600_002), BOUND_MS)
    assert text is not None
    assert "3600.0 s ahead of this engine's clock" in text


def test_the_status_has_figures_and_words() -> None:
    status = ClockReading(NOW, NOW + 20, NOW + 10_010, NOW + 10_010).as_status(BOUND_MS)
    assert (status["ahead_ms"], status["uncertain_ms"], status["log_ahead_ms"]) == (10_000, 10, 9_990)
    assert "10.0 s ahead" in status["warning"]


@given(st.integers(-10_000, 10_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_the_true_difference_is_within_what_is_said(true_ms: int, going_ms: int, coming_ms: int) -> None:
    """Whatever the ways there and back took; so clocks that agree within the bound are never warned of."""
    reading = ClockReading(NOW, NOW + going_ms + coming_ms, NOW + going_ms + true_ms, NOW)
    assert abs(reading.ahead_ms - true_ms) <= reading.uncertain_ms + 1
    if abs(true_ms) < BOUND_MS:
        assert warning(reading, BOUND_MS) is None
