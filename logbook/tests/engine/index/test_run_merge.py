"""Merging runs slice by slice: the same as at once, whatever dies meanwhile, and never much in one slice."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.index.run_merge import CHANGED_PAIRS, MERGED_RUNS, REPLAYED_PAIRS, RunMerge, merged, next_merge
from boki_logbook.index.sorted_run import CUT, LIVE, SUNK, SortedRun

BOOKS = st.sampled_from([0, 1, 2**64 - 1])
RECORD = st.tuples(BOOKS, st.frozensets(st.integers(1, 3), max_size=2))
RUNS = st.lists(st.lists(RECORD, min_size=1, max_size=12), min_size=1, max_size=4)
DEATH = st.one_of(
    st.tuples(st.just("book"), BOOKS, st.integers(1, 50)),
    st.tuples(st.just("tags"), BOOKS, st.lists(st.integers(1, 50), min_size=3, max_size=3)),
    st.tuples(st.just("forget"), BOOKS, st.integers(0, 3)),
)


def made(records: list[tuple[int, frozenset[int]]], first: int) -> SortedRun:
    """A run of records with their tags, from a seqnum on."""
    streams: dict[tuple[int, int], list[int]] = {}
    counters: dict[tuple[int, int], list[int]] = {}
    for seqnum, (book, tags) in enumerate(records, first):
        for tag in (0, *sorted(tags)):
            streams.setdefault((book, tag), []).append(seqnum)
            counters.setdefault((book, tag), []).append(LIVE if tag else max(1, len(tags)))
    return SortedRun.from_segments(
        np.array([book for book, _ in streams], np.uint64),
        np.array([tag for _, tag in streams], np.uint64),
        np.array([len(rows) for rows in streams.values()], np.int64),
        np.array([row for rows in streams.values() for row in rows], np.uint64),
        np.array([row for rows in counters.values() for row in rows], np.uint8),
    )


def die(where: SortedRun | RunMerge, death: tuple[str, int, int | list[int]]) -> None:
    kind, book, what = death
    if isinstance(what, list):
        where.trim(book, np.array([1, 2, 3], np.uint64), what)
    elif kind == "book":
        where.trim_book(book, what)
    else:  # what is forgotten is dead
        if what:
            where.trim(book, np.array([what], np.uint64), [2**63])
        else:
            where.trim_book(book, 2**63)
        where.drop(book, what)


def living(run: SortedRun | None) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Live rows with their counters, and what says which record is the newest of a stream."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at in range(0 if run is None else len(run.books)):
        assert run is not None
        key, (first, stop) = run.key(at), run.span(at)
        if run.find(*key) is None:
            continue
        rows = list(zip(run.rows[first:stop].tolist(), run.held_view[first:stop].tolist(), strict=True))
        live = [(row, held) for row, held in rows if held == LIVE or (held != CUT and not key[1])]
        newest = rows[-1][0] if not key[1] or rows[-1][1] in (LIVE, SUNK) else 0
        if live or newest:
            found[key] = [*live, (newest, -1)]
    return found


@given(runs=RUNS, before=st.lists(DEATH, max_size=3), during=st.lists(DEATH, max_size=4), rows=st.integers(1, 9))
def test_what_dies_meanwhile_is_dead_in_the_result(
    runs: list[list[tuple[int, frozenset[int]]]],
    before: list[tuple[str, int, int | list[int]]],
    during: list[tuple[str, int, int | list[int]]],
    rows: int,
) -> None:
    ends = np.cumsum([1, *map(len, runs)]).tolist()
    sources = [made(records, first) for records, first in zip(runs, ends, strict=False)]
    apart = [made(records, first) for records, first in zip(runs, ends, strict=False)]
    for death in before:
        for run in (*sources, *apart):
            die(run, death)
    merge = RunMerge(sources)
    deaths = iter(during)
    while True:
        looked_at = merge.looked_at
        more = merge.work(rows)
        assert merge.looked_at - looked_at <= max(rows, REPLAYED_PAIRS)
        if not more:
            break
        for death in islice(deaths, 1):
            for run in (*sources, *apart):
                die(run, death)
            die(merge, death)
    for death in deaths:
        for run in (*apart, *([] if merge.result is None else [merge.result])):
            die(run, death)
    assert living(merge.result) == living(merged(apart))


def test_a_long_stream_and_many_short_ones_are_merged_in_slices_of_equal_size() -> None:
    """What counts is rows, however they lie: the longest slice of either looks at no more than it was allowed."""
    dense: list[tuple[int, frozenset[int]]] = [(1, frozenset((5,)))] * 20_000
    sparse = [(1, frozenset((at,))) for at in range(10, 20_010)]
    for records in (dense, sparse):
        merge = RunMerge([made(records, first) for first in (1, 20_001, 40_001)])
        most = slices = 0
        more = True
        while more:
            looked_at = merge.looked_at
            more = merge.work(1_000)
            most, slices = max(most, merge.looked_at - looked_at), slices + 1
        assert most <= 1_000
        assert 120 <= slices <= 400
        assert merge.result is not None and len(merge.result) == 120_000


def test_columns_that_others_have_do_not_change() -> None:
    run = made([(1, frozenset((5,))), (1, frozenset())], 1)
    held, _ = run.share()
    before = held.tolist()
    run.trim_book(1, 2)
    assert held.tolist() == before != run.held.tolist()


def test_a_merge_that_gets_too_much_gives_up() -> None:
    merge = RunMerge([made([(1, frozenset())], 1)])
    tags = np.arange(1, 4_097, dtype=np.uint64)
    for _ in range(CHANGED_PAIRS // len(tags)):
        merge.trim(1, tags, [2] * len(tags))
    assert not merge.overrun
    merge.drop(1, 5)
    assert merge.overrun


@pytest.mark.parametrize(
    ("lengths", "dead", "due"),
    [
        ([], [], None),
        ([8, 8, 8], [0, 0, 0], None),
        ([8, 8, 8, 8], [0, 0, 0, 0], (0, 4)),
        ([99, 8, 8, 8], [0, 0, 0, 0], None),
        ([99, 8, 8, 8, 8], [0, 0, 0, 0, 0], (1, 5)),
        ([40, 40, 40, 40], [0, 0, 0, 0], None),
        ([8, 8, 8, 8], [0, 2, 1, 0], (1, 2)),
        ([8, 8, 8], [1, 1, 1], None),
    ],
)
def test_which_runs_are_merged_next(lengths: list[int], dead: list[int], due: tuple[int, int] | None) -> None:
    assert next_merge(lengths, dead, largest=100) == due


@given(st.lists(st.integers(1, 40), max_size=200))
def test_runs_are_few_and_a_row_is_merged_seldom(added: list[int]) -> None:
    runs: list[int] = []
    looked_at = 0
    for rows in added:
        runs.append(rows)
        while (due := next_merge(runs, [0] * len(runs), largest=10**9)) is not None:
            first, stop = due
            looked_at += sum(runs[first:stop])
            runs[first:stop] = [sum(runs[first:stop])]
    total = sum(added)
    assert len(runs) <= MERGED_RUNS * max(1, total.bit_length())
    assert looked_at <= total * total.bit_length()
