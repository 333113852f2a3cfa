"""Sorted runs against dicts of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.sorted_run import SortedRun, merge

BIG = 2**64 - 3
BOOKS = st.sampled_from([0, 1, 2**64 - 1])
TAG_OR_ALL = st.one_of(st.integers(0, 4), st.just(BIG))


@given(st.lists(st.dictionaries(st.tuples(BOOKS, TAG_OR_ALL), st.integers(1, 5), min_size=1), min_size=1, max_size=5))
def test_merging_runs_concatenates_their_streams(parts: list[dict[tuple[int, int], int]]) -> None:
    runs: list[SortedRun] = []
    model: dict[tuple[int, int], list[int]] = {}
    seqnum = 1
    for part in parts:
        lengths = np.array(list(part.values()), np.int64)
        total = int(lengths.sum())
        seqnums = np.arange(seqnum, seqnum + total, dtype=np.uint64)
        books = np.array([book for book, _ in part], np.uint64)
        tags = np.array([tag for _, tag in part], np.uint64)
        runs.append(SortedRun.from_segments(books, tags, lengths, seqnums))
        for key, count in part.items():
            model.setdefault(key, []).extend(range(seqnum, seqnum + count))
            seqnum += count
    merged = merge(runs)
    assert len(merged) == seqnum - 1
    assert (merged.oldest, merged.newest) == (1, seqnum - 1)
    for book, tag in [*model, (5, 5)]:
        found = merged.find(book, tag)
        assert (found.tolist() if found is not None else None) == model.get((book, tag))


def test_a_run_costs_20_bytes_a_stream_and_8_a_row() -> None:
    streams, rows = 100, 5
    books = np.ones(streams, np.uint64)
    tags = np.arange(streams, dtype=np.uint64)
    run = SortedRun.from_segments(
        books, tags, np.full(streams, rows), np.arange(1, streams * rows + 1, dtype=np.uint64)
    )
    assert run.bytes == 20 * streams + 4 + 8 * streams * rows
    assert run.find(1, 100) is None
    assert run.find(2, 5) is None
