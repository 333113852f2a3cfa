"""Offloads a sealed term: its live records as sorted Parquet files, proved whole, then named by its term record. Runs in a loop.

    version of the record → index snapshot → plan → slices, side indexes → manifest → all synced, and read back → LOST looked for
    → swap

Rules:
- Files belong to an *attempt*, whose name has the version of the term record it began with and is random besides. No file is ever
  written twice, and nobody looks into a folder for what is true: the term record names the manifest, the manifest the files.
- The record is swapped at the version that was read *before* the snapshot: of two offloaders one wins, a stalled one never does.
- Files of an attempt are deleted only when the version has moved, and another manifest is named: only then can it never be named.
- Files are synced before they are named: a name outlasts a machine that loses its power, so must they.
- `copied` means that files have what the ledgers have. The ledgers stay, and older programs go on with them.
- A LOST command behind the snapshot changes verdicts: the term is offloaded again, behind it.
- Of a term that died after it was copied the files are deleted as its ledgers are.

Killed at any step, the next run begins that term anew, and what was left is deleted (`sweep`). Memory: one slice, some 300 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_128_hexdigest

from boki_common import limits
from boki_common.errors import BadVersion, BokiError, NoNode
from boki_common.metadata.settle import Superseded, compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.pages import capture, pages_of
from boki_logbook.scan.partitions import Partition, cut
from boki_logbook.scan.plan import NO_SPANS, Plan, PlanBuilder, TermPlan, clipped, united, without
from boki_logbook.state.snapshot_rules import SnapshotNode
from boki_logbook.state.state import DecisionState
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.term_record import (
    COPIED,
    DELETED,
    IN_LEDGERS,
    RECLAIMED,
    TermRecord,
    decode_record,
    encode_record,
    term_path,
)
from boki_spark.arrow import Batches
from boki_spark.cluster import Cluster
from boki_spark.entries import PartitionReader, ReadCounts
from boki_spark.faults import Behind, ColdDamaged, OffloadRefused
from boki_spark.files import Files
from boki_spark.lost_commands import lost_since
from boki_spark.manifest import (
    VERSION,
    Manifest,
    PlanPoint,
    ShardProof,
    SliceFile,
    decode_manifest,
    encode_manifest,
    folder_of,
    joined,
    manifest_name,
    pack_column,
    pack_spans,
    tiled,
)
from boki_spark.slice_index import chunks_of, decode_head, end_of, footer_of, index_of
from boki_spark.slices import added, parquet_of, row_sum, sorted_table, table_of

SLICE_BYTES: Final = 64 * limits.MIB
NOT_COVERED: Final = "no index snapshot has it to its end yet"

Progress = Callable[[int, int], None]
"""Called while a term is offloaded: rows done, rows in all; each is read, and read back."""


@dataclass(frozen=True, slots=True)
class Offloaded:
    """What became of a term. `manifest`: its path; "" when there was nothing to offload, for `why`."""

    term: int
    manifest: str = ""
    rows: int = 0
    bytes: int = 0
    slices: int = 0
    why: str = ""


class _Planned(NamedTuple):
    node: SnapshotNode
    state: DecisionState
    plan: TermPlan
    live: Plan


class Offloader:
    """See the module. `folder`: where all attempts of all terms lie."""

    def __init__(
        self,
        cluster: Cluster,
        files: Files,
        folder: str,
        *,
        rng: Random,
        slice_bytes: int = SLICE_BYTES,
        retry_for_s: float = 10.0,
    ) -> None:
        """`slice_bytes`: of data, in one file. `retry_for_s`: how long bookies that do not answer are asked again."""
        self._cluster = cluster
        self._files = files
        self._folder = folder.rstrip("/")
        self._rng = rng
        self._slice_bytes = slice_bytes
        self._retry_for_s = retry_for_s

    async def offloadable(self) -> list[int]:
        """Sealed terms in ledgers that the snapshot covers and that have live records, ascending. Raises as `Cluster.plan`."""
        try:
            node, state, _ = await self._cluster.snapshot_state()
        except Behind:
            return []
        history = TermHistory(self._cluster.store)
        await history.refresh()
        found = []
        for number in history.numbers:
            record, _ = await _read(self._cluster.store, number)
            if record.location.kind == IN_LEDGERS and node.covers(number, record.log):
                places = state.places.terms.get(number)
                if places is not None and places.live:
                    found.append(number)
        return found

    async def offload(self, term: int, progress: Progress = lambda done, total: None) -> Offloaded:
        """Offloads a term, or returns why there is nothing to do.

        Raises:
            OffloadRefused: somebody else changed the term meanwhile, or a LOST command did: look again. ColdDamaged: what was written
            cannot be read back. DataLoss, PlanStale, ClusterAway: as reading. BokiError: the store or the snapshot is away.
        """
        try:
            record, version = await _read(self._cluster.store, term)
        except NoNode:
            return Offloaded(term, why="it goes on, or there is no such term")
        if record.location.kind != IN_LEDGERS:
            return Offloaded(
                term,
                record.location.path if record.location.kind == COPIED else "",
                why=f"it is {record.location.kind}",
            )
        planned = await self._planned(record)
        if isinstance(planned, str):
            return Offloaded(term, why=planned)
        attempt = joined(self._folder, f"term-{term}/v{version}-{self._rng.token(8).hex()}")
        try:
            return await self._attempt(attempt, record, version, planned, progress)
        except BokiError:
            await self._give_up(attempt, term, version)
            raise

    async def _planned(self, record: TermRecord) -> _Planned | str:
        """The plan of a term by a snapshot that was read after its record; or why there is nothing to do."""
        term = record.term
        try:
            node, state, metalogs = await self._cluster.snapshot_state()
        except Behind:
            return NOT_COVERED
        places = state.places.terms.get(term)
        if not node.covers(term, record.log) or places is None:
            return NOT_COVERED
        if places.end_pos != record.end_pos:
            raise ColdDamaged(
                f"term {term} ends at {record.end_pos} by its record and at {places.end_pos} by the index snapshot"
            )
        if not places.live:
            return "none of its records is live"
        asked = ScanRange({record.log: (term, 0)}, {record.log: (term, record.end_pos)})
        plans = []
        for mode in (COMMITTED, LIVE):
            builder = PlanBuilder(asked, mode)
            for page in pages_of(capture(state, None, asked, mode, metalogs.get)):
                builder.take(page)
            plans.append(builder.finish())
        return _Planned(node, state, plans[0].terms[0], plans[1])

    # -- an attempt

    async def _attempt(
        self, attempt: str, record: TermRecord, version: int, planned: _Planned, progress: Progress
    ) -> Offloaded:
        whole = planned.live.terms[0]
        lost = united(np.array([span[:2] for span in whole.given_up], np.uint64).reshape(-1, 2))
        total = 2 * whole.row_count
        slices: list[SliceFile] = []
        row_total, done = 0, 0
        pieces = _grouped(cut(planned.live, max_bytes=self._slice_bytes), self._slice_bytes)
        for (first, stop), partitions in zip(
            tiled([piece[0].start_pos for piece in pieces], record.end_pos), pieces, strict=True
        ):
            made, part = await self._slice(attempt, len(slices), first, stop, partitions)
            slices.append(made)
            row_total = added(row_total, part)
            done += made.rows
            progress(done, total)
        manifest = _manifest(record, planned, tuple(slices), row_total, lost)
        fault = manifest.fault()
        if fault is not None:
            raise ColdDamaged(f"the files of term {record.term} would not be whole: {fault}")
        data = encode_manifest(manifest)
        path = joined(attempt, manifest_name(data))
        await self._files.create(path, data)
        await self._files.sync(attempt)
        await prove(self._files, path, lambda rows: progress(done + rows, total))
        await self._swap(record, version, path, planned.node)
        size = sum(one.bytes + one.index_bytes for one in slices)
        return Offloaded(record.term, path, manifest.rows, size, len(slices))

    async def _slice(
        self, attempt: str, number: int, first: int, stop: int, partitions: Sequence[Partition]
    ) -> tuple[SliceFile, int]:
        batches = Batches()
        made: list[pa.RecordBatch] = []
        for partition in partitions:
            reader = PartitionReader(
                self._cluster.ledgers,
                partition,
                counts=ReadCounts(),
                fail_on_data_loss=not partition.entries().given_up.any(),
                retry_for_s=self._retry_for_s,
            )
            async for rows in reader.read():
                made += batches.add(rows)
        made += batches.rest()
        table = sorted_table(made)
        data, total = parquet_of(table), row_sum(table)
        index, end = index_of(table, data), end_of(data)
        name = f"slice-{number:06}"
        await self._files.create(joined(attempt, f"{name}.parquet"), data)
        await self._files.create(joined(attempt, f"{name}.index"), index.data)
        return (
            SliceFile(
                f"{name}.parquet",
                len(data),
                xxh3_128_hexdigest(data),
                len(end),
                xxh3_128_hexdigest(end),
                f"{name}.index",
                len(index.data),
                xxh3_128_hexdigest(index.data),
                index.head_bytes,
                xxh3_128_hexdigest(index.data[: index.head_bytes]),
                table.num_rows,
                first,
                stop,
            ),
            total,
        )

    async def _swap(self, record: TermRecord, version: int, path: str, node: SnapshotNode) -> None:
        """Names the manifest, unless something happened since. Raises OffloadRefused; MetadataUnknown: it may be named."""
        term = record.term
        store = self._cluster.store
        async for lost in lost_since(store, self._cluster.ledgers, node):
            if lost.term == term:
                raise OffloadRefused(
                    f"entries of term {term} were given up after the index snapshot: offload it behind the next one"
                )
        moved = record.at(COPIED, path)
        try:
            await compare_and_set(store, term_path(term), encode_record(moved), version=version)
        except Superseded:
            found, _ = await _read(store, term)
            if found.location.path == path:
                return
            raise OffloadRefused(f"term {term} was changed by somebody else: it is {found.location.kind} now") from None
        except (BadVersion, NoNode):
            raise OffloadRefused(f"term {term} was changed by somebody else meanwhile: look again") from None

    async def _give_up(self, attempt: str, term: int, version: int) -> None:
        """Deletes the files of an attempt that can never be named; else they stay for `sweep`."""
        try:
            record, now = await _read(self._cluster.store, term)
            if now > version and folder_of(record.location.path) != attempt:
                await self._delete(attempt)
        except BokiError:
            return  # what is left is swept by whoever comes next

    async def _delete(self, attempt: str) -> None:
        for path in await self._files.list(attempt):
            await self._files.delete(path)

    # -- what is left

    async def sweep(self) -> int:
        """Deletes the files of attempts that can never be named, and of terms that died; returns how many files.

        Raises ClusterAway, BokiError: what is left is found by the next one.
        """
        found: dict[int, dict[str, list[str]]] = {}
        for path in await self._files.list(self._folder):
            parts = path.removeprefix(f"{self._folder}/").split("/")
            term, version = _term_of(parts[0]), _version_of(parts[1] if len(parts) == 3 else "")
            if term is not None and version is not None:
                found.setdefault(term, {}).setdefault(folder_of(path), []).append(path)
        deleted = 0
        for term, attempts in sorted(found.items()):
            try:
                record, now = await _read(self._cluster.store, term)
            except NoNode:
                continue  # another cluster's, perhaps: nobody knows
            over = record.location.kind in (RECLAIMED, DELETED)
            for attempt, paths in sorted(attempts.items()):
                began = _version_of(attempt.rpartition("/")[2])
                named = folder_of(record.location.path) == attempt
                if began is not None and now > began and (over or not named):
                    for path in paths:
                        await self._files.delete(path)
                    deleted += len(paths)
            if record.location.kind == DELETED and record.location.path:
                await self._forget(record, now)
        return deleted

    async def _forget(self, record: TermRecord, version: int) -> None:
        """The files of a deleted term are gone, too: its record names them no more."""
        gone = record.at(DELETED, "")
        try:
            await self._cluster.store.set(term_path(record.term), encode_record(gone), version=version)
        except BadVersion:
            return  # somebody else did


def _grouped(partitions: Sequence[Partition], size: int) -> list[list[Partition]]:
    """Partitions of one term together, until they have so many bytes."""
    groups: list[list[Partition]] = []
    have = size
    for one in partitions:
        if have + one.data_bytes > size:
            groups.append([])
            have = 0
        groups[-1].append(one)
        have += one.data_bytes
    return groups


def _manifest(
    record: TermRecord, planned: _Planned, slices: tuple[SliceFile, ...], total: int, lost: NDArray[np.uint64]
) -> Manifest:
    whole, node = planned.live.terms[0], planned.node
    places = planned.state.places.terms[record.term]
    end = record.end_pos
    losers = united(np.array(places.losers(), np.uint64).reshape(-1, 2))
    gone = united(np.concatenate([losers, whole.rows])) if len(losers) else whole.rows
    dead = without(0, end, gone)
    given_up = _both(lost, whole.rows) if len(lost) else NO_SPANS
    entries = planned.plan.entries
    return Manifest(
        VERSION,
        record.term,
        record.log,
        end,
        places.counts.committed,
        f"{places.counts.digest:016x}",
        tuple(
            ShardProof(number, one.entries, one.records, one.committed, f"{one.digest:016x}")
            for number, one in sorted(places.shards.items())
        ),
        node.digest,
        tuple(PlanPoint(one.log, one.term, one.entry, one.ended) for one in node.logs),
        slices,
        sum(one.rows for one in slices),
        f"{total:032x}",
        pack_spans(losers),
        pack_spans(dead),
        pack_spans(given_up),
        pack_column(entries.first_positions),
        pack_column(entries.times),
        record.last_time_ms,
    )


def _both(spans: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What is in both, of ascending spans."""
    parts = [clipped(others, int(first), int(stop)) for first, stop in spans.tolist()]
    return united(np.concatenate(parts)) if parts else NO_SPANS


def _term_of(name: str) -> int | None:
    text = name.removeprefix("term-")
    return int(text) if text != name and text.isascii() and text.isdigit() else None


def _version_of(name: str) -> int | None:
    text = name.partition("-")[0].removeprefix("v")
    return int(text) if name.startswith("v") and text.isascii() and text.isdigit() else None


async def _read(store: MetadataStore, term: int) -> tuple[TermRecord, int]:
    """A term's record and its version. Raises NoNode."""
    value, version = await store.get(term_path(term))
    return decode_record(value, term), version


async def prove(files: Files, path: str, progress: Callable[[int], None] = lambda rows: None) -> Manifest:
    """Reads a manifest and everything that it names, and compares it with what the manifest says.

    Raises:
        ColdMissing, ColdDamaged: with the file that it is. ClusterAway.
    """
    manifest = decode_manifest(await files.read(path), path.rpartition("/")[2])
    folder, total, rows = folder_of(path), 0, 0
    for one in manifest.slices:
        data, index = (
            await read_file(files, folder, one.file, one.hash),
            await read_file(files, folder, one.index, one.index_hash),
        )
        table = table_of(data, one.file)
        expected = index_of(table, data)
        if table.num_rows != one.rows or expected.data != index or not _has_parts(one, data, index):
            raise ColdDamaged(
                f"{joined(folder, one.file)} has {table.num_rows} rows, or others than its side index: offload again"
            )
        total = added(total, row_sum(table))
        rows += table.num_rows
        progress(rows)
    if f"{total:032x}" != manifest.row_sum:
        raise ColdDamaged(f"the files of {path} have other rows than were written: offload the term again")
    return manifest


def _has_parts(one: SliceFile, data: bytes, index: bytes) -> bool:
    """Whether a file and its side index begin and end as the manifest says."""
    end, head = data[-one.footer_bytes :], index[: one.head_bytes]
    chunks, decoded = len(chunks_of(footer_of(end, one.file))), decode_head(head, one.index)
    return (
        end == end_of(data)
        and xxh3_128_hexdigest(end) == one.footer_hash
        and xxh3_128_hexdigest(head) == one.head_hash
        and len(decoded.chunk_hashes) == 8 * chunks
    )


async def read_file(files: Files, folder: str, name: str, expected: str) -> bytes:
    """A file, whole. Raises ColdMissing, ColdDamaged."""
    data = await files.read(joined(folder, name))
    found = xxh3_128_hexdigest(data)
    if found != expected:
        raise ColdDamaged(
            f"expected {joined(folder, name)} with hash {expected}, found {found}: offload the term again"
        )
    return data
