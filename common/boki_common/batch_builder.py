"""Builds a record batch on the SDK's side: runs, and records in them, become columns. Pure.

The layout is `record_batch`'s. Nothing is checked here that reading does not check again: who builds has looked at arguments
before, and a batch that cannot be is refused by whoever reads it.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from boki_common import limits
from boki_common.record_batch import EXPECTATION_ROW, FIXED_HEADER, RUN_ROW, VERSION, ColumnEnds
from boki_common.runtime.ports import Buffer

_ONE: Final = Struct(FIXED_HEADER.format + RUN_ROW.format.removeprefix("<"))
"""The fixed header and the run of a batch of one record; its tags follow."""
_ENDS_OF_ONE: Final = ColumnEnds.of(1, 1, 0, 0, 0)
_ONE_TAIL: Final = Struct(f"<IB{_ENDS_OF_ONE.data - _ENDS_OF_ONE.tag_counts}x")
"""Then its payload length and tag count, and padding, which tags of 8 bytes each do not change."""
_COPIED_BYTES: Final = 16 * limits.KIB
"""Larger records go as they are, without a copy."""


def batch_of_one(
    book: int, writer: bytes, first: int, low: int, flags: int,
    tags: bytes, tag_count: int, names: bytes, data: Buffer, before: bytes = b"",
) -> list[Buffer]:  # fmt: skip
    """What `BatchBuilder` makes of a run of one record alone, at a tenth of its cost."""
    length = len(names) + len(data)
    head = _ONE.pack(
        VERSION, 0, 0, 1, 1, tag_count, 0, 0, _ENDS_OF_ONE.data + 8 * tag_count, length, length, 0, 0, 0, 0, 0,
        book, writer, first, low, 1, tag_count, 0, flags,
    )  # fmt: skip
    tail = _ONE_TAIL.pack(length, tag_count)
    if length > _COPIED_BYTES:
        return [b"".join((before, head, tags, tail)), names, data]
    return [b"".join((before, head, tags, tail, names, data))]


class BatchBuilder:
    """Builds a batch on the SDK's side, run after run, record after record.

    `size` grows with each record, so the caller knows when to send. `add` is the only code that runs per record.
    """

    __slots__ = (
        "_crcs", "_data", "_expectations", "_lengths", "_run", "_run_expectations", "_run_records", "_run_tags", "_runs",
        "_tag_count", "_tag_counts", "_tags", "data_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._runs: list[bytes] = []
        self._run: tuple[int, bytes, int, int, int] | None = None
        """Book, writer, first number, low, flags of the open run; it begins at these counts:"""
        self._run_records = self._run_tags = self._run_expectations = 0
        self._tag_count = 0
        self._tags: list[bytes] = []
        self._expectations: list[bytes] = []
        self._lengths = array("I")
        self._crcs = array("I")
        self._tag_counts = bytearray()
        self._data: list[Buffer] = []
        self.data_bytes = 0

    @property
    def record_count(self) -> int:
        return len(self._lengths)

    @property
    def size(self) -> int:
        """Bytes of the batch so far, roughly."""
        return self.data_bytes + 13 * len(self._lengths) + RUN_ROW.size * (len(self._runs) + 1) + FIXED_HEADER.size

    def start_run(self, book: int, writer: bytes, first: int, low: int, flags: int = 0) -> None:
        """Begins the next run; records added from here on have the numbers first, first+1, …"""
        self._end_run()
        self._run = book, writer, first, low, flags
        self._run_records, self._run_tags = len(self._lengths), self._tag_count
        self._run_expectations = len(self._expectations)

    def add(self, tags: bytes, tag_count: int, names: bytes, data: Buffer) -> None:
        """Adds a record. `tags` are its u64 tags packed, `names` what `pack_names` made (NO_NAMES for none)."""
        assert self._run is not None
        length = len(names) + len(data)
        self._lengths.append(length)
        self._tag_counts.append(tag_count)
        if tag_count:
            self._tag_count += tag_count
            self._tags.append(tags)
        self._data += names, data
        self.data_bytes += length

    def add_runs_of_one(
        self, runs: Sequence[bytes], tags: Sequence[bytes], tag_counts: Sequence[int], payloads: Sequence[Buffer]
    ) -> None:
        """Adds runs of one record each, without expectations, by columns: at a fifth of the cost of `start_run` and `add`.

        Args:
            runs: rows as they travel.
            tags: of those records that have some, packed.
            payloads: names and data of each.
        """
        if self._run is not None:
            self._end_run()
        assert len(runs) == len(tag_counts) == len(payloads) // 2
        self._runs += runs
        self._tags += tags
        self._tag_count += sum(tag_counts)
        self._tag_counts.extend(tag_counts)
        sizes = list(map(len, payloads))
        lengths = list(map(operator.add, sizes[::2], sizes[1::2]))
        self._lengths.extend(lengths)
        self._data += payloads
        self.data_bytes += sum(lengths)

    def add_many(
        self, tags: Sequence[bytes], tag_counts: Sequence[int], names: Sequence[bytes], data: Sequence[Buffer]
    ) -> None:
        """Adds records by columns, as `add` would one by one, at a third of its cost."""
        assert self._run is not None and len(tags) == len(tag_counts) == len(names) == len(data)
        self._tag_count += sum(tag_counts)
        lengths = list(map(operator.add, map(len, names), map(len, data)))
        self._lengths.extend(lengths)
        self._tag_counts.extend(tag_counts)
        self._tags.extend(tags)
        payloads: list[Buffer] = [b""] * (2 * len(data))
        payloads[::2] = names
        payloads[1::2] = data
        self._data.extend(payloads)
        self.data_bytes += sum(lengths)

    def expect(self, tag: int, seqnum: int) -> None:
        """Adds an expectation to the record added last; seqnum 0 expects none at all."""
        assert self._run is not None
        self._expectations.append(EXPECTATION_ROW.pack(tag, seqnum, len(self._lengths) - 1 - self._run_records, 0))

    def checksum(self, crc: int) -> None:
        """Adds the checksum of the record added last; once per record of a NAMED run."""
        self._crcs.append(crc)

    @property
    def expects(self) -> bool:
        """Whether a record has expectations."""
        return bool(self._expectations)

    def finish(self, before: bytes = b"") -> list[Buffer]:
        """The buffers of the batch, behind `before`. The builder is spent."""
        if self._run is not None:
            self._end_run()
        records, data_bytes = len(self._lengths), self.data_bytes
        counts = len(self._runs), records, self._tag_count, len(self._expectations), len(self._crcs)
        ends = ColumnEnds.of(*counts)
        columns: list[Buffer | array[int]] = [
            before,
            FIXED_HEADER.pack(VERSION, 0, 0, *counts, ends.data, data_bytes, data_bytes, 0, 0, 0, 0, 0),
            *self._runs,
            *self._tags,
            *self._expectations,
            self._lengths,
            self._crcs,
            self._tag_counts,
            bytes(ends.data - ends.tag_counts),
        ]
        if data_bytes > records * _COPIED_BYTES:
            return [b"".join(columns), *self._data]
        columns += self._data
        return [b"".join(columns)]

    def _end_run(self) -> None:
        if self._run is not None:
            book, writer, first, low, flags = self._run
            records = len(self._lengths) - self._run_records
            tags, expectations = self._tag_count - self._run_tags, len(self._expectations) - self._run_expectations
            self._runs.append(RUN_ROW.pack(book, writer, first, low, records, tags, expectations, flags))
            self._run = None
