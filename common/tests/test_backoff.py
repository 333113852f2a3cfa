"""Pauses double up to their limit, begin anew, and are spread by jitter."""

from __future__ import annotations

import pytest

from boki_common.backoff import Backoff
from boki_common.runtime.process import SystemRandom


def test_pauses_double_up_to_the_limit_and_begin_anew() -> None:
    backoff = Backoff(0.25, 1.5)
    assert [backoff.next() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    backoff.reset()
    assert backoff.next() == 0.25


def test_the_first_pause_is_as_given() -> None:
    backoff = Backoff(3.0, 2.0)
    assert [backoff.next() for _ in range(3)] == [3.0, 2.0, 2.0]


@pytest.mark.parametrize("pause_s", [1.0, 4.0])
def test_jitter_takes_up_to_half_away(pause_s: float) -> None:
    backoff = Backoff(pause_s, pause_s, rng=SystemRandom())
    pauses = {backoff.next() for _ in range(200)}
    assert pause_s / 2 <= min(pauses) and max(pauses) <= pause_s
    assert len(pauses) > 50
