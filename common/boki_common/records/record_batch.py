"""The columnar form of appended records: one format from the SDK's socket to the bookies' disks. Pure.

Little endian; every column starts at a multiple of its item's size, so numpy reads it in place. Counts of 0 leave a
column out.

    fixed header, 64 bytes
    offset  size  field
    0       1     version, 1
    1       1     flags: 1 = the data is one zstd frame
    2       2     reserved, 0
    4       4     run count
    8       4     record count
    12      4     tag count, of all records
    16      4     expectation count
    20      4     crc count: records of NAMED runs
    24      4     header bytes: this and all columns, padded to a multiple of 8
    28      4     data bytes, as they follow the columns
    32      4     raw data bytes, uncompressed
    36      4     term    \
    40      4     shard    } 0 from an SDK, filled by the engine
    48      8     first local id: records of this shard before this batch
    (44 and 56-63 reserved, 0)

    columns, in this order
    runs            56 B  book u64 | writer 16 B | first u64 | low u64 | count u32 | tag count u32 | expectation count u32 | flags u32
    tags             8 B  u64, record after record
    expectations    24 B  tag u64 | seqnum u64 (0 = none at all) | record u32, relative to its run | reserved u32
    payload lengths  4 B  u32, uncompressed
    crcs             4 B  u32, one per record of a NAMED run
    tag counts       1 B  u8
    padding to 8

    data: payloads one after another
    payload  names bytes u16 | names | the record's data
    names    (tag index u8 | length u8 | utf-8)*, for the tags that were given as names

A record's *crc* is the SDK's, crc32c of its tags, data and expectations and of nothing else: who sends a number again sends it
in other runs and batches. Engines compare it and never compute it. In a VOID run it is that of the record whose number is voided
(`void_checksums`).

A *run* is consecutive numbers of one writer in one book; flags: 1 NAMED, 2 VOID, 4 END, 8 RESENT. Runs, and not records,
are what travels, is joined, decided and answered: joining batches concatenates their columns and never looks at a record.

`RecordBatch.parse` checks every length, count and sum before anything is used, so the rest may trust them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from struct import Struct
from typing import Final, TypeAlias

import numpy as np
import zstandard
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import CorruptData, ProtocolError, VersionMismatch
from boki_common.ids import INVALID_TAG
from boki_common.records.batch_layout import (
    EXPECTATION_ROW,
    FIXED_HEADER,
    FLAG_ZSTD,
    PLACE_FIELD,
    VERSION,
    ColumnEnds,
    Expectations,
    FixedHeader,
    make_fixed,
)
from boki_common.records.numpy_pays import FEW_ITEMS, FEW_RUNS
from boki_common.records.run_column import RUN_COLUMNS, make_run, sums_of_columns, sums_of_runs, wrong
from boki_common.records.run_column import RUN_END as RUN_END
from boki_common.records.run_column import RUN_NAMED as RUN_NAMED
from boki_common.records.run_column import RUN_RESENT as RUN_RESENT
from boki_common.records.run_column import RUN_ROW as RUN_ROW
from boki_common.records.run_column import RUN_VOID as RUN_VOID
from boki_common.records.run_column import Run as Run
from boki_common.records.tag_names import NAMES_BYTES
from boki_common.runtime.ports import Buffer

_LENGTH: Final = Struct("<I")
_WIDTHS: Final = (RUN_ROW.size, 8, EXPECTATION_ROW.size, 4, 4, 1, 1)
"""Bytes of an item: runs, tags, expectations, payload lengths, crcs, tag counts; and of the data."""
_KEPT_TAGS: Final = 16
"""Up to so many tags are kept as plain numbers when they are checked: the index wants them so, and calling numpy costs more."""
_OBJECT_BYTES: Final = 1_500
"""A batch's own objects and views, roughly: batches of one small record must not fill the memory unseen."""

Compress: TypeAlias = Callable[[Buffer], bytes | None]
"""Compresses the data of a batch, or returns None where it does not pay."""


class RecordBatch:
    """A parsed batch: views of one buffer, nothing copied. Columns are numpy arrays; runs are a list, being few. Where they are
    many, they are a column too (`run_columns`), and a list only on request."""

    def __init__(self, view: memoryview, fixed: FixedHeader, ends: ColumnEnds, runs: list[Run] | None) -> None:
        assert runs is None or len(runs) == fixed.run_count, (
            f"{runs and len(runs)} runs for a batch of {fixed.run_count}"
        )
        self._view = view
        self._fixed = fixed
        self._ends = ends
        # One statement: a batch of one record is as much as its header.
        (
            _, flags, _, self.run_count, self.record_count, self.tag_count, self.expectation_count, self.crc_count, header_bytes,
            self.data_bytes, self.raw_data_bytes, self.term, self.shard, _, self.first_local_id, _,
        ) = fixed  # fmt: skip
        self.size = size = header_bytes + self.data_bytes
        """Bytes of the whole batch as stored."""
        self.kept_bytes = size + _OBJECT_BYTES + (self.raw_data_bytes if flags & FLAG_ZSTD else 0)
        """What keeping it in memory costs, roughly: compressed data counts twice, as it is kept in both forms once read."""
        if runs is not None:
            self.runs = runs
        self._few_tags: list[int] | None = None
        """All tags, where they were read already, being few."""
        self._data: memoryview | None = None

    @classmethod
    def parse(
        cls, view: memoryview, *, header_only: bool = False, trusted: bool = False, runs: list[Run] | None = None
    ) -> RecordBatch:
        """Reads a batch and checks all of it.

        Args:
            view: exactly one batch; with `header_only`, its header alone (as engines push it) or with data after it.
            trusted: this process made the batch from checked ones: sizes are checked, columns are not read again.
            runs: those of a trusted batch, where they are known already.

        Raises:
            ProtocolError: a length, count or value cannot be. VersionMismatch: another version.
        """
        length = len(view)
        if length < FIXED_HEADER.size:
            raise ProtocolError(f"expected a record batch of at least {FIXED_HEADER.size} bytes, found {length}")
        fixed = make_fixed(FIXED_HEADER.unpack_from(view))
        version, flags, _, run_count, records, tags, expectations, crcs, header_bytes, data_bytes, raw_bytes, *_ = fixed
        if version != VERSION:
            raise VersionMismatch(
                f"expected record batch version {VERSION}, found {version}", expected=VERSION, found=version
            )
        ends = ColumnEnds.of(run_count, records, tags, expectations, crcs)
        if records > limits.BATCH_RECORDS:
            raise wrong("records", limits.BATCH_RECORDS, records)
        if ends.data != header_bytes:
            raise wrong("header bytes", ends.data, header_bytes)
        size = header_bytes if header_only else header_bytes + data_bytes
        if size != length and not (header_only and size < length):
            raise wrong("bytes", size, length)
        if raw_bytes > limits.ENTRY_BYTES:
            raise wrong("data bytes", limits.ENTRY_BYTES, raw_bytes)
        if data_bytes != raw_bytes and not flags & FLAG_ZSTD:
            raise wrong("data bytes", raw_bytes, data_bytes)
        if runs is None and run_count <= FEW_RUNS:
            runs = list(map(make_run, RUN_ROW.iter_unpack(view[FIXED_HEADER.size : ends.runs])))
        batch = cls(view, fixed, ends, runs)
        if not trusted and not (records == 1 and batch._is_one_unconditional_record()):
            batch._check_columns()
        return batch

    def _is_one_unconditional_record(self) -> bool:
        """Whether `_check_columns` would find nothing in this batch of one record; what has flags or expectations is left to
        that. Nearly all that is sent alone is so, and looked at in a third of the time."""
        view, ends = self._view, self._ends
        if self.run_count != 1 or self.crc_count or self.expectation_count:
            return False
        _, _, first, low, count, tag_count, expectations, flags = self.runs[0]
        counts_agree = count == 1 and tag_count == self.tag_count == view[ends.crcs] and not expectations
        if flags or not counts_agree or not 0 < low <= first or tag_count > _KEPT_TAGS:
            return False
        (length,) = _LENGTH.unpack_from(view, ends.expectations)
        if length != self.raw_data_bytes or not NAMES_BYTES.size <= length <= limits.PAYLOAD_BYTES:
            return False
        if tag_count:
            tags = view[ends.runs : ends.tags].cast("Q").tolist()
            if 0 in tags or max(tags) >= INVALID_TAG:
                return False
            self._few_tags = tags
        return True

    def _check_columns(self) -> None:
        fixed, ends = self._fixed, self._ends
        columns = self.run_columns if fixed.run_count > FEW_RUNS else None
        records, tags, expectations, named = sums_of_runs(self.runs) if columns is None else sums_of_columns(columns)
        if records != fixed.record_count:
            raise wrong("records in runs", fixed.record_count, records)
        if tags != fixed.tag_count:
            raise wrong("tags in runs", fixed.tag_count, tags)
        if expectations != fixed.expectation_count:
            raise wrong("expectations in runs", fixed.expectation_count, expectations)
        if named != fixed.crc_count:
            raise wrong("checksums", named, fixed.crc_count)
        total, least, most = _summary(self._view[ends.expectations : ends.payload_lengths].cast("I"), records)
        if total != fixed.raw_data_bytes:
            raise wrong("payload bytes", fixed.raw_data_bytes, total)
        if records and least < NAMES_BYTES.size:
            raise wrong("bytes in a payload", NAMES_BYTES.size, least)
        if most > limits.PAYLOAD_BYTES:
            raise wrong("bytes in a payload", limits.PAYLOAD_BYTES, most)
        self._check_tags(columns)
        if expectations:
            self._check_expectations(columns)

    def _check_expectations(self, columns: NDArray[np.void] | None) -> None:
        """`columns`: of the runs, where there are many."""
        named = self.expectations.records
        if columns is not None:
            counts = np.repeat(columns["count"], columns["expectation_count"])
            if (np.array(named, np.uint32) >= counts).any():
                raise wrong("a record of the run", "one that it has", "another")
            return
        start = 0
        for run in self.runs:
            stop = start + run.expectation_count
            if start < stop and max(named[start:stop]) >= run.count:
                raise wrong("a record of the run", run.count, max(named[start:stop]))
            start = stop

    def _check_tags(self, columns: NDArray[np.void] | None) -> None:
        """`columns`: of the runs, where there are many."""
        ends, records, tag_count = self._ends, self.record_count, self.tag_count
        counts = self._view[ends.crcs : ends.tag_counts]
        if not tag_count:  # the sum over the runs is right, so no run has any
            found = _total(counts, records)
            if found:
                raise wrong("tags of records", 0, found)
            return
        if columns is not None and columns["count"].all():
            starts = np.cumsum(columns["count"], dtype=np.int64) - columns["count"]
            sums = np.add.reduceat(np.frombuffer(counts, np.uint8), starts, dtype=np.uint32)
            if (sums != columns["tag_count"]).any():
                raise wrong("tags of the records of a run", "as many as it has", "others")
        else:
            start = 0
            for run in self.runs:
                count = run.count
                found = counts[start] if count == 1 else _total(counts[start : start + count], count)
                if found != run.tag_count:
                    raise wrong("tags of records", run.tag_count, found)
                start += count
        tags: Sequence[int] = self._view[ends.runs : ends.tags].cast("Q")
        if tag_count <= _KEPT_TAGS:
            tags = self._few_tags = list(tags)
        _, least, most = _summary(tags, tag_count)
        if not least or most >= INVALID_TAG:
            raise wrong("a tag from 1 to 2**64-2", INVALID_TAG - 1, most if least else 0)

    # -- columns

    @cached_property
    def runs(self) -> list[Run]:
        return list(map(make_run, RUN_ROW.iter_unpack(self._view[FIXED_HEADER.size : self._ends.runs])))

    def books(self) -> list[int]:
        """The book of each run."""
        return [run.book for run in self.runs] if self.run_count <= FEW_RUNS else self.run_columns["book"].tolist()

    @property
    def run_columns(self) -> NDArray[np.void]:
        """The runs, for who looks at many."""
        return np.frombuffer(self._view[FIXED_HEADER.size : self._ends.runs], RUN_COLUMNS)

    @cached_property
    def tags(self) -> NDArray[np.uint64]:
        return np.frombuffer(self._view[self._ends.runs : self._ends.tags], np.uint64)

    def tag_values(self, first: int, stop: int) -> list[int]:
        """`tags[first:stop]` as plain numbers."""
        few = self._few_tags
        return self.tags[first:stop].tolist() if few is None else few[first:stop]

    @cached_property
    def expectations(self) -> Expectations:
        column = self._view[self._ends.tags : self._ends.expectations]
        words = column.cast("Q")
        return Expectations(words[::3].tolist(), words[1::3].tolist(), column.cast("I")[4::6].tolist())

    @cached_property
    def payload_lengths(self) -> NDArray[np.uint32]:
        return np.frombuffer(self._view[self._ends.expectations : self._ends.payload_lengths], np.uint32)

    @property
    def length_values(self) -> list[int]:
        """`payload_lengths` as plain numbers."""
        return self._view[self._ends.expectations : self._ends.payload_lengths].cast("I").tolist()

    @cached_property
    def crcs(self) -> NDArray[np.uint32]:
        return np.frombuffer(self._view[self._ends.payload_lengths : self._ends.crcs], np.uint32)

    @property
    def crc_values(self) -> Sequence[int]:
        """`crcs` as plain numbers."""
        return self._view[self._ends.payload_lengths : self._ends.crcs].cast("I").tolist()

    @cached_property
    def tag_counts(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._view[self._ends.crcs : self._ends.tag_counts], np.uint8)

    def tag_counts_of(self, first: int, stop: int) -> bytes:
        """`tag_counts[first:stop]`, one byte each."""
        start = self._ends.crcs
        return bytes(self._view[start + first : start + stop])

    @property
    def header(self) -> memoryview:
        """The fixed header and all columns: what engines push to each other."""
        return self._view[: self._fixed.header_bytes]

    def at(self, term: int, shard: int, first_local_id: int) -> list[Buffer]:
        """This batch at a place in a shard: a new beginning, and all that follows as it is."""
        start = FIXED_HEADER.pack(*self._fixed[:PLACE_FIELD], term, shard, 0, first_local_id, 0)
        return [start, self._view[FIXED_HEADER.size : self.size]]

    def header_at(self, term: int, shard: int, first_local_id: int) -> list[Buffer]:
        """The header of this batch at a place in a shard: a new beginning, and the columns as they are."""
        start = FIXED_HEADER.pack(*self._fixed[:PLACE_FIELD], term, shard, 0, first_local_id, 0)
        return [start, self.header[FIXED_HEADER.size :]]

    @property
    def has_data(self) -> bool:
        """Whether this is the whole batch, not its header alone."""
        return len(self._view) >= self.size

    # -- records

    @cached_property
    def payload_ends(self) -> NDArray[np.int64]:
        """End of each record's payload in the data."""
        return np.cumsum(self.payload_lengths, dtype=np.int64)

    @cached_property
    def tag_ends(self) -> NDArray[np.int64]:
        """End of each record's tags in the tag column."""
        return np.cumsum(self.tag_counts, dtype=np.int64)

    @property
    def data(self) -> memoryview:
        """All payloads, uncompressed. Raises CorruptData."""
        data = self._data
        if data is None:
            fixed = self._fixed
            data = self._view[fixed.header_bytes : self.size]
            if fixed.flags & FLAG_ZSTD:
                data = self._decompressed(data)
            self._data = data
        return data

    def _decompressed(self, stored: memoryview) -> memoryview:
        """Raises CorruptData: the zstd frame is damaged, or declares another size than the header; it is checked before
        anything is decompressed, because the library would trust it."""
        raw_bytes = self.raw_data_bytes
        try:
            declared = zstandard.get_frame_parameters(stored).content_size
            if declared != raw_bytes:
                raise CorruptData(f"expected a zstd frame of {raw_bytes} bytes, found one of {declared}")
            raw = zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw_bytes)
        except zstandard.ZstdError as error:
            raise CorruptData(f"the data of a record batch does not decompress: {error}") from error
        if len(raw) != raw_bytes:
            raise CorruptData(f"expected {raw_bytes} bytes of data, decompressed {len(raw)}")
        return memoryview(raw)

    def payload(self, record: int) -> memoryview:
        """Names and data of one record."""
        ends = self.payload_ends
        return self.data[int(ends[record - 1]) if record else 0 : int(ends[record])]

    def record_tags(self, record: int) -> NDArray[np.uint64]:
        """Tags of one record, in the order given."""
        ends = self.tag_ends
        return self.tags[int(ends[record - 1]) if record else 0 : int(ends[record])]

    def column_views(self) -> tuple[memoryview, ...]:
        """The six columns as bytes, in order: what `join` concatenates."""
        view, start, columns = self._view, FIXED_HEADER.size, []
        for end in self._ends[:-1]:
            columns.append(view[start:end])
            start = end
        return tuple(columns)

    @cached_property
    def _run_starts(self) -> list[tuple[int, ...]]:
        """How much comes before each run, and before the end, in each column and in the data (`_WIDTHS`)."""
        data = list(accumulate(self.length_values, initial=0))
        tags = expectations = records = crcs = 0
        starts: list[tuple[int, ...]] = [(0,) * len(_WIDTHS)]
        for runs, (_, _, _, _, count, tag_count, expectation_count, flags) in enumerate(self.runs, 1):
            tags += tag_count
            expectations += expectation_count
            records += count
            if flags & RUN_NAMED:
                crcs += count
            starts.append((runs, tags, expectations, records, crcs, records, data[records]))
        return starts

    def subset(self, indexes: Sequence[int]) -> RecordBatch:
        """A batch of some runs of this uncompressed one, given by ascending index: for batches that go different ways.

        Runs that lie side by side are copied together; nothing is done per record.
        """
        assert not self._fixed.flags & FLAG_ZSTD
        view, starts, of = self._view, self._run_starts, self._ends
        spans = [(starts[first], starts[stop]) for first, stop in _spans(indexes)]
        counts = [sum([end[at] - one[at] for one, end in spans]) if total else 0 for at, total in enumerate(starts[-1])]
        begins = FIXED_HEADER.size, of.runs, of.tags, of.expectations, of.payload_lengths, of.crcs, of.data
        columns = [
            [view[begin + width * one[at] : begin + width * end[at]] for one, end in spans] if counts[at] else ()
            for at, (begin, width) in enumerate(zip(begins, _WIDTHS, strict=True))
        ]
        run_count, tag_count, expectation_count, records, crc_count, _, data_bytes = counts
        ends = ColumnEnds.of(run_count, records, tag_count, expectation_count, crc_count)
        fixed = make_fixed(
            (VERSION, 0, 0, run_count, records, tag_count, expectation_count, crc_count, ends.data, data_bytes,
             data_bytes, self.term, self.shard, 0, self.first_local_id, 0)
        )  # fmt: skip
        padding = bytes(ends.data - ends.tag_counts)
        whole = b"".join(chain((FIXED_HEADER.pack(*fixed),), *columns[:-1], (padding,), columns[-1]))
        return RecordBatch(memoryview(whole), fixed, ends, [self.runs[at] for at in indexes])


def _spans(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as half-open ranges."""
    first = stop = indexes[0]
    for at in indexes:
        if at != stop:
            yield first, stop
            first = at
        stop = at + 1
    yield first, stop


def _total(column: memoryview[int], count: int) -> int:
    """The sum of `count` small unsigned integers."""
    return sum(column) if count <= FEW_ITEMS else int(np.frombuffer(column, np.uint8).sum(dtype=np.uint64))


def _summary(column: Sequence[int], count: int) -> tuple[int, int, int]:
    """(sum, least, most) of `count` unsigned integers; a few items are not worth calling numpy for, nor is one."""
    if count == 1:
        item = column[0]
        return item, item, item
    if count <= FEW_ITEMS:
        return sum(column), min(column, default=0), max(column, default=0)
    items = np.asarray(column)
    return int(items.sum(dtype=np.uint64)), int(items.min()), int(items.max())


def join(
    batches: Sequence[RecordBatch],
    *,
    term: int,
    shard: int,
    first_local_id: int,
    compress: Compress | None = None,
) -> list[Buffer]:
    """Makes one batch of several uncompressed ones, for a place in a shard: columns are concatenated, records not touched.
    Returns the buffers of the batch, one after another. One input batch is passed through without copying anything."""
    if len(batches) == 1 and compress is None and not batches[0]._fixed.flags & FLAG_ZSTD:
        (only,) = batches
        return only.at(term, shard, first_local_id)
    assert batches and not any(batch._fixed.flags & FLAG_ZSTD for batch in batches)
    records = sum(batch.record_count for batch in batches)
    crcs = sum(batch._fixed.crc_count for batch in batches)
    expectations = sum(batch._fixed.expectation_count for batch in batches)
    runs = sum(batch.run_count for batch in batches)
    tags = sum(batch.tag_count for batch in batches)
    ends = ColumnEnds.of(runs, records, tags, expectations, crcs)
    data: list[Buffer] = [batch.data for batch in batches]
    data_bytes = raw_bytes = sum(map(len, data))
    flags = 0
    if compress is not None and raw_bytes:
        compressed = compress(data[0] if len(data) == 1 else b"".join(data))
        if compressed is not None:
            data = [compressed]
            data_bytes, flags = len(compressed), FLAG_ZSTD
    fixed = FIXED_HEADER.pack(
        VERSION, flags, 0, runs, records, tags, expectations, crcs, ends.data, data_bytes, raw_bytes,
        term, shard, 0, first_local_id, 0,
    )  # fmt: skip
    if len(batches) == 1:
        return [fixed, batches[0].header[FIXED_HEADER.size :], *data]
    columns = zip(*(batch.column_views() for batch in batches), strict=True)
    header = b"".join([fixed, *(view for column in columns for view in column), bytes(ends.data - ends.tag_counts)])
    return [header, *data]
