"""When a flush may be made on the event loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_common.runtime.flush_pace import INLINE_AFTER, INLINE_BYTES, INLINE_FLUSH_S, FlushPace

FAST, SLOW = INLINE_FLUSH_S, INLINE_FLUSH_S * 1.001


def after(*flushes: float) -> FlushPace:
    pace = FlushPace()
    for seconds in flushes:
        pace.took(seconds)
    return pace


def test_only_after_so_many_fast_flushes_in_a_row() -> None:
    assert not after().inline(0)
    assert not after(*[FAST] * (INLINE_AFTER - 1)).inline(0)
    assert after(*[FAST] * INLINE_AFTER).inline(0)
    assert after(*[FAST] * (INLINE_AFTER + 1_000)).inline(0)


def test_one_slow_flush_ends_it_and_all_have_to_come_again() -> None:
    pace = after(*[FAST] * (INLINE_AFTER + 1_000), SLOW)
    for _ in range(INLINE_AFTER):
        assert not pace.inline(0)
        pace.took(FAST)
    assert pace.inline(0)


def test_a_slow_flush_among_fast_ones_starts_the_count_again() -> None:
    assert not after(*[FAST] * (INLINE_AFTER - 1), SLOW, FAST).inline(0)


def test_large_writes_go_to_the_thread_however_fast_the_disk_is() -> None:
    pace = after(*[0.0] * INLINE_AFTER)
    assert pace.inline(INLINE_BYTES)
    assert not pace.inline(INLINE_BYTES + 1)


@given(st.lists(st.tuples(st.sampled_from([FAST, SLOW]), st.integers(1, 2 * INLINE_AFTER)), max_size=8))
def test_inline_says_that_the_last_ones_were_all_fast(spans: list[tuple[float, int]]) -> None:
    flushes = [seconds for seconds, count in spans for _ in range(count)]
    expected = len(flushes) >= INLINE_AFTER and SLOW not in flushes[-INLINE_AFTER:]
    assert after(*flushes).inline(1) is expected
