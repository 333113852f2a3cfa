"""Errors of handlers as text."""

from __future__ import annotations

import pytest

from bokilib.stacks import described, stack_of
from bokiqueue.failures import LARGE_BYTES, Failure, failure_of


def test_errors_are_shown_whatever_they_are() -> None:
    class Shy(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("not shown")

        __str__ = __repr__

    assert described(Shy()) == "Shy, which cannot be shown"
    assert "\\ud83d" in described(ValueError("\ud83d"))
    assert len(described(ValueError("x" * 10**6))) < 2_100
    with pytest.raises(Shy) as raised:
        raise Shy
    assert "test_errors_are_shown" in stack_of(raised.value)


def test_a_large_dead_letter_has_no_room_for_a_stack() -> None:
    error = ValueError("x" * 1_000)
    assert failure_of(None, 0) == Failure()
    assert "ValueError" in failure_of(error, 10).stack
    large = failure_of(error, LARGE_BYTES)
    assert large.error.startswith("ValueError('xx") and len(large.error) < 250 and not large.stack
