"""Which books have a record: a set in the order in which they came. Pure.

Of a batch of many books nearly all are known, and asking a dict for each means waiting for memory once a book. So some are
remembered by bits of their numbers in a column (`_seen`): what is there is known, and is asked for together with all others.
What is not is asked for in the dict, which alone counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from boki_logbook.sorted_run import U64

_SEEN_PER_BOOK: Final = 4
_LEAST_SEEN_BITS: Final = 8
_SCATTER: Final = np.uint64(0x9E3779B97F4A7C15)
"""Odd: numbers of books may follow one another, and the highest bits of the product do not."""


class KnownBooks:
    """See the module. Invariant: what `_seen` has at the place of its number is in `books`."""

    def __init__(self, books: Iterable[int] = ()) -> None:
        self.books: dict[int, None] = dict.fromkeys(books)
        """All of them; for adding one, and for looking."""
        self._resize(_LEAST_SEEN_BITS)

    def _resize(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._seen = np.zeros(1 << bits, np.uint64)
        self._seen[0] = 1  # book 0 has this place, and is not known before it is added

    def __len__(self) -> int:
        return len(self.books)

    def __iter__(self) -> Iterator[int]:
        return iter(self.books)

    def add_many(self, books: U64) -> None:
        """Books of one batch, in order."""
        places = books * _SCATTER >> self._shift
        new = self._seen[places] != books
        if not new.any():
            return
        some = books[new]
        self.books.update(dict.fromkeys(some.tolist()))
        if _SEEN_PER_BOOK * len(self.books) > len(self._seen):
            self._resize((_SEEN_PER_BOOK * len(self.books)).bit_length())
            places = books * _SCATTER >> self._shift
        self._seen[places] = books

    def drop(self, book: int) -> None:
        """It has no record any more."""
        self.books.pop(book, None)
        (place,) = (np.array((book,), np.uint64) * _SCATTER >> self._shift).tolist()
        if self._seen[place] == book:
            self._seen[place] = 0 if place else 1
