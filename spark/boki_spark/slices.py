"""A slice of an offloaded term: its rows as a sorted Parquet file, its side index, and the sum that proves both. No loop, no IO.

    table = sorted_table(batches)                       # by book, first tag, seqnum
    data, index, total = parquet_of(table), index_of(table), row_sum(table)

    side index, msgpack [version, rows, columns…]; columns little-endian
    streams    books i64 | tags i64 | ends u32     ascending by (book, tag): where the rows of each end in `rows`
    rows u32   of streams, one stream after another
    seqnums i64 | seqnum_rows u32                  ascending, and the row of each

A row's hash is xxh3-128 of its seqnum, book, time, tags, names and data; sums are modulo 2**128, so no order matters.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from xxhash import xxh3_128_intdigest

from boki_common import limits
from boki_common.errors import DECODE_FAULTS
from boki_spark.arrow import ARROW_SCHEMA
from boki_spark.faults import ColdDamaged

VERSION: Final = 1
GROUP_BYTES: Final = limits.MIB
"""Of data in a row group, roughly: what a reader of one tag reads at least."""
GROUP_ROWS: Final = 64 * 1024
_MODULUS: Final = 2**128
_ROW: Final = Struct("<QQqII")


def sorted_table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of batches, by book, first tag and seqnum."""
    table = pa.Table.from_batches(list(batches), schema=ARROW_SCHEMA).combine_chunks()
    books, seqnums = _numbers(table, "book"), _numbers(table, "seqnum")
    offsets, tags = _lists(table, "tags")
    first = np.zeros(len(books), np.int64)
    some = offsets[1:] > offsets[:-1]
    first[some] = tags[offsets[:-1][some]]
    ordered: pa.Table = table.take(pa.array(np.lexsort((seqnums, first, books))))
    whole: pa.Table = ordered.combine_chunks()
    return whole


def parquet_of(table: pa.Table) -> bytes:
    """The file. Pages have checksums."""
    out = io.BytesIO()
    rows = max(table.num_rows, 1)
    group = max(min(GROUP_ROWS, int(rows * GROUP_BYTES / max(table.nbytes, 1))), 1)
    parquet.write_table(table, out, row_group_size=group, compression="zstd", write_page_checksum=True)
    return out.getvalue()


def table_of(data: bytes, name: str, *, columns: list[str] | None = None) -> pa.Table:
    """The rows of a file. Raises ColdDamaged."""
    try:
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        if not file.schema_arrow.equals(ARROW_SCHEMA):
            raise ColdDamaged(f"{name} has other columns than {', '.join(ARROW_SCHEMA.names)}")
        table: pa.Table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ColdDamaged(f"{name} cannot be read: {error}") from error
    return table


def row_sum(table: pa.Table) -> int:
    """The sum of the hashes of all rows."""
    seqnums, books = _numbers(table, "seqnum").tolist(), _numbers(table, "book").view(np.uint64).tolist()
    times = _times(table).tolist()
    offsets, tags = _lists(table, "tags")
    tag_bytes, ends = tags.tobytes(), offsets.tolist()
    total = 0
    names = table.column("tag_names").to_pylist()
    for at, data in enumerate(table.column("data").to_pylist()):
        named = b"".join(b"\0" if name is None else b"\1%d:" % len(name) + name.encode() for name in names[at])
        head = _ROW.pack(seqnums[at], books[at], times[at], ends[at + 1] - ends[at], len(named))
        total += xxh3_128_intdigest(head + tag_bytes[8 * ends[at] : 8 * ends[at + 1]] + named + data)
    return total % _MODULUS


def added(total: int, more: int) -> int:
    """Sums of two parts, together."""
    return (total + more) % _MODULUS


# -- side index


class SliceIndex(msgspec.Struct, frozen=True, array_like=True):
    """See the module."""

    version: int
    row_count: int
    books: bytes
    tags: bytes
    ends: bytes
    rows: bytes
    seqnums: bytes
    seqnum_rows: bytes

    def rows_of_seqnums(self, seqnums: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The rows of some seqnums, and which of them are here."""
        known = np.frombuffer(self.seqnums, np.int64)
        at = np.minimum(np.searchsorted(known, seqnums), max(len(known) - 1, 0))
        here = known[at] == seqnums if len(known) else np.zeros(len(seqnums), np.bool_)
        return np.frombuffer(self.seqnum_rows, np.uint32)[at[here]].astype(np.int64), here

    def rows_of_tags(self, book: int | None, tags: Iterable[int]) -> NDArray[np.int64]:
        """The rows that have one of these tags, as u64; ascending."""
        books, known = np.frombuffer(self.books, np.int64), np.frombuffer(self.tags, np.int64)
        ends = np.frombuffer(self.ends, np.uint32).astype(np.int64)
        wanted = np.isin(known, np.array(list(tags), np.uint64).view(np.int64))
        if book is not None:
            wanted &= books == np.array([book], np.uint64).view(np.int64)[0]
        rows = np.frombuffer(self.rows, np.uint32)
        begins = np.append(0, ends[:-1])
        parts = [rows[begins[at] : ends[at]] for at in np.flatnonzero(wanted).tolist()]
        return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)


def index_of(table: pa.Table) -> bytes:
    """The side index of sorted rows."""
    books, seqnums = _numbers(table, "book"), _numbers(table, "seqnum")
    offsets, tags = _lists(table, "tags")
    rows = np.repeat(np.arange(len(books)), np.diff(offsets))
    of_tags = books[rows]
    order = np.lexsort((rows, tags, of_tags))
    keys = np.column_stack((of_tags[order], tags[order]))
    last = np.append((keys[1:] != keys[:-1]).any(axis=1), True) if len(keys) else np.zeros(0, np.bool_)
    by_seqnum = np.argsort(seqnums, kind="stable")
    index = SliceIndex(
        VERSION,
        len(books),
        keys[last, 0].tobytes(),
        keys[last, 1].tobytes(),
        (np.flatnonzero(last) + 1).astype(np.uint32).tobytes(),
        rows[order].astype(np.uint32).tobytes(),
        seqnums[by_seqnum].tobytes(),
        by_seqnum.astype(np.uint32).tobytes(),
    )
    return msgspec.msgpack.encode(index)


def decode_index(data: bytes, name: str) -> SliceIndex:
    """Raises ColdDamaged."""
    try:
        index = msgspec.msgpack.decode(data, type=SliceIndex)
    except DECODE_FAULTS as error:
        raise ColdDamaged(f"{name} is no side index: {error}") from error
    streams, rows = len(index.books) // 8, len(index.rows) // 4
    fits = (
        index.version == VERSION
        and len(index.tags) == 8 * streams == len(index.books)
        and len(index.ends) == 4 * streams
        and len(index.seqnums) == 8 * index.row_count
        and len(index.seqnum_rows) == 4 * index.row_count
        and (not streams or int(np.frombuffer(index.ends, np.uint32)[-1]) == rows)
    )
    if not fits:
        raise ColdDamaged(f"{name} has columns that do not fit each other")
    return index


# -- columns


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    column: Any = table.column(name).combine_chunks()
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _times(table: pa.Table) -> NDArray[np.int64]:
    column: Any = table.column("time").combine_chunks().cast(pa.int64())
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _lists(table: pa.Table, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the items of each row begin and end, and the items."""
    column: Any = table.column(name).combine_chunks()
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    items: NDArray[np.int64] = column.values.to_numpy(zero_copy_only=False)
    return offsets - offsets[0] if len(offsets) else offsets, items[offsets[0] : offsets[-1]] if len(offsets) else items
