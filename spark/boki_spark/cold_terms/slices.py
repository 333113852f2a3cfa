"""A slice of an offloaded term: its rows as a sorted Parquet file, and their sum. No IO.

    table = sorted_table(batches)                       # by book, first tag, seqnum
    data, total = parquet_of(table), row_sum(table)

The side index (`slice_index`) finds rows in the file and verifies parts of it. The hash of a row is the xxh3-128 of its seqnum, book,
time, tags, names and data. Sums are modulo 2**128, so the order of rows does not matter.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from xxhash import xxh3_128_intdigest

from boki_common import limits
from boki_spark.errors import ColdDamaged
from boki_spark.read.arrow import ARROW_SCHEMA

GROUP_BYTES: Final = limits.MIB
"""Approximate data in a row group, which is the least that a reader of one tag reads."""
GROUP_ROWS: Final = 64 * 1024
COMPARED: Final = ["seqnum", "term", "pos", "log", "book", "time"]
"""Columns with statistics in the footer. Statistics of data would be most of the footer and are never used."""
_MODULUS: Final = 2**128
_ROW: Final = np.dtype([("seqnum", "<u8"), ("book", "<u8"), ("time", "<i8"), ("tags", "<u4"), ("names", "<u4")])


def sorted_table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the rows of batches, sorted by book, first tag and seqnum."""
    table = pa.Table.from_batches(list(batches), schema=ARROW_SCHEMA).combine_chunks()
    books, seqnums = numbers_of(table, "book"), numbers_of(table, "seqnum")
    offsets, tags = lists_of(table, "tags")
    first = np.zeros(len(books), np.int64)
    some = offsets[1:] > offsets[:-1]
    first[some] = tags[offsets[:-1][some]]
    ordered: pa.Table = table.take(pa.array(np.lexsort((seqnums, first, books))))
    whole: pa.Table = ordered.combine_chunks()
    return whole


def parquet_of(table: pa.Table) -> bytes:
    """Return the bytes of the Parquet file. Its pages have checksums."""
    out = io.BytesIO()
    rows = max(table.num_rows, 1)
    group = max(min(GROUP_ROWS, int(rows * GROUP_BYTES / max(table.nbytes, 1))), 1)
    parquet.write_table(
        table, out, row_group_size=group, compression="zstd", write_page_checksum=True, write_statistics=COMPARED
    )
    return out.getvalue()


def table_of(data: bytes, name: str, *, columns: list[str] | None = None) -> pa.Table:
    """Decode the rows of a file. Raises ColdDamaged."""
    try:
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        if not file.schema_arrow.equals(ARROW_SCHEMA):
            raise ColdDamaged(f"{name} has other columns than {', '.join(ARROW_SCHEMA.names)}")
        table: pa.Table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ColdDamaged(f"{name} cannot be read: {error}") from error
    return table


def row_sum(table: pa.Table) -> int:
    """Return the sum of the hashes of all rows. Each row costs one join and one hash; everything else works on columns."""
    offsets, tags = lists_of(table, "tags")
    raw, begins = _data_of(table)
    names = _packed_names(table, offsets)
    heads = np.empty(table.num_rows, _ROW)
    heads["seqnum"], heads["book"], heads["time"] = (
        numbers_of(table, "seqnum"),
        numbers_of(table, "book"),
        _times(table),
    )
    heads["tags"], heads["names"] = np.diff(offsets), list(map(len, names))
    head_bytes, tag_bytes, join = heads.tobytes(), memoryview(tags.tobytes()), b"".join
    total, size = 0, _ROW.itemsize
    rows = zip(offsets.tolist(), offsets[1:].tolist(), names, begins.tolist(), begins[1:].tolist(), strict=False)
    for at, (first, stop, named, begin, end) in enumerate(rows):
        head = head_bytes[size * at : size * at + size]
        total += xxh3_128_intdigest(join((head, tag_bytes[8 * first : 8 * stop], named, raw[begin:end])))
    return total % _MODULUS


def _data_of(table: pa.Table) -> tuple[memoryview, NDArray[np.int64]]:
    """Return the data of all rows, and the offsets where each begins and the last one ends."""
    column: Any = table.column("data").combine_chunks()
    _, offsets, data = column.buffers()
    found = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset) if offsets else np.zeros(1, np.int32)
    return memoryview(data or b""), found.astype(np.int64)


def _packed_names(table: pa.Table, offsets: NDArray[np.int64]) -> list[bytes]:
    """Encode the names of each row's tags: 0 for a tag without a name, else 1, the length, a colon and the name."""
    column: Any = table.column("tag_names").combine_chunks()
    if column.values.null_count == len(column.values):
        nothing: dict[int, bytes] = {}
        return [nothing.setdefault(count, b"\0" * count) for count in np.diff(offsets).tolist()]
    return [
        b"".join(b"\0" if name is None else b"\1%d:" % len(name) + name.encode() for name in names)
        for names in column.to_pylist()
    ]


def added(total: int, more: int) -> int:
    """Return the sum of two parts."""
    return (total + more) % _MODULUS


# -- columns


def numbers_of(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Return a numeric column."""
    column: Any = table.column(name).combine_chunks()
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _times(table: pa.Table) -> NDArray[np.int64]:
    column: Any = table.column("time").combine_chunks().cast(pa.int64())
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def lists_of(table: pa.Table, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of each row's items, and the items."""
    column: Any = table.column(name).combine_chunks()
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    items: NDArray[np.int64] = column.values.to_numpy(zero_copy_only=False)
    return offsets - offsets[0] if len(offsets) else offsets, items[offsets[0] : offsets[-1]] if len(offsets) else items
