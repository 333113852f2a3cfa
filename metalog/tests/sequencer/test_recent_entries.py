"""The bounded memory of entries against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_metalog.sequencer.recent_entries import RecentEntries


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 6), st.integers(1, 60))
def test_it_is_the_bounded_end_of_a_list(sizes: list[int], entries_limit: int, bytes_limit: int) -> None:
    recent = RecentEntries(entries_limit=entries_limit, bytes_limit=bytes_limit)
    everything: list[bytes] = []
    for number, size in enumerate(sizes):
        everything.append(bytes([number]) * size)
        recent.append(everything[-1])
        kept = recent.since(recent.first)
        assert kept == everything[recent.first :] and recent.end == len(everything)
        assert 1 <= len(kept) <= entries_limit
        assert sum(map(len, kept)) <= bytes_limit or len(kept) == 1
        assert recent.since(recent.end) == []
