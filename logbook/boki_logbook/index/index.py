"""Where the records of a stream are: book → tag → ascending seqnums, across terms (DESIGN §6.10, §7). Pure.

    frozen runs      sorted columns (sorted_run.py), oldest first
    live tail        arrays of book and tag, and books that have one record (index_tail.py)
    marks            up to where streams are trimmed (trim_marks.py); per book in a dict

For every stream all seqnums in an earlier part are below those in a later one, so a lookup bisects the parts in order and
the newest record of a live stream is the last item of an array. Tag 0 holds every record of a book. Records that lost
never come here; what is read and marked depends on the log alone, not on which parts rows lie in.

The only work per record is appending to arrays. The tail is frozen when it has `TAIL_ROWS` rows. Neighbouring runs of like size
are merged, so there are few, a slice of `SLICE_ROWS` rows at a time (run_merge.py): each batch that is added pays for the work it
will make, and each trim does one slice. What is left is done by whoever calls `tidy` when there is time. A rebuild takes the same
way: to collect columns and sort them was 4 times slower for long streams, and no faster else.

**Trim.** A mark is at most one above the newest record of its stream, so a trim never reaches what is ordered later. A trim of a tag
that takes no record sets no mark. A record
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
from itertools import compress
from typing import Final, NamedTuple

import numpy as np

from boki_common.ids import ALL_RECORDS, SEQNUM_MAX
from boki_common.records.record_batch import RecordBatch
from boki_logbook.index.index_tail import BATCH_START, TAIL_STREAM_BYTES, IndexTail, RunStart
from boki_logbook.index.run_merge import RunMerge, merged, next_merge
from boki_logbook.index.sorted_run import NO_ROWS, U64, SortedRun
from boki_logbook.index.trim_marks import TrimMarks

TAIL_ROWS: Final = 16 * 1024
"""Rows at which the tail is frozen, which takes 1 ms, and 6 ms when each is of a stream of its own."""
MERGED_ROWS: Final = 4 * 1024 * 1024
"""No merge makes a run larger than this: what it needs besides its sources is so much again."""
SLICE_ROWS: Final = 16 * 1024
"""Rows that are merged at once: 1-2 ms."""
LEAST_SLICE_ROWS: Final = 256
WORK_PER_ROW: Final = 8
"""Each row is merged so often, at most: a merge at least doubles the largest of its runs, up to `MERGED_ROWS`."""
SPREAD_ROWS: Final = 4 * 1024
"""Rows of wide batches that get streams of their own when somebody looks, in 2 ms; more are frozen, which takes no longer."""
FIRST_LOOK: Final = 64
"""Rows of tag 0 looked at together when dead ones may be among them; doubled while nothing is found."""


class _Part(NamedTuple):
    """Rows of one stream in one part: `rows[low:high]`, with the counters of tag 0 beside them."""

    rows: memoryview | array  # type: ignore[type-arg]  # array is not subscriptable at run time in a NamedTuple
    held: memoryview | bytearray | bytes
    low: int
    high: int


class Index:
    """All streams of one engine."""

    def __init__(
        self, *, tail_rows: int = TAIL_ROWS, slice_rows: int | None = None, largest_run: int = MERGED_ROWS
    ) -> None:
        """`slice_rows`: merged at once. `largest_run`: rows; no merge makes a longer one."""
        self._tail_rows_limit = tail_rows
        self._largest_run = largest_run
        self._slice_rows = slice_rows or min(SLICE_ROWS, max(tail_rows, LEAST_SLICE_ROWS))
        self.runs: list[SortedRun] = []
        """The frozen parts, oldest first, some rows of them dead: who keeps one shares it (`SortedRun.share`)."""
        self._merge: RunMerge | None = None
        self._owed = 0
        """Rows of merges that are not looked at yet, for what was added."""
        self.merged_rows = 0
        """Rows that merges have looked at."""
        self.tail = IndexTail()
        """The rows that are not frozen."""
        self.marks = TrimMarks()
        """Of streams of tags."""
        self.book_marks: dict[int, int] = {}
        """Of each book that was ever trimmed; 0 if only by tags."""

    def __len__(self) -> int:
        """Rows in memory, some of them dead: one per record for tag 0, and one per tag of a record."""
        return sum(map(len, self.runs)) + self.tail.rows

    @property
    def bytes(self) -> int:
        """Memory of all rows and marks, roughly."""
        rows = sum(run.bytes for run in self.runs) + (self._merge.bytes if self._merge else 0) + self.tail.bytes
        return rows + self.marks.bytes + TAIL_STREAM_BYTES * len(self.book_marks)

    def movable(self, rows: int) -> SortedRun | None:
        """A run of at least so many rows whose columns may go to a file, if there is one: the oldest, not in a merge."""
        merging = [] if self._merge is None else self._merge.runs
        for run in self.runs:
            if len(run) >= rows and not run.mapped and run not in merging:
                return run
        return None

    def count_books(self) -> int:
        """Books with rows, some of them dead. It looks at every stream, 50 ms for a million: for who asks now and then."""
        books = np.sort(np.concatenate([self.tail.books(), *(run.books_with_rows() for run in self.runs)]))
        # Not `np.unique`, which makes a hash table of them: 40 times slower.
        return int(np.count_nonzero(books[1:] != books[:-1])) + (len(books) > 0)

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
        tail = self.tail
        rows = tail.rows
        after = tail.add(batch, first, stop, first_seqnum, begin)
        self._owed += WORK_PER_ROW * (tail.rows - rows)
        if tail.rows >= self._tail_rows_limit:
            self.freeze()
            if self._owed < WORK_PER_ROW * self._tail_rows_limit:
                return after  # the next batch pays
        while self._owed >= self._slice_rows:  # so that what is added never outruns putting in order
            before = self.merged_rows
            if not self.tidy():
                self._owed = 0
            self._owed -= max(self.merged_rows - before, self._slice_rows // 4, 1)
        return after

    # -- freezing and merging

    def freeze(self) -> None:
        """Makes a run of the tail; done by itself above a size."""
        run = self.tail.freeze()
        if run is not None:
            self.runs.append(run)

    def tidy(self) -> bool:
        """One slice of putting in order: runs with many dead rows are written anew, neighbours of like size are merged. Returns
        whether there is more to do."""
        merge = self._merge
        if merge is None:
            runs = self.runs
            due = next_merge([len(run) for run in runs], [run.dead for run in runs], largest=self._largest_run)
            if due is None:
                return False
            self._merge = merge = RunMerge(runs[due[0] : due[1]])
        looked_at = merge.looked_at
        more = merge.work(self._slice_rows)
        self.merged_rows += merge.looked_at - looked_at
        if not more:
            at = self.runs.index(merge.runs[0])
            self.runs[at : at + len(merge.runs)] = [] if merge.result is None else [merge.result]
            self._merge = None
        elif merge.overrun:
            self._merge = None
        return True

    def frozen(self) -> list[SortedRun]:
        """All rows; some may be dead, but no stream is forgotten. The tail is frozen for it."""
        self.freeze()
        if any(run.has_forgotten for run in self.runs):
            self._merge = None
            whole = [merged([run]) if run.has_forgotten else run for run in self.runs]
            self.runs = [run for run in whole if run is not None]
        return list(self.runs)

    def restore(self, runs: Sequence[SortedRun]) -> None:
        """Takes the rows of an index that was frozen, oldest first."""
        assert not len(self), "rows are restored into an empty index"
        self.runs = list(runs)

    # -- trimming

    def mark(self, book: int, tag: int) -> int:
        """Reads below answer Trimmed; 0 if nothing was ever trimmed."""
        mark = self.book_marks.get(book)
        if mark is None or tag == ALL_RECORDS:
            return mark or 0
        return max(mark, self.marks.get(book, tag))

    def own_mark(self, book: int, tag: int) -> int:
        """The mark of a stream of a tag alone, whatever became of its book."""
        return self.marks.get(book, tag) if book in self.book_marks else 0

    def trim(self, book: int, pairs: Sequence[tuple[int, int]]) -> U64:
        """Streams drop their records below `before`, of (tag, before) pairs; tag 0 is the whole book. Returns seqnums of
        the records that nothing holds any more, in no order."""
        marks: dict[int, int] = {}
        for tag, before in pairs:
            mark = min(before, self.newest(book, tag) + 1)
            if mark > 1 and mark > max(self.mark(book, tag), marks.get(tag, 0)) and self._takes(book, tag, mark):
                marks[tag] = mark
        if not marks:
            return NO_ROWS
        died: list[U64] = []
        of_book = marks.pop(ALL_RECORDS, 0)
        if of_book:
            died += [run.trim_book(book, of_book) for run in self.runs if run.oldest < of_book]
            if self._merge is not None:
                self._merge.trim_book(book, of_book)
            died.append(self.tail.trim_book(book, of_book, self.marks))
        self.book_marks[book] = max(of_book, self.book_marks.get(book, 0))
        tags = sorted(tag for tag, mark in marks.items() if mark > of_book)
        if tags:
            ordered = [marks[tag] for tag in tags]
            column, highest = np.array(tags, np.uint64), max(ordered)
            died += [run.trim(book, column, ordered) for run in self.runs if run.oldest < highest]
            if self._merge is not None:
                self._merge.trim(book, column, ordered)
            for tag, mark in zip(tags, ordered, strict=True):
                self.marks.put(book, tag, mark)
            died.append(self.tail.trim(book, tags, ordered))
        self.tidy()
        return np.concatenate(died) if died else NO_ROWS

    def _takes(self, book: int, tag: int, mark: int) -> bool:
        """Return whether a trim of a stream takes a record; a trim of the whole book may always set its mark.

        A late copy of a trim, applied after its stream was forgotten and written again, takes none. A mark from it would say that
        records are missing where none ever were (ADR 26).
        """
        return tag == ALL_RECORDS or self.next(book, tag, 0, mark) > 0

    def forget(self, book: int, tags: Sequence[int], is_old: Callable[[int], bool]) -> int:
        """Streams without live records whose newest is old are as if they had never been; tag 0: all streams of the book.
        `is_old`: whether a record is, by its seqnum. Returns the newest record of those that are forgotten, 0 if none is."""
        newest_of_all = 0
        for tag in tags:
            newest = self.newest(book, tag)
            if not newest or not is_old(newest):
                continue
            if tag == ALL_RECORDS:
                if not self.next(book, ALL_RECORDS, 0):
                    self._drop(book, ALL_RECORDS)
                    self.tail.forget(book)
                    self.marks.drop_book(book)
                    return newest
            elif newest < self.mark(book, tag):
                self._drop(book, tag)
                self.marks.drop(book, tag)
                newest_of_all = max(newest_of_all, newest)
        return newest_of_all

    def _drop(self, book: int, tag: int) -> None:
        for run in self.runs:
            run.drop(book, tag)
        if self._merge is not None:
            self._merge.drop(book, tag)

    # -- looking

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream, 0 if none did since it was forgotten."""
        newest = self._streams_of_tail().newest(book, tag)
        if newest:
            return newest
        for run in reversed(self.runs):
            found = run.find(book, tag)
            if found is not None:
                newest = run.rows[found[1] - 1]
                break
        if tag != ALL_RECORDS and book in self.book_marks:
            return max(newest, self.marks.get(book, tag) - 1)
        return newest

    def newest_of(self, book: int, tags: Sequence[int]) -> list[int]:
        """`newest` of some streams of a book."""
        newest = self._streams_of_tail().newest_of(book, tags)
        if all(newest):
            return newest
        return [found or self.newest(book, tag) for found, tag in zip(newest, tags, strict=True)]

    def next(self, book: int, tag: int, at_least: int, stop: int = SEQNUM_MAX) -> int:
        """Seqnum of the first live record in [at_least, stop), 0 if there is none."""
        if book in self.book_marks:
            found = self.ascending(book, tag, at_least, stop, 1)
            return found[0] if found else 0
        last = self._streams_of_tail().rows_of(book, tag)  # nothing of the book was ever trimmed: all its rows are live
        found_one = 0
        if last is None or last[0][0] > at_least:
            for run in self.runs:
                span = run.find(book, tag) if run.newest >= at_least else None
                if span is not None:
                    at = bisect_left(run.rows, at_least, *span)
                    if at < span[1]:
                        found_one = run.rows[at]
                        break
        if not found_one and last is not None and last[0][-1] >= at_least:
            found_one = last[0][bisect_left(last[0], at_least)]
        return found_one if found_one < stop else 0

    def prev(self, book: int, tag: int, at_most: int, lowest: int = 0) -> int:
        """Seqnum of the last live record in [lowest, at_most], 0 if there is none."""
        if book in self.book_marks:
            found = self.descending(book, tag, at_most, lowest, 1)
            return found[0] if found else 0
        last = self._streams_of_tail().rows_of(book, tag)  # as in `next`
        found_one = 0
        if last is not None and last[0][0] <= at_most:
            found_one = last[0][bisect_right(last[0], at_most) - 1]
        else:
            for run in reversed(self.runs):
                span = run.find(book, tag) if run.oldest <= at_most else None
                if span is not None:
                    at = bisect_right(run.rows, at_most, *span)
                    if at > span[0]:
                        found_one = run.rows[at - 1]
                        break
        return found_one if found_one >= lowest else 0

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

    def _streams_of_tail(self) -> IndexTail:
        """The tail, for looking; to be asked before the runs, for it may become one of them."""
        if self.tail.bulk_rows > SPREAD_ROWS:
            self.freeze()
        return self.tail

    def _tail_part(self, book: int, tag: int) -> _Part | None:
        found = self._streams_of_tail().rows_of(book, tag)
        return None if found is None else _Part(*found, 0, len(found[0]))

    def _parts(self, book: int, tag: int, start: int) -> Iterator[_Part]:
        """Parts of a stream that may have something at or above `start`, in order."""
        last = self._tail_part(book, tag)
        if last is None or last.rows[0] > start:
            for run in self.runs:
                found = run.find(book, tag) if run.newest >= start else None
                if found is not None:
                    yield _Part(run.rows, run.held_view, *found)
        if last is not None:
            yield last

    def _parts_backwards(self, book: int, tag: int, at_most: int) -> Iterator[_Part]:
        """Parts of a stream that may have something at or below `at_most`, newest first."""
        last = self._tail_part(book, tag)
        if last is not None:
            yield last
        for run in reversed(self.runs):
            found = run.find(book, tag) if run.oldest <= at_most else None
            if found is not None:
                yield _Part(run.rows, run.held_view, *found)

    def streams(self) -> dict[tuple[int, int], list[int]]:
        """All live rows as plain values, whichever part they lie in: for comparing two indexes."""
        keys: dict[tuple[int, int], None] = {}
        for run in self.runs:
            keys.update(dict.fromkeys(zip(run.books.tolist(), run.tags.tolist(), strict=True)))
        keys.update(dict.fromkeys(self.tail.streams()))
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
