"""Where the records of a stream are: book → tag → ascending seqnums, across terms (DESIGN §6.10, §7). Pure.

    frozen runs      sorted columns (sorted_run.py), oldest first
    live tail        dict book → dict tag → array of u64, and per record how many tags hold it
    marks            up to where streams are trimmed (trim_marks.py); per book in a dict

For every stream all seqnums in an earlier part are below those in a later one, so a lookup bisects the parts in order and
the newest record of a live stream is the last item of an array. Tag 0 holds every record of a book. Records that lost
never come here; what is read and marked depends on the log alone, not on which parts rows lie in.

The only work per record is appending to arrays. The tail is frozen when it has `TAIL_ROWS` rows: arrays are fast to append
to but cost some 200 bytes a stream. Neighbouring runs of like size are merged, so there are few, a slice of `SLICE_ROWS` rows
at a time (run_merge.py): each batch that is added pays for the work it will make, and each trim does one slice. What is left
is done by whoever calls `tidy` when there is time. A rebuild takes the same way: collecting columns and sorting them was
measured 4 times slower for streams of many records, and no faster else.

**Trim.** A mark is at most one above the newest record of its stream, so a trim never reaches what is ordered later. A record
is live while it is above the book's mark and has no tags, or one of its tags still holds it. That is a counter of one byte
per record, beside its row of tag 0: trimming a tag counts down, whatever else the book has, and nothing is looked up per
record as long as nobody trims. (Counting again from the tag rows instead costs the whole book at each trim.) Dead rows leave
the tail at once, but for those of tag 0; a run is written anew when `1 / DEAD_SHARE` of it is dead. So once `tidy` says that
all is in order, less than that share of each run is dead, besides the last rows of dead streams.

The newest record that a stream ever had is, besides the last row, never below its mark - 1; that outlives its rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boki_common.ids import ALL_RECORDS, SEQNUM_MAX
from boki_common.record_batch import RecordBatch
from boki_logbook.run_merge import RunMerge, merged, next_merge
from boki_logbook.sorted_run import LIVE, NO_ROWS, U64, SortedRun
from boki_logbook.trim_marks import TrimMarks

TAIL_ROWS: Final = 16 * 1024
"""Rows at which the tail is frozen, which takes 1 ms, and 6 ms when each is of a stream of its own."""
MERGED_ROWS: Final = 4 * 1024 * 1024
"""No merge makes a run larger than this: what it needs besides its sources is so much again."""
SLICE_ROWS: Final = 16 * 1024
"""Rows that are merged at once: 1-2 ms."""
LEAST_SLICE_ROWS: Final = 256
WORK_PER_ROW: Final = 8
"""Each row is merged so often, at most: a merge at least doubles the largest of its runs, up to `MERGED_ROWS`."""
TAIL_STREAM_BYTES: Final = 200
"""What a stream of the tail costs besides its rows, roughly: array, dict item, key."""

FEW_SEQNUMS: Final = 64
"""Fewer are handled one by one: not worth calling numpy for."""
FIRST_LOOK: Final = 64
"""Rows of tag 0 looked at together when dead ones may be among them; doubled while nothing is found."""

_NO_TAG_HOLDS: Final = b"\1" + bytes(range(1, 256))
"""Tag counts to counters: a record without tags is held by its book."""


class RunStart(NamedTuple):
    """Where a run of a batch begins: its number, its first record, its first tag."""

    run: int
    record: int
    tag: int


BATCH_START: Final = RunStart(0, 0, 0)


class _TailBook(NamedTuple):
    """One book in the tail. `held`: per row of tag 0, how many tags hold the record."""

    streams: dict[int, array[int]]
    held: bytearray


class _Part(NamedTuple):
    """Rows of one stream in one part: `rows[low:high]`, with the counters of tag 0 beside them."""

    rows: memoryview | array  # type: ignore[type-arg]  # array is not subscriptable at run time in a NamedTuple
    held: memoryview | bytearray
    low: int
    high: int


def _extend(row: array[int], first: int, stop: int) -> None:
    """Adds the seqnums first … stop - 1 to a row."""
    if stop - first < FEW_SEQNUMS:
        row.extend(range(first, stop))
    else:
        row.frombytes(np.arange(first, stop, dtype=np.uint64).tobytes())


class Index:
    """All streams of one engine."""

    def __init__(
        self, *, tail_rows: int = TAIL_ROWS, slice_rows: int | None = None, largest_run: int = MERGED_ROWS
    ) -> None:
        """`slice_rows`: merged at once. `largest_run`: rows; no merge makes a longer one."""
        self._tail_rows_limit = tail_rows
        self._largest_run = largest_run
        self._slice_rows = slice_rows or min(SLICE_ROWS, max(tail_rows, LEAST_SLICE_ROWS))
        self._runs: list[SortedRun] = []
        self._tail: dict[int, _TailBook] = {}
        self._tail_rows = 0
        self._tail_holes = 0
        """Rows of tag 0 in the tail that are dead."""
        self._merge: RunMerge | None = None
        self._owed = 0
        """Rows of merges that are not looked at yet, for what was added."""
        self.merged_rows = 0
        """Rows that merges have looked at."""
        self.books: dict[int, None] = {}
        self.marks = TrimMarks()
        """Of streams of tags."""
        self.book_marks: dict[int, int] = {}
        """Of each book that was ever trimmed; 0 if only by tags."""

    def __len__(self) -> int:
        """Rows in memory, some of them dead: one per record for tag 0, and one per tag of a record."""
        return sum(map(len, self._runs)) + self._tail_rows

    @property
    def bytes(self) -> int:
        """Memory of all rows and marks, roughly."""
        streams = sum(len(one.streams) for one in self._tail.values())
        rows = (
            sum(run.bytes for run in self._runs)
            + (self._merge.bytes if self._merge else 0)
            + 9 * self._tail_rows
            + TAIL_STREAM_BYTES * streams
        )
        return rows + self.marks.bytes + TAIL_STREAM_BYTES * len(self.book_marks)

    @property
    def mapped_bytes(self) -> int:
        """What of it lies in files; no part of `bytes`."""
        return sum(run.column_bytes for run in self._runs if run.mapped)

    def movable(self, rows: int) -> SortedRun | None:
        """A run of at least so many rows whose columns may go to a file, if there is one: the oldest, not in a merge."""
        merging = [] if self._merge is None else self._merge.runs
        for run in self._runs:
            if len(run) >= rows and not run.mapped and run not in merging:
                return run
        return None

    @property
    def book_count(self) -> int:
        return len(self.books)

    @property
    def run_count(self) -> int:
        return len(self._runs)

    # -- adding

    def add(
        self, batch: RecordBatch, first: int, stop: int, first_seqnum: int, begin: RunStart = BATCH_START
    ) -> RunStart:
        """Records [first, stop) of a batch join their streams.

        Args:
            first_seqnum: seqnum of record 0 of the batch; seqnums of a stream only ever ascend.
            begin: a run at or before `first`, where the last call for the same batch ended.

        Returns:
            Where the run begins that the next records belong to.
        """
        tail, tail_rows = self._tail, self._tail_rows
        at, start, tag_start = begin
        for run in islice(batch.runs, at, None):
            end = start + run.count
            if start >= stop:
                break
            tag_end = tag_start + run.tag_count
            low, high = max(start, first), min(end, stop)
            if low < high:
                book = tail.get(run.book)
                if book is None:
                    book = tail[run.book] = _TailBook({ALL_RECORDS: array("Q")}, bytearray())
                    self.books[run.book] = None
                streams, held = book
                count = high - low
                if count == 1:
                    streams[ALL_RECORDS].append(first_seqnum + low)
                else:
                    _extend(streams[ALL_RECORDS], first_seqnum + low, first_seqnum + high)
                self._tail_rows += count
                if low == start and high == end:
                    tags = tag_start, tag_end
                else:
                    ends = batch.tag_ends
                    tags = int(ends[low - 1]) if low else 0, int(ends[high - 1])
                if tags[0] == tags[1]:
                    held += b"\1" * count
                elif count == 1:
                    self._add_tags_of_one(book, batch.tags[tags[0] : tags[1]].tolist(), first_seqnum + low)
                else:
                    self._add_tags(book, batch, low, high, tags, first_seqnum + low)
            if end > stop:
                break  # the rest of the run is for the next call
            at, start, tag_start = at + 1, end, tag_end
        self._owed += WORK_PER_ROW * (self._tail_rows - tail_rows)
        if self._tail_rows >= self._tail_rows_limit:
            self.freeze()
            if self._owed < WORK_PER_ROW * self._tail_rows_limit:
                return RunStart(at, start, tag_start)  # the next batch pays
        if self._owed >= self._slice_rows:
            self._pay()
        return RunStart(at, start, tag_start)

    def _add_tags_of_one(self, book: _TailBook, tags: list[int], seqnum: int) -> None:
        """A single record of a run joins its tags: not worth calling numpy again."""
        streams, held = book
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
        held.append(count)
        self._tail_rows += count

    def _add_tags(
        self,
        book: _TailBook,
        batch: RecordBatch,
        low: int,
        high: int,
        tag_span: tuple[int, int],
        seqnum: int,
    ) -> None:
        streams, held = book
        tags = batch.tags[tag_span[0] : tag_span[1]].tolist()
        tag_counts = batch.tag_counts[low:high].tobytes()
        if tag_counts.count(1) == high - low:  # the common case
            held += tag_counts
            if tags.count(tags[0]) == len(tags):
                _extend(streams.setdefault(tags[0], array("Q")), seqnum, seqnum + len(tags))
                self._tail_rows += len(tags)
                return
            for tag in tags:
                row = streams.get(tag)
                if row is None:
                    streams[tag] = array("Q", (seqnum,))
                else:
                    row.append(seqnum)
                seqnum += 1
            self._tail_rows += len(tags)
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
                    self._tail_rows -= 1
                    held[seqnum - first] -= 1
            at += count
            seqnum += 1
        self._tail_rows += len(tags)

    # -- freezing and merging

    def freeze(self) -> None:
        """Makes a run of the tail; done by itself above a size."""
        if not self._tail_rows:
            return
        tail, self._tail = self._tail, {}
        self._tail_rows = 0
        streams = [len(one.streams) for one in tail.values()]
        count = sum(streams)
        books = np.repeat(np.fromiter(tail.keys(), np.uint64, len(tail)), streams)
        tags = np.fromiter(chain.from_iterable(one.streams for one in tail.values()), np.uint64, count)
        rows = [row for one in tail.values() for row in one.streams.values()]
        lengths = np.fromiter(map(len, rows), np.int64, count)
        seqnums = np.frombuffer(b"".join(rows), np.uint64)
        held = np.full(len(seqnums), LIVE, np.uint8)
        held[np.repeat(tags == ALL_RECORDS, lengths)] = np.frombuffer(
            b"".join(one.held for one in tail.values()), np.uint8
        )
        run = SortedRun.from_segments(books, tags, lengths, seqnums, held)
        run.dead, self._tail_holes = self._tail_holes, 0
        self._runs.append(run)

    def tidy(self) -> bool:
        """One slice of putting in order: runs with many dead rows are written anew, neighbours of like size are merged.

        Returns:
            Whether there is more to do.
        """
        merge = self._merge
        if merge is None:
            runs = self._runs
            due = next_merge([len(run) for run in runs], [run.dead for run in runs], largest=self._largest_run)
            if due is None:
                return False
            self._merge = merge = RunMerge(runs[due[0] : due[1]])
        looked_at = merge.looked_at
        more = merge.work(self._slice_rows)
        self.merged_rows += merge.looked_at - looked_at
        if not more:
            at = self._runs.index(merge.runs[0])
            self._runs[at : at + len(merge.runs)] = [] if merge.result is None else [merge.result]
            self._merge = None
        elif merge.overrun:
            self._merge = None
        return True

    def _pay(self) -> None:
        """Does the part of putting in order that new rows owe, so that what is added never outruns it."""
        while self._owed >= self._slice_rows:
            before = self.merged_rows
            if not self.tidy():
                self._owed = 0
            self._owed -= max(self.merged_rows - before, self._slice_rows // 4, 1)

    def frozen(self) -> list[SortedRun]:
        """All rows; some may be dead, but no stream is forgotten. The tail is frozen for it."""
        self.freeze()
        if any(run.has_forgotten for run in self._runs):
            self._merge = None
            whole = [merged([run]) if run.has_forgotten else run for run in self._runs]
            self._runs = [run for run in whole if run is not None]
        return list(self._runs)

    def restore(self, runs: Sequence[SortedRun]) -> None:
        """Takes the rows of an index that was frozen, oldest first."""
        assert not len(self), "rows are restored into an empty index"
        self._runs = list(runs)

    # -- trimming

    def mark(self, book: int, tag: int) -> int:
        """Reads below answer Trimmed; 0 if nothing was ever trimmed."""
        mark = self.book_marks.get(book)
        if mark is None or tag == ALL_RECORDS:
            return mark or 0
        return max(mark, self.marks.get(book, tag))

    def trim(self, book: int, pairs: Sequence[tuple[int, int]]) -> U64:
        """Streams let go of their records below `before`, of (tag, before) pairs; tag 0 is the whole book.

        Returns:
            Seqnums of the records that nothing holds any more, in no order.
        """
        marks: dict[int, int] = {}
        for tag, before in pairs:
            mark = min(before, self.newest(book, tag) + 1)
            if mark > 1 and mark > max(self.mark(book, tag), marks.get(tag, 0)):
                marks[tag] = mark
        if not marks:
            return NO_ROWS
        died: list[U64] = []
        of_book = marks.pop(ALL_RECORDS, 0)
        tail = self._tail.get(book)
        if of_book:
            died += [run.trim_book(book, of_book) for run in self._runs if run.oldest < of_book]
            if self._merge is not None:
                self._merge.trim_book(book, of_book)
            if tail is not None:
                died.append(self._trim_tail_book(book, tail, of_book))
        self.book_marks[book] = max(of_book, self.book_marks.get(book, 0))
        tags = sorted(tag for tag, mark in marks.items() if mark > of_book)
        if tags:
            ordered = [marks[tag] for tag in tags]
            column, highest = np.array(tags, np.uint64), max(ordered)
            died += [run.trim(book, column, ordered) for run in self._runs if run.oldest < highest]
            if self._merge is not None:
                self._merge.trim(book, column, ordered)
            for tag, mark in zip(tags, ordered, strict=True):
                self.marks.put(book, tag, mark)
            if tail is not None:
                died.append(self._trim_tail_tags(tail, tags, ordered))
        self.tidy()
        return np.concatenate(died) if died else NO_ROWS

    def _trim_tail_book(self, book: int, tail: _TailBook, mark: int) -> U64:
        """The tail's part of a book below a mark. The newest row of tag 0 stays, dead, and says what the newest record is."""
        streams, held = tail
        row = streams[ALL_RECORDS]
        count = bisect_left(row, mark)
        died = np.array(list(compress(row[:count], held[:count])), np.uint64)
        gone = min(count, len(row) - 1)
        del row[:gone], held[:gone]
        self._tail_rows -= gone
        if gone < count:
            self._tail_holes += held[0] > 0
            held[0] = 0
        for tag in [tag for tag in streams if tag != ALL_RECORDS]:
            row = streams[tag]
            count = bisect_left(row, mark)
            if count == len(row):
                self.marks.put(book, tag, row[-1] + 1)
                del streams[tag]
            else:
                del row[:count]
            self._tail_rows -= count
        return died

    def _trim_tail_tags(self, tail: _TailBook, tags: Sequence[int], marks: Sequence[int]) -> U64:
        """The tail's part of some streams below their marks."""
        streams, held = tail
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
        self._tail_rows -= len(fallen)
        row = streams[ALL_RECORDS]
        if len(fallen) < FEW_SEQNUMS:
            died = array("Q")
            for seqnum in fallen:
                at = bisect_left(row, seqnum)
                held[at] -= 1
                if not held[at]:
                    died.append(seqnum)
            self._tail_holes += len(died)
            return np.array(died, np.uint64)
        counters = np.frombuffer(held, np.uint8)
        seqnums, counts = np.unique(np.frombuffer(fallen, np.uint64), return_counts=True)
        rows: NDArray[np.int64] = np.searchsorted(np.frombuffer(row, np.uint64), seqnums)
        counters[rows] -= counts.astype(np.uint8)
        rows = rows[counters[rows] == 0]
        self._tail_holes += len(rows)
        return np.frombuffer(row, np.uint64)[rows]

    def forget(self, book: int, tags: Sequence[int], is_old: Callable[[int], bool]) -> int:
        """Streams without live records whose newest is old are as if they had never been; tag 0: all streams of the book.

        Args:
            is_old: whether a record is, by its seqnum.

        Returns:
            The newest record of those that are forgotten, 0 if none is.
        """
        newest_of_all = 0
        for tag in tags:
            newest = self.newest(book, tag)
            if not newest or not is_old(newest):
                continue
            if tag == ALL_RECORDS:
                if not self.next(book, ALL_RECORDS, 0):
                    self._forget_book(book)
                    return newest
            elif newest < self.mark(book, tag):
                self._drop(book, tag)
                self.marks.drop(book, tag)
                newest_of_all = max(newest_of_all, newest)
        return newest_of_all

    def _drop(self, book: int, tag: int) -> None:
        for run in self._runs:
            run.drop(book, tag)
        if self._merge is not None:
            self._merge.drop(book, tag)

    def _forget_book(self, book: int) -> None:
        self._drop(book, ALL_RECORDS)
        tail = self._tail.pop(book, None)
        if tail is not None:
            self._tail_rows -= sum(map(len, tail.streams.values()))
        self.marks.drop_book(book)
        self.books.pop(book, None)

    # -- looking

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream, 0 if none did since it was forgotten."""
        tail = self._tail.get(book)
        if tail is not None:
            row = tail.streams.get(tag)
            if row is not None:
                return row[-1]
        newest = 0
        for run in reversed(self._runs):
            found = run.find(book, tag)
            if found is not None:
                newest = run.rows[found[1] - 1]
                break
        if tag != ALL_RECORDS and book in self.book_marks:
            return max(newest, self.marks.get(book, tag) - 1)
        return newest

    def next(self, book: int, tag: int, at_least: int) -> int:
        """Seqnum of the first live record at or above, 0 if there is none."""
        found = self.ascending(book, tag, at_least, SEQNUM_MAX, 1)
        return found[0] if found else 0

    def prev(self, book: int, tag: int, at_most: int) -> int:
        """Seqnum of the last live record at or below, 0 if there is none."""
        found = self.descending(book, tag, at_most, 0, 1)
        return found[0] if found else 0

    def ascending(self, book: int, tag: int, start: int, stop: int, limit: int) -> list[int]:
        """Up to `limit` live seqnums of the stream in [start, stop), ascending."""
        found: list[int] = []
        mark = self.mark(book, tag)
        start = max(start, mark)
        for part in self._parts(book, tag, start):
            low = bisect_left(part.rows, start, part.low, part.high)
            high = bisect_left(part.rows, stop, low, part.high)
            look = max(limit, FIRST_LOOK)
            while low < high and len(found) < limit:
                some = min(high, low + look)
                found += _live(part, low, some, tag)
                low, look = some, 2 * look
            if len(found) >= limit or high < part.high:
                break
        return found[:limit]

    def descending(self, book: int, tag: int, at_most: int, lowest: int, limit: int) -> list[int]:
        """Up to `limit` live seqnums of the stream in [lowest, at_most], descending."""
        found: list[int] = []
        lowest = max(lowest, self.mark(book, tag))
        for part in self._parts_backwards(book, tag, at_most):
            high = bisect_right(part.rows, at_most, part.low, part.high)
            low = bisect_left(part.rows, lowest, part.low, high)
            look = max(limit, FIRST_LOOK)
            while low < high and len(found) < limit:
                some = max(low, high - look)
                found += reversed(_live(part, some, high, tag))
                high, look = some, 2 * look
            if len(found) >= limit or low > part.low:
                break
        return found[:limit]

    def _tail_part(self, book: int, tag: int) -> _Part | None:
        tail = self._tail.get(book)
        row = None if tail is None else tail.streams.get(tag)
        return None if tail is None or row is None else _Part(row, tail.held, 0, len(row))

    def _parts(self, book: int, tag: int, start: int) -> Iterator[_Part]:
        """Parts of a stream that may have something at or above `start`, in order."""
        last = self._tail_part(book, tag)
        if last is None or last.rows[0] > start:
            for run in self._runs:
                if run.newest >= start:
                    found = run.find(book, tag)
                    if found is not None:
                        yield _Part(run.rows, run.held_view, *found)
        if last is not None:
            yield last

    def _parts_backwards(self, book: int, tag: int, at_most: int) -> Iterator[_Part]:
        """Parts of a stream that may have something at or below `at_most`, newest first."""
        last = self._tail_part(book, tag)
        if last is not None:
            yield last
        for run in reversed(self._runs):
            if run.oldest <= at_most:
                found = run.find(book, tag)
                if found is not None:
                    yield _Part(run.rows, run.held_view, *found)

    def streams(self) -> dict[tuple[int, int], list[int]]:
        """All live rows as plain values, whichever part they lie in: for comparing two indexes."""
        keys: dict[tuple[int, int], None] = {}
        for run in self._runs:
            keys.update(dict.fromkeys(zip(run.books.tolist(), run.tags.tolist(), strict=True)))
        for book, tail in self._tail.items():
            keys.update(dict.fromkeys((book, tag) for tag in tail.streams))
        found = {key: self.ascending(*key, 0, SEQNUM_MAX, len(self)) for key in keys}
        return {key: rows for key, rows in found.items() if rows}


def _live(part: _Part, low: int, high: int, tag: int) -> list[int]:
    """The live ones of rows [low, high); of a tag, all at or above its mark are."""
    rows: list[int] = part.rows[low:high].tolist()
    if tag == ALL_RECORDS:
        held = bytes(part.held[low:high])
        if 0 in held:
            return list(compress(rows, held))
    return rows
