"""What was looked up before is believed, but never what was dropped, nor what was never there."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from boki_logbook.known_books import KnownBooks

BOOKS = st.one_of(st.integers(0, 8), st.integers(2**64 - 4, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(st.lists(st.one_of(st.lists(BOOKS, min_size=1, max_size=40), BOOKS), max_size=20))
def test_books_are_known_in_the_order_in_which_they_came_until_they_are_dropped(steps: list[list[int] | int]) -> None:
    known, model = KnownBooks(), dict[int, None]()
    for step in steps:
        if isinstance(step, int):
            known.drop(step)
            model.pop(step, None)
        else:
            known.add_many(np.array(step, np.uint64))
            model.update(dict.fromkeys(step))
        assert (list(known), len(known)) == (list(model), len(model))


def test_many_books_are_remembered_and_asked_for_once() -> None:
    known, books = KnownBooks(), np.arange(20_000, dtype=np.uint64)
    known.add_many(books)
    known.add_many(books)
    remembered = np.count_nonzero(np.isin(books, known._seen))
    assert remembered > 0.8 * len(books)
    assert len(known) == 20_000
    for book in range(0, 20_000, 2):
        known.drop(book)
    assert list(known) == list(range(1, 20_000, 2))
    known.add_many(books)
    assert len(known) == 20_000


def test_a_large_number_is_dropped_without_a_warning() -> None:
    known = KnownBooks([2**64 - 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known.drop(2**64 - 1)
    assert not len(known)
