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
        "_books", "_gone", "_shared", "_tags", "books", "dead", "held", "held_view", "mapped", "newest", "offset_view",
        "offsets", "oldest", "rows", "seqnums", "stale", "tags",
    )  # fmt: skip

    def __init__(
        self,
        books: U64,
        tags: U64,
        offsets: NDArray[np.uint32],
        seqnums: U64,
        held: U8,
        *,
        span: tuple[int, int] | None = None,
    ) -> None:
        """`span`: the lowest and the highest seqnum, where they are known."""
        assert len(books) == len(tags) == len(offsets) - 1 and 0 < len(seqnums) == len(held)
        self._see(books, tags, offsets, seqnums)
        self.held, self.held_view = held, held.data
        self.oldest, self.newest = span or (int(seqnums.min()), int(seqnums.max()))
        self.mapped = False
        """Whether all columns but `held` are in a file, and memory only while they are looked at."""
        self.dead = 0
        """Rows that died since the run was made."""
        self.stale = False
        """Whether rows were dead when it was made: the last ones of dead streams."""
        self._gone: bytearray | None = None
        """One byte per stream: forgotten, as if it had never been."""
        self._shared = False
        """Whether somebody else has `held` and `_gone`, and counts on their staying as they are."""

    def _see(self, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64) -> None:
        self.books, self.tags, self.offsets, self.seqnums = books, tags, offsets, seqnums
        # Bisection of a memoryview costs a microsecond; numpy's search costs several, mostly in converting its argument.
        self._books, self._tags, self.offset_view, self.rows = books.data, tags.data, offsets.data, seqnums.data

    def move(self, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64) -> None:
        """Goes on with equal columns that lie in a file."""
        self._see(books, tags, offsets, seqnums)
        self.mapped = True

    def __len__(self) -> int:
        """Rows."""
        return len(self.seqnums)

    @property
    def bytes(self) -> int:
        """Memory that it takes, without what is mapped."""
        columns = () if self.mapped else (self.books, self.tags, self.offsets, self.seqnums)
        return self.held.nbytes + len(self._gone or b"") + sum(column.nbytes for column in columns)

    def find(self, book: int, tag: int) -> tuple[int, int] | None:
        """Where the rows of a stream are, [first, stop), dead ones included; or None."""
        low = bisect_left(self._books, book)
        if low == len(self._books) or self._books[low] != book:
            return None
        high = bisect_right(self._books, book, low)
        at = bisect_left(self._tags, tag, low, high)
        if at == high or self._tags[at] != tag or (self._gone is not None and self._gone[at]):
            return None
        return self.offset_view[at], self.offset_view[at + 1]

    def _streams_of(self, book: int) -> tuple[int, int] | None:
        """The streams of a book, [first, stop), or None."""
        low = bisect_left(self._books, book)
        if low == len(self._books) or self._books[low] != book:
            return None
        return low, bisect_right(self._books, book, low)

    @property
    def has_forgotten(self) -> bool:
        """Whether streams are forgotten that are still here."""
        return self._gone is not None

    def books_with_rows(self) -> U64:
        """Each once, ascending."""
        books = self.books if self._gone is None else self.books[np.frombuffer(self._gone, np.uint8) == 0]
        distinct: U64 = books[np.diff(books, prepend=~books[:1]) != 0]
        return distinct

    def key(self, at: int) -> tuple[int, int]:
        """Book and tag of a stream."""
        return self._books[at], self._tags[at]

    def span(self, at: int) -> tuple[int, int]:
        """Where the rows of a stream are, [first, stop)."""
        return self.offset_view[at], self.offset_view[at + 1]

    def streams_below(self, key: tuple[int, int], low: int, high: int) -> int:
        """The first stream in [low, high) that is not below a key, or `high`."""
        book, tag = key
        first = bisect_left(self._books, book, low, high)
        return bisect_left(self._tags, tag, first, bisect_right(self._books, book, first, high))

    def share(self) -> tuple[U8, bytearray | None]:
        """`held`, and which streams are forgotten, as they are now: from here on only copies of them are changed."""
        self._shared = True
        return self.held, self._gone

    def _own(self) -> None:
        """What changes is nobody else's."""
        if self._shared:
            self._shared = False
            self.held = self.held.copy()
            self.held_view = self.held.data
            self._gone = None if self._gone is None else bytearray(self._gone)

    # -- dying

    def trim(self, book: int, tags: U64, marks: Sequence[int]) -> U64:
        """Tags drop their records below a mark. `tags`: ascending, none of them 0; `marks` in the same order. Returns
        seqnums of the records that no tag holds any more."""
        streams = self._streams_of(book)
        if streams is None:
            return NO_ROWS
        low, high = streams
        self._own()
        here = self.tags[low:high]
        places = np.minimum(np.searchsorted(here, tags), high - low - 1)
        offsets, held, fallen = self.offset_view, self.held, []
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
        first, tagged, end = self.offset_view[low], self.offset_view[low + 1], self.offset_view[high]
        stop = bisect_left(self.rows, mark, first, tagged)
        if first == stop:
            return NO_ROWS
        self._own()
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
        self._own()
        if self._gone is None:
            self._gone = bytearray(len(self.books))
        self._gone[low:high] = b"\1" * (high - low)
        self.dead += high - low

    # -- making

    @classmethod
    def of_columns(cls, books: U64, tags: U64, offsets: NDArray[np.uint32], seqnums: U64, held: U8) -> SortedRun:
        """A run of columns that are as described above; some rows may be dead."""
        run = cls(books, tags, offsets, seqnums, held)
        of_all = tags == 0
        signed = offsets.astype(np.int64)
        live = np.where(np.repeat(of_all, signed[1:] - signed[:-1]), held > 0, held == LIVE)
        last = signed[1:] - 1
        kept = int(np.count_nonzero(~live[last] & (of_all | (held[last] != CUT))))
        run.stale = kept > 0
        run.dead = len(live) - int(np.count_nonzero(live)) - kept
        return run

    @classmethod
    def from_segments(cls, books: U64, tags: U64, lengths: NDArray[np.int64], seqnums: U64, held: U8) -> SortedRun:
        """Makes a run of segments in any order.

        Args:
            books, tags: the stream of each segment; of segments of one stream, the earlier one has the lower seqnums.
            lengths: rows of each segment, none of them 0.
            seqnums, held: of all segments, one after another.
        """
        books, tags, lengths, rows = segment_rows(books, tags, lengths)
        offsets = np.append(0, np.cumsum(lengths)).astype(np.uint32)
        return cls(books, tags, offsets, seqnums[rows], held[rows])


def segment_rows(
    books: U64, tags: U64, lengths: NDArray[np.int64]
) -> tuple[U64, U64, NDArray[np.int64], NDArray[np.int64]]:
    """Sorts segments of streams; of one stream, the earlier one comes first. Returns books, tags and lengths of the streams,
    and from which row each row of theirs is taken."""
    if (books == books[0]).all():
        order = np.argsort(tags, kind="stable")
    elif not tags.any():
        order = np.argsort(books, kind="stable")
    else:
        order = np.lexsort((tags, books))
    books, tags, moved = books[order], tags[order], lengths[order]
    begins = np.cumsum(lengths) - lengths
    ends = np.cumsum(moved)
    rows = np.repeat(begins[order] - (ends - moved), moved) + np.arange(ends[-1])
    first = np.ones(len(books), np.bool_)
    first[1:] = (books[1:] != books[:-1]) | (tags[1:] != tags[:-1])
    if first.all():
        return books, tags, moved, rows
    return books[first], tags[first], np.add.reduceat(moved, np.flatnonzero(first)), rows
