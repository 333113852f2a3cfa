"""The tail of the index: books with one record, and books with streams, look the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.index.index_tail import BATCH_START, IndexTail
from boki_logbook.index.trim_marks import TrimMarks
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

WRITER = bytes(16)
BOOKS = range(1, 6)
TAGS = range(1, 8)
RECORDS = st.lists(st.sampled_from(TAGS), max_size=3).map(lambda tags: RecordSpec(tags=tuple(tags)))
RUNS = st.tuples(st.sampled_from(BOOKS), st.lists(RECORDS, min_size=1, max_size=3)).map(
    lambda drawn: RunSpec(drawn[0], WRITER, 1, tuple(drawn[1]))
)


def add(tail: IndexTail, first_seqnum: int, *runs: RunSpec) -> int:
    """The seqnum after the last one."""
    batch = make_batch(*runs)
    tail.add(batch, 0, batch.record_count, first_seqnum, BATCH_START)
    return first_seqnum + batch.record_count


def rows(tail: IndexTail) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """Stream → its seqnums, and for tag 0 the counters."""
    found = {}
    for book in BOOKS:
        for tag in (0, *TAGS):
            part = tail.rows_of(book, tag)
            if part is not None:
                found[book, tag] = part[0].tolist(), [] if tag else list(part[1])
            assert tail.newest(book, tag) == (part[0][-1] if part else 0)
    assert sorted(found) == sorted(tail.streams())
    return found


def freeze_to_the_same(*tails: IndexTail) -> None:
    one, other = (tail.freeze() for tail in tails)
    assert one is not None and other is not None
    for column in ("books", "tags", "offsets", "seqnums", "held"):
        assert getattr(one, column).tolist() == getattr(other, column).tolist(), column


@given(
    st.lists(st.tuples(st.booleans(), st.lists(RUNS, min_size=1, max_size=3)), min_size=1, max_size=5), st.booleans()
)
def test_batches_of_many_books_look_as_others_and_freeze_to_the_same_run(
    batches: list[tuple[bool, list[RunSpec]]], look: bool
) -> None:
    some, plain = IndexTail(), IndexTail()
    seqnum = 1
    for wide, runs in batches:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("boki_logbook.index.index_tail.FEW_RUNS", 0 if wide else 1_000)
            add(some, seqnum, *runs)
        seqnum = add(plain, seqnum, *runs)
        assert (some.rows, set(some.books().tolist())) == (plain.rows, set(plain.books().tolist()))
    if look:
        assert rows(some) == rows(plain)
        assert some.bulk_rows == 0
    freeze_to_the_same(some, plain)
    assert (some.rows, some.bulk_rows, rows(some), some.freeze()) == (0, 0, {}, None)


def test_a_batch_of_many_books_is_columns_until_somebody_looks() -> None:
    tail = IndexTail()
    runs = [RunSpec(book, WRITER, 1, (RecordSpec(tags=(5,) * (book % 2)),)) for book in range(2_000)]
    add(tail, 1, *runs)
    assert (tail.rows, tail.bulk_rows, len(tail._single), len(tail.books())) == (3_000, 3_000, 0, 2_000)
    assert (tail.newest(1_001, 5), tail.newest(1_000, 5), tail.newest(7, 0)) == (1_002, 0, 8)
    assert (tail.rows, tail.bulk_rows, len(tail._single)) == (3_000, 0, 2_000)


def test_a_batch_with_several_tags_a_record_is_looked_at_at_once() -> None:
    tail = IndexTail()
    add(tail, 1, *(RunSpec(book, WRITER, 1, (RecordSpec(tags=(5, 5)),)) for book in range(200)))
    assert (tail.rows, tail.bulk_rows) == (400, 0)


@given(st.lists(st.lists(RUNS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_books_of_one_record_look_as_others_and_freeze_to_the_same_run(batches: list[list[RunSpec]]) -> None:
    some, spread = IndexTail(), IndexTail()
    seqnum = after = 1
    for runs in batches:
        seqnum, after = add(some, seqnum, *runs), add(spread, after, *runs)
        for book in BOOKS:
            spread._of(book)
        assert not spread._single
        assert rows(some) == rows(spread)
        assert some.rows == spread.rows == sum(len(found) for found, _ in rows(some).values())
    freeze_to_the_same(some, spread)
    assert (some.rows, rows(some), some.freeze()) == (0, {}, None)


def test_a_book_with_one_record_has_no_streams_until_it_has_two() -> None:
    tail = IndexTail()
    add(tail, 10, RunSpec(1, WRITER, 1, (RecordSpec(),)), RunSpec(2, WRITER, 1, (RecordSpec(tags=(5, 5, 6)),)))
    assert (list(tail._books), tail.rows, tail.books().tolist()) == ([], 4, [1, 2])
    add(tail, 20, RunSpec(1, WRITER, 2, (RecordSpec(),)))
    assert (list(tail._books), list(tail._single), tail.rows) == ([1], [2], 5)
    assert rows(tail)[1, 0] == ([10, 20], [1, 1])


def test_a_tag_that_equals_a_single_records_seqnum_is_not_its_own() -> None:
    tail = IndexTail()
    add(tail, 5, RunSpec(1, WRITER, 1, (RecordSpec(tags=(7,)),)))
    assert (tail.newest(1, 5), tail.rows_of(1, 5), tail.newest(1, 7)) == (0, None, 5)


def test_holes_are_the_dead_rows_that_are_left() -> None:
    tail, marks = IndexTail(), TrimMarks()
    add(tail, 1, *(RunSpec(book, WRITER, 1, (RecordSpec(tags=(5,)), RecordSpec(), RecordSpec())) for book in (1, 2)))
    assert tail.trim(1, [5], [9]).tolist() == [1]
    assert tail.holes == 1
    assert tail.trim_book(1, 3, marks).tolist() == [2]
    assert tail.holes == 0, "the rows are gone"
    assert tail.trim_book(1, 99, marks).tolist() == [3]
    assert tail.holes == 1, "the newest one stays"
    tail.forget(1)
    assert (tail.holes, tail.rows, list(rows(tail))) == (0, 4, [(2, 0), (2, 5)])
