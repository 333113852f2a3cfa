"""Reads parts of a slice and verifies each by its hash. Runs in an event loop.

    reader = SliceReader(files, folder, manifest.slices[0])
    groups = await reader.groups(book=book, tags=tags, seqnums=spans)
    async for table in reader.tables(groups, columns): ...

Rules:
- The manifest has the hashes of the footer and of the head of the side index; these have the hashes of everything else. No byte is used
  before it was compared.
- For a tag, only the row groups with rows of it are read, found in the side index. For a book or positions, the row groups whose statistics
  allow a match are read.
- Memory: two windows of `WINDOW_BYTES`, whatever the size of the slice.
"""

from __future__ import annotations

import asyncio
import io
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from boki_common import limits
from boki_logbook.index.sorted_run import U64
from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import SliceFile, joined
from boki_spark.cold_terms.slice_index import IndexBlock, IndexHead, chunks_of, decode_head, footer_of, rows_of
from boki_spark.errors import ColdDamaged
from boki_spark.plan.options import signed_id
from boki_spark.read.arrow import ARROW_SCHEMA

WINDOW_BYTES: Final = 8 * limits.MIB
"""Uncompressed data that is read at once; at least one row group."""
GAP_BYTES: Final = 16 * limits.KIB
"""The largest gap between two parts that is read along with them."""


class SliceReader:
    """A reader of one slice.

    Attributes:
        bytes_read: bytes of both files that were read so far.
    """

    def __init__(self, files: Files, folder: str, one: SliceFile) -> None:
        self._files = files
        self._file = joined(folder, one.file)
        self._index = joined(folder, one.index)
        self._one = one
        self._footer: Any = None
        self._head: IndexHead | None = None
        self.bytes_read = 0

    async def groups(
        self, *, book: int | None = None, tags: Sequence[int] = (), seqnums: U64 | None = None
    ) -> list[int]:
        """Return the row groups that may have rows of a book (u64) with one of some tags, among spans of seqnums; ascending.

        Raises:
            ColdMissing, ColdDamaged, ClusterAway: a part cannot be read, or is not what was written.
        """
        footer, head = await self._begin()
        groups = list(range(footer.num_row_groups))
        if tags and book is not None:
            rows = await self._rows_with(head, book, tags)
            groups = np.unique(np.searchsorted(head.ends_of_groups(), rows, "right")).tolist()
        names = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        found = []
        for group in groups:
            of = footer.row_group(group)
            if not of.num_rows:
                continue
            in_book = book is None or _may_have(of.column(names["book"]).statistics, signed_id(book))
            if in_book and (seqnums is None or _may_have_some(of.column(names["seqnum"]).statistics, seqnums)):
                found.append(group)
        return found

    async def tables(self, groups: Sequence[int], columns: Sequence[str]) -> AsyncIterator[pa.Table]:
        """Yield row groups as tables, some at a time, in the order of the file. Raises as `groups`."""
        footer, head = await self._begin()
        windows = list(_windows(footer, groups))
        ahead: asyncio.Task[pa.Table] | None = None
        try:
            for at, window in enumerate(windows):
                table = await (ahead or self._window(footer, head, window, columns))
                following = windows[at + 1] if at + 1 < len(windows) else None
                ahead = asyncio.ensure_future(self._window(footer, head, following, columns)) if following else None
                yield table
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    # -- parts

    async def _begin(self) -> tuple[Any, IndexHead]:
        """Return the verified footer and head, which have the hashes of everything else."""
        if self._head is None:
            one = self._one
            end, begin = await asyncio.gather(
                self._part(self._file, one.bytes - one.footer_bytes, one.bytes),
                self._part(self._index, 0, one.head_bytes),
            )
            for data, expected, path in (
                (end, one.footer_hash, self._file),
                (begin, one.head_hash, self._index),
            ):
                if xxh3_128_hexdigest(data) != expected:
                    raise _damaged(path)
            self._footer, self._head = footer_of(end, self._file), decode_head(begin, self._index)
            if len(self._head.chunk_hashes) != 8 * len(chunks_of(self._footer)):
                raise _damaged(self._index)
        return self._footer, self._head

    async def _rows_with(self, head: IndexHead, book: int, tags: Sequence[int]) -> NDArray[np.int64]:
        """Return the rows with at least one of the tags."""
        begin = self._one.head_bytes
        streams = head.stream_blocks(begin, book, tags)
        found = await self._blocks([block for _, block in streams])
        spans = [
            span
            for (number, _), data in zip(streams, found, strict=True)
            for span in head.spans_in(number, data, book, tags)
        ]
        rows = head.row_blocks(begin, spans)
        data = await self._blocks([block for _, block in rows])
        return rows_of(spans, {number: part for (number, _), part in zip(rows, data, strict=True)})

    async def _blocks(self, blocks: Sequence[IndexBlock]) -> list[bytes]:
        found = await asyncio.gather(*(self._part(self._index, one.first, one.stop) for one in blocks))
        for block, data in zip(blocks, found, strict=True):
            if len(data) != block.stop - block.first or xxh3_64_intdigest(data) != block.hash:
                raise _damaged(self._index)
        return found

    async def _window(self, footer: Any, head: IndexHead, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read, verify and decode some columns of some row groups."""
        leaves = [at for at in range(footer.num_columns) if footer.schema.column(at).path.split(".")[0] in columns]
        chunks, count = chunks_of(footer), footer.num_columns
        wanted = [
            (chunks[group * count + leaf], head.chunk_hash(group, leaf, count)) for group in groups for leaf in leaves
        ]
        spans = list(_joined(sorted(part for part, _ in wanted)))
        pieces = _FileParts(
            dict(
                zip(
                    [first for first, _ in spans],
                    await asyncio.gather(*(self._part(self._file, *span) for span in spans)),
                    strict=True,
                )
            ),
            self._one.bytes,
        )
        for (first, stop), expected in wanted:
            if xxh3_64_intdigest(pieces.part(first, stop)) != expected:
                raise _damaged(self._file)
        try:
            file = parquet.ParquetFile(pa.PythonFile(pieces, mode="r"), metadata=footer)
            if not file.schema_arrow.equals(ARROW_SCHEMA):
                raise ColdDamaged(f"{self._file} has other columns than {', '.join(ARROW_SCHEMA.names)}")
            table: pa.Table = file.read_row_groups(list(groups), columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise ColdDamaged(f"{self._file} cannot be read: {error}") from error
        return table

    async def _part(self, path: str, first: int, stop: int) -> bytes:
        data = await self._files.read_part(path, first, stop)
        self.bytes_read += len(data)
        return data


class _FileParts(io.RawIOBase):
    """A file of which only some parts are present. Reading any other part is a programming error."""

    def __init__(self, pieces: dict[int, bytes], size: int) -> None:
        super().__init__()
        self._firsts = sorted(pieces)
        self._pieces = pieces
        self._size = size
        self._at = 0

    def part(self, first: int, stop: int) -> memoryview:
        """Return the bytes [first, stop), fewer if the file ends before."""
        begin = self._firsts[bisect_right(self._firsts, first) - 1]
        assert begin <= first, "a part that was not asked for"
        return memoryview(self._pieces[begin])[first - begin : stop - begin]

    def read(self, size: int | None = -1) -> memoryview:  # pyarrow takes any buffer
        stop = self._size if size is None or size < 0 else self._at + size
        found = self.part(self._at, stop)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _damaged(path: str) -> ColdDamaged:
    return ColdDamaged(f"{path} is not what was written: offload the term again")


def _windows(footer: Any, groups: Sequence[int]) -> Iterator[list[int]]:
    """Group row groups that are read at once."""
    window: list[int] = []
    size = 0
    for group in groups:
        own = footer.row_group(group).total_byte_size
        if window and size + own > WINDOW_BYTES:
            yield window
            window, size = [], 0
        window.append(group)
        size += own
    if window:
        yield window


def _joined(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ascending spans whose gaps are small."""
    first, stop = -1, -1
    for begin, end in spans:
        if first >= 0 and begin > stop + GAP_BYTES:
            yield first, stop
            first = -1
        first, stop = (begin if first < 0 else first), max(stop, end)
    if first >= 0:
        yield first, stop


def _may_have(statistics: Any, number: int) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= number <= statistics.max)


def _may_have_some(statistics: Any, seqnums: U64) -> bool:
    """Return whether a seqnum between the smallest and the largest lies in ascending spans."""
    if statistics is None or not statistics.has_min_max:
        return True
    at = int(np.searchsorted(seqnums[:, 1], np.uint64(statistics.min), "right"))
    return at < len(seqnums) and int(seqnums[at, 0]) <= statistics.max
