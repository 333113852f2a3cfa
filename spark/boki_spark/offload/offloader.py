"""Offloads a sealed term: writes its live records as sorted Parquet files, verifies them, and names them in its record. Runs in a loop.

    version of the record → index snapshot → plan → slices, side indexes → manifest → sync, read back → look for LOST → swap

Rules:
- Files belong to an *attempt*. Its name has the version of the term record that it began with, and a random part. No file is written
  twice, and no reader lists a folder: the term record names the manifest, and the manifest names the files.
- Files lie below the id of their cluster. `folder` has the names and the rules for deleting.
- A copied term whose files are lost or damaged is offloaded again while its ledgers can be read. If they cannot, the result is DataLoss,
  and the record keeps naming the files, because the intact ones can be read.
- The record is swapped at the version that was read *before* the snapshot: of two offloaders one wins, and a stalled one never does.
- Files are synced before they are named. The name survives a power failure, so the files must too.
- `copied` means that the files have what the ledgers have. The ledgers stay, and older programs keep reading them.
- A LOST command after the snapshot changes verdicts: the term is offloaded again with the next snapshot.
- The files of a term that died after it was copied are deleted like its ledgers.

If the process is killed at any step, the next run starts the term again, and `sweep` deletes the remains. Memory: one slice, some 300 MB.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_128_hexdigest

from boki_common import limits
from boki_common.bookkeeper.layout import instance_id
from boki_common.errors import BadVersion, BokiError, NoNode, NoSuchEntry
from boki_common.metadata.settle import Superseded, compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Buffer, Random
from boki_ledger.client import LedgerClient
from boki_logbook.scan.facts import COMMITTED, LIVE, ScanRange
from boki_logbook.scan.metalogs import terms_in
from boki_logbook.scan.pages import capture, pages_of
from boki_logbook.scan.partitions import Partition, cut
from boki_logbook.scan.plan import Plan, PlanBuilder, TermPlan, united, without
from boki_logbook.state.snapshot_rules import SnapshotNode
from boki_logbook.state.state import DecisionState
from boki_metalog.entries.metalog_entry import Lost, decode
from boki_metalog.terms.term_record import COPIED, IN_LEDGERS, TermRecord, decode_record, encode_record, term_path
from boki_spark.cold_terms.files import Files
from boki_spark.cold_terms.manifest import (
    VERSION,
    Manifest,
    PlanPoint,
    ShardProof,
    SliceFile,
    encode_manifest,
    intersected,
    joined,
    manifest_name,
    pack_column,
    pack_spans,
    tiled,
)
from boki_spark.cold_terms.slice_index import end_of, index_of
from boki_spark.cold_terms.slices import added, parquet_of, row_sum, sorted_table
from boki_spark.errors import Behind, ColdDamaged, DataLoss, OffloadRefused, PlanStale
from boki_spark.offload.folder import SweepResult, attempt_folder, attempt_of, sweep
from boki_spark.offload.prove import prove
from boki_spark.offload.survey import NONE_LIVE, NOT_COVERED, Survey, damage_of, running, survey
from boki_spark.plan.cluster import Cluster
from boki_spark.read.arrow import ArrowBatchBuilder
from boki_spark.read.entries import PartitionReader, ReadCounts

SLICE_BYTES: Final = 64 * limits.MIB
READ_ENTRIES: Final = 64
"""Entries of a metalog that one read asks for."""
COPIED_ALREADY: Final = "it is copied"

Progress = Callable[[int, int], None]
"""Called while a term is offloaded with the rows done and the rows in total. Each row counts when it is read and when it is read back."""


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The outcome for one term.

    Attributes:
        manifest: path of the manifest; empty if the term has not been copied.
        why: the reason why nothing was copied in this run; empty if something was.
        damage: the fault of the files that the term record named before; empty if they were intact, or there were none.
        error: the code of the error that ended the attempt, such as BOKI_DATA_LOSS; empty if there was none.
    """

    term: int
    manifest: str = ""
    rows: int = 0
    bytes: int = 0
    slices: int = 0
    why: str = ""
    damage: str = ""
    error: str = ""


class _Planned(NamedTuple):
    node: SnapshotNode
    state: DecisionState
    plan: TermPlan
    live: Plan


class Offloader:
    """Copies terms of one cluster into one folder."""

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
        """Prepare to offload.

        Args:
            folder: URL of the folder of all attempts of all terms.
            slice_bytes: data in one file.
            retry_for_s: seconds for which bookies that do not answer are retried.
        """
        self._cluster = cluster
        self._files = files
        self._folder = folder.rstrip("/")
        self._rng = rng
        self._slice_bytes = slice_bytes
        self._retry_for_s = retry_for_s

    async def survey(self, *, prove_copied: bool = False) -> Survey:
        """Return the terms that can be offloaded now, and the others, as `boki_spark.offload.survey.survey`."""
        return await survey(self._cluster, self._files, self._folder, prove_copied=prove_copied)

    async def sweep(self, *, alone: bool = False) -> SweepResult:
        """Delete files that no record can ever name, as `boki_spark.offload.folder.sweep`."""
        return await sweep(self._cluster.store, self._files, self._folder, alone=alone)

    async def offload(self, term: int, progress: Progress = lambda done, total: None) -> Offloaded:
        """Offload a term, or return the reason why there is nothing to do.

        The files of a copied term are read, and the term is copied again if one is lost or damaged.

        Raises:
            OffloadRefused: another process or a LOST command changed the term meanwhile; try again.
            ColdDamaged: the files cannot be read back as they were written.
            DataLoss: records cannot be read, from ledgers or files.
            PlanStale, ClusterAway: as for reads.
            BokiError: the metadata store or the snapshot does not answer.
        """
        try:
            record, version = await _read(self._cluster.store, term)
        except NoNode:
            return Offloaded(term, why=(await running(self._cluster)).get(term, "there is no such term"))
        location, damage = record.location, ""
        if location.kind == COPIED:
            damage = await damage_of(self._files, location.path)
            if not damage:
                return Offloaded(term, location.path, why=COPIED_ALREADY)
        elif location.kind != IN_LEDGERS:
            return Offloaded(term, why=f"it is {location.kind}: all its records were trimmed")
        planned = await self._planned(record)
        if isinstance(planned, str):
            return Offloaded(term, why=planned, damage=damage)
        instance = await instance_id(self._cluster.store)
        attempt = attempt_folder(self._folder, instance, term, version, self._rng.token(8))
        try:
            made = await self._attempt(attempt, record, version, planned, progress)
        except BokiError as error:
            await self._give_up(attempt, term, version)
            if (
                damage
                and isinstance(error, (DataLoss, PlanStale))
                and (await _read(self._cluster.store, term))[1] == version
            ):
                raise DataLoss(
                    f"the files of term {term} are lost or damaged ({damage}), and its ledgers cannot be read ({error}); restore the "
                    "file from a backup, or read what is left with failOnDataLoss=false"
                ) from error
            raise
        return dataclasses.replace(made, damage=damage)

    async def _planned(self, record: TermRecord) -> _Planned | str:
        """Return the plan of a term from a snapshot that is read after its record, or the reason why there is nothing to do."""
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
            return NONE_LIVE
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
            raise ColdDamaged(f"the files of term {record.term} would be incomplete: {fault}")
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
        batches = ArrowBatchBuilder()
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
        """Name the manifest in the term record. Raises OffloadRefused if the term changed; MetadataUnknown."""
        term = record.term
        store = self._cluster.store
        async for lost in lost_since(store, self._cluster.ledgers, node):
            if lost.term == term:
                raise OffloadRefused(
                    f"entries of term {term} were given up after the index snapshot: offload it after the next snapshot"
                )
        moved = record.at(COPIED, path)
        try:
            await compare_and_set(store, term_path(term), encode_record(moved), version=version)
        except Superseded:
            found, _ = await _read(store, term)
            if found.location.path == path:
                return
            raise OffloadRefused(
                f"term {term} was changed by another process: it is {found.location.kind} now"
            ) from None
        except (BadVersion, NoNode):
            raise OffloadRefused(f"term {term} was changed by another process meanwhile: try again") from None

    async def _give_up(self, attempt: str, term: int, version: int) -> None:
        """Delete the files of an attempt if no record can ever name them; otherwise leave them to `sweep`."""
        try:
            record, now = await _read(self._cluster.store, term)
            if now > version and attempt_of(record.location.path) != attempt_of(joined(attempt, "x")):
                await self._delete(attempt)
        except BokiError:
            return  # the next run sweeps the files

    async def _delete(self, attempt: str) -> None:
        for path in await self._files.list(attempt):
            await self._files.delete(path)


def _grouped(partitions: Sequence[Partition], size: int) -> list[list[Partition]]:
    """Group partitions of one term, up to `size` bytes each."""
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
    given_up = intersected(lost, whole.rows)
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


async def _read(store: MetadataStore, term: int) -> tuple[TermRecord, int]:
    """Return a term's record and its version. Raises NoNode."""
    value, version = await store.get(term_path(term))
    return decode_record(value, term), version


# -- LOST commands behind the index snapshot


async def lost_since(store: MetadataStore, ledgers: LedgerClient, node: SnapshotNode) -> AsyncIterator[Lost]:
    """Yield the LOST commands of all logs that were ordered after an index snapshot. Raises BokiError."""
    points = {point.log: point for point in node.logs}
    for one in sorted(await terms_in(store), key=lambda one: (one.log, one.term)):
        if one.reclaimed:
            continue
        point = points.get(one.log)
        first = 0
        if point is not None:
            if one.term < point.term or (one.term == point.term and point.ended):
                continue
            first = point.entry if one.term == point.term else 0
        async for lost in _lost_of(ledgers, one.metalog_ledger, first, one.end):
            yield lost


async def _lost_of(ledgers: LedgerClient, ledger_id: int, first: int, stop: int | None) -> AsyncIterator[Lost]:
    """Yield the LOST commands of a metalog from entry `first` to its end `stop`, which is None while it is open.

    Then every entry of the bookies counts, acknowledged or not: the next run corrects a refusal that was not needed.
    """
    reader = await ledgers.open(ledger_id, recover=False)
    try:
        known = await reader.read_lac() + 1 if stop is None else stop
        if stop is not None:
            reader.confirm(stop - 1)
        for at in range(first, known, READ_ENTRIES):
            for payload in await reader.read(at, min(at + READ_ENTRIES, known) - 1):
                for lost in _lost_in(payload):
                    yield lost
        while stop is None:
            try:
                (payload,) = await reader.read_unconfirmed(known, known)
            except NoSuchEntry:
                return
            for lost in _lost_in(payload):
                yield lost
            known += 1
    finally:
        await reader.close()


def _lost_in(payload: Buffer) -> list[Lost]:
    return [command for command in decode(payload).commands if isinstance(command, Lost)]
