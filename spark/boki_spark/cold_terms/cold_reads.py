"""Reads of offloaded terms from their files instead of their ledgers, if the files agree with the plan. Runs in an event loop.

    chosen = await choose_cold(cluster, files, plan)     # partitions of files, and the plan of the rest
    async for table in cold_tables(files, partition, columns=columns): ...

A manifest is used only if
- the state of the plan has the same digest of the term, since a LOST command changes verdicts after the files were written;
- it has every row of the plan. A row that was dead when the files were written and is live in the plan belongs to an older plan, which
  reads the ledgers.

The result is the intersection of files and plan: rows that died since are left out. Streams show dead rows too and do not read files.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from boki_common import limits
from boki_common.errors import NoNode
from boki_common.ids import seqnum
from boki_logbook.index.sorted_run import U64
from boki_logbook.scan.facts import LIVE
from boki_logbook.scan.plan import NO_SPANS, Plan, TermPlan, clipped, count_of, united, without
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_record import COPIED
from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import (
    Manifest,
    SliceFile,
    decode_manifest,
    folder_of,
    intersected,
    joined,
    pack_spans,
    unpack_spans,
)
from boki_spark.cold_terms.slice_reader import SliceReader
from boki_spark.cold_terms.slices import GROUP_BYTES, numbers_of
from boki_spark.errors import ColdDamaged, ColdMissing
from boki_spark.plan.cluster import Cluster
from boki_spark.read.arrow import COLUMNS, schema_of
from boki_spark.read.entries import ReadCounts

SPAN_TEXT: Final = 192 * limits.KIB
"""The largest size of a partition's packed spans. A larger partition is cut in two, so that it stays below 256 KiB when it is pickled."""
TASK_BYTES: Final = 16 * limits.MIB
"""Bytes that one task reads from files if it reads little of each: a Python task costs some 50 ms."""
ROW_COST: Final = 16
"""Rows that are read for each row that is asked for, because others lie in the same row group."""
TERMS_AT_ONCE: Final = 16
"""Terms whose records and manifests are read at the same time."""


@dataclass(frozen=True, slots=True)
class ColdPartition:
    """Some rows of one slice.

    Attributes:
        start_pos: first position of the term that the partition covers.
        stop_pos: the position after the last one.
        rows: number of records that it must deliver.
        folder: folder of the attempt.
        file: the manifest's entry of the slice.
        rows_text: packed spans of the positions to deliver.
    """

    term: int
    log: int
    start_pos: int
    stop_pos: int
    rows: int
    mode: str
    book: int | None
    tags: tuple[int, ...]
    folder: str
    file: SliceFile
    rows_text: str

    @property
    def path(self) -> str:
        return joined(self.folder, self.file.file)

    def rows_to_deliver(self) -> U64:
        """Return ascending spans of positions. Raises ColdDamaged."""
        return unpack_spans(self.rows_text)

    @property
    def share_of_task(self) -> float:
        """The share of a task that the partition fills, by the bytes it reads and by its own size when it is pickled."""
        size = self.file.bytes / self.file.rows
        read = min(self.rows * size * ROW_COST + GROUP_BYTES, self.file.bytes)
        return max(read / TASK_BYTES, len(self.rows_text) / SPAN_TEXT)


class ColdChoice(NamedTuple):
    """The partitions of a plan that are read from files, and the plan of the rest."""

    partitions: list[ColdPartition]
    rest: Plan


@dataclass(frozen=True, slots=True)
class ColdFile:
    """A file for a native Parquet reader.

    Attributes:
        rows: number of rows of the plan in the file.
        left_out: (n, 2) spans of seqnums to hide: the file may have them, the plan does not.
        slice: the manifest's entry of the file.
    """

    path: str
    term: int
    rows: int
    bytes: int
    left_out: U64
    slice: SliceFile


async def choose_cold(cluster: Cluster, files: Files, plan: Plan) -> ColdChoice:
    """Split a plan of live rows into partitions of files and the plan of the rest.

    Raises:
        ColdMissing: a manifest that a term record names does not exist.
        ColdDamaged: a manifest is not what was written.
    """
    if plan.mode != LIVE:
        return ColdChoice([], plan)
    chosen: list[ColdPartition] = []
    rest: list[TermPlan] = []
    for one, found in zip(plan.terms, await _all_usable(cluster, files, plan), strict=True):
        if found is None:
            rest.append(one)
        else:
            chosen += _partitions(plan, one, *found)
    return ColdChoice(chosen, dataclasses.replace(plan, terms=tuple(rest)))


async def cold_files(cluster: Cluster, files: Files, plan: Plan) -> tuple[list[ColdFile], Plan]:
    """Return the files with rows of a plan, for all books and tags, and the plan of the rest. Raises as `choose_cold`."""
    found: list[ColdFile] = []
    rest: list[TermPlan] = []
    for one, usable in zip(plan.terms, await _all_usable(cluster, files, plan), strict=True):
        if usable is None:
            rest.append(one)
            continue
        folder, manifest = usable
        base = np.uint64(seqnum(manifest.term, 0))
        not_there = united(
            np.concatenate([manifest.dead_spans(), manifest.lost_spans(), unpack_spans(manifest.losers)])
        )
        for part in manifest.slices:
            rows = clipped(one.rows, part.first_pos, part.stop_pos)
            if len(rows):
                hidden = clipped(without(0, manifest.end_pos, rows), part.first_pos, part.stop_pos)
                hidden = _minus(hidden, not_there)
                found.append(
                    ColdFile(joined(folder, part.file), manifest.term, count_of(rows), part.bytes, hidden + base, part)
                )
    return found, dataclasses.replace(plan, terms=tuple(rest))


async def check_file(files: Files, one: ColdFile) -> None:
    """Compare the end of a file, which locates everything else in it, with its manifest.

    Raises:
        ColdMissing: the file does not exist.
        ColdDamaged: it does not end as it was written.
        ClusterAway: the file system does not answer.
    """
    part = one.slice
    end = await files.read_part(one.path, part.bytes - part.footer_bytes, part.bytes + 1)
    if len(end) != part.footer_bytes or xxh3_128_hexdigest(end) != part.footer_hash:
        raise ColdDamaged(f"{one.path} does not end as it was written: offload the term again")


async def _all_usable(cluster: Cluster, files: Files, plan: Plan) -> list[tuple[str, Manifest] | None]:
    """Call `_usable` for each term, some at a time."""
    found: list[tuple[str, Manifest] | None] = []
    for at in range(0, len(plan.terms), TERMS_AT_ONCE):
        found += await asyncio.gather(*(_usable(cluster, files, one) for one in plan.terms[at : at + TERMS_AT_ONCE]))
    return found


async def _usable(cluster: Cluster, files: Files, one: TermPlan) -> tuple[str, Manifest] | None:
    """Return the folder and manifest of a term, or None if its files do not agree with the plan."""
    if not one.facts.ended or not one.row_count:
        return None
    try:
        record = await read_record(cluster.store, one.facts.term)
    except NoNode:
        return None
    path = record.location.path
    if record.location.kind != COPIED or not path:
        return None
    try:
        manifest = decode_manifest(await files.read(path), path.rpartition("/")[2])
    except ColdMissing:
        if (await read_record(cluster.store, one.facts.term)).location.path != path:
            return None  # the term was copied again or reclaimed meanwhile
        raise
    if manifest.digest != f"{one.facts.digest:016x}" or manifest.end_pos != one.facts.end_pos:
        return None
    if count_of(intersected(one.rows, manifest.dead_spans())) or count_of(intersected(one.rows, manifest.lost_spans())):
        return None
    return folder_of(path), manifest


def _partitions(plan: Plan, one: TermPlan, folder: str, manifest: Manifest) -> Iterator[ColdPartition]:
    for part in manifest.slices:
        rows = clipped(one.rows, part.first_pos, part.stop_pos)
        for piece in _small(rows) if len(rows) else ():
            yield ColdPartition(
                manifest.term,
                manifest.log,
                int(piece[0, 0]),
                int(piece[-1, 1]),
                count_of(piece),
                plan.mode,
                plan.asked.book,
                plan.asked.tags,
                folder,
                part,
                pack_spans(piece),
            )


def _small(rows: U64) -> Iterator[U64]:
    """Split spans into pieces whose packed text is small."""
    if len(pack_spans(rows)) <= SPAN_TEXT or len(rows) == 1:
        yield rows
        return
    half = len(rows) // 2
    yield from _small(rows[:half])
    yield from _small(rows[half:])


def _minus(spans: U64, others: U64) -> U64:
    """Return the spans of the first argument without those of the second."""
    parts = [without(int(first), int(stop), clipped(others, int(first), int(stop))) for first, stop in spans.tolist()]
    return np.concatenate(parts) if parts else NO_SPANS


async def cold_tables(
    files: Files, one: ColdPartition, *, columns: Sequence[str] = COLUMNS, counts: ReadCounts
) -> AsyncIterator[pa.Table]:
    """Yield the rows of a partition in the order of the file, and count them in `counts`.

    Raises:
        ColdMissing, ColdDamaged, ClusterAway: the file cannot be read, or is not what its manifest says.
    """
    reader = SliceReader(files, one.folder, one.file)
    rows = one.rows_to_deliver() + np.uint64(seqnum(one.term, 0))
    groups = await reader.groups(book=one.book, tags=one.tags, seqnums=rows)
    wanted = list(dict.fromkeys(["seqnum", *columns]))
    found = 0
    try:
        async for table in reader.tables(groups, wanted):
            chosen = _among(table, rows).select(list(columns))
            found += chosen.num_rows
            if chosen.num_rows:
                yield chosen
    finally:
        counts.rows += found
        counts.bytes += reader.bytes_read
    if found != one.rows:
        raise ColdDamaged(f"expected {one.rows} rows of the plan in {one.path}, found {found}")


async def read_cold(files: Files, one: ColdPartition, *, columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return all rows of a partition. Raises as `cold_tables`."""
    found = [table async for table in cold_tables(files, one, columns=columns, counts=ReadCounts())]
    whole: pa.Table = pa.concat_tables(found) if found else schema_of(columns).empty_table()
    return whole


def _among(table: pa.Table, rows: U64) -> pa.Table:
    """Return the rows of a table whose seqnums lie in ascending spans."""
    seqnums = numbers_of(table, "seqnum").view(np.uint64)
    at = np.searchsorted(rows[:, 0], seqnums, "right")
    inside = (at > 0) & (seqnums < rows[np.maximum(at, 1) - 1, 1])
    if inside.all():
        return table
    chosen: pa.Table = table.filter(pa.array(inside))
    return chosen


async def is_named(cluster: Cluster, one: ColdPartition) -> bool:
    """Return whether the term record still names the files of a partition. Raises MetadataUnavailable."""
    try:
        location = (await read_record(cluster.store, one.term)).location
    except NoNode:
        return False
    return location.kind == COPIED and folder_of(location.path) == one.folder


def batches_of(table: pa.Table, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Split a table into batches of about `batch_bytes`."""
    rows = max(int(table.num_rows * batch_bytes / max(table.nbytes, 1)), 1)
    yield from table.combine_chunks().to_batches(max_chunksize=rows)
