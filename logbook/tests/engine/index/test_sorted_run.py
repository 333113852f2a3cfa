"""Sorted runs against dicts of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from boki_logbook.index.run_merge import merged
from boki_logbook.index.sorted_run import LIVE, SortedRun

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
        runs.append(SortedRun.from_segments(books, tags, lengths, seqnums, np.ones(total, np.uint8)))
        for key, count in part.items():
            model.setdefault(key, []).extend(range(seqnum, seqnum + count))
            seqnum += count
    whole = merged(runs)
    assert whole is not None
    assert len(whole) == seqnum - 1
    assert (whole.oldest, whole.newest) == (1, seqnum - 1)
    for book, tag in [*model, (5, 5)]:
        assert rows_of(whole, book, tag) == model.get((book, tag), [])


def rows_of(run: SortedRun | None, book: int, tag: int) -> list[int]:
    """The rows of a stream, dead ones included."""
    found = None if run is None else run.find(book, tag)
    return [] if run is None or found is None else run.rows[slice(*found)].tolist()


def run_of(streams: dict[int, list[int]], held: list[int], book: int = 1) -> SortedRun:
    """A run of one book; `held` are the counters of its records."""
    rows = [row for stream in streams.values() for row in stream]
    return SortedRun.from_segments(
        np.full(len(streams), book, np.uint64),
        np.array(list(streams), np.uint64),
        np.array([len(stream) for stream in streams.values()], np.int64),
        np.array(rows, np.uint64),
        np.array(held + [LIVE] * (len(rows) - len(held)), np.uint8),
    )


def marks(**tags: int) -> tuple[NDArray[np.uint64], list[int]]:
    """Marks of tags, as `trim` takes them: t5=12."""
    return np.array([int(tag[1:]) for tag in tags], np.uint64), list(tags.values())


def test_a_run_costs_20_bytes_a_stream_and_9_a_row() -> None:
    streams, rows = 100, 5
    books = np.ones(streams, np.uint64)
    tags = np.arange(streams, dtype=np.uint64)
    seqnums = np.arange(1, streams * rows + 1, dtype=np.uint64)
    run = SortedRun.from_segments(books, tags, np.full(streams, rows), seqnums, np.ones(len(seqnums), np.uint8))
    assert run.bytes == 20 * streams + 4 + 9 * streams * rows
    assert run.find(1, 100) is None
    assert run.find(2, 5) is None


def test_a_record_dies_with_the_last_tag_that_holds_it() -> None:
    run = run_of({0: [10, 11, 12], 5: [10, 11], 6: [11, 12]}, [1, 2, 1])
    assert run.trim(1, *marks(t5=12)).tolist() == [10]
    assert run.trim(1, *marks(t4=99, t6=12)).tolist() == [11]
    assert run.trim(1, *marks(t6=12)).tolist() == []
    assert run.trim(2, *marks(t6=99)).tolist() == []
    assert run.dead == 3 + 2
    whole = merged([run])
    assert rows_of(whole, 1, 0) == rows_of(whole, 1, 6) == [12]
    assert rows_of(whole, 1, 5) == []


def test_both_tags_of_a_record_may_fall_together() -> None:
    run = run_of({0: [10, 11], 5: [10], 6: [10, 11]}, [2, 1])
    assert run.trim(1, *marks(t5=11, t6=11)).tolist() == [10]


def test_what_falls_with_its_book_leaves_its_newest_row() -> None:
    run = run_of({0: [10, 11, 12], 5: [10, 11], 6: [12]}, [1, 1, 1])
    assert run.trim_book(1, 12).tolist() == [10, 11]
    assert run.trim_book(1, 12).tolist() == []
    whole = merged([run])
    assert rows_of(whole, 1, 5) == [11]
    assert rows_of(whole, 1, 0) == rows_of(whole, 1, 6) == [12]
    assert whole is not None and whole.stale and not whole.dead
    assert whole.trim(1, *marks(t5=12)).tolist() == []
    assert rows_of(merged([whole]), 1, 5) == []


def test_of_the_stream_of_all_records_the_newest_row_stays_though_dead() -> None:
    run = run_of({0: [10, 11], 5: [11]}, [1, 1])
    assert run.trim(1, *marks(t5=12)).tolist() == [11]
    whole = merged([run])
    assert rows_of(whole, 1, 0) == [10, 11]
    newer = run_of({0: [12]}, [1])
    assert whole is not None
    assert rows_of(merged([whole, newer]), 1, 0) == [10, 12]


def test_a_forgotten_stream_is_not_found_and_leaves() -> None:
    run = run_of({0: [10, 11], 5: [10], 6: [11]}, [1, 1])
    run.trim(1, *marks(t5=11))
    run.drop(1, 5)
    run.drop(1, 7)
    run.drop(2, 5)
    assert run.find(1, 5) is None
    assert rows_of(run, 1, 6) == [11]
    run.trim_book(1, 12)
    run.drop(1, 0)
    assert run.find(1, 0) is run.find(1, 6) is None
    assert merged([run]) is None
    assert merged([run]) is None
