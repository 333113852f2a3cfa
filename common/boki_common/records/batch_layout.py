"""The fixed header of a record batch, and where its columns end (table: `record_batch`). Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from boki_common.records.run_column import RUN_ROW

VERSION: Final = 1
FLAG_ZSTD: Final = 1
FIXED_HEADER: Final = Struct("<BBHIIIIIIIIIIIQQ")
EXPECTATION_ROW: Final = Struct("<QQII")


class Expectations(NamedTuple):
    """The expectation column, field by field: who has many looks at one field of all of them.

    `seqnums`: 0 expects a stream without any record, ever. `records` count from the beginning of their runs.
    """

    tags: list[int]
    seqnums: list[int]
    records: list[int]

    def part(self, first: int, stop: int) -> Expectations:
        """Those of one run."""
        if not first and stop == len(self.tags):
            return self
        return Expectations(self.tags[first:stop], self.seqnums[first:stop], self.records[first:stop])


NO_EXPECTATIONS: Final = Expectations([], [], [])


class FixedHeader(NamedTuple):
    version: int
    flags: int
    reserved: int
    run_count: int
    record_count: int
    tag_count: int
    expectation_count: int
    crc_count: int
    header_bytes: int
    data_bytes: int
    raw_data_bytes: int
    term: int
    shard: int
    reserved_2: int
    first_local_id: int
    reserved_3: int


make_fixed: Final = cast(Callable[[tuple[Any, ...]], FixedHeader], partial(tuple.__new__, FixedHeader))
PLACE_FIELD: Final = FixedHeader._fields.index("term")
"""Where the fields begin that an engine fills."""


class ColumnEnds(NamedTuple):
    """Where each column ends, and where the data begins behind the padding."""

    runs: int
    tags: int
    expectations: int
    payload_lengths: int
    crcs: int
    tag_counts: int
    data: int

    @classmethod
    def of(cls, runs: int, records: int, tags: int, expectations: int, crcs: int) -> ColumnEnds:
        end = FIXED_HEADER.size + runs * RUN_ROW.size
        return make_ends(
            (
                end,
                end := end + tags * 8,
                end := end + expectations * EXPECTATION_ROW.size,
                end := end + records * 4,
                end := end + crcs * 4,
                end := end + records,
                -(-end // 8) * 8,
            )
        )


make_ends: Final = cast(Callable[[tuple[int, ...]], ColumnEnds], partial(tuple.__new__, ColumnEnds))
