"""The index as the conditions of one batch see it: the committed records of the batch join it on the way (DESIGN §6.6). Pure.

They join together, at the end of the batch or before somebody looks at a stream that one of them may have joined: for
conditions on streams of their own, which are most, that is once per batch and not once per record. Where no record before
those that expect something may have joined their streams, all these streams are looked up together.

It implements `verdict.Streams`, and knows no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import lt

import numpy as np

from boki_common import limits
from boki_common.ids import ALL_RECORDS
from boki_common.records.record_batch import RecordBatch
from boki_logbook.index.index import Index
from boki_logbook.index.index_tail import BATCH_START


class BatchStreams:
    """See the module."""

    __slots__ = ("_at", "_batch", "_first", "_first_seqnum", "_first_with", "_index", "_stop")

    def __init__(self, index: Index) -> None:
        self._index = index
        self._batch: RecordBatch
        self._first_seqnum = 0
        self._at = BATCH_START
        self._first = self._stop = 0
        """The records that are committed and not in the index yet."""
        self._first_with: dict[int, dict[int, int]] = {}
        """Of the batch, once somebody asks."""

    def begin(self, batch: RecordBatch, first_seqnum: int) -> None:
        """Commits are of this batch from here on."""
        self._batch, self._first_seqnum, self._at = batch, first_seqnum, BATCH_START
        self._first = self._stop = 0
        self._first_with = {}

    def commit(self, first: int, stop: int) -> None:
        if first != self._stop:  # there are losers between
            self.join()
            self._first = first
        self._stop = stop

    def newest(self, book: int, tag: int) -> int:
        if self._first < self._stop and self._firsts(book).get(tag, limits.BATCH_RECORDS) < self._stop:
            self.join()
        return self._index.newest(book, tag)

    def newest_before(self, book: int, tags: Sequence[int], records: Sequence[int]) -> list[int] | None:
        if any(records):
            firsts = map(self._firsts(book).get, tags, repeat(limits.BATCH_RECORDS))
            if any(map(lt, firsts, records)):
                return None
        return self._index.newest_of(book, tags)

    def join(self) -> None:
        """All that is committed joins the index."""
        first, stop = self._first, self._stop
        if first < stop:
            self._at = self._index.add(self._batch, first, stop, self._first_seqnum, self._at)
            self._first = stop

    def _firsts(self, book: int) -> dict[int, int]:
        """Tag → the first record of the batch that may join that stream of a book."""
        if not self._first_with:
            self._first_with = first_with(self._batch)
        return self._first_with[book]


def first_with(batch: RecordBatch) -> dict[int, dict[int, int]]:
    """Book of the batch → tag → its first record that has the tag; under tag 0 the first of all."""
    tags = batch.tag_values(0, batch.tag_count)
    if batch.tag_counts_of(0, batch.record_count).count(1) == batch.record_count:
        records: Sequence[int] = range(batch.record_count)
    else:
        records = np.repeat(np.arange(batch.record_count), batch.tag_counts).tolist()
    found: dict[int, dict[int, int]] = {}
    start = low = 0
    for book, _, _, _, count, tag_count, _, _ in batch.runs:
        high = low + tag_count
        firsts = dict(zip(reversed(tags[low:high]), reversed(records[low:high]), strict=True))  # the last one stays
        if count:
            firsts[ALL_RECORDS] = start
        known = found.setdefault(book, firsts)
        if known is not firsts:
            for tag, record in firsts.items():
                known.setdefault(tag, record)
        start, low = start + count, high
    return found
