"""Builds a record batch on the SDK's side: runs, and records in them, become columns. Pure.

The layout is `record_batch`'s. Nothing is checked here that reading does not check again: who builds has looked at arguments
before, and a batch that cannot be is refused by whoever reads it.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable
from itertools import chain
from typing import Final, TypeAlias

from boki_common import limits
from boki_common.records.batch_layout import EXPECTATION_ROW, FIXED_HEADER, VERSION, ColumnEnds
from boki_common.records.run_column import RUN_KEY, RUN_OF_KEY
from boki_common.runtime.ports import Buffer

TagsRow: TypeAlias = tuple[bytes, int, bytes, *tuple[object, ...]]
"""Tags of a record: its u64 tags packed, how many, what `pack_names` made of their names (NO_NAMES for none)."""

_COPIED_BYTES: Final = 16 * limits.KIB
"""Larger records go as they are, without a copy."""


class BatchBuilder:
    """Builds a batch on the SDK's side, run after run, record after record.

    Records and runs are added to lists; all else is done by columns when the batch is finished.
    """

    __slots__ = ("_crcs", "_data", "_expectations", "_runs", "_starts", "_tags")

    def __init__(self) -> None:
        self._runs: list[tuple[bytes, int, int, int]] = []
        """Key, first number, low, flags."""
        self._starts: list[tuple[int, int]] = []
        """How many records and expectations there were before each run."""
        self._tags: list[TagsRow] = []
        self._data: list[Buffer] = []
        self._expectations: list[bytes] = []
        self._crcs = array("I")

    @property
    def expects(self) -> bool:
        """Whether a record has expectations."""
        return bool(self._expectations)

    def start_run(self, book: int, writer: bytes, first: int, low: int, flags: int = 0) -> None:
        """Begins the next run; records added from here on have the numbers first, first+1, …"""
        self.start_run_of(RUN_KEY.pack(book, writer), first, low, flags)

    def start_run_of(self, key: bytes, first: int, low: int, flags: int) -> None:
        """`start_run`, of a book and writer that were packed before."""
        self._runs.append((key, first, low, flags))
        self._starts.append((len(self._data), len(self._expectations)))

    def add(self, tags: bytes, tag_count: int, names: bytes, data: Buffer) -> None:
        """Adds a record to the open run; its tags as in `TagsRow`."""
        self.add_rows(((tags, tag_count, names),), (data,))

    def add_rows(self, tags: Iterable[TagsRow], data: Iterable[Buffer]) -> None:
        """Adds records to the open run, by columns."""
        assert self._runs
        self._tags.extend(tags)
        self._data.extend(data)

    def expect(self, tag: int, seqnum: int) -> None:
        """Adds an expectation to the record added last; seqnum 0 expects none at all."""
        at = len(self._data) - 1 - self._starts[-1][0]
        self._expectations.append(EXPECTATION_ROW.pack(tag, seqnum, at, 0))

    def checksum(self, crc: int) -> None:
        """Adds the checksum of the record added last; once per record of a NAMED run."""
        self._crcs.append(crc)

    def finish(self, before: bytes = b"") -> list[Buffer]:
        """The buffers of the batch, behind `before`. The builder is spent."""
        data, records, runs = self._data, len(self._data), self._runs
        packed, counted, names, *_ = zip(*self._tags, strict=False) if records else ((), (), ())
        tag_counts, tag_count = bytes(counted), sum(counted)
        lengths = array("I", map(operator.add, map(len, names), map(len, data)))
        data_bytes = sum(lengths)
        counts = len(runs), records, tag_count, len(self._expectations), len(self._crcs)
        ends = ColumnEnds.of(*counts)
        payloads: Iterable[Buffer] = chain.from_iterable(zip(names, data, strict=True))
        columns: list[Buffer | array[int]] = [
            before,
            FIXED_HEADER.pack(VERSION, 0, 0, *counts, ends.data, data_bytes, data_bytes, 0, 0, 0, 0, 0),
            *self._packed_runs(tag_counts),
            *packed,
            *self._expectations,
            lengths,
            self._crcs,
            tag_counts,
            bytes(ends.data - ends.tag_counts),
        ]
        if data_bytes > records * _COPIED_BYTES:
            return [b"".join(columns), *payloads]
        return [b"".join([*columns, *payloads])]

    def _packed_runs(self, tag_counts: bytes) -> list[bytes]:
        """The run column. Each run ends where the next one begins."""
        pack, starts = RUN_OF_KEY.pack, self._starts
        stops = [*starts, (len(self._data), len(self._expectations))][1:]
        return [
            pack(key, first, low, stop - start, sum(tag_counts[start:stop]), expectations - before, flags)
            for (key, first, low, flags), (start, before), (stop, expectations) in zip(
                self._runs, starts, stops, strict=True
            )
        ]
