"""Pauses between attempts."""

from __future__ import annotations

from bokilib.pauses import FIRST_S, LIMIT_S, pauses


def test_they_are_short_at_first_and_never_long_and_short_again_after_a_success() -> None:
    pause = pauses()
    found = [pause.next() for _ in range(10)]
    assert found == sorted(found) and (found[0], found[-1]) == (FIRST_S, LIMIT_S)
    pause.reset()
    assert pause.next() == FIRST_S
