"""Copies within the window are told by the times of the log."""

from __future__ import annotations

from bokiqueue.dedup import Window


def test_the_first_counts_and_after_the_window_the_next_is_a_first_again() -> None:
    window = Window(100)
    told = [window.twice("e", at_ms) for at_ms in (0, 50, 100, 101, 150, 201, 202)]
    assert told == [False, True, True, False, True, True, False]


def test_what_is_over_is_forgotten_and_what_is_kept_comes_back() -> None:
    window = Window(100)
    assert not window.twice("old", 0)
    assert not window.twice("new", 90)
    assert len(window) == 2
    assert window.items(120) == [("new", 90)]
    assert Window(100, window.items(120)).twice("new", 130)
