"""Where streams of a batch begin in it; what conditions see of it is in test_verdict.py, against the model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.index.batch_streams import BatchStreams, first_with
from boki_logbook.index.index import Index
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

BOOKS = st.integers(1, 3)
TAGS = st.lists(st.integers(1, 4), max_size=3).map(tuple)
RUNS = st.lists(st.tuples(BOOKS, st.lists(TAGS, min_size=1, max_size=4)), min_size=1, max_size=5)
FIRST_SEQNUM = 100


def batch_of(runs: list[tuple[int, list[tuple[int, ...]]]]) -> list[RunSpec]:
    return [RunSpec(book, bytes(16), 1, tuple(RecordSpec(tags=one) for one in tags)) for book, tags in runs]


@given(RUNS)
def test_the_first_record_of_each_book_with_each_tag(runs: list[tuple[int, list[tuple[int, ...]]]]) -> None:
    expected: dict[int, dict[int, int]] = {}
    records = [(book, one) for book, tags in runs for one in tags]
    for record, (book, tags) in enumerate(records):
        for tag in (0, *tags):
            expected.setdefault(book, {}).setdefault(tag, record)
    assert first_with(make_batch(*batch_of(runs))) == expected


def test_streams_are_looked_up_together_while_no_record_before_may_have_joined() -> None:
    index = Index()
    streams = BatchStreams(index)
    batch = make_batch(*batch_of([(1, [(5,), (), (6,)]), (2, [(7,), ()])]))
    streams.begin(batch, FIRST_SEQNUM)
    assert streams.newest_before(1, [5, 6], [0, 2]) == [0, 0]
    assert streams.newest_before(1, [5, 6], [1, 2]) is None
    assert streams.newest_before(1, [0], [0]) == [0]
    assert streams.newest_before(1, [8, 0], [1, 1]) is None
    assert streams.newest_before(2, [5, 0, 7], [4, 3, 3]) == [0, 0, 0], "records of other books matter to nobody"
    assert streams.newest_before(2, [0], [4]) is None
    streams.commit(0, 5)
    assert (index.newest(1, 0), streams.newest(1, 8), index.newest(1, 0)) == (0, 0, 0), "nobody of the batch has tag 8"
    assert [streams.newest(*key) for key in ((1, 5), (1, 0), (2, 7), (2, 0))] == [100, 102, 103, 104]
