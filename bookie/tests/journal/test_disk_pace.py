"""How much of the disk is left to the journal, and when a checkpoint begins by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_bookie.journal.disk_pace import IDLE_PARTS, LEAST_REST_S, LEAST_SHARE, MOST_REST_S, CheckpointPace, rest_s
from boki_common.limits import MIB

CACHE = 48 * MIB


def test_background_writes_take_a_quarter_of_the_time() -> None:
    assert rest_s(0.01) == pytest.approx(0.03)
    assert 0.01 / (0.01 + rest_s(0.01)) == pytest.approx(LEAST_SHARE)


def test_a_fast_disk_is_not_rested_and_a_stalled_one_not_for_ever() -> None:
    assert rest_s(LEAST_REST_S / 4) == 0.0
    assert rest_s(60.0) == MOST_REST_S


@pytest.mark.parametrize(
    ("cached", "share"),
    [(0, 0.25), (CACHE // 2, 0.25), (CACHE * 5 // 8, 0.625), (CACHE * 3 // 4, 1.0), (2 * CACHE, 1.0)],
)
def test_the_fuller_the_cache_the_shorter_a_checkpoint_pauses(cached: int, share: float) -> None:
    pace = CheckpointPace(CACHE)
    assert pace.rest_s(0.01, cached) == pytest.approx(0.01 / share - 0.01)


@given(st.floats(0, 10), st.integers(0, 2 * CACHE), st.integers(0, 2 * CACHE))
def test_more_in_memory_never_means_longer_pauses(write_s: float, one: int, other: int) -> None:
    pace = CheckpointPace(CACHE)
    assert pace.rest_s(write_s, max(one, other)) <= pace.rest_s(write_s, min(one, other))


@given(st.integers(1, 2**40))
def test_adds_are_held_only_above_where_checkpoints_begin(write_cache_bytes: int) -> None:
    pace = CheckpointPace(max(write_cache_bytes, 4_096))
    assert pace.begins_at < pace.slows_at < max(write_cache_bytes, 4_096)


def test_an_idle_bookie_stores_what_it_has_unless_it_is_little() -> None:
    pace, enough = CheckpointPace(CACHE), CACHE // IDLE_PARTS
    assert not pace.is_idle(enough), "it came in the last second"
    assert pace.is_idle(enough)
    assert not pace.is_idle(enough + 1)
    assert pace.is_idle(enough + 1)
    assert [pace.is_idle(enough - 1) for _ in range(3)] == [False] * 3
    assert [pace.is_idle(0) for _ in range(3)] == [False] * 3
