"""One frozen part of the index: streams as sorted columns, built vectorised and searched by bisection. Pure.

    books      u64[k]     one row per stream (book, tag), ascending
    tags       u64[k]     0 = every record of the book
    offsets    u32[k+1]   where a stream's seqnums begin
    seqnums    u64[n]     ascending within a stream

20 bytes a stream and 8 a row. A run is made of segments that are sorted already: the arrays of the live tail, or the
streams of older runs (`merge`). Nothing here is touched per record, except by numpy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]


class SortedRun:
    """Streams that never change again."""

    __slots__ = ("_books", "_offsets", "_seqnums", "_tags", "books", "newest", "offsets", "oldest", "seqnums", "tags")

    def __init__(self, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64) -> None:
        assert len(books) == len(tags) == len(offsets) - 1 and len(seqnums)
        self.books, self.tags, self.offsets, self.seqnums = books, tags, offsets, seqnums
        # Bisection of a memoryview costs a microsecond; numpy's search costs several, mostly in converting its argument.
        self._books, self._tags = books.data, tags.data
        self._offsets, self._seqnums = offsets.data, seqnums.data
        self.oldest = int(seqnums.min())
        self.newest = int(seqnums.max())

    def __len__(self) -> int:
        """Rows."""
        return len(self.seqnums)

    @property
    def bytes(self) -> int:
        return self.books.nbytes + self.tags.nbytes + self.offsets.nbytes + self.seqnums.nbytes

    def find(self, book: int, tag: int) -> memoryview | None:
        """The seqnums of a stream, ascending, or None."""
        low = bisect_left(self._books, book)
        if low == len(self._books) or self._books[low] != book:
            return None
        high = bisect_right(self._books, book, low)
        at = bisect_left(self._tags, tag, low, high)
        if at == high or self._tags[at] != tag:
            return None
        return self._seqnums[self._offsets[at] : self._offsets[at + 1]]

    @classmethod
    def from_segments(cls, books: U64, tags: U64, lengths: NDArray[np.int64], seqnums: U64) -> SortedRun:
        """Makes a run of segments in any order.

        Args:
            books, tags: the stream of each segment; of segments of one stream, the earlier one has the lower seqnums.
            lengths: rows of each segment, none of them 0.
            seqnums: of all segments, one after another.
        """
        if len(books) and (books == books[0]).all():
            order = np.argsort(tags, kind="stable")
        else:
            order = np.lexsort((tags, books))
        books, tags, moved = books[order], tags[order], lengths[order]
        begins = np.cumsum(lengths) - lengths
        ends = np.cumsum(moved)
        rows = np.repeat(begins[order] - (ends - moved), moved) + np.arange(len(seqnums))
        first = np.ones(len(books), np.bool_)
        first[1:] = (books[1:] != books[:-1]) | (tags[1:] != tags[:-1])
        offsets = np.append((ends - moved)[first], len(seqnums)).astype(np.uint32)
        return cls(books[first], tags[first], offsets, seqnums[rows])


def merge(runs: Sequence[SortedRun]) -> SortedRun:
    """One run of several; of one stream, earlier runs have the lower seqnums."""
    return SortedRun.from_segments(
        np.concatenate([run.books for run in runs]),
        np.concatenate([run.tags for run in runs]),
        np.concatenate([np.diff(run.offsets.astype(np.int64)) for run in runs]),
        np.concatenate([run.seqnums for run in runs]),
    )
