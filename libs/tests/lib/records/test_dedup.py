"""The window of deduplication ids."""

from __future__ import annotations

from bokilib.records.dedup import DedupWindow


def test_the_first_counts_and_after_the_window_the_next_is_a_first_again() -> None:
    window = DedupWindow(100)
    found = [window.twice("e", at_ms) for at_ms in (0, 50, 100, 101, 150, 201, 202)]
    assert found == [False, True, True, False, True, True, False]


def test_what_is_over_is_forgotten_and_what_is_kept_comes_back() -> None:
    window = DedupWindow(100)
    for dedup, at_ms in (("old", 0), ("new", 90), ("newest", 120)):
        assert not window.twice(dedup, at_ms)
    assert window.items() == [("new", 90), ("newest", 120)]
    assert DedupWindow(100, window.items()).twice("new", 130)


def test_a_copy_read_long_after_its_first_is_recognised_by_what_was_kept() -> None:
    window = DedupWindow(100)
    assert not window.twice("x", 0)
    assert DedupWindow(100, window.items()).twice("x", 50), "whenever that was: its first is 50 ms older"
