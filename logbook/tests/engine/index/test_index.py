"""The index against a list of records with their tags, whichever parts its rows lie in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boki_logbook.index.index import WORK_PER_ROW, Index
from boki_logbook.index.run_merge import DEAD_SHARE
from boki_logbook.testing.cluster import RecordSpec, RunSpec, books_of, make_batch

WRITER = bytes(16)
BIG = 2**64 - 3
TAGS = st.one_of(st.integers(1, 4), st.just(BIG))
BOOKS = st.sampled_from([0, 1, 2**64 - 1])
RECORDS = st.lists(TAGS, max_size=3).map(lambda tags: RecordSpec(tags=tuple(tags)))
RUNS = st.tuples(BOOKS, st.lists(RECORDS, min_size=1, max_size=4)).map(
    lambda drawn: RunSpec(drawn[0], WRITER, 1, tuple(drawn[1]))
)
BOUNDS = st.one_of(st.integers(0, 200), st.just(2**63 - 1), st.just(2**64 - 1))
TAG_OR_ALL = st.one_of(st.just(0), TAGS)


class PlainRecord(NamedTuple):
    book: int
    seqnum: int
    tags: frozenset[int]


class ModelIndex:
    """What DESIGN §7 says of trim, word by word."""

    def __init__(self) -> None:
        self.records: list[PlainRecord] = []
        self.marks: dict[tuple[int, int], int] = {}
        self.newest: dict[tuple[int, int], int] = {}

    def add(self, book: int, seqnum: int, tags: Iterable[int]) -> None:
        self.records.append(PlainRecord(book, seqnum, frozenset(tags)))
        for tag in (0, *tags):
            self.newest[book, tag] = seqnum

    def mark(self, book: int, tag: int) -> int:
        return max(self.marks.get((book, 0), 0), self.marks.get((book, tag), 0))

    def holds(self, record: PlainRecord, tag: int) -> bool:
        """Whether one of the record's own tags still holds it."""
        return tag in record.tags and record.seqnum >= self.mark(record.book, tag)

    def live(self, record: PlainRecord) -> bool:
        if record.seqnum < self.mark(record.book, 0):
            return False
        return not record.tags or any(self.holds(record, tag) for tag in record.tags)

    def rows(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for record in self.records:
            for tag in (0, *record.tags):
                found.setdefault((record.book, tag), []).append(record.seqnum)
        return found

    def trim(self, book: int, pairs: Sequence[tuple[int, int]]) -> set[int]:
        before = {record.seqnum for record in self.records}
        for tag, mark in pairs:
            newest = self.newest.get((book, tag), 0)
            takes = not tag or any(
                (one.book, tag in one.tags) == (book, True) and one.seqnum < mark for one in self.records
            )
            if newest and mark > 1 and takes:  # nothing is below the first place
                self.marks[book, tag] = max(self.marks.get((book, tag), 0), min(mark, newest + 1))
        self.records = [
            record._replace(tags=frozenset(tag for tag in record.tags if self.holds(record, tag)))
            for record in self.records
            if self.live(record)
        ]
        return before - {record.seqnum for record in self.records}

    def forget(self, book: int, tags: Sequence[int], old: int) -> int:
        rows, newest_of_all = self.rows(), 0
        for tag in tags:
            newest = self.newest.get((book, tag), 0)
            if newest and newest <= old and (book, tag) not in rows:
                newest_of_all = max(newest_of_all, newest)
                for key in [key for key in self.newest if key[0] == book and (key[1] == tag or not tag)]:
                    del self.newest[key]
                    if key[1]:
                        self.marks.pop(key, None)
                if not tag:  # nothing of the book is left
                    break
        return newest_of_all


class IndexMachine(RuleBasedStateMachine):
    """Adds spans of batches, freezes, trims and forgets at odd moments, and asks everything."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()

    @initialize(
        tail_rows=st.sampled_from([1, 7, 30, 10_000]),
        slice_rows=st.sampled_from([1, 5, None]),
        few_runs=st.sampled_from([0, 1, 1_000]),
        spread_rows=st.sampled_from([0, 10]),
    )
    def start(self, tail_rows: int, slice_rows: int | None, few_runs: int, spread_rows: int) -> None:
        self.patch.setattr("boki_logbook.index.index_tail.FEW_RUNS", few_runs)
        self.patch.setattr("boki_logbook.index.index.SPREAD_ROWS", spread_rows)
        self.index = Index(tail_rows=tail_rows, slice_rows=slice_rows)
        self.model = ModelIndex()
        self.next_seqnum = 1

    @rule(runs=st.lists(RUNS, min_size=1, max_size=2), gap=st.integers(0, 5), data=st.data())
    def add(self, runs: list[RunSpec], gap: int, data: st.DataObject) -> None:
        batch = make_batch(*runs)
        count = batch.record_count
        first = data.draw(st.one_of(st.just(0), st.integers(0, count - 1)))
        stop = data.draw(st.one_of(st.just(count), st.integers(first + 1, count)))
        self.next_seqnum += gap
        books = list(books_of(batch))
        for record in range(first, stop):
            tags = batch.record_tags(record).tolist()
            self.model.add(books[record], self.next_seqnum + record, dict.fromkeys(tags))
        self.index.add(batch, first, stop, self.next_seqnum)
        self.next_seqnum += count

    @rule()
    def freeze(self) -> None:
        self.index.freeze()

    @rule()
    def one_slice(self) -> None:
        self.index.tidy()

    @rule()
    def tidy(self) -> None:
        while self.index.tidy():
            pass

    @rule(book=BOOKS, pairs=st.lists(st.tuples(TAG_OR_ALL, BOUNDS), max_size=4))
    def trim(self, book: int, pairs: list[tuple[int, int]]) -> None:
        died = self.index.trim(book, pairs).tolist()
        assert len(set(died)) == len(died)
        assert set(died) == self.model.trim(book, pairs)

    @rule(book=BOOKS, tags=st.lists(TAG_OR_ALL, max_size=3), old=BOUNDS)
    def forget(self, book: int, tags: list[int], old: int) -> None:
        assert self.index.forget(book, tags, lambda seqnum: seqnum <= old) == self.model.forget(book, tags, old)

    @rule(book=BOOKS, tag=TAG_OR_ALL, start=BOUNDS, stop=BOUNDS, limit=st.integers(1, 20))
    def look(self, book: int, tag: int, start: int, stop: int, limit: int) -> None:
        rows = self.model.rows().get((book, tag), [])
        inside = [seqnum for seqnum in rows if start <= seqnum < stop]
        assert self.index.ascending(book, tag, start, stop, limit) == inside[:limit]
        below = [seqnum for seqnum in reversed(rows) if stop <= seqnum <= start]
        assert self.index.descending(book, tag, start, stop, limit) == below[:limit]
        assert self.index.next(book, tag, start) == next((one for one in rows if one >= start), 0)
        assert self.index.prev(book, tag, start) == next((one for one in reversed(rows) if one <= start), 0)
        assert self.index.next(book, tag, start, stop) == next(iter(inside), 0)
        assert self.index.prev(book, tag, start, stop) == next(iter(below), 0)

    @rule(book=BOOKS, tag=TAG_OR_ALL)
    def newest(self, book: int, tag: int) -> None:
        assert self.index.newest(book, tag) == self.model.newest.get((book, tag), 0)
        assert self.index.mark(book, tag) == self.model.mark(book, tag)

    @rule(book=BOOKS, tags=st.lists(TAG_OR_ALL, max_size=4))
    def newest_of(self, book: int, tags: list[int]) -> None:
        assert self.index.newest_of(book, tags) == [self.model.newest.get((book, tag), 0) for tag in tags]

    @invariant()
    def no_row_is_missing(self) -> None:
        if hasattr(self, "index"):
            assert len(self.index) >= sum(map(len, self.model.rows().values()))

    @rule()
    def same_rows(self) -> None:
        """Not always: who looks changes what the rows are kept as."""
        assert self.index.streams() == self.model.rows()
        assert self.index.count_books() >= len({book for book, _ in self.model.rows()})

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.same_rows()
        self.patch.undo()


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=100, stateful_step_count=30)


def test_an_empty_index_knows_nothing() -> None:
    index = Index()
    assert (index.newest(1, 0), index.next(1, 0, 0), index.prev(1, 0, 9), len(index), index.bytes) == (0, 0, 0, 0, 0)
    index.freeze()
    assert len(index.runs) == 0


def test_the_tail_is_frozen_above_its_size_and_runs_stay_few() -> None:
    index = Index(tail_rows=100)
    batch = make_batch(RunSpec(1, WRITER, 1, (RecordSpec(tags=(5,)),) * 10))
    for at in range(1_000):
        index.add(batch, 0, 10, 1 + 10 * at)
    assert len(index) == 20_000
    assert len(index.runs) <= 16
    assert index.ascending(1, 5, 4_995, 5_005, 99) == list(range(4_995, 5_005))


def test_a_dense_row_costs_less_than_16_bytes() -> None:
    index = Index()
    records = tuple(RecordSpec(tags=(1 + at % 50,)) for at in range(1_000))
    batch = make_batch(RunSpec(1, WRITER, 1, records))
    for at in range(300):
        index.add(batch, 0, 1_000, 1 + 1_000 * at)
    assert index.bytes / len(index) < 16


def test_a_tag_named_twice_by_a_record_counts_once() -> None:
    index = Index()
    index.add(make_batch(RunSpec(1, WRITER, 1, (RecordSpec(tags=(5, 6, 5)), RecordSpec(tags=(5, 5))))), 0, 2, 10)
    assert index.streams() == {(1, 0): [10, 11], (1, 5): [10, 11], (1, 6): [10]}
    assert len(index) == 5


def test_no_batch_pays_for_more_than_a_few_slices_and_all_pay_enough() -> None:
    """Each record has a tag of its own, which is the worst there is: what merges look at comes in small parts."""
    index = Index(tail_rows=1_024)
    records, most = 100, 0
    for at in range(400):
        tags = range(1 + records * at, 1 + records * (at + 1))
        batch = make_batch(RunSpec(1, WRITER, 1, tuple(RecordSpec(tags=(tag,)) for tag in tags)))
        before = index.merged_rows
        index.add(batch, 0, records, 1 + records * at)
        most = max(most, index.merged_rows - before)
    assert 0 < most <= 2 * WORK_PER_ROW * 2 * records + 1_024
    assert len(index.runs) <= 24
    assert all(index.ascending(1, tag, 0, 2**63, 9) == [tag] for tag in range(1, 40_001, 997))


def test_what_dies_while_a_run_is_rewritten_stays_dead() -> None:
    """Step by step, with trims between the steps, against an index that is put in order at once."""
    slow, quick = Index(slice_rows=1), Index()
    found = []
    for index in (slow, quick):
        tagged = (RecordSpec(tags=(5, 6)),) * 40
        index.add(make_batch(RunSpec(1, WRITER, 1, tagged), RunSpec(2, WRITER, 1, tagged[:10])), 0, 50, 1)
        index.add(make_batch(RunSpec(3, WRITER, 1, tagged[:10])), 0, 10, 51)
        index.freeze()
        died = [index.trim(1, [(5, 41), (6, 6)]).tolist()]  # a quarter of the run is dead: it is rewritten from here on
        assert (index.merged_rows == 1) == (index is slow)
        died.append(index.trim(1, [(6, 20)]).tolist())
        died.append(index.trim(3, [(0, 55)]).tolist())
        died.append(index.trim(2, [(0, 2**63)]).tolist())
        forgotten = index.forget(2, [0], lambda _: True)
        while index.tidy():
            pass
        died.append(index.trim(1, [(6, 30)]).tolist())
        while index.tidy():
            pass
        found.append((died, forgotten, index.newest(2, 0), index.newest(3, 0), len(index), index.streams()))
    assert found[0] == found[1]
    assert found[0][2:4] == (0, 60)


@pytest.mark.parametrize("by_tags", [False, True])
def test_rows_that_died_leave_memory_when_there_is_time(by_tags: bool) -> None:
    """Of a million rows some hundreds live: nearly nothing else is left, though nobody adds any more."""
    index = Index(tail_rows=2_000)
    records = tuple(RecordSpec(tags=(1 + at % 5,)) for at in range(500))
    batch = make_batch(RunSpec(1, WRITER, 1, records))
    for at in range(200):
        index.add(batch, 0, 500, 1 + 500 * at)
    last = 200 * 500
    pairs = [(tag, last - 99) for tag in range(1, 6)] if by_tags else [(0, last - 99)]
    assert len(index.trim(1, pairs)) == last - 100
    while index.tidy():
        pass
    live = sum(map(len, index.streams().values()))
    tail = 2_000
    assert live == 200
    assert len(index) <= live * DEAD_SHARE / (DEAD_SHARE - 1) + tail + 6 * len(index.runs)
    index.freeze()
    while index.tidy():
        pass
    assert len(index) <= live * DEAD_SHARE / (DEAD_SHARE - 1) + 6 * len(index.runs)
    assert index.bytes <= 40 * len(index) + 1_000


@pytest.mark.parametrize("tag", [0, 5])
def test_lookups_across_terms(tag: int) -> None:
    index = Index(tail_rows=4)
    batch = make_batch(RunSpec(1, WRITER, 1, (RecordSpec(tags=(5,)),) * 2))
    firsts = [1 << 35, 2 << 35, (7 << 35) + 100]
    for first in firsts:
        index.add(batch, 0, 2, first)
    everything = [first + at for first in firsts for at in (0, 1)]
    assert index.ascending(1, tag, 0, 2**63 - 1, 99) == everything
    assert index.descending(1, tag, 2**63 - 1, 0, 99) == everything[::-1]
    assert index.next(1, tag, (1 << 35) + 2) == 2 << 35
    assert index.prev(1, tag, (7 << 35) + 99) == (2 << 35) + 1


def test_a_hundred_thousand_books_are_apart() -> None:
    """A record to each, and to every hundredth one more, of a tag that all of these have: none is seen elsewhere."""
    count, at_once = 100_000, 10_000
    index = Index()
    for first in range(0, count, at_once):
        runs = [RunSpec(book, WRITER, 1, (RecordSpec(),)) for book in range(first, first + at_once)]
        index.add(make_batch(*runs), 0, at_once, first + 1)
    again = [RunSpec(book, WRITER, 2, (RecordSpec(tags=(5,)),)) for book in range(0, count, 100)]
    index.add(make_batch(*again), 0, len(again), count + 1)
    assert index.count_books() == count
    for book in range(0, count, 50):
        mine = [book + 1] if book % 100 else [book + 1, count + 1 + book // 100]
        assert index.ascending(book, 0, 0, 2**63, 10) == mine
        assert index.descending(book, 0, 2**63, 0, 10) == mine[::-1]
        assert index.ascending(book, 5, 0, 2**63, 10) == mine[1:]
    index.trim(100, [(0, 2**63)])
    assert (index.ascending(100, 0, 0, 2**63, 1), index.ascending(101, 0, 0, 2**63, 1)) == ([], [102])
