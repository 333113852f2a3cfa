"""Marks of streams against a dict, whichever part they lie in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.index.trim_marks import TrimMarks

BOOKS = st.sampled_from([0, 1, 2**64 - 1])
TAGS = st.one_of(st.integers(1, 4), st.just(2**64 - 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), BOOKS, TAGS, st.integers(1, 2**63)),
        st.tuples(st.just("drop"), BOOKS, TAGS, st.just(0)),
        st.tuples(st.just("drop_book"), BOOKS, st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 4))
def test_marks_equal_those_of_a_dict(steps: list[tuple[str, int, int, int]], tail_marks: int) -> None:
    marks = TrimMarks(tail_marks=tail_marks)
    model: dict[tuple[int, int], int] = {}
    for step, book, tag, mark in steps:
        if step == "put":
            marks.put(book, tag, mark)
            model[book, tag] = mark
        elif step == "drop":
            marks.drop(book, tag)
            model.pop((book, tag), None)
        else:
            marks.drop_book(book)
            model = {key: value for key, value in model.items() if key[0] != book}
        for one in model:
            assert marks.get(*one) == model[one]
        assert marks.get(book, tag or 9) == model.get((book, tag or 9), 0)
    columns = marks.columns()
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert rows == [(*key, model[key]) for key in sorted(model)]
    again = TrimMarks(columns)
    for book, tag in model:
        again.put(book, tag, 7)
    assert columns.marks.tolist() == [row[2] for row in rows], "what a snapshot holds never changes"
    assert all(again.get(*key) == 7 for key in model)


def test_a_mark_costs_24_bytes_once_there_are_many() -> None:
    marks = TrimMarks(tail_marks=1_000)
    for tag in range(1, 10_001):
        marks.put(1, tag, tag)
    assert marks.bytes / 10_000 < 30
    assert marks.get(1, 10_000) == 10_000
    assert marks.get(1, 10_001) == marks.get(2, 5) == 0
