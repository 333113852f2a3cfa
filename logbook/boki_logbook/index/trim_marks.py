"""Up to where streams are trimmed: (book, tag) → mark, for very many streams. Pure.

    tail     dict (book, tag) → mark          new ones
    runs     books u64[k] | tags u64[k] | marks u64[k], ascending by stream; 24 bytes a stream

A stream is in one place at most, so a mark is changed where it is, and a mark of 0 is no mark: dropped when its run is merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import numpy as np

from boki_logbook.index.sorted_run import NO_ROWS, U64

TAIL_MARKS: Final = 16 * 1024
"""Marks at which the tail becomes a run; a mark of the tail costs some 250 bytes."""
MERGED_MARKS: Final = 512 * 1024
"""No merge makes a run of more: it would stop the engine for too long."""
TAIL_MARK_BYTES: Final = 250


class MarkColumns(NamedTuple):
    """Marks of streams, ascending by (book, tag)."""

    books: U64
    tags: U64
    marks: U64


NO_MARKS: Final = MarkColumns(NO_ROWS, NO_ROWS, NO_ROWS)


class TrimMarks:
    """Invariant: no stream has a mark in two places."""

    def __init__(self, columns: MarkColumns = NO_MARKS, *, tail_marks: int = TAIL_MARKS) -> None:
        self._tail_limit = tail_marks
        self._tail: dict[tuple[int, int], int] = {}
        self._runs: list[MarkColumns] = [MarkColumns(*columns[:2], columns.marks.copy())] if len(columns.books) else []

    @property
    def bytes(self) -> int:
        """Memory of all marks, roughly."""
        return sum(24 * len(run.books) for run in self._runs) + TAIL_MARK_BYTES * len(self._tail)

    def get(self, book: int, tag: int) -> int:
        """The mark of a stream, 0 if it has none."""
        mark = self._tail.get((book, tag))
        if mark is not None:
            return mark
        for run in self._runs:
            at = _find(run, book, tag)
            if at >= 0:
                return int(run.marks[at])
        return 0

    def put(self, book: int, tag: int, mark: int) -> None:
        """Sets the mark of a stream."""
        if (book, tag) not in self._tail:
            for run in self._runs:
                at = _find(run, book, tag)
                if at >= 0:
                    run.marks[at] = mark
                    return
        self._tail[book, tag] = mark
        if len(self._tail) >= self._tail_limit:
            self._freeze()

    def drop(self, book: int, tag: int) -> None:
        """The stream has no mark any more."""
        if self._tail.pop((book, tag), None) is None:
            for run in self._runs:
                at = _find(run, book, tag)
                if at >= 0:
                    run.marks[at] = 0

    def drop_book(self, book: int) -> None:
        """No stream of the book has a mark any more."""
        for key in [key for key in self._tail if key[0] == book]:
            del self._tail[key]
        for run in self._runs:
            low = bisect_left(run.books.data, book)
            run.marks[low : bisect_right(run.books.data, book, low)] = 0

    def columns(self) -> MarkColumns:
        """All marks, copied."""
        return _merged([*self._runs, self._tail_columns()])

    def _tail_columns(self) -> MarkColumns:
        count = len(self._tail)
        keys = np.fromiter((part for key in self._tail for part in key), np.uint64, 2 * count)
        return _merged([MarkColumns(keys[::2], keys[1::2], np.fromiter(self._tail.values(), np.uint64, count))])

    def _freeze(self) -> None:
        runs = self._runs
        runs.append(self._tail_columns())
        self._tail = {}
        while len(runs) > 1 and len(runs[-2].books) < 2 * len(runs[-1].books):
            if len(runs[-2].books) + len(runs[-1].books) > MERGED_MARKS:
                break
            last = runs.pop()
            runs[-1] = _merged([runs[-1], last])


def _find(run: MarkColumns, book: int, tag: int) -> int:
    """The row of a stream, -1 if it has none."""
    books = run.books.data
    low = bisect_left(books, book)
    if low == len(books) or books[low] != book:
        return -1
    high = bisect_right(books, book, low)
    at = bisect_left(run.tags.data, tag, low, high)
    return at if at < high and run.tags.data[at] == tag else -1


def _merged(parts: list[MarkColumns]) -> MarkColumns:
    """One run of several; marks of 0 are left out."""
    books, tags, marks = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = np.flatnonzero(marks)
    kept = kept[np.lexsort((tags[kept], books[kept]))]
    return MarkColumns(books[kept], tags[kept], marks[kept])
