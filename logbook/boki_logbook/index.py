"""Where the records of a stream are: book → tag → ascending seqnums, across terms (DESIGN §6.10, §7). Pure.

    frozen runs      sorted columns (sorted_run.py), oldest first
    live tail        dict book → dict tag → array of u64

For every stream all seqnums in an earlier part are below those in a later one, so a lookup bisects the parts in order and
the newest record of a live stream is the last item of an array. Tag 0 holds every record of a book. Records that lost
never come here; rows depend on the log alone, not on which parts they lie in.

The only work per record is appending to arrays. The tail is frozen when it has `TAIL_ROWS` rows: arrays are fast to append
to but cost some 200 bytes a stream. Neighbouring runs of like size are merged, so there are few. A rebuild takes the same
way: collecting columns and sorting them was measured 4 times slower for streams of many records, and no faster else.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np

from boki_common.ids import ALL_RECORDS, SEQNUM_MAX
from boki_common.record_batch import RecordBatch
from boki_logbook.sorted_run import SortedRun, merge

TAIL_ROWS: Final = 256 * 1024
"""Rows at which the tail is frozen; freezing stops the engine for some 5-50 ms."""
MERGED_ROWS: Final = 4 * 1024 * 1024
"""No merge makes a run larger than this: it would stop the engine for too long."""
TAIL_STREAM_BYTES: Final = 200
"""What a stream of the tail costs besides its rows, roughly: array, dict item, key."""

FEW_SEQNUMS: Final = 64
"""Fewer are added one by one: not worth calling numpy for."""

_Rows = memoryview | array  # type: ignore[type-arg]  # array is not subscriptable at run time in an alias


def _extend(row: array[int], first: int, stop: int) -> None:
    """Adds the seqnums first … stop - 1 to a row."""
    if stop - first < FEW_SEQNUMS:
        row.extend(range(first, stop))
    else:
        row.frombytes(np.arange(first, stop, dtype=np.uint64).tobytes())


class Index:
    """All streams of one engine."""

    def __init__(self, *, tail_rows: int = TAIL_ROWS) -> None:
        self._tail_rows_limit = tail_rows
        self._runs: list[SortedRun] = []
        self._tail: dict[int, dict[int, array[int]]] = {}
        self._tail_rows = 0
        self._books: dict[int, None] = {}

    def __len__(self) -> int:
        """Rows: one per record for tag 0, and one per tag of a record."""
        return sum(map(len, self._runs)) + self._tail_rows

    @property
    def bytes(self) -> int:
        """Memory of all rows, roughly."""
        streams = sum(map(len, self._tail.values()))
        return sum(run.bytes for run in self._runs) + 8 * self._tail_rows + TAIL_STREAM_BYTES * streams

    @property
    def book_count(self) -> int:
        return len(self._books)

    @property
    def run_count(self) -> int:
        return len(self._runs)

    # -- adding

    def add(self, batch: RecordBatch, first: int, stop: int, first_seqnum: int) -> None:
        """Records [first, stop) of a batch join their streams.

        Args:
            first_seqnum: seqnum of record 0 of the batch; seqnums of a stream only ever ascend.
        """
        tail = self._tail
        start = 0
        tag_start = 0
        for run in batch.runs:
            end = start + run.count
            tag_end = tag_start + run.tag_count
            low, high = max(start, first), min(end, stop)
            if low < high:
                streams = tail.get(run.book)
                if streams is None:
                    streams = tail[run.book] = {ALL_RECORDS: array("Q")}
                    self._books[run.book] = None
                _extend(streams[ALL_RECORDS], first_seqnum + low, first_seqnum + high)
                self._tail_rows += high - low
                if low == start and high == end:
                    tags = tag_start, tag_end
                else:
                    ends = batch.tag_ends
                    tags = int(ends[low - 1]) if low else 0, int(ends[high - 1])
                if tags[0] < tags[1]:
                    self._add_tags(streams, batch, low, high, tags, first_seqnum + low)
            start, tag_start = end, tag_end
        if self._tail_rows >= self._tail_rows_limit:
            self.freeze()

    def _add_tags(
        self,
        streams: dict[int, array[int]],
        batch: RecordBatch,
        low: int,
        high: int,
        tag_span: tuple[int, int],
        seqnum: int,
    ) -> None:
        tags = batch.tags[tag_span[0] : tag_span[1]].tolist()
        tag_counts = batch.tag_counts[low:high].tobytes()
        if tag_counts.count(1) == high - low:  # the common case
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
        for count in tag_counts:
            for tag in tags[at : at + count]:
                row = streams.get(tag)
                if row is None:
                    streams[tag] = array("Q", (seqnum,))
                elif row[-1] != seqnum:  # else the record names this tag twice
                    row.append(seqnum)
                else:
                    self._tail_rows -= 1
            at += count
            seqnum += 1
        self._tail_rows += len(tags)

    # -- freezing

    def freeze(self) -> None:
        """Makes a run of the tail; done by itself above a size."""
        if not self._tail_rows:
            return
        tail, self._tail = self._tail, {}
        self._tail_rows = 0
        streams = [len(one) for one in tail.values()]
        count = sum(streams)
        books = np.repeat(np.fromiter(tail.keys(), np.uint64, len(tail)), streams)
        tags = np.fromiter(chain.from_iterable(tail.values()), np.uint64, count)
        rows = [row for one in tail.values() for row in one.values()]
        lengths = np.fromiter(map(len, rows), np.int64, count)
        seqnums = np.frombuffer(b"".join(rows), np.uint64)
        self._add_run(SortedRun.from_segments(books, tags, lengths, seqnums))

    def _add_run(self, run: SortedRun) -> None:
        runs = self._runs
        runs.append(run)
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]) and len(runs[-2]) + len(runs[-1]) <= MERGED_ROWS:
            last = runs.pop()
            runs[-1] = merge((runs[-1], last))

    # -- looking

    def newest(self, book: int, tag: int) -> int:
        """Seqnum of the newest record that ever joined the stream, 0 if none did."""
        row = self._tail_row(book, tag)
        if row is not None:
            return row[-1]
        for run in reversed(self._runs):
            found = run.find(book, tag)
            if found is not None:
                return int(found[-1])
        return 0

    def next(self, book: int, tag: int, at_least: int) -> int:
        """Seqnum of the first record at or above, 0 if there is none."""
        found = self.ascending(book, tag, at_least, SEQNUM_MAX, 1)
        return found[0] if found else 0

    def prev(self, book: int, tag: int, at_most: int) -> int:
        """Seqnum of the last record at or below, 0 if there is none."""
        found = self.descending(book, tag, at_most, 0, 1)
        return found[0] if found else 0

    def ascending(self, book: int, tag: int, start: int, stop: int, limit: int) -> list[int]:
        """Up to `limit` seqnums of the stream in [start, stop), ascending."""
        found: list[int] = []
        for rows in self._parts(book, tag, start):
            low = bisect_left(rows, start)
            high = min(bisect_left(rows, stop, low), low + limit - len(found))
            found += rows[low:high].tolist()
            if len(found) >= limit or high < len(rows):
                break
        return found

    def descending(self, book: int, tag: int, at_most: int, lowest: int, limit: int) -> list[int]:
        """Up to `limit` seqnums of the stream in [lowest, at_most], descending."""
        found: list[int] = []
        for rows in self._parts_backwards(book, tag, at_most):
            high = bisect_right(rows, at_most)
            low = max(bisect_left(rows, lowest, 0, high), high - limit + len(found))
            found += reversed(rows[low:high].tolist())
            if len(found) >= limit or low > 0:
                break
        return found

    def _tail_row(self, book: int, tag: int) -> array[int] | None:
        streams = self._tail.get(book)
        return None if streams is None else streams.get(tag)

    def _parts(self, book: int, tag: int, start: int) -> Iterator[_Rows]:
        """Parts of a stream that may have something at or above `start`, in order."""
        row = self._tail_row(book, tag)
        if row is None or row[0] > start:
            for run in self._runs:
                if run.newest >= start:
                    found = run.find(book, tag)
                    if found is not None:
                        yield found
        if row is not None:
            yield row

    def _parts_backwards(self, book: int, tag: int, at_most: int) -> Iterator[_Rows]:
        """Parts of a stream that may have something at or below `at_most`, newest first."""
        row = self._tail_row(book, tag)
        if row is not None:
            yield row
        for run in reversed(self._runs):
            if run.oldest <= at_most:
                found = run.find(book, tag)
                if found is not None:
                    yield found

    def streams(self) -> dict[tuple[int, int], list[int]]:
        """All rows as plain values, whichever part they lie in: for comparing two indexes."""
        found: dict[tuple[int, int], list[int]] = {}
        for run in self._runs:
            for at, (book, tag) in enumerate(zip(run.books.tolist(), run.tags.tolist(), strict=True)):
                rows = run.seqnums[run.offsets[at] : run.offsets[at + 1]].tolist()
                found.setdefault((book, tag), []).extend(rows)
        for book, streams in self._tail.items():
            for tag, row in streams.items():
                found.setdefault((book, tag), []).extend(row.tolist())
        return found
