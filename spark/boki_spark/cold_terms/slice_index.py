"""The side index of a slice: where in its file the rows of a tag are, and hashes of every part that is read by itself. No loop, no IO.

    index, end = index_of(table, data), end_of(data)    # beside the Parquet file `data` of the rows
    head = decode_head(index[:head_bytes], name)
    blocks = head.blocks_of(book, tags)                 # parts of the index to read next
    rows = rows_in(head, blocks, book, tags)

    head            msgpack, `IndexHead`: of each block of streams the first (book, tag) and where its rows begin
    stream blocks   books i64 | tags i64 | ends u32     ascending by (book, tag): where the rows of each end in the row blocks
    row blocks      u32                                 rows of streams, one stream after another
    seqnums         seqnums i64 | rows u32              ascending, and the row of each

Numbers are little-endian. A manifest has the hash of the head and that of the file's footer; the head has those of the blocks, and of
each column of each row group. So whoever reads a part of either file knows that it is what was written.
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

VERSION: Final = 1
BLOCK_ROWS: Final = 4_096
"""Streams in a block of them, and rows in a block of rows: 80 KiB and 16 KiB, what a reader of one tag reads of each at least."""
_STREAM_BYTES: Final = 20
_ROW_BYTES: Final = 4
_SEQNUM_BYTES: Final = 12
_FOOTER_TAIL: Final = 8
"""Length of the footer, and the magic of Parquet."""


class IndexBlock(NamedTuple):
    """A part of a file, [first, stop), and its hash."""

    first: int
    stop: int
    hash: int


class IndexHead(msgspec.Struct, frozen=True, array_like=True):
    """See the module. `bytes` of it are counted by its reader: the blocks begin there."""

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
    """Behind the last row of each row group of the file."""
    chunk_hashes: bytes
    """Of the columns of the first row group, then of the second, ..."""

    def ends_of_groups(self) -> NDArray[np.int64]:
        return np.frombuffer(self.group_ends, np.uint32).astype(np.int64)

    def chunk_hash(self, group: int, column: int, columns: int) -> int:
        return int(np.frombuffer(self.chunk_hashes, np.uint64)[group * columns + column])

    def stream_blocks(self, head_bytes: int, book: int, tags: Iterable[int]) -> list[tuple[int, IndexBlock]]:
        """The blocks that may have streams of a book: their numbers, and where they are. Numbers of book and tags are u64."""
        books, known = np.frombuffer(self.block_books, np.int64), np.frombuffer(self.block_tags, np.int64)
        keys = list(zip(books.tolist(), known.tolist(), strict=True))
        hashes = np.frombuffer(self.stream_hashes, np.uint64)
        numbers = {_block_with(keys, (_signed(book), _signed(tag))) for tag in tags} - {-1}
        found = []
        for at in sorted(numbers):
            first, stop = BLOCK_ROWS * at, min(BLOCK_ROWS * (at + 1), self.stream_count)
            found.append(
                (at, IndexBlock(head_bytes + _STREAM_BYTES * first, head_bytes + _STREAM_BYTES * stop, int(hashes[at])))
            )
        return found

    def spans_in(self, number: int, data: bytes, book: int, tags: Iterable[int]) -> list[tuple[int, int]]:
        """Where the rows of streams that a block has are in the row blocks."""
        count = len(data) // _STREAM_BYTES
        books, known = np.frombuffer(data, np.int64, count), np.frombuffer(data, np.int64, count, 8 * count)
        ends = np.frombuffer(data, np.uint32, count, 16 * count).astype(np.int64)
        begins = np.append(int(np.frombuffer(self.block_begins, np.uint32)[number]), ends[:-1])
        wanted = (books == _signed(book)) & np.isin(known, [_signed(tag) for tag in tags])
        return [(int(begins[at]), int(ends[at])) for at in np.flatnonzero(wanted).tolist()]

    def row_blocks(self, head_bytes: int, spans: Iterable[tuple[int, int]]) -> list[tuple[int, IndexBlock]]:
        """The blocks that have these spans of rows."""
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
        """Whether its columns fit each other."""
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
    """The rows of spans, out of the row blocks that have them; ascending, each once."""
    parts = []
    for first, stop in spans:
        for at in range(first // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            rows = np.frombuffer(blocks[at], np.uint32)
            parts.append(rows[max(first - BLOCK_ROWS * at, 0) : stop - BLOCK_ROWS * at])
    return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)


def seqnum_rows(data: bytes, row_count: int, seqnums: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The rows of some seqnums, out of the block of seqnums, and which of them are here."""
    known, rows = np.frombuffer(data, np.int64, row_count), np.frombuffer(data, np.uint32, row_count, 8 * row_count)
    at = np.minimum(np.searchsorted(known, seqnums), max(row_count - 1, 0))
    here = known[at] == seqnums if row_count else np.zeros(len(seqnums), np.bool_)
    return rows[at[here]].astype(np.int64), here


def _block_with(keys: Sequence[tuple[int, int]], key: tuple[int, int]) -> int:
    """The block that has a stream, if any has: the last that does not begin behind it. -1: all do."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if keys[middle] <= key else (low, middle)
    return low - 1


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


# -- what is written


class SideIndex(NamedTuple):
    """A side index, and what its manifest has of it."""

    data: bytes
    head_bytes: int


def index_of(table: pa.Table, data: bytes) -> SideIndex:
    """The side index of sorted rows and their file."""
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
    """The footer of a Parquet file, with its length and magic."""
    size = int.from_bytes(data[-_FOOTER_TAIL:-4], "little") + _FOOTER_TAIL
    return data[-size:]


def footer_of(end: bytes, name: str) -> Any:
    """The content of a footer, as pyarrow has it. Raises ColdDamaged."""
    try:
        return parquet.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise ColdDamaged(f"{name} has a footer that cannot be read: {error}") from error


def chunks_of(footer: Any) -> list[tuple[int, int]]:
    """Where each column of each row group is, [first, stop), in the order of `IndexHead.chunk_hashes`."""
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
    """Raises ColdDamaged."""
    try:
        head = msgspec.msgpack.decode(data, type=IndexHead)
    except DECODE_FAULTS as error:
        raise ColdDamaged(f"{name} is no side index: {error}") from error
    if not head.fits():
        raise ColdDamaged(f"{name} has columns that do not fit each other")
    return head
