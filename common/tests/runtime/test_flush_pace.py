"""When a flush may be made on the event loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.runtime.flush_pace import INLINE_AFTER, INLINE_BYTES, INLINE_FLUSH_S, NONE_INLINE, FlushPace

FAST, SLOW = INLINE_FLUSH_S, INLINE_FLUSH_S * 1.001


def after(*flushes: float) -> FlushPace:
    pace = FlushPace()
    for seconds in flushes:
        pace.took(seconds)
    return pace


def test_only_after_so_many_fast_flushes_in_a_row() -> None:
    assert after().inline_bytes == NONE_INLINE
    assert after(*[FAST] * (INLINE_AFTER - 1)).inline_bytes == NONE_INLINE
    assert after(*[FAST] * INLINE_AFTER).inline_bytes == INLINE_BYTES
    assert after(*[FAST] * (INLINE_AFTER + 1_000)).inline_bytes == INLINE_BYTES


def test_one_slow_flush_ends_it_and_all_have_to_come_again() -> None:
    pace = after(*[FAST] * (INLINE_AFTER + 1_000), SLOW)
    for _ in range(INLINE_AFTER):
        assert pace.inline_bytes == NONE_INLINE
        pace.took(FAST)
    assert pace.inline_bytes == INLINE_BYTES


def test_a_slow_flush_among_fast_ones_starts_the_count_again() -> None:
    assert after(*[FAST] * (INLINE_AFTER - 1), SLOW, FAST).inline_bytes == NONE_INLINE


@given(st.lists(st.tuples(st.sampled_from([FAST, SLOW]), st.integers(1, 2 * INLINE_AFTER)), max_size=8))
def test_inline_says_that_the_last_ones_were_all_fast(spans: list[tuple[float, int]]) -> None:
    flushes = [seconds for seconds, count in spans for _ in range(count)]
    expected = len(flushes) >= INLINE_AFTER and SLOW not in flushes[-INLINE_AFTER:]
    assert after(*flushes).inline_bytes == (INLINE_BYTES if expected else NONE_INLINE)
