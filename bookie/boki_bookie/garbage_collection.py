"""Gives back what nobody needs: deleted ledgers, files that nothing lives in, and the gaps in files that little lives in.

One run after the other, every `gc_interval_s`, when somebody asks, and while the disk is full:

    1. ledgers     read the metadata of those that a listing lacks; delete on two proofs (`gc_rules`), each with a tombstone
    2. dead files  journal durable, index settled, then the files that nothing lives in are removed
    3. compaction  the emptiest files, one at a time: copied (`compaction`), index settled, removed

The order within each step is what makes a crash harmless: what deletes is durable before the index says so, and the index is
durable before a file goes. Nothing is deleted because of an error, a time-out, a listing or a lost session.

It owns no rule and no format. It ends at the next await when it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from boki_bookie import metric_definitions
from boki_bookie.checkpoint_loop import CheckpointLoop
from boki_bookie.compaction import Compactor, file_use
from boki_bookie.disk_reserve import DiskReserve
from boki_bookie.entry_log import EntryLog
from boki_bookie.gc_rules import Fact, FileUse, Proof, Verdict, dead_files, decide, files_to_compact, nominate
from boki_bookie.journal import FULL_DISK_RETRY_S, Journal
from boki_bookie.journal_format import RecordKind, encode_emptied, encode_tombstone
from boki_bookie.ledger_facts import LedgerFacts, Reading
from boki_bookie.ledger_index import Ledger, LedgerIndex
from boki_bookie.settings import BookieSettings
from boki_bookie.tombstones import DAY_MS, Run
from boki_common.errors import BokiError, DiskFull, MetadataError, Overloaded, StorageError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Clock, Random

JITTER_PERCENT: Final = 25
"""Runs are this much sooner than due at most, so that the bookies of a cluster do not ask all at once."""
LISTING_TIMEOUT_S: Final = 60.0
FLUSH_PATIENCE_S: Final = 0.5
"""How long a flush may take on a full disk before the journal is taken to wait for space."""

_log = get_logger("bookie")


@dataclass(frozen=True, slots=True)
class GcState:
    """What garbage collection last saw and did, since the start. For people."""

    runs: int = 0
    is_running: bool = False
    last_run_ms: int = 0
    """Wall clock at the end of the last run, 0 for none."""
    ledgers: int = 0
    candidates: int = 0
    """Ledgers of which one proof is there."""
    deleted_ledgers: int = 0
    emptied_ledgers: int = 0
    tombstones: int = 0
    files: int = 0
    """Entry log files that are not written any more."""
    live_bytes: int = 0
    dead_bytes: int = 0
    removed_files: int = 0
    reclaimed_bytes: int = 0
    compacted_bytes: int = 0
    compacting: int = 0
    """The file that is being copied, 0 for none."""
    damaged_files: tuple[int, ...] = ()
    """Files with an entry that cannot be read; they are kept."""


class GcOwner(Protocol):
    """The storage around it."""

    read_only: bool

    def fail(self, error: BokiError) -> None: ...


class _Candidate(NamedTuple):
    ledger: Ledger
    proof: Proof


@dataclass(frozen=True, slots=True)
class GcParts:
    """What garbage collection works on."""

    index: LedgerIndex
    entry_log: EntryLog
    journal: Journal
    checkpoints: CheckpointLoop
    reserve: DiskReserve
    free_bytes: Callable[[], Awaitable[int]]


class GarbageCollector:
    """See the module. Runs from its making on until `stop`; without `facts` no ledger is deleted."""

    def __init__(
        self,
        owner: GcOwner,
        parts: GcParts,
        facts: LedgerFacts | None,
        *,
        clock: Clock | None,
        rng: Random,
        settings: BookieSettings,
        metrics: Metrics,
    ) -> None:
        self._owner = owner
        self._parts = parts
        self._index = parts.index
        self._entry_log = parts.entry_log
        self._facts = facts
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._candidates: dict[int, _Candidate] = {}
        self._uses: list[FileUse] = []
        self._runs = self._last_run_ms = 0
        self._is_running = False
        self._deleted = self._emptied = self._removed_files = self._reclaimed_bytes = self._copied_bytes = 0
        self._compacting = 0
        self._wanted = asyncio.Event()
        self._major_wanted = False
        self._compactor = Compactor(
            parts.index,
            parts.entry_log,
            bytes_per_s=settings.compaction_bytes_per_s,
            is_busy=lambda: parts.index.cached_bytes >= settings.write_cache_bytes // 2,
        )
        ledgers = metrics.counter(metric_definitions.GC_LEDGERS)
        self._deleted_total = ledgers.labels(what="deleted")
        self._emptied_total = ledgers.labels(what="emptied")
        self._reclaimed_total = metrics.counter(metric_definitions.GC_RECLAIMED_BYTES)
        self._copied_total = metrics.counter(metric_definitions.COMPACTION_BYTES)
        self._lock = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name="bookie garbage collection")

    def state(self) -> GcState:
        return GcState(
            runs=self._runs,
            is_running=self._is_running,
            last_run_ms=self._last_run_ms,
            ledgers=len(self._index.ledgers),
            candidates=len(self._candidates),
            deleted_ledgers=self._deleted,
            emptied_ledgers=self._emptied,
            tombstones=len(self._index.tombstones),
            files=len(self._uses),
            live_bytes=sum(use.live_bytes for use in self._uses),
            dead_bytes=sum(use.dead_bytes for use in self._uses),
            removed_files=self._removed_files,
            reclaimed_bytes=self._reclaimed_bytes,
            compacted_bytes=self._copied_bytes,
            compacting=self._compacting,
            damaged_files=tuple(sorted(self._compactor.damaged)),
        )

    def request(self, *, major: bool = False) -> None:
        """Lets a run begin soon."""
        self._major_wanted |= major
        self._wanted.set()

    async def stop(self) -> None:
        """Ends it where it stands."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._compactor.close()

    # -- runs

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        major_at = loop.time() + self._settings.gc_major_interval_s
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # it is time
            self._wanted.clear()
            major, self._major_wanted = self._major_wanted or loop.time() >= major_at, False
            if major:
                major_at = loop.time() + self._settings.gc_major_interval_s
            try:
                await self.run_once(major=major)
            except BokiError as error:
                self._owner.fail(error)
                return
            except Exception as fault:
                self._owner.fail(StorageError(f"garbage collection stopped on a defect of Boki: {fault!r}"))
                raise

    def _pause_s(self) -> float:
        """Until the next run; sooner when a first proof ripens before."""
        pause_s = self._settings.gc_interval_s * (100 - self._rng.below(JITTER_PERCENT + 1)) / 100
        if self._candidates:
            oldest = min(candidate.proof.read_at for candidate in self._candidates.values())
            ripe_in_s = oldest + self._settings.gc_grace_s - asyncio.get_running_loop().time()
            pause_s = min(pause_s, max(ripe_in_s, self._settings.gc_interval_s / 10))
        return pause_s

    async def run_once(self, *, major: bool = False) -> None:
        """One run, after the one that may be running.

        Raises:
            DiskFailed: and other errors after which the store cannot go on. A full disk and an absent metadata store are
            no errors: the rest is left to the next run.
        """
        async with self._lock:
            self._is_running = True
            try:
                if self._owner.read_only:
                    await self._remove_dead_files()  # ledgers may take long, and space is needed now
                await self._collect_ledgers(major=major)
                await self._collect_files(major=major)
            except DiskFull as error:
                _log.warning("no space to go on giving back space", error=error)
            finally:
                self._is_running = False
                self._compacting = 0
            self._runs += 1
            if self._clock is not None:
                self._last_run_ms = self._clock.now_ms()

    # -- ledgers

    async def _collect_ledgers(self, *, major: bool) -> None:
        facts, clock = self._facts, self._clock
        if facts is None or clock is None:
            return
        today = clock.now_ms() // DAY_MS
        dropped = self._index.tombstones.drop_before(today - self._settings.tombstone_days)
        if dropped:
            _log.info("forgot ledgers that were deleted long ago", tombstones=dropped)
        try:
            if not await facts.is_trusted():
                self._candidates.clear()
                return
            async with asyncio.timeout(LISTING_TIMEOUT_S):
                listed = await facts.listed()
            nominated = nominate(sorted(self._index.ledgers), listed, everything=major)
            for ledger_id in sorted(self._candidates.keys() - set(nominated)):
                if ledger_id not in self._index.ledgers or self._candidates[ledger_id].proof.fact is Fact.GONE:
                    del self._candidates[ledger_id]  # it is listed again, or gone
            for ledger_id in sorted({*nominated, *self._candidates}):
                await self._look_at(facts, ledger_id, today)
                await asyncio.sleep(1 / self._settings.gc_reads_per_s)
        except (MetadataError, TimeoutError) as error:
            _log.warning("the metadata store is away: no ledger is deleted", error=error)
        except Overloaded as error:
            _log.debug("the journal is busy: the other ledgers are deleted later", error=error)

    async def _look_at(self, facts: LedgerFacts, ledger_id: int, today: int) -> None:
        """One read, and what follows from it."""
        verdict = await self._prove(facts, ledger_id)
        if verdict is Verdict.DELETE:
            self._delete(ledger_id, today)
        elif verdict is Verdict.EMPTY:
            async with facts.repair_lock(ledger_id) as is_ours:
                if is_ours and await self._prove(facts, ledger_id) is Verdict.EMPTY:
                    self._empty(ledger_id)
                    await self._parts.journal.flushed()

    async def _prove(self, facts: LedgerFacts, ledger_id: int) -> Verdict:
        """Reads the metadata, and keeps the read as first proof if it is one."""
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None:
            self._candidates.pop(ledger_id, None)
            return Verdict.KEEP
        read_at, session = asyncio.get_running_loop().time(), facts.session
        reading: Reading = await facts.read(ledger_id)
        candidate = self._candidates.get(ledger_id)
        first = candidate.proof if candidate is not None and candidate.ledger is ledger else None
        proof = Proof(reading.fact, read_at, session, reading.version, ledger.held_entries, ledger.repeats)
        changed = session != facts.session or self._index.ledgers.get(ledger_id) is not ledger
        if changed or (reading.fact is Fact.ELSEWHERE and not ledger.held_entries):
            verdict = Verdict.KEEP
        else:
            verdict = decide(first, proof, grace_s=self._settings.gc_grace_s)
        if verdict is Verdict.KEEP:
            self._candidates.pop(ledger_id, None)
        elif verdict is Verdict.BEGIN:
            self._candidates[ledger_id] = _Candidate(ledger, proof)
        return verdict

    def _delete(self, ledger_id: int, today: int) -> None:
        """Twice proven gone. Raises Overloaded and what failed the journal: it is not deleted."""
        ledger = self._index.ledgers[ledger_id]
        if ledger.flushing:
            return  # the next run finds it stored
        self._parts.journal.append(RecordKind.TOMBSTONE, encode_tombstone(ledger_id, today))
        self._index.delete(Run(ledger_id, ledger_id, today))
        del self._candidates[ledger_id]
        self._deleted += 1
        self._deleted_total.inc()
        _log.info("ledger deleted: its metadata is gone", ledger_id=ledger_id)

    def _empty(self, ledger_id: int) -> None:
        """Twice proven to be closed and to belong to other bookies. Raises as `_delete` does."""
        ledger = self._index.ledgers[ledger_id]
        if ledger.dirty or ledger.fresh or ledger.flushing:
            return
        self._parts.journal.append(RecordKind.EMPTIED, encode_emptied(ledger_id))
        self._index.empty(ledger)
        del self._candidates[ledger_id]
        self._emptied += 1
        self._emptied_total.inc()
        _log.info("ledger emptied: it is closed and names other bookies", ledger_id=ledger_id)

    # -- files

    async def _collect_files(self, *, major: bool) -> None:
        settings = self._settings
        await self._remove_dead_files()
        begun = dict.fromkeys(use.number for use in self._uses)
        without: dict[int, None] = {}
        while True:
            urgent = self._owner.read_only
            below = settings.compact_major_below if major or urgent else settings.compact_below
            room_bytes = await self._room(urgent=urgent)
            skipped = {**without, **self._compactor.damaged}
            uses = [use for use in self._uses if use.number in begun]
            chosen = files_to_compact(uses, below=below, room_bytes=room_bytes, without=skipped)
            if not chosen:
                break
            without[chosen[0]] = None
            await self._compact(chosen[0])
            await self._remove_dead_files()
        if not self._owner.read_only:
            await self._parts.reserve.fill()

    async def _room(self, *, urgent: bool) -> int:
        """Bytes that copies may take: what checkpoints need is left to them, and so is the space for recovery."""
        kept = self._index.cached_bytes
        if not urgent:
            kept = max(kept, self._settings.read_only_below_bytes)
        return max(0, await self._parts.free_bytes() - kept) + (self._parts.reserve.held_bytes if urgent else 0)

    async def _compact(self, number: int) -> None:
        self._compacting = number
        try:
            try:
                copied = await self._compactor.compact(number)
            except DiskFull:
                if not await self._parts.reserve.spend():
                    raise
                copied = await self._compactor.compact(number)
        finally:
            self._compacting = 0
        self._copied_bytes += copied.copied_bytes
        self._copied_total.inc(copied.copied_bytes)
        _log.debug("copied what lives in a file", file=number, entries=copied.entries, whole=copied.is_whole)

    async def _settle(self) -> None:
        """Deletions and moves so far are durable. On a full disk that may take the reserve. Raises DiskFull."""
        if self._owner.read_only:
            await self._wait_for_journal()
        try:
            await self._parts.checkpoints.settle()
        except DiskFull:
            if not await self._parts.reserve.spend():
                raise
            await self._parts.checkpoints.settle()

    async def _wait_for_journal(self) -> None:
        """What was appended is durable, also if the journal needs the reserve for its next segment. Raises DiskFull."""
        for patience_s in (FLUSH_PATIENCE_S, FLUSH_PATIENCE_S + 2 * FULL_DISK_RETRY_S):
            try:
                async with asyncio.timeout(patience_s):
                    return await self._parts.journal.flushed()
            except TimeoutError:
                await self._parts.reserve.spend()  # if it was not spent before; the journal tries again by itself
        raise DiskFull(
            "the journal waits for space, and nothing is deleted before it is durable there: free some space"
        )

    async def _remove_dead_files(self) -> None:
        """Looks at all files, and removes those that nothing lives in once the index on disk agrees."""
        self._uses = await file_use(self._index, self._entry_log)
        dead = dead_files(self._uses)
        if not dead:
            return
        await self._settle()
        sizes = {use.number: use.size_bytes for use in self._uses}
        for number in dead:
            await self._entry_log.remove(number)
            self._removed_files += 1
            self._reclaimed_bytes += sizes[number]
            self._reclaimed_total.inc(sizes[number])
        self._uses = [use for use in self._uses if use.live_bytes]
        _log.info("removed entry log files that nothing lived in", files=len(dead))
