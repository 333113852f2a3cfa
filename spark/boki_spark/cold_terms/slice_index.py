"""The side index of a slice: the rows of each tag, and a hash of each part of both files that is read separately. No IO.

    index, end = index_of(table, data), end_of(data)    # beside the Parquet file `data` of the rows
    head = decode_head(index[:head_bytes], name)
    blocks = head.stream_blocks(head_bytes, book, tags) # parts of the index to read next
    spans = head.spans_in(number, block, book, tags)    # of each; then `row_blocks`, and `rows_of` those

    head            msgpack, `IndexHead`: for each block of streams the first (book, tag) and the start of its rows
    stream blocks   books i64 | tags i64 | ends u32     ascending by (book, tag): where the rows of each end in the row blocks
    row blocks      u32                                 rows of streams, one stream after another
    seqnums         seqnums i64 | rows u32              ascending, and the row of each

Numbers are little-endian. The manifest has the hashes of the head and of the Parquet footer; the head has the hashes of the blocks and of
each column of each row group. A reader of any part can therefore verify it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from boki_common.errors import DECODE_FAULTS
from boki_spark.cold_terms.slices import lists_of, numbers_of
from boki_spark.errors import ColdDamaged
from boki_spark.plan.options import signed_id

VERSION: Final = 1
BLOCK_ROWS: Final = 4_096
"""Streams in a stream block and rows in a row block. A reader of one tag reads at least 80 KiB and 16 KiB."""
_STREAM_BYTES: Final = 20
_ROW_BYTES: Final = 4
_SEQNUM_BYTES: Final = 12
_FOOTER_TAIL: Final = 8
"""Bytes after the footer of a Parquet file: its length and the magic."""


class IndexBlock(NamedTuple):
    """A part [first, stop) of a file, and its hash."""

    first: int
    stop: int
    hash: int


class IndexHead(msgspec.Struct, frozen=True, array_like=True):
    """The head of a side index. Its reader knows its size, where the blocks begin."""

    version: int
    row_count: int
    stream_count: int
    tagged_count: int
    """Rows of all streams together."""
    block_books: bytes
    block_tags: bytes
    block_begins: bytes
    stream_hashes: bytes
    row_hashes: bytes
    seqnums_hash: int
    group_ends: bytes
    """The row after the last one of each row group of the Parquet file."""
    chunk_hashes: bytes
    """Hashes of the columns of the first row group, then of the second, ..."""

    def ends_of_groups(self) -> NDArray[np.int64]:
        return np.frombuffer(self.group_ends, np.uint32).astype(np.int64)

    def chunk_hash(self, group: int, column: int, columns: int) -> int:
        return int(np.frombuffer(self.chunk_hashes, np.uint64)[group * columns + column])

    def stream_blocks(self, head_bytes: int, book: int, tags: Iterable[int]) -> list[tuple[int, IndexBlock]]:
        """Return the blocks that may have streams of a book, with their numbers. Book and tags are u64."""
        books, known = np.frombuffer(self.block_books, np.int64), np.frombuffer(self.block_tags, np.int64)
        keys = list(zip(books.tolist(), known.tolist(), strict=True))
        hashes = np.frombuffer(self.stream_hashes, np.uint64)
        numbers = {_block_with(keys, (signed_id(book), signed_id(tag))) for tag in tags} - {-1}
        found = []
        for at in sorted(numbers):
            first, stop = BLOCK_ROWS * at, min(BLOCK_ROWS * (at + 1), self.stream_count)
            found.append(
                (at, IndexBlock(head_bytes + _STREAM_BYTES * first, head_bytes + _STREAM_BYTES * stop, int(hashes[at])))
            )
        return found

    def spans_in(self, number: int, data: bytes, book: int, tags: Iterable[int]) -> list[tuple[int, int]]:
        """Return the spans of the row blocks that hold the rows of some streams."""
        count = len(data) // _STREAM_BYTES
        books, known = np.frombuffer(data, np.int64, count), np.frombuffer(data, np.int64, count, 8 * count)
        ends = np.frombuffer(data, np.uint32, count, 16 * count).astype(np.int64)
        begins = np.append(int(np.frombuffer(self.block_begins, np.uint32)[number]), ends[:-1])
        wanted = (books == signed_id(book)) & np.isin(known, [signed_id(tag) for tag in tags])
        return [(int(begins[at]), int(ends[at])) for at in np.flatnonzero(wanted).tolist()]

    def row_blocks(self, head_bytes: int, spans: Iterable[tuple[int, int]]) -> list[tuple[int, IndexBlock]]:
        """Return the blocks that hold spans of rows, with their numbers."""
        hashes = np.frombuffer(self.row_hashes, np.uint64)
        begin = head_bytes + _STREAM_BYTES * self.stream_count
        numbers = {at for first, stop in spans for at in range(first // BLOCK_ROWS, -(-stop // BLOCK_ROWS))}
        found = []
        for at in sorted(numbers):
            first, stop = BLOCK_ROWS * at, min(BLOCK_ROWS * (at + 1), self.tagged_count)
            found.append((at, IndexBlock(begin + _ROW_BYTES * first, begin + _ROW_BYTES * stop, int(hashes[at]))))
        return found

    def seqnums_block(self, head_bytes: int) -> IndexBlock:
        first = head_bytes + _STREAM_BYTES * self.stream_count + _ROW_BYTES * self.tagged_count
        return IndexBlock(first, first + _SEQNUM_BYTES * self.row_count, self.seqnums_hash)

    def fits(self) -> bool:
        """Return whether the lengths of the columns agree."""
        blocks = -(-self.stream_count // BLOCK_ROWS)
        groups = len(self.group_ends) // 4
        ends = self.ends_of_groups() if len(self.group_ends) % 4 == 0 else np.empty(0, np.int64)
        return (
            self.version == VERSION
            and min(self.row_count, self.stream_count, self.tagged_count) >= 0
            and len(self.block_books) == 8 * blocks == len(self.block_tags) == len(self.stream_hashes)
            and len(self.block_begins) == 4 * blocks
            and len(self.row_hashes) == 8 * -(-self.tagged_count // BLOCK_ROWS)
            and len(self.chunk_hashes) % (8 * max(groups, 1)) == 0
            and (int(ends[-1]) if len(ends) else 0) == self.row_count
        )


def rows_of(spans: Iterable[tuple[int, int]], blocks: dict[int, bytes]) -> NDArray[np.int64]:
    """Return the rows of spans from their row blocks, ascending and each once."""
    parts = []
    for first, stop in spans:
        for at in range(first // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            rows = np.frombuffer(blocks[at], np.uint32)
            parts.append(rows[max(first - BLOCK_ROWS * at, 0) : stop - BLOCK_ROWS * at])
    return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)


def seqnum_rows(data: bytes, row_count: int, seqnums: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows of seqnums from the block of seqnums, and a mask of the seqnums that it has."""
    known, rows = np.frombuffer(data, np.int64, row_count), np.frombuffer(data, np.uint32, row_count, 8 * row_count)
    at = np.minimum(np.searchsorted(known, seqnums), max(row_count - 1, 0))
    here = known[at] == seqnums if row_count else np.zeros(len(seqnums), np.bool_)
    return rows[at[here]].astype(np.int64), here


def _block_with(keys: Sequence[tuple[int, int]], key: tuple[int, int]) -> int:
    """Return the block that may have a stream: the last one that does not begin after it. Returns -1 if all begin after it."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if keys[middle] <= key else (low, middle)
    return low - 1


# -- what is written


class SideIndex(NamedTuple):
    """A side index, and the size of its head."""

    data: bytes
    head_bytes: int


def index_of(table: pa.Table, data: bytes) -> SideIndex:
    """Return the side index of sorted rows and their Parquet file."""
    books, seqnums = numbers_of(table, "book"), numbers_of(table, "seqnum")
    offsets, tags = lists_of(table, "tags")
    rows = np.repeat(np.arange(len(books)), np.diff(offsets))
    of_tags = books[rows]
    order = np.lexsort((rows, tags, of_tags))
    keys = np.column_stack((of_tags[order], tags[order]))
    last = np.append((keys[1:] != keys[:-1]).any(axis=1), True) if len(keys) else np.zeros(0, np.bool_)
    ends = (np.flatnonzero(last) + 1).astype(np.uint32)
    streams = keys[last]
    firsts = np.arange(0, len(streams), BLOCK_ROWS)
    stream_blocks = [_stream_block(streams[at : at + BLOCK_ROWS], ends[at : at + BLOCK_ROWS]) for at in firsts.tolist()]
    row_column = rows[order].astype(np.uint32)
    row_blocks = [row_column[at : at + BLOCK_ROWS].tobytes() for at in range(0, len(row_column), BLOCK_ROWS)]
    by_seqnum = np.argsort(seqnums, kind="stable")
    seqnum_block = seqnums[by_seqnum].tobytes() + by_seqnum.astype(np.uint32).tobytes()
    footer = parquet.read_metadata(pa.BufferReader(data))
    head = msgspec.msgpack.encode(
        IndexHead(
            VERSION,
            len(books),
            len(streams),
            len(row_column),
            streams[firsts, 0].tobytes(),
            streams[firsts, 1].tobytes(),
            np.append(np.uint32(0), ends)[firsts].tobytes(),
            _hashes(stream_blocks),
            _hashes(row_blocks),
            xxh3_64_intdigest(seqnum_block),
            np.cumsum([footer.row_group(at).num_rows for at in range(footer.num_row_groups)])
            .astype(np.uint32)
            .tobytes(),
            _hashes([data[slice(*part)] for part in chunks_of(footer)]),
        )
    )
    return SideIndex(b"".join([head, *stream_blocks, *row_blocks, seqnum_block]), len(head))


def _stream_block(streams: NDArray[np.int64], ends: NDArray[np.uint32]) -> bytes:
    return streams[:, 0].tobytes() + streams[:, 1].tobytes() + ends.tobytes()


def _hashes(parts: Iterable[bytes]) -> bytes:
    return np.array([xxh3_64_intdigest(part) for part in parts], np.uint64).tobytes()


# -- the footer of the file


def end_of(data: bytes) -> bytes:
    """Return the footer of a Parquet file with its length and magic."""
    size = int.from_bytes(data[-_FOOTER_TAIL:-4], "little") + _FOOTER_TAIL
    return data[-size:]


def footer_of(end: bytes, name: str) -> Any:
    """Parse a footer with pyarrow. Raises ColdDamaged."""
    try:
        return parquet.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise ColdDamaged(f"{name} has a footer that cannot be read: {error}") from error


def chunks_of(footer: Any) -> list[tuple[int, int]]:
    """Return the place [first, stop) of each column of each row group, in the order of `IndexHead.chunk_hashes`."""
    found = []
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        for number in range(group.num_columns):
            column = group.column(number)
            first = column.data_page_offset
            if column.has_dictionary_page:
                first = min(first, column.dictionary_page_offset)
            found.append((first, first + column.total_compressed_size))
    return found


# -- what is read


def decode_head(data: bytes, name: str) -> IndexHead:
    """Parse and check the head of a side index. Raises ColdDamaged."""
    try:
        head = msgspec.msgpack.decode(data, type=IndexHead)
    except DECODE_FAULTS as error:
        raise ColdDamaged(f"{name} is no side index: {error}") from error
    if not head.fits():
        raise ColdDamaged(f"{name} has columns that do not fit each other")
    return head
