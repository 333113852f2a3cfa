"""One frozen part of the index: streams as sorted columns, built vectorised and searched by bisection. Pure.

    books      u64[k]     one row per stream (book, tag), ascending; a book's first stream is that of tag 0
    tags       u64[k]     0 = every record of the book
    offsets    u32[k+1]   where a stream's seqnums begin
    seqnums    u64[n]     ascending within a stream
    held       u8[n]      whether the row is live; the only column that changes
                            tag 0: how many tags still hold the record, 1 for a record without tags, 0 = dead
                            else:  LIVE, CUT (below the tag's own mark), SUNK (below the book's mark)

20 bytes a stream and 9 a row. A run is made of segments that are sorted already: the arrays of the live tail, or the
streams of older runs (`merge`). Nothing here is touched per record, except by numpy.

Rows die in place (`trim`, `trim_book`, `drop`) and leave when the run is rewritten (`compacted`). Of a dead stream the last
row stays where nobody else knows the newest record that it ever had: of tag 0, and of a tag that fell with its book.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]

CUT: Final = 0
LIVE: Final = 1
SUNK: Final = 2
NO_ROWS: Final[U64] = np.empty(0, np.uint64)


class SortedRun:
    """Streams that get no more rows. Invariant: `held` of tag 0 is the number of the record's rows that are LIVE, or 1 if
    the record has no tags and is above the book's mark."""

    __slots__ = (
        "_books", "_gone", "_offsets", "_tags", "books", "dead", "held", "held_view", "newest", "offsets", "oldest", "rows",
        "seqnums", "stale", "tags",
    )  # fmt: skip

    def __init__(self, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64, held: U8) -> None:
        assert len(books) == len(tags) == len(offsets) - 1 and 0 < len(seqnums) == len(held)
        self.books, self.tags, self.offsets, self.seqnums, self.held = books, tags, offsets, seqnums, held
        # Bisection of a memoryview costs a microsecond; numpy's search costs several, mostly in converting its argument.
        self._books, self._tags, self._offsets = books.data, tags.data, offsets.data
        self.rows, self.held_view = seqnums.data, held.data
        self.oldest = int(seqnums.min())
        self.newest = int(seqnums.max())
        self.dead = 0
        """Rows that died since the run was made."""
        self.stale = False
        """Whether rows were dead when it was made: the last ones of dead streams."""
        self._gone: bytearray | None = None
        """One byte per stream: forgotten, as if it had never been."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.seqnums)

    @property
    def bytes(self) -> int:
        columns = self.books, self.tags, self.offsets, self.seqnums, self.held
        return sum(column.nbytes for column in columns) + len(self._gone or b"")

    def find(self, book: int, tag: int) -> tuple[int, int] | None:
        """Where the rows of a stream are, [first, stop), dead ones included; or None."""
        low = bisect_left(self._books, book)
        if low == len(self._books) or self._books[low] != book:
            return None
        high = bisect_right(self._books, book, low)
        at = bisect_left(self._tags, tag, low, high)
        if at == high or self._tags[at] != tag or (self._gone is not None and self._gone[at]):
            return None
        return self._offsets[at], self._offsets[at + 1]

    def _streams_of(self, book: int) -> tuple[int, int] | None:
        """The streams of a book, [first, stop), or None."""
        low = bisect_left(self._books, book)
        if low == len(self._books) or self._books[low] != book:
            return None
        return low, bisect_right(self._books, book, low)

    # -- dying

    def trim(self, book: int, tags: U64, marks: Sequence[int]) -> U64:
        """Tags let go of their records below a mark.

        Args:
            tags: ascending, none of them 0; `marks` in the same order.

        Returns:
            Seqnums of the records that no tag holds any more.
        """
        streams = self._streams_of(book)
        if streams is None:
            return NO_ROWS
        low, high = streams
        here = self.tags[low:high]
        places = np.minimum(np.searchsorted(here, tags), high - low - 1)
        offsets, held, fallen = self._offsets, self.held, []
        for one in np.flatnonzero(here[places] == tags).tolist():
            stream = low + int(places[one])
            first = offsets[stream]
            stop = bisect_left(self.rows, marks[one], first, offsets[stream + 1])
            if first < stop:
                part = held[first:stop]
                fallen.append(self.seqnums[first:stop][part == LIVE])
                part[:] = CUT
        if not fallen:
            return NO_ROWS
        seqnums, counts = np.unique(np.concatenate(fallen), return_counts=True)
        first, stop = offsets[low], offsets[low + 1]
        rows: NDArray[np.int64] = first + np.searchsorted(self.seqnums[first:stop], seqnums)
        held[rows] -= counts.astype(np.uint8)
        rows = rows[held[rows] == 0]
        self.dead += int(counts.sum()) + len(rows)
        return self.seqnums[rows]

    def trim_book(self, book: int, mark: int) -> U64:
        """All rows of a book below a mark die; returns the seqnums of the records that died. Looks at each of its rows."""
        streams = self._streams_of(book)
        if streams is None:
            return NO_ROWS
        low, high = streams
        first, tagged, end = self._offsets[low], self._offsets[low + 1], self._offsets[high]
        stop = bisect_left(self.rows, mark, first, tagged)
        if first == stop:
            return NO_ROWS
        died = self.seqnums[first:stop][self.held[first:stop] > 0]
        self.held[first:stop] = 0
        part = self.held[tagged:end]
        below = (self.seqnums[tagged:end] < np.uint64(mark)) & (part == LIVE)
        part[below] = SUNK
        self.dead += len(died) + int(np.count_nonzero(below))
        return died

    def drop(self, book: int, tag: int) -> None:
        """Forgets a dead stream; tag 0: all streams of the book."""
        streams = self._streams_of(book)
        if streams is None:
            return
        low, high = streams
        if tag:
            low = bisect_left(self._tags, tag, low, high)
            if low == high or self._tags[low] != tag:
                return
            high = low + 1
        if self._gone is None:
            self._gone = bytearray(len(self.books))
        self._gone[low:high] = b"\1" * (high - low)
        self.dead += high - low

    def compacted(self) -> SortedRun | None:
        """A run without the rows that are dead, or None if nothing is left."""
        lengths = lengths_of(self.offsets)
        of_all = self.tags == 0
        keep = np.where(np.repeat(of_all, lengths), self.held > 0, self.held == LIVE)
        last = self.offsets[1:].astype(np.int64) - 1
        keep[last] |= of_all | (self.held[last] != CUT)
        if self._gone is not None:
            keep &= ~np.repeat(np.frombuffer(self._gone, np.bool_), lengths)
        lengths = np.add.reduceat(keep, self.offsets[:-1].astype(np.int64), dtype=np.int64)
        streams = lengths > 0
        if not streams.any():
            return None
        offsets = np.append(0, np.cumsum(lengths[streams])).astype(np.uint32)
        return SortedRun.of_columns(
            self.books[streams], self.tags[streams], offsets, self.seqnums[keep], self.held[keep]
        )

    # -- making

    @classmethod
    def of_columns(cls, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64, held: U8) -> SortedRun:
        """A run of columns that are as described above; some rows may be dead."""
        run = cls(books, tags, offsets, seqnums, held)
        run.stale = not held.all() or bool((held[np.repeat(tags != 0, lengths_of(offsets))] != LIVE).any())
        return run

    @classmethod
    def from_segments(cls, books: U64, tags: U64, lengths: NDArray[np.int64], seqnums: U64, held: U8) -> SortedRun:
        """Makes a run of segments in any order.

        Args:
            books, tags: the stream of each segment; of segments of one stream, the earlier one has the lower seqnums.
            lengths: rows of each segment, none of them 0.
            seqnums, held: of all segments, one after another.
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
        return cls(books[first], tags[first], offsets, seqnums[rows], held[rows])


def lengths_of(offsets: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Rows of each stream."""
    wide = offsets.astype(np.int64)
    return wide[1:] - wide[:-1]


def merge(runs: Sequence[SortedRun]) -> SortedRun | None:
    """One run of several, without their dead rows; of one stream, earlier runs have the lower seqnums."""
    stale = any(run.stale for run in runs)
    whole = [run.compacted() if run.dead else run for run in runs]
    kept = [run for run in whole if run is not None]
    if not kept:
        return None
    stale = stale or any(run.stale for run in kept)
    merged = SortedRun.from_segments(
        np.concatenate([run.books for run in kept]),
        np.concatenate([run.tags for run in kept]),
        np.concatenate([lengths_of(run.offsets) for run in kept]),
        np.concatenate([run.seqnums for run in kept]),
        np.concatenate([run.held for run in kept]),
    )
    return merged.compacted() if stale else merged
