"""Records of entries as Arrow batches of about 1 MB. No IO.

| column | type | |
|---|---|---|
| seqnum | int64, not null | |
| term, pos, log | int32, int64, int32 | position in its log |
| book | int64 | the u64 as two's complement |
| tags | list<int64> | in the order of the append; u64 as two's complement |
| tag_names | list<string> | name of each tag; null for a tag that was given as a number |
| data | binary | |
| time | timestamp[us, UTC] | when its cut was ordered |

Columns are built from many records at once. Only tag names and slices of data need work per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import CorruptData
from boki_common.records.record_batch import RecordBatch
from boki_common.records.tag_names import split_payload

COLUMNS: Final = ("seqnum", "term", "pos", "log", "book", "tags", "tag_names", "data", "time")
ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("seqnum", pa.int64(), nullable=False),
        pa.field("term", pa.int32()),
        pa.field("pos", pa.int64()),
        pa.field("log", pa.int32()),
        pa.field("book", pa.int64()),
        pa.field("tags", pa.list_(pa.int64())),
        pa.field("tag_names", pa.list_(pa.string())),
        pa.field("data", pa.binary()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
    ]
)
ROW_BYTES: Final = 64
"""Approximate size of a row besides its data."""
_NO_NAMES: Final = 2


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns, in that order."""
    schema: pa.Schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    return schema


class EntryRows:
    """Chosen records of one entry, with columns computed by numpy."""

    def __init__(
        self, batch: RecordBatch, chosen: NDArray[np.int64], *, log: int, first_seqnum: int, time_ms: int
    ) -> None:
        """Choose records of an entry.

        Args:
            chosen: ascending numbers of records in the entry.
            first_seqnum: seqnum of record 0.
        """
        self.batch = batch
        self.chosen = chosen
        self.log = log
        self.seqnums = chosen + first_seqnum
        self.time_ms = time_ms

    def __len__(self) -> int:
        return len(self.chosen)

    def books(self) -> NDArray[np.uint64]:
        """Return the book of each record."""
        return books_of(self.batch)[self.chosen]

    def tag_counts(self) -> NDArray[np.int64]:
        return self.batch.tag_counts.astype(np.int64)[self.chosen]

    def tags(self) -> NDArray[np.uint64]:
        """Return the tags of all records, concatenated."""
        if len(self.chosen) == self.batch.record_count:
            return self.batch.tags
        return self.batch.tags[ranges(self.batch.tag_ends - self.batch.tag_counts, self.batch.tag_counts, self.chosen)]

    def data_spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the data of each record begins and ends in the data of the batch. Raises CorruptData."""
        ends = self.batch.payload_ends[self.chosen]
        begins = ends - self.batch.payload_lengths[self.chosen]
        raw = np.frombuffer(self.batch.data, np.uint8)
        names = raw[begins].astype(np.int64) | raw[begins + 1].astype(np.int64) << 8
        begins = begins + _NO_NAMES + names
        if (begins > ends).any():
            raise CorruptData("a payload declares more bytes of tag names than it has")
        return begins, ends

    def data(self) -> list[memoryview]:
        """Return the data of each record. Raises CorruptData."""
        begins, ends = self.data_spans()
        raw = self.batch.data
        return [raw[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def tag_names(self) -> list[list[str | None]]:
        """Return the names of each record's tags. Raises CorruptData."""
        ends = self.batch.payload_ends
        found: list[list[str | None]] = []
        raw = self.batch.data
        lengths = self.batch.payload_lengths
        for record, count in zip(self.chosen.tolist(), self.tag_counts().tolist(), strict=True):
            names: list[str | None] = [None] * count
            if count:
                end = int(ends[record])
                for at, name in split_payload(raw[end - int(lengths[record]) : end])[0]:
                    if at >= count:
                        raise CorruptData(f"a payload names tag {at} of a record with {count} tags")
                    names[at] = name
            found.append(names)
        return found

    def part(self, low: int, high: int) -> EntryRows:
        """Return the chosen records [low, high)."""
        part = EntryRows.__new__(EntryRows)
        part.batch, part.log, part.time_ms = self.batch, self.log, self.time_ms
        part.chosen, part.seqnums = self.chosen[low:high], self.seqnums[low:high]
        return part


def books_of(batch: RecordBatch) -> NDArray[np.uint64]:
    """Return the book of each record of a batch."""
    runs = batch.run_columns
    return np.repeat(runs["book"], runs["count"])


def ranges(begins: NDArray[Any], counts: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers begins … begins + counts of each chosen record, concatenated."""
    sizes = counts[chosen].astype(np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins[chosen].astype(np.int64) - (ends - sizes), sizes) + np.arange(total)


class ArrowBatchBuilder:
    """Collects rows and builds Arrow batches. Memory: the rows of one batch, and their entries."""

    def __init__(self, columns: Sequence[str] = COLUMNS, *, batch_bytes: int = limits.MIB) -> None:
        self._columns = tuple(columns)
        self._schema = schema_of(columns)
        self._batch_bytes = batch_bytes
        self._rows: list[EntryRows] = []
        self._bytes = 0

    def add(self, rows: EntryRows) -> Iterator[pa.RecordBatch]:
        """Add rows, and yield the batches that are full. Raises CorruptData."""
        low = 0
        if not len(rows):
            return
        sizes = np.cumsum(rows.batch.payload_lengths[rows.chosen].astype(np.int64) + ROW_BYTES)
        while low < len(rows):
            before = int(sizes[low - 1]) if low else 0
            room = self._batch_bytes - self._bytes
            high = max(int(np.searchsorted(sizes, before + room, "right")), low)
            if high == low and not self._rows:
                high = low + 1
            if high > low:
                self._rows.append(rows.part(low, high))
                self._bytes += int(sizes[high - 1]) - before
            if high < len(rows):
                yield from self.rest()
            low = high

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows as one batch."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            arrays = [_MAKERS[name](rows) for name in self._columns]
            if not arrays:
                yield pa.RecordBatch.from_arrays([], schema=self._schema)
                return
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _seqnums(rows: Sequence[EntryRows]) -> NDArray[np.int64]:
    return np.concatenate([one.seqnums for one in rows])


def _times(rows: Sequence[EntryRows]) -> pa.Array:
    values = np.repeat(np.array([one.time_ms * 1000 for one in rows], np.int64), [len(one) for one in rows])
    times: pa.Array = pa.array(values, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return times


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.append(0, np.cumsum(counts)).astype(np.int32)


def _tags(rows: Sequence[EntryRows]) -> pa.Array:
    offsets = _offsets(np.concatenate([one.tag_counts() for one in rows]))
    values = np.concatenate([one.tags() for one in rows]).view(np.int64)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()))


def _tag_names(rows: Sequence[EntryRows]) -> pa.Array:
    names: pa.Array = pa.array([names for one in rows for names in one.tag_names()], pa.list_(pa.string()))
    return names


def _data(rows: Sequence[EntryRows]) -> pa.Array:
    parts = [part for one in rows for part in one.data()]
    offsets = _offsets(np.fromiter(map(len, parts), np.int64, len(parts)))
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.binary(), len(parts), buffers)


_POSITION: Final = (1 << limits.POSITION_BITS) - 1
_MAKERS: Final = {
    "seqnum": lambda rows: pa.array(_seqnums(rows), pa.int64()),
    "term": lambda rows: pa.array((_seqnums(rows) >> limits.POSITION_BITS).astype(np.int32), pa.int32()),
    "pos": lambda rows: pa.array(_seqnums(rows) & _POSITION, pa.int64()),
    "log": lambda rows: pa.array(
        np.repeat(np.array([one.log for one in rows], np.int32), list(map(len, rows))), pa.int32()
    ),
    "book": lambda rows: pa.array(np.concatenate([one.books() for one in rows]).view(np.int64), pa.int64()),
    "tags": _tags,
    "tag_names": _tag_names,
    "data": _data,
    "time": _times,
}
