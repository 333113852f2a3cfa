"""When a flush may be made on the event loop."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from boki_common.runtime.flush_pace import (
    AGAIN_AFTER,
    INLINE_AFTER,
    INLINE_BYTES,
    INLINE_FLUSH_S,
    NONE_INLINE,
    FlushPace,
)

FAST, SLOW = INLINE_FLUSH_S, INLINE_FLUSH_S * 1.001


def after(*flushes: float, pace: FlushPace | None = None) -> FlushPace:
    """Each flush made where the pace says, and reported as its maker does."""
    pace = pace or FlushPace()
    for seconds in flushes:
        if pace.inline_bytes > 0 and seconds <= INLINE_FLUSH_S:
            pace.inline_flushes += 1
        else:
            pace.took(seconds)
    return pace


def test_only_after_so_many_fast_flushes_in_a_row() -> None:
    assert after().inline_bytes == NONE_INLINE
    assert after(*[FAST] * (INLINE_AFTER - 1)).inline_bytes == NONE_INLINE
    assert after(*[FAST] * INLINE_AFTER).inline_bytes == INLINE_BYTES
    assert after(*[FAST] * (INLINE_AFTER + 1_000)).inline_bytes == INLINE_BYTES


def flushes_in_the_thread(pace: FlushPace) -> int:
    count = 0
    while pace.inline_bytes == NONE_INLINE:
        pace.took(FAST)
        count += 1
    return count


def test_after_a_slow_flush_that_stood_alone_few_have_to_be_fast() -> None:
    pace = after(*[FAST] * (2 * INLINE_AFTER), SLOW)
    assert flushes_in_the_thread(pace) == AGAIN_AFTER
    assert pace.inline_bytes == INLINE_BYTES


def test_slow_flushes_soon_after_another_go_to_the_thread_as_many_as_at_first() -> None:
    assert flushes_in_the_thread(after(*[FAST] * (2 * INLINE_AFTER - 1), SLOW)) == INLINE_AFTER
    alone = [FAST] * (2 * INLINE_AFTER) + [SLOW]
    assert flushes_in_the_thread(after(*alone, *[FAST] * (AGAIN_AFTER + INLINE_AFTER - 1), SLOW)) == INLINE_AFTER
    assert flushes_in_the_thread(after(*alone, *[FAST] * (AGAIN_AFTER - 1), SLOW)) == INLINE_AFTER, "slow in the thread"


def test_a_slow_flush_among_fast_ones_starts_the_count_again() -> None:
    assert after(*[FAST] * (INLINE_AFTER - 1), SLOW, FAST).inline_bytes == NONE_INLINE


@given(st.lists(st.tuples(st.sampled_from([FAST, SLOW]), st.integers(1, 2 * INLINE_AFTER)), max_size=12))
@example([(FAST, 2 * INLINE_AFTER), (SLOW, 1), (FAST, AGAIN_AFTER), (SLOW, 1), (FAST, INLINE_AFTER), (SLOW, 1)])
def test_of_as_many_flushes_two_slow_ones_at_most_are_on_the_loop(spans: list[tuple[float, int]]) -> None:
    pace, in_a_row = FlushPace(), 0
    slow_inline: list[int] = []
    for at, seconds in enumerate(seconds for seconds, count in spans for _ in range(count)):
        inline = pace.inline_bytes == INLINE_BYTES
        assert inline or pace.inline_bytes == NONE_INLINE
        assert not inline or in_a_row >= AGAIN_AFTER, "the last ones were all fast"
        assert inline or in_a_row < INLINE_AFTER, "as many in a row are always enough"
        if inline and seconds == SLOW:
            slow_inline.append(at)
        in_a_row = in_a_row + 1 if seconds == FAST else 0
        after(seconds, pace=pace)
    assert all(third - first > INLINE_AFTER for first, third in zip(slow_inline, slow_inline[2:], strict=False))
