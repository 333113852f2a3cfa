"""Builds the record columns of a reply from cached batches, span by span. Pure.

A *span* is what one entry contributes: records of one batch, in the order of the reply. Neighbouring records are taken as
slices of the batch's columns and as one view of its data, so a scan copies no payload and touches no single record; scattered
ones (a tag, a point read, a backward read) are picked one by one. The layout is `engine_protocol`'s record columns.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

import numpy as np

from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer

_COUNTS: Final = Struct("<II")
_TIME: Final = Struct("<q")


def one_record(batch: RecordBatch, record: int) -> tuple[bytes, memoryview]:
    """The packed tags and the payload of one record: point reads are many."""
    if batch.record_count == 1:  # appended alone
        return batch.tags.tobytes() if batch.tag_count else b"", batch.data
    ends = batch.payload_ends
    start = ends.item(record - 1) if record else 0
    tags = batch.record_tags(record).tobytes() if batch.tag_count else b""
    return tags, batch.data[start : ends.item(record)]


class RecordColumns:
    """Columns under construction, bounded in payload bytes; the first record is always taken.

    Invariant: `count` records of `payload_bytes` bytes are taken; `full` once a record did not fit any more.
    """

    def __init__(self, max_bytes: int) -> None:
        self.count = 0
        self.payload_bytes = 0
        self.full = False
        self._max_bytes = max_bytes
        self._seqnums: list[bytes] = []
        self._times: list[bytes] = []
        self._tags: list[Buffer] = []
        self._tags_bytes = 0
        self._lengths: list[Buffer] = []
        self._tag_counts: list[Buffer] = []
        self._payloads: list[Buffer] = []

    def add(self, batch: RecordBatch, first_seqnum: int, time_ms: int, seqnums: list[int]) -> None:
        """Takes the records with these seqnums, ascending or descending, as many as fit; record 0 has `first_seqnum`."""
        first, last = seqnums[0] - first_seqnum, seqnums[-1] - first_seqnum
        if last - first + 1 == len(seqnums):
            taken = self._add_slice(batch, first, last + 1)
        else:
            taken = 0
            for seqnum in seqnums:
                record = seqnum - first_seqnum
                if not self._add_slice(batch, record, record + 1):
                    break
                taken += 1
        if taken:
            self.count += taken
            self._seqnums.append(array("Q", seqnums[:taken]).tobytes())
            self._times.append(_TIME.pack(time_ms) * taken)

    def add_nothing(self) -> None:
        """Takes a row that says: no such record."""
        self.count += 1
        self._seqnums.append(bytes(8))
        self._times.append(bytes(8))
        self._lengths.append(bytes(4))
        self._tag_counts.append(b"\0")

    def _add_slice(self, batch: RecordBatch, first: int, stop: int) -> int:
        """Takes records [first, stop) as far as they fit; returns how many."""
        ends = batch.payload_ends
        start = int(ends[first - 1]) if first else 0
        room = self._max_bytes - self.payload_bytes
        if int(ends[stop - 1]) - start > room:
            self.full = True
            stop = first + int(np.searchsorted(ends[first:stop], start + room, side="right"))
            if stop == first:
                if self.payload_bytes:  # no payload is empty
                    return 0
                stop = first + 1
        end = int(ends[stop - 1])
        self.payload_bytes += end - start
        self._payloads.append(batch.data[start:end])
        self._lengths.append(batch.payload_lengths[first:stop].tobytes())
        self._tag_counts.append(batch.tag_counts[first:stop].tobytes())
        if batch.tag_count:
            tag_ends = batch.tag_ends
            tags = batch.tags[int(tag_ends[first - 1]) if first else 0 : int(tag_ends[stop - 1])].tobytes()
            self._tags.append(tags)
            self._tags_bytes += len(tags)
        return stop - first

    def finish(self) -> list[Buffer]:
        """The buffers of the columns, one after another."""
        head = b"".join(
            [
                _COUNTS.pack(self.count, self._tags_bytes // 8),
                *self._seqnums,
                *self._times,
                *self._tags,
                *self._lengths,
                *self._tag_counts,
            ]
        )
        return [head, *self._payloads]
