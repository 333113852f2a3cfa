"""Reads logs from their first term to now, and proves that nothing is missing: what `boki log verify` does. Runs in a loop.

    positions     each metalog entry begins where the one before it ended, up to where the term's record says
    entries       every entry that a cut names is in its data ledger, with its digest right, with as many records as the cut says,
                  each record can be opened, and is of a book whose slot the term orders;
                  while the ledger is not closed, the metalog may have its last ones instead: carried, and not written yet (ADR 21)
    verdicts      counts and rolling digests (places.py) equal those of the index snapshot, which has the losers

Rules:
- It reads and changes nothing, and asks no engine: what it compares with the log is the replicated snapshot.
- Of an entry it asks replicas until one has it whole: it proves that the log can be read, not that every copy is there (`boki
  ledger repair` does). What LOST commands gave up is reported, and is no fault.
- Of a term that goes on it sees what bookies know to be acknowledged: the last entries may be missing from the report.
- Terms that were reclaimed are gone, and are reported as such. Behind the snapshot verdicts are not compared: nobody has them but
  engines.
- Memory: of one term its ranges and a few carried entries of each shard, and the snapshot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from boki_common.errors import (
    BokiError,
    CorruptData,
    InvalidArgument,
    MetadataError,
    NoNode,
    NoSuchLedger,
    ProtocolError,
)
from boki_common.ids import slot_of
from boki_common.metadata.store import MetadataStore
from boki_common.records.payload_check import unreadable_payloads
from boki_common.records.record_batch import RecordBatch
from boki_common.runtime.ports import Buffer
from boki_ledger.client import LedgerClient
from boki_logbook.index.places import ShardPlace, TermPlaces
from boki_logbook.read.entry_fit import RangeWalk
from boki_logbook.scan.metalogs import READ_ENTRIES, CarriedTail, Term, entries_of, terms_in
from boki_logbook.state.snapshots import SnapshotStore
from boki_logbook.state.state_snapshot import TermColumns
from boki_logbook.writers.foreign_runs import ForeignRuns
from boki_metalog.entries.metalog_entry import Lost, MetalogEntry, Open
from boki_metalog.entries.progress import ProgressVector, ShardRange
from boki_metalog.terms.metadata_tree import read_record
from boki_metalog.terms.term_order import ALL_SLOTS, slot_mask


async def verify_logs(
    metadata: MetadataStore, ledgers: LedgerClient, log: int | None, say: Callable[[str], None]
) -> list[Report]:
    """One report per term, ascending. Raises InvalidArgument: no such log, or no cluster. MetadataUnavailable; CorruptData: the
    snapshot cannot be used."""
    try:
        everything = await terms_in(metadata)
    except NoNode as error:
        raise InvalidArgument("no cluster is in this metadata store yet: start one with `boki dev`") from error
    store = SnapshotStore(metadata=metadata, ledgers=ledgers, incarnation="")
    node, _ = await store.newest()
    columns = {one.term: one for one in (await store.load(node)).state.terms} if node.ledgers else {}
    terms = [one for one in everything if log is None or one.log == log]
    if not terms:
        known = sorted({one.log for one in everything})
        raise InvalidArgument(f"expected one of the logs {known} that had a term, found {log}", found=log)
    covered = {one.term for one in terms if node.covers(one.term, one.log)}
    verifier = Verifier(ledgers, columns, covered, say)
    for term in terms:
        await verifier.look_at(term)
        if verifier.doubtful and term.end is not None and (await read_record(metadata, term.term)).reclaimed:
            verifier.forget(term)
    verifier.finish()
    return verifier.reports


@dataclass
class Report:
    """What was found of a term. `verdicts`: equal | different | unknown; `why` they are not compared."""

    log: int
    term: int
    state: str
    cuts: int = 0
    positions: int = 0
    shards: int = 0
    entries: int = 0
    records: int = 0
    data_bytes: int = 0
    carried: int = 0
    """Entries that only the metalog has yet."""
    digest: str = ""
    verdicts: str = "unknown"
    why: str = ""
    lost: int = 0
    faults: list[str] = field(default_factory=list)


class _Shard:
    """The ranges of one shard, as cuts name them: columns, one row a range."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.first_entries, self.counts = array("Q"), array("Q")
        self.first_positions, self.records = array("Q"), array("Q")
        self.first_record = 0
        self.tail = CarriedTail()

    def add(self, one: ShardRange) -> None:
        self.first_entries.append(one.first_entry)
        self.counts.append(one.entry_count)
        self.first_positions.append(one.first_pos)
        self.records.append(one.record_count)

    @property
    def end(self) -> int:
        """Entries that are ordered."""
        return self.first_entries[-1] + self.counts[-1] if self.counts else 0


class Verifier:
    """See the module. Invariant: `reports` has one item per term that was looked at."""

    def __init__(
        self, ledgers: LedgerClient, snapshot: dict[int, TermColumns], covered: set[int], say: Callable[[str], None]
    ) -> None:
        """`snapshot`: terms of the index snapshot; `covered`: those that it has to their ends."""
        self._ledgers = ledgers
        self._snapshot = snapshot
        self._covered = covered
        self._say = say
        self._given_up: list[Lost] = []
        self._missing: list[tuple[Report, int, int, str]] = []
        self._unopened: list[tuple[Report, int, int, str]] = []
        """Entries that are there, with records whose data nobody can make sense of, or that their term does not order."""
        self._slots = ALL_SLOTS
        """Of the term that is looked at, as bits."""
        self.reports: list[Report] = []

    async def look_at(self, term: Term) -> None:
        """Verifies a term; faults are kept. Raises MetadataUnavailable, NetworkError: nothing is known now."""
        report = Report(term.log, term.term, "current" if term.end is None else "sealed")
        self.reports.append(report)
        if term.reclaimed:
            report.state, report.why = "reclaimed", "its ledgers are gone"
            return
        self._say(f"term {term.term} of log {term.log}")
        self._slots = slot_mask(term.slots)
        shards: dict[int, _Shard] = {}
        try:
            await self._walk(term, report, shards)
        except (BokiError, AssertionError) as error:
            if isinstance(error, MetadataError):
                raise
            report.faults.append(f"metalog ledger {term.metalog_ledger}: {error}")
        await self._entries(term, report, shards)

    @property
    def doubtful(self) -> bool:
        """Whether something is missing in the term that was looked at last."""
        report = self.reports[-1]
        return bool(report.faults) or any(one[0] is report for one in self._missing)

    def forget(self, term: Term) -> None:
        """The term that was looked at last was reclaimed meanwhile."""
        report = self.reports.pop()
        self._missing = [one for one in self._missing if one[0] is not report]
        self._unopened = [one for one in self._unopened if one[0] is not report]
        self.reports.append(Report(term.log, term.term, "reclaimed", why="its ledgers are gone"))

    def finish(self) -> None:
        """What LOST commands of any term gave up is no fault."""
        for report, shard, entry, fault in self._missing + self._unopened:
            if any(
                lost.term == report.term and lost.shard == shard and lost.first_entry <= entry < lost.stop_entry
                for lost in self._given_up
            ):
                report.lost += 1
            else:
                report.faults.append(fault)

    # -- the metalog

    async def _walk(self, term: Term, report: Report, shards: dict[int, _Shard]) -> None:
        vector = ProgressVector()
        async for entry in entries_of(self._ledgers, term, strict=True):
            self._commands(entry, shards)
            for one in vector.apply(entry):
                shards[one.shard].add(one)
                if entry.carried:
                    shards[one.shard].tail.take(entry, one.shard, one.first_entry + one.entry_count)
            report.cuts += 1
            report.positions = vector.end_pos
        report.shards = len(shards)
        if term.end_pos is not None and vector.end_pos != term.end_pos:
            raise CorruptData(f"its record ends at position {term.end_pos}, it at {vector.end_pos}")

    def _commands(self, entry: MetalogEntry, shards: dict[int, _Shard]) -> None:
        for one in entry.commands:
            if isinstance(one, Open):
                shards[one.shard] = _Shard(one.ledger_id)
            elif isinstance(one, Lost):
                self._given_up.append(one)

    # -- data ledgers

    async def _entries(self, term: Term, report: Report, shards: dict[int, _Shard]) -> None:
        columns = self._snapshot.get(term.term) if term.term in self._covered else None
        losers: list[int] = [] if columns is None else columns.losers.tolist()
        places = TermPlaces(term.term, term.log)
        missing = len(self._missing)
        for number, shard in sorted(shards.items()):
            places.shards[number] = ShardPlace(term.term, number, shard.ledger_id, "")
            batches: dict[int, RecordBatch] = {}
            read_end = 0
            for at, first in enumerate(shard.first_entries):
                while read_end < first + shard.counts[at]:
                    batches = {entry: batch for entry, batch in batches.items() if entry >= first}
                    stop = min(read_end + READ_ENTRIES, shard.end)
                    batches |= await self._batches(report, number, shard, read_end, stop - 1)
                    read_end = stop
                self._range(report, places, number, shard, at, batches, losers)
        counts = places.counts
        report.entries, report.records = counts.entries, counts.records
        report.data_bytes, report.digest = counts.data_bytes, f"{counts.digest:016x}"
        if len(self._missing) > missing or report.faults:
            report.why = "entries are missing"
        elif columns is None:
            report.why = "no index snapshot reaches it yet"
        else:
            _compare(report, places, columns)

    async def _batches(
        self, report: Report, number: int, shard: _Shard, first: int, last: int
    ) -> dict[int, RecordBatch]:
        """Entries first … last; those that cannot be had are noted."""
        ledger_id = shard.ledger_id
        try:
            return dict(enumerate(await self._read(ledger_id, first, last), first))
        except (BokiError, AssertionError) as error:
            if isinstance(error, MetadataError):
                raise
        found: dict[int, RecordBatch] = {}
        for entry in range(first, last + 1):
            try:
                (found[entry],) = await self._read(ledger_id, entry, entry)
            except BokiError as error:
                if isinstance(error, MetadataError):
                    raise
                try:
                    found[entry] = await self._carried(report, shard, entry, error)
                except BokiError as final:
                    if isinstance(final, MetadataError):
                        raise
                    fault = f"entry {entry} of shard {number}, ledger {ledger_id}: {final}"
                    self._missing.append((report, number, entry, fault))
        return found

    async def _carried(self, report: Report, shard: _Shard, entry: int, error: BokiError) -> RecordBatch:
        """An entry that could not be read from its ledger: from the metalog, if the ledger may still be given it. Else raises."""
        payload = shard.tail.payloads.get(entry)
        if payload is None:
            raise error
        try:
            closed = (await self._ledgers.metadata_of(shard.ledger_id)).state.name == "CLOSED"
        except NoSuchLedger:
            raise error from None
        if not closed:
            report.carried += 1
            return _parsed(payload, entry, entry)
        try:
            return (await self._read(shard.ledger_id, entry, entry))[0]  # it may have been closed just now
        except BokiError as final:
            raise CorruptData(f"the metalog carries it, and the ledger was closed without it: {final}") from final

    async def _read(self, ledger_id: int, first: int, last: int) -> list[RecordBatch]:
        reader = await self._ledgers.open(ledger_id, recover=False)
        try:
            reader.confirm(last)
            return [_parsed(payload, first, last) for payload in await reader.read(first, last)]
        finally:
            await reader.close()

    def _range(
        self,
        report: Report,
        places: TermPlaces,
        number: int,
        shard: _Shard,
        at: int,
        batches: dict[int, RecordBatch],
        losers: list[int],
    ) -> None:
        first, pos = shard.first_entries[at], shard.first_positions[at]
        count, records = shard.counts[at], shard.records[at]
        walk = RangeWalk(places.term, ShardRange(number, shard.first_record, records, first, count, pos))
        for entry in range(first, first + count):
            batch = batches.get(entry)
            fault = None if batch is None else walk.fault_of(batch)
            if fault is not None:
                fault = f"entry {entry} of shard {number}, ledger {shard.ledger_id}: {fault}"
                self._missing.append((report, number, entry, fault))
                batch = None
            walk.take(batch)
            if batch is None:
                continue
            self._payloads(report, number, shard, entry, batch)
            begin = pos + batch.first_local_id - shard.first_record
            places.end_pos = begin + batch.record_count
            places.count_entry(
                number, entry, batch.record_count, list(_within(losers, begin, places.end_pos)), batch.raw_data_bytes
            )
        shard.first_record += records

    def _payloads(self, report: Report, number: int, shard: _Shard, entry: int, batch: RecordBatch) -> None:
        """Records that nobody can open are a fault, unless their entry was given up; so are those of other logs' books."""
        found = unreadable_payloads(batch)
        if found:
            record, why = found[0]
            many = "1 record" if len(found) == 1 else f"{len(found):,} records"
            fault = (
                f"entry {entry} of shard {number}, ledger {shard.ledger_id}: {many} that nobody can open, the first one record "
                f"{batch.first_local_id + record}: {why}"
            )
            self._unopened.append((report, number, entry, fault))
        elsewhere = (
            [run for run in batch.runs if not self._slots >> slot_of(run.book) & 1] if self._slots != ALL_SLOTS else ()
        )
        if elsewhere:
            foreign = ForeignRuns(report.term, number, entry, sum(run.count for run in elsewhere), elsewhere[0].book)
            self._unopened.append((report, number, entry, str(foreign)))


def _parsed(payload: Buffer, first: int, last: int) -> RecordBatch:
    try:
        return RecordBatch.parse(memoryview(payload))
    except ProtocolError as error:
        raise CorruptData(f"entries {first} to {last} hold no record batches: {error}") from error


def _within(losers: list[int], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of losers, as (first, stop) one after another, within an entry; relative to it."""
    at = bisect_right(losers, first)
    at -= at % 2
    while at < len(losers) and losers[at] < stop:
        yield max(losers[at], first) - first, min(losers[at + 1], stop) - first
        at += 2


def _compare(report: Report, places: TermPlaces, columns: TermColumns) -> None:
    known = {shard.number: shard.counts for shard in columns.shards}
    total = sum(counts.records for counts in known.values())
    committed = sum(counts.committed for counts in known.values())
    gone = columns.over and not columns.live and committed < total and not len(columns.losers)
    for number, shard in sorted(places.shards.items()):
        found, expected = shard.counts, known.get(number)
        if expected is not None and gone:
            found = found._replace(committed=expected.committed, digest=expected.digest)
        if found != expected:
            report.faults.append(f"shard {number}: the log has {found}, the index snapshot {expected}")
    if gone:
        report.why = "no record of it is live, so nobody keeps the losers"
    else:
        report.verdicts = "different" if report.faults else "equal"
