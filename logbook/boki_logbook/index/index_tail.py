"""The live tail of the index: the newest rows of all streams, cheap to append to, until they become a sorted run. Pure.

    books    book → tag → array of u64, and per record how many tags hold it
    single   book → (seqnum, its tags …), of a book that has one record here
    bulk     columns of books and tags, of batches of many books; newer than all others

The only work per record is appending to arrays. A stream of arrays costs some 200 bytes and two microseconds to make; where
books are many, most have no second record before the tail is frozen. So a book begins as a *single* one, which costs a tuple,
and is spread into streams when another record of it comes, or when it is trimmed. A batch of many books is not even that: its
columns wait until they are frozen, all together, or until somebody looks (`spread`). Readers see no difference.

A dead row of tag 0 stays until it is frozen, and then in the run; rows of tags leave at once. Marks, what is known of books
whose rows are gone, and when to freeze, are the index's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from boki_common.ids import ALL_RECORDS
from boki_common.records.numpy_pays import FEW_RUNS, FEW_SEQNUMS
from boki_common.records.record_batch import RecordBatch
from boki_logbook.index.sorted_run import LIVE, NO_ROWS, U8, U64, SortedRun
from boki_logbook.index.trim_marks import TrimMarks

TAIL_STREAM_BYTES: Final = 200
"""What a stream of the tail costs besides its rows, roughly: array, dict item, key. A single book costs as much."""

_NO_COUNTS: Final[U8] = np.empty(0, np.uint8)
_NO_ROW: Final = (0,)
_last_of = itemgetter(-1)
_NO_TAG_HOLDS: Final = b"\1" + bytes(range(1, 256))
"""Tag counts to counters: a record without tags is held by its book."""

TailRows: TypeAlias = "tuple[array[int], bytearray | bytes]"
"""The rows of a stream, and the counters that go with those of tag 0."""
TagCounts: TypeAlias = bytes
"""One byte a record."""
_Segments: TypeAlias = tuple[U64, U64, NDArray[np.int64], U64, U8]
"""What `SortedRun.from_segments` takes."""


class RunStart(NamedTuple):
    """Where a run of a batch begins: its number, its first record, its first tag."""

    run: int
    record: int
    tag: int


BATCH_START: Final = RunStart(0, 0, 0)
_make_start: Final = cast(Callable[[tuple[int, int, int]], RunStart], partial(tuple.__new__, RunStart))
"""Without a frame of Python: one for each entry that is applied."""


class _TailBook(NamedTuple):
    """One book in the tail. `held`: per row of tag 0, how many tags hold the record."""

    streams: dict[int, array[int]]
    held: bytearray


class _BulkRows(NamedTuple):
    """Records of many books, one after another, each with at most one tag."""

    books: U64
    tag_counts: U8
    tags: U64
    first_seqnum: int


class IndexTail:
    """See the module.

    Invariant: a book is in `_books` or in `_single` or in neither; `rows` counts all rows, `holes` the dead ones of tag 0,
    `bulk_rows` those of `_bulk`.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.holes = 0
        self.bulk_rows = 0
        self._bulk: list[_BulkRows] = []
        self._books: dict[int, _TailBook] = {}
        self._single: dict[int, tuple[int, ...]] = {}

    @property
    def bytes(self) -> int:
        """Memory, roughly."""
        streams = sum(len(one.streams) for one in self._books.values())
        return 9 * self.rows + 8 * self.bulk_rows + TAIL_STREAM_BYTES * (streams + len(self._single))

    # -- adding

    def add(self, batch: RecordBatch, first: int, stop: int, first_seqnum: int, begin: RunStart) -> RunStart:
        """Records [first, stop) of a batch join their streams; see `Index.add`."""
        if stop - first == batch.record_count and batch.run_count > FEW_RUNS and self._add_bulk(batch, first_seqnum):
            return _make_start((batch.run_count, stop, batch.tag_count))
        if self._bulk:
            self.spread()
        at, start, tag_start = begin
        whole = batch.tag_values(0, batch.tag_count) if stop - first == batch.record_count else None
        for book, _, _, _, count, tag_count, _, _ in islice(batch.runs, at, None):
            if start >= stop:
                break
            end, tag_end = start + count, tag_start + tag_count
            if start >= first and end <= stop:  # the whole run
                if not tag_count:
                    tags: list[int] = []
                else:
                    tags = batch.tag_values(tag_start, tag_end) if whole is None else whole[tag_start:tag_end]
                seqnum = first_seqnum + start
                if count != 1:
                    self._add_run(book, batch, start, end, tags, seqnum)
                else:
                    self._add_one(book, tags, seqnum)
            else:
                low, high = max(start, first), min(end, stop)
                if low < high:
                    ends = batch.tag_ends
                    some = batch.tag_values(int(ends[low - 1]) if low else 0, int(ends[high - 1]))
                    self._add_run(book, batch, low, high, some, first_seqnum + low)
            if end > stop:
                break  # the rest of the run is for the next call
            at, start, tag_start = at + 1, end, tag_end
        return _make_start((at, start, tag_start))

    def _add_one(self, book: int, tags: Sequence[int], seqnum: int) -> None:
        """A record joins alone."""
        here = self._books.get(book)
        if here is None and book not in self._single:
            self._single[book] = single = (seqnum, *dict.fromkeys(tags))
            self.rows += len(single)
        else:
            streams, held = here or self._spread(book)
            streams[ALL_RECORDS].append(seqnum)
            held.append(self._join_tags(streams, tags, seqnum) if tags else 1)
            self.rows += 1

    def _add_bulk(self, batch: RecordBatch, first_seqnum: int) -> bool:
        """A whole batch of many books joins as it is; False: a record may name a tag twice."""
        tag_counts, tags = _NO_COUNTS, NO_ROWS
        if batch.tag_count:
            tag_counts, tags = batch.tag_counts.copy(), batch.tags.copy()
            if tag_counts.max() > 1:
                return False
        runs = batch.run_columns
        books = np.repeat(runs["book"], runs["count"])
        self._bulk.append(_BulkRows(books, tag_counts, tags, first_seqnum))
        rows = len(books) + len(tags)
        self.rows += rows
        self.bulk_rows += rows
        return True

    def spread(self) -> None:
        """What came as columns gets streams, as if it had come one by one."""
        bulk, self._bulk = self._bulk, []
        self.rows -= self.bulk_rows
        self.bulk_rows = 0
        for books, tag_counts, tags, seqnum in bulk:
            values, at = tags.tolist(), 0
            counts = tag_counts.tolist() if values else bytes(len(books))
            for book, count in zip(books.tolist(), counts, strict=True):
                self._add_one(book, values[at : at + count], seqnum)
                at += count
                seqnum += 1

    def _add_run(self, book: int, batch: RecordBatch, low: int, high: int, tags: list[int], seqnum: int) -> None:
        """Records [low, high) of a run join, which have these tags together; `seqnum` is that of the first."""
        count = high - low
        if not count:
            return
        here = self._books.get(book)
        if here is None:
            if book in self._single:
                here = self._spread(book)
            else:
                here = self._books[book] = _TailBook({ALL_RECORDS: array("Q")}, bytearray())
        _extend(here.streams[ALL_RECORDS], seqnum, seqnum + count)
        self.rows += count
        if tags:
            self._add_tags(here, batch.tag_counts_of(low, high), tags, seqnum)
        else:
            here.held.extend(b"\1" * count)

    def _spread(self, book: int) -> _TailBook:
        """A single book gets streams."""
        seqnum, *tags = self._single.pop(book)
        streams = {tag: array("Q", (seqnum,)) for tag in (ALL_RECORDS, *tags)}
        here = self._books[book] = _TailBook(streams, bytearray((len(tags) or 1,)))
        return here

    def _join_tags(self, streams: dict[int, array[int]], tags: Iterable[int], seqnum: int) -> int:
        """A single record joins its tags, which is not worth calling numpy for; returns how many they are."""
        count = 0
        for tag in tags:
            row = streams.get(tag)
            if row is None:
                streams[tag] = array("Q", (seqnum,))
            elif row[-1] != seqnum:
                row.append(seqnum)
            else:  # the record names this tag twice
                continue
            count += 1
        self.rows += count
        return count

    def _add_tags(self, book: _TailBook, tag_counts: TagCounts, tags: list[int], seqnum: int) -> None:
        """Records of a run, the first of which has that seqnum, join their tags."""
        streams, held = book
        records = len(tag_counts)
        self.rows += len(tags)
        if tag_counts.count(1) == records:  # the common case
            held += tag_counts
            if tags.count(tags[0]) == records:
                _extend(streams.setdefault(tags[0], array("Q")), seqnum, seqnum + records)
                return
            for tag in tags:
                row = streams.get(tag)
                if row is None:
                    streams[tag] = array("Q", (seqnum,))
                else:
                    row.append(seqnum)
                seqnum += 1
            return
        at = 0
        first = seqnum - len(held)
        held += tag_counts.translate(_NO_TAG_HOLDS)
        for count in tag_counts:
            for tag in tags[at : at + count]:
                row = streams.get(tag)
                if row is None:
                    streams[tag] = array("Q", (seqnum,))
                elif row[-1] != seqnum:
                    row.append(seqnum)
                else:  # the record names this tag twice
                    self.rows -= 1
                    held[seqnum - first] -= 1
            at += count
            seqnum += 1

    # -- freezing

    def freeze(self) -> SortedRun | None:
        """All rows as a run, and an empty tail; None if there are none."""
        if not self.rows:
            return None
        parts = self.segments()
        whole = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        run = SortedRun.from_segments(*cast(_Segments, whole))
        run.dead = self.holes
        self.rows = self.holes = self.bulk_rows = 0
        self._books, self._single, self._bulk = {}, {}, []
        return run

    def segments(self) -> list[_Segments]:
        """All rows, copied; of one stream, those of a later part have the higher seqnums."""
        parts = [_segments_of_bulk(one) for one in self._bulk]
        if self._single:
            parts.insert(0, _segments_of_single(self._single))
        if self._books:
            parts.insert(0, _segments_of_books(self._books))
        return parts

    # -- trimming

    def trim_book(self, book: int, mark: int, marks: TrimMarks) -> U64:
        """Rows of a book below a mark go; the newest of tag 0 stays, dead, and says what the newest record is. Returns seqnums
        of the records that died. `marks` gets those of the tags whose rows are all gone."""
        here = self._of(book)
        if here is None:
            return NO_ROWS
        streams, held = here
        row = streams[ALL_RECORDS]
        count = bisect_left(row, mark)
        died = np.array(list(compress(row[:count], held[:count])), np.uint64)
        gone = min(count, len(row) - 1)
        self.holes -= held.count(0, 0, gone)
        del row[:gone], held[:gone]
        self.rows -= gone
        if gone < count:
            self.holes += held[0] > 0
            held[0] = 0
        for tag in [tag for tag in streams if tag != ALL_RECORDS]:
            row = streams[tag]
            count = bisect_left(row, mark)
            if count == len(row):
                marks.put(book, tag, row[-1] + 1)
                del streams[tag]
            else:
                del row[:count]
            self.rows -= count
        return died

    def trim(self, book: int, tags: Sequence[int], marks: Sequence[int]) -> U64:
        """Rows of tags below their marks go; returns the seqnums of the records that no tag holds any more."""
        here = self._of(book)
        if here is None:
            return NO_ROWS
        streams, held = here
        fallen = array("Q")
        for tag, mark in zip(tags, marks, strict=True):
            row = streams.get(tag)
            if row is not None and row[0] < mark:
                count = bisect_left(row, mark)
                fallen += row[:count]
                if count == len(row):
                    del streams[tag]
                else:
                    del row[:count]
        if not fallen:
            return NO_ROWS
        self.rows -= len(fallen)
        row = streams[ALL_RECORDS]
        if len(fallen) < FEW_SEQNUMS:
            died = array("Q")
            for seqnum in fallen:
                at = bisect_left(row, seqnum)
                held[at] -= 1
                if not held[at]:
                    died.append(seqnum)
            self.holes += len(died)
            return np.array(died, np.uint64)
        counters = np.frombuffer(held, np.uint8)
        seqnums, counts = np.unique(np.frombuffer(fallen, np.uint64), return_counts=True)
        rows: NDArray[np.int64] = np.searchsorted(np.frombuffer(row, np.uint64), seqnums)
        counters[rows] -= counts.astype(np.uint8)
        rows = rows[counters[rows] == 0]
        self.holes += len(rows)
        return np.frombuffer(row, np.uint64)[rows]

    def forget(self, book: int) -> None:
        """All rows of a book go, as if they had never been."""
        here = self._of(book)
        if here is not None:
            del self._books[book]
            self.rows -= sum(map(len, here.streams.values()))
            self.holes -= here.held.count(0)

    def _of(self, book: int) -> _TailBook | None:
        """The streams of a book, for changing them."""
        if self._bulk:
            self.spread()
        return self._spread(book) if book in self._single else self._books.get(book)

    # -- looking

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest row of a stream, dead or alive; 0 if it has none."""
        if self._bulk:
            self.spread()
        here = self._books.get(book)
        if here is not None:
            row = here.streams.get(tag)
            return 0 if row is None else row[-1]
        single = self._single.get(book)
        return single[0] if single is not None and (not tag or tag in single[1:]) else 0

    def newest_of(self, book: int, tags: Sequence[int]) -> list[int]:
        """`newest` of some streams of a book."""
        if self._bulk:
            self.spread()
        here = self._books.get(book)
        if here is None:
            return [self.newest(book, tag) for tag in tags]
        return list(map(_last_of, map(here.streams.get, tags, repeat(_NO_ROW))))

    def rows_of(self, book: int, tag: int) -> TailRows | None:
        """The rows of a stream, ascending; None if it has none."""
        if self._bulk:
            self.spread()
        here = self._books.get(book)
        if here is not None:
            row = here.streams.get(tag)
            return None if row is None else (row, here.held)
        single = self._single.get(book)
        if single is None or (tag and tag not in single[1:]):
            return None
        return array("Q", single[:1]), bytes((len(single) - 1 or 1,))

    def books(self) -> U64:
        """Those that have rows, some of them several times."""
        named = np.fromiter((*self._books, *self._single), np.uint64, len(self._books) + len(self._single))
        return np.concatenate([named, *(bulk.books for bulk in self._bulk)])

    def streams(self) -> Iterator[tuple[int, int]]:
        """Book and tag of each stream."""
        if self._bulk:
            self.spread()
        for book, here in self._books.items():
            for tag in here.streams:
                yield book, tag
        for book, single in self._single.items():
            yield book, ALL_RECORDS
            for tag in single[1:]:
                yield book, tag


def _segments_of_books(tail: dict[int, _TailBook]) -> _Segments:
    streams = [len(one.streams) for one in tail.values()]
    count = sum(streams)
    books = np.repeat(np.fromiter(tail.keys(), np.uint64, len(tail)), streams)
    tags = np.fromiter(chain.from_iterable(one.streams for one in tail.values()), np.uint64, count)
    rows = [row for one in tail.values() for row in one.streams.values()]
    lengths = np.fromiter(map(len, rows), np.int64, count)
    seqnums = np.frombuffer(b"".join(rows), np.uint64)
    held = np.full(len(seqnums), LIVE, np.uint8)
    held[np.repeat(tags == ALL_RECORDS, lengths)] = np.frombuffer(b"".join(one.held for one in tail.values()), np.uint8)
    return books, tags, lengths, seqnums, held


def _segments_of_single(single: dict[int, tuple[int, ...]]) -> _Segments:
    """Each item is as many segments of one row as it has members: the first stands for tag 0."""
    widths = np.fromiter(map(len, single.values()), np.int64, len(single))
    tags = np.fromiter(chain.from_iterable(single.values()), np.uint64, int(widths.sum()))
    begins = np.cumsum(widths) - widths
    seqnums = np.repeat(tags[begins], widths)
    tags[begins] = ALL_RECORDS
    held = np.full(len(tags), LIVE, np.uint8)
    held[begins] = np.maximum(widths - 1, 1)
    books = np.repeat(np.fromiter(single.keys(), np.uint64, len(single)), widths)
    return books, tags, np.ones(len(tags), np.int64), seqnums, held


def _segments_of_bulk(bulk: _BulkRows) -> _Segments:
    """Each row is a segment: those of tag 0, then those of tags."""
    books, tag_counts, tags, first_seqnum = bulk
    seqnums = np.arange(first_seqnum, first_seqnum + len(books), dtype=np.uint64)
    zeros = np.zeros(len(books), np.uint64)
    if len(tags):
        books, seqnums = (
            np.append(books, np.repeat(books, tag_counts)),
            np.append(seqnums, np.repeat(seqnums, tag_counts)),
        )
    held = np.full(len(books), LIVE, np.uint8)
    return books, np.append(zeros, tags), np.ones(len(books), np.int64), seqnums, held


def _extend(row: array[int], first: int, stop: int) -> None:
    """Adds the seqnums first … stop - 1 to a row."""
    if stop - first < FEW_SEQNUMS:
        row.extend(range(first, stop))
    else:
        row.frombytes(np.arange(first, stop, dtype=np.uint64).tobytes())
