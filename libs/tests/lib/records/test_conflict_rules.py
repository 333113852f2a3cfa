"""The streams to read after a Conflict, and the holder of a fence."""

from __future__ import annotations

from bokilib.records.conflict_rules import Claim, Moved, holder, moved


def test_only_streams_that_are_newer_than_expected_moved() -> None:
    """`actual` lists all expected streams, also those whose expectation held and which did not move."""
    expected = {"held": 10, "new": 10, "never was": None, "is now": None, "equal": 7}
    actual: dict[str, int | None] = {"held": 4, "new": 12, "never was": None, "is now": 11, "equal": 7}
    assert moved(expected, actual) == [Moved("new", 11, 12), Moved("is now", 1, 11)]


def test_a_stream_that_was_forgotten_moved_and_nobody_knows_where_to() -> None:
    assert moved({"a": 5, "b": 5}, {"a": None, "b": 3}, ["a"]) == [Moved("a", 6, None)]


def test_the_newest_claim_holds() -> None:
    assert holder([]) is None
    assert holder([Claim(5, "b", "x"), Claim(9, "a", "y"), Claim(7, "c", "z")]) == Claim(9, "a", "y")
