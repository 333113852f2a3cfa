"""Reads the entries of a partition from bookies and chooses the records to deliver. Runs in an event loop.

    async for rows in PartitionReader(cluster.ledgers, partition, counts=counts): ...

Rules:
- Entries are read in windows, from all ledgers at once; a window has at most `WINDOW_BYTES`, or one entry.
- An entry that no data ledger has is looked for in the metalog, which may carry it.
- Each entry must match the plan: its term and shard, and its number of records. Each delivered record must be of the book and have one of
  the tags. At the end the number of rows must be that of the plan.
- A record that cannot be read raises DataLoss or, if loss is tolerated, is counted and left out.
- An entry that cannot be read now is retried for a while: bookies that are away for a moment are no loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from boki_common import limits
from boki_common.errors import (
    BokiError,
    CorruptData,
    DigestMismatch,
    MetadataError,
    NetworkError,
    NoSuchEntry,
    NoSuchLedger,
    ProtocolError,
)
from boki_common.ids import seqnum
from boki_common.records.record_batch import RecordBatch
from boki_ledger.ledgers import Ledgers
from boki_logbook.index.places import EntryPlace, ShardPlace
from boki_logbook.read.carried_entries import CarriedEntries, Metalog
from boki_logbook.read.entry_source import EntrySource
from boki_logbook.scan.facts import COMMITTED
from boki_logbook.scan.partitions import Partition
from boki_logbook.scan.plan import EntryColumns
from boki_spark.errors import ClusterAway, DataLoss, PlanStale
from boki_spark.read.arrow import EntryRows

WINDOW_BYTES: Final = 4 * limits.MIB
"""Data of the entries that are read at once."""
WINDOW_ENTRIES: Final = 256
RUN_BYTES: Final = limits.MIB
"""Data that one request asks a bookie for, so that it can serve other clients between two requests."""
PAUSE_S: Final = 0.1
"""Seconds between two reads of an entry that is not available."""
FINAL: Final = (CorruptData, DigestMismatch, ProtocolError)
"""Errors that a retry would repeat."""


@dataclass(slots=True)
class ReadCounts:
    """Counters of a read.

    Attributes:
        lost: rows that were left out because loss is tolerated.
    """

    rows: int = 0
    bytes: int = 0
    entries: int = 0
    lost: int = 0


class PartitionReader:
    """A reader of one partition."""

    def __init__(
        self,
        ledgers: Ledgers,
        partition: Partition,
        *,
        counts: ReadCounts,
        fail_on_data_loss: bool = True,
        retry_for_s: float = 10.0,
    ) -> None:
        """Prepare to read.

        Args:
            counts: incremented while rows are read.
            retry_for_s: seconds for which an entry that is not available is retried.
        """
        self._partition = partition
        self._entries = partition.entries()
        self._rows = partition.rows_to_deliver()
        self._counts = counts
        self._strict = fail_on_data_loss
        self._retry_for_s = retry_for_s
        self._source = EntrySource(ledgers)
        shards = {
            number: ShardPlace(partition.term, number, ledger, "")
            for number, ledger in zip(self._entries.shards.tolist(), self._entries.ledgers.tolist(), strict=True)
        }
        metalog = Metalog(partition.metalog_ledger, partition.metalog_stop) if partition.metalog_ledger >= 0 else None
        self._carried = CarriedEntries(ledgers, metalog=lambda _: metalog, shards=lambda _: shards)
        self._tags = np.array(sorted(partition.tags), np.uint64)
        entry_bytes = max(partition.data_bytes // max(len(self._entries.entries), 1), 1)
        self._run_entries = max(RUN_BYTES // entry_bytes, 1)
        self._seen = 0
        """Rows that the plan counted, delivered or filtered out."""

    async def read(self) -> AsyncIterator[EntryRows]:
        """Yield the rows, entry by entry, in the order of the log.

        Raises:
            DataLoss: a record was given up, or is not what was ordered.
            PlanStale: a ledger was deleted after the plan was made.
            ClusterAway: bookies or the metadata store do not answer.
        """
        ahead: asyncio.Task[list[RecordBatch | None]] | None = None
        windows = self._windows()
        try:
            for at, (low, high) in enumerate(windows):
                batches = await (ahead or asyncio.ensure_future(self._window(low, high)))
                ahead = asyncio.ensure_future(self._window(*windows[at + 1])) if at + 1 < len(windows) else None
                for number, batch in zip(range(low, high), batches, strict=True):
                    if batch is not None:
                        rows = self._chosen(number, batch)
                        if len(rows):
                            yield rows
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
            await self._source.close()
        found = self._seen + self._counts.lost
        if self._strict and found != self._partition.rows:
            raise DataLoss(
                f"expected {self._partition.rows} rows of term {self._partition.term}, positions "
                f"{self._partition.start_pos} to below {self._partition.stop_pos}, found {found}"
            )

    def _windows(self) -> list[tuple[int, int]]:
        """Return the entries [low, high) of each window."""
        count = len(self._entries.entries)
        records = np.cumsum(self._entries.stop_positions - self._entries.first_positions).astype(np.float64)
        total = float(records[-1]) if count else 0.0
        sizes = records * (self._partition.data_bytes / total if total else 0.0)
        found, low = [], 0
        while low < count:
            before = float(sizes[low - 1]) if low else 0.0
            high = int(np.searchsorted(sizes, before + WINDOW_BYTES, "right"))
            high = min(max(high, low + 1), low + WINDOW_ENTRIES, count)
            found.append((low, high))
            low = high
        return found

    async def _window(self, low: int, high: int) -> list[RecordBatch | None]:
        """Return the entries [low, high). An entry is None if it is lost and loss is tolerated."""
        runs = _runs(self._entries, low, high, self._run_entries)
        parts = await asyncio.gather(*(self._run(numbers) for numbers in runs), return_exceptions=True)
        found: dict[int, RecordBatch | None] = {}
        for numbers, part in zip(runs, parts, strict=True):
            if isinstance(part, BaseException):
                raise part
            found.update(zip(numbers, part, strict=True))
        return [found[number] for number in range(low, high)]

    async def _run(self, numbers: Sequence[int]) -> list[RecordBatch | None]:
        """Read consecutive entries of a ledger in one request, or one by one if that fails."""
        entries = self._entries
        ledger = int(entries.ledgers[numbers[0]])
        first, last = int(entries.entries[numbers[0]]), int(entries.entries[numbers[-1]])
        if not entries.given_up[numbers[0] : numbers[-1] + 1].any():
            try:
                batches: list[RecordBatch | None] = list(await self._source.read(ledger, first, last))
                if all(self._fault(number, batch) is None for number, batch in zip(numbers, batches, strict=True)):
                    return batches
            except (BokiError, AssertionError):
                pass  # one entry has a fault: read each by itself
        return [await self._one(number) for number in numbers]

    async def _one(self, number: int) -> RecordBatch | None:
        """Read an entry and retry while it is not available. Raises DataLoss, PlanStale or ClusterAway."""
        entries, term = self._entries, self._partition.term
        ledger, entry = int(entries.ledgers[number]), int(entries.entries[number])
        where = f"entry {entry} of ledger {ledger}, term {term}"
        if entries.given_up[number]:
            self._lost(number, f"{where}, was given up by an ordered command")
            return None
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retry_for_s
        while True:
            try:
                (batch,) = await self._source.read(ledger, entry, entry)
            except NoSuchLedger as error:
                if not self._strict:
                    self._lost(number, str(error))
                    return None
                raise PlanStale(
                    f"{where} was deleted: its records died after the plan was made; make a new plan"
                ) from error
            except (NoSuchEntry, *FINAL) as error:
                carried = await self._carried.batch_at(self._place(number))
                if carried is not None and self._fault(number, carried) is None:
                    return carried
                if isinstance(error, FINAL) or loop.time() >= until:
                    self._lost(number, f"{where}: {error}", error)
                    return None
                fault: BokiError = error
            except (MetadataError, NetworkError, BokiError) as error:
                fault = error
            else:
                fault_text = self._fault(number, batch)
                if fault_text is None:
                    return batch
                self._lost(number, f"{where}: {fault_text}")
                return None
            if loop.time() >= until:
                raise ClusterAway(f"{where} could not be read for {self._retry_for_s:g} s: {fault}") from fault
            await asyncio.sleep(PAUSE_S)

    def _place(self, number: int) -> EntryPlace:
        entries, term = self._entries, self._partition.term
        return EntryPlace(
            int(entries.ledgers[number]),
            int(entries.entries[number]),
            seqnum(term, int(entries.first_positions[number])),
            seqnum(term, int(entries.stop_positions[number]) - 1) + 1,
            int(entries.times[number]),
        )

    def _fault(self, number: int, batch: RecordBatch | None) -> str | None:
        """Return why a batch is not the entry of the plan, or None if it is."""
        entries, term = self._entries, self._partition.term
        shard = int(entries.shards[number])
        records = int(entries.stop_positions[number] - entries.first_positions[number])
        if batch is None or (batch.term, batch.shard, batch.record_count) != (term, shard, records):
            found = "none" if batch is None else f"{batch.record_count} of shard {batch.shard} of term {batch.term}"
            return f"expected {records} records of shard {shard} of term {term}, found {found}"
        return None

    def _lost(self, number: int, why: str, error: BokiError | None = None) -> None:
        rows = int(self._wanted(number).sum())
        if self._strict and rows:
            raise DataLoss(f"{why}; {rows} of its rows must be delivered") from error
        self._counts.lost += rows

    def _wanted(self, number: int) -> NDArray[np.bool_]:
        """Return which records of an entry the plan names."""
        first, stop = int(self._entries.first_positions[number]), int(self._entries.stop_positions[number])
        low = int(np.searchsorted(self._rows[:, 1], first, "right"))
        high = int(np.searchsorted(self._rows[:, 0], stop, "left"))
        steps = np.zeros(stop - first + 1, np.int32)
        spans = np.clip(self._rows[low:high].astype(np.int64), first, stop) - first
        np.add.at(steps, spans[:, 0], 1)
        np.add.at(steps, spans[:, 1], -1)
        return np.cumsum(steps[:-1]) > 0

    def _chosen(self, number: int, batch: RecordBatch) -> EntryRows:
        """Return the records of an entry to deliver. Raises DataLoss."""
        partition, entries = self._partition, self._entries
        wanted = self._wanted(number)
        self._seen += int(np.count_nonzero(wanted))
        fits = self._fits(batch)
        if fits is not None:
            if partition.mode != COMMITTED and (wanted & ~fits).any():
                raise DataLoss(
                    f"entry {int(entries.entries[number])} of ledger {int(entries.ledgers[number])} has other books or tags than "
                    "the index says"
                )
            wanted &= fits
        chosen = np.flatnonzero(wanted)
        self._counts.entries += 1
        self._counts.bytes += batch.size
        self._counts.rows += len(chosen)
        first = seqnum(partition.term, int(entries.first_positions[number]))
        return EntryRows(batch, chosen, log=partition.log, first_seqnum=first, time_ms=int(entries.times[number]))

    def _fits(self, batch: RecordBatch) -> NDArray[np.bool_] | None:
        """Return which records are of the book and have one of the tags, or None if all records are asked for."""
        partition = self._partition
        if partition.book is None and not partition.tags:
            return None
        fits = np.ones(batch.record_count, np.bool_)
        if partition.book is not None:
            runs = batch.run_columns
            fits &= np.repeat(runs["book"] == np.uint64(partition.book), runs["count"])
        if partition.tags:
            hits = np.append(0, np.cumsum(np.isin(batch.tags, self._tags)))
            ends = batch.tag_ends
            fits &= hits[ends] > hits[ends - batch.tag_counts]
        return fits


def _runs(entries: EntryColumns, low: int, high: int, most: int) -> list[list[int]]:
    """Group the entries [low, high) into runs of consecutive entries of a ledger, with at most `most` entries each."""
    last: dict[int, list[int]] = {}
    found: list[list[int]] = []
    for number in range(low, high):
        ledger, entry = int(entries.ledgers[number]), int(entries.entries[number])
        group = last.get(ledger)
        if group is not None and len(group) < most and int(entries.entries[group[-1]]) + 1 == entry:
            group.append(number)
        else:
            last[ledger] = group = [number]
            found.append(group)
    return found
