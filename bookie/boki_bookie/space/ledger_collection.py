"""Which ledgers are given back: those whose metadata is twice proven gone, each with a tombstone, and, where it is allowed, those
twice proven to be closed and to belong to other bookies. `gc_rules` decides; nothing is deleted because of an error, a time-out
or a listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from boki_bookie import metric_definitions
from boki_bookie.entries.ledger_index import HELD_FOR_GOOD, Ledger, LedgerIndex
from boki_bookie.entries.tombstones import DAY_MS, Run
from boki_bookie.formats.journal_format import RecordKind, encode_ledger_id, encode_tombstone
from boki_bookie.journal.journal import Journal
from boki_bookie.settings import BookieSettings
from boki_bookie.space.gc_rules import Fact, Proof, Verdict, decide, nominate
from boki_bookie.space.ledger_facts import LedgerFacts, Reading
from boki_common.errors import MetadataError, Overloaded
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Clock, Random

LISTING_TIMEOUT_S: Final = 60.0

_log = get_logger("bookie")


class _Candidate(NamedTuple):
    ledger: Ledger
    proof: Proof


class LedgerCollection:
    """See the module. Without `facts` or `clock` no ledger is deleted."""

    def __init__(
        self,
        index: LedgerIndex,
        journal: Journal,
        facts: LedgerFacts | None,
        clock: Clock | None,
        settings: BookieSettings,
        metrics: Metrics,
        *,
        rng: Random,
        in_limbo: Callable[[], bool] = lambda: False,
        drains: Callable[[], bool] = lambda: False,
    ) -> None:
        """`in_limbo`: whether holds may have been forgotten. `drains`: whether the bookie is to be emptied."""
        self.deleted = self.emptied = 0
        """Ledgers, since the start."""
        self.elsewhere: dict[int, None] = {}
        """Held here, closed, and naming other bookies only."""
        self._index = index
        self._journal = journal
        self._facts = facts
        self._clock = clock
        self._settings = settings
        self._in_limbo = in_limbo
        self._drains = drains
        self._rng = rng
        self._candidates: dict[int, _Candidate] = {}
        ledgers = metrics.counter(metric_definitions.GC_LEDGERS)
        self._deleted_total = ledgers.labels(what="deleted")
        self._emptied_total = ledgers.labels(what="emptied")

    @property
    def candidates(self) -> int:
        """Ledgers of which one proof is there."""
        return len(self._candidates)

    def oldest_proof_at(self) -> float | None:
        """When the oldest first proof was read, if there is one."""
        return min((candidate.proof.read_at for candidate in self._candidates.values()), default=None)

    async def collect(self, *, major: bool) -> None:
        """One look at what a listing lacks (`major`: at all). Raises DiskFull and what failed the journal."""
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
                    await self._journal.flushed()

    async def _prove(self, facts: LedgerFacts, ledger_id: int) -> Verdict:
        """Reads the metadata, and keeps the read as first proof if it is one."""
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None:
            self._candidates.pop(ledger_id, None)
            self.elsewhere.pop(ledger_id, None)
            return Verdict.KEEP
        read_at, session = asyncio.get_running_loop().time(), facts.session
        reading: Reading = await facts.read(ledger_id)
        candidate = self._candidates.get(ledger_id)
        first = candidate.proof if candidate is not None and candidate.ledger is ledger else None
        proof = Proof(reading.fact, read_at, session, reading.version, ledger.entry_count, ledger.repeats, ledger.hold)
        changed = session != facts.session or self._index.ledgers.get(ledger_id) is not ledger
        if reading.fact is Fact.ELSEWHERE and ledger.entry_count:
            self.elsewhere[ledger_id] = None
        else:
            self.elsewhere.pop(ledger_id, None)
        if changed or (reading.fact is Fact.ELSEWHERE and not ledger.entry_count):
            verdict = Verdict.KEEP
        else:
            settings = self._settings
            may_empty = (settings.gc_empties_elsewhere or self._drains()) and not self._in_limbo()
            if (
                may_empty
                and self._drains()
                and reading.fact is Fact.ELSEWHERE
                and reading.version <= ledger.hold < HELD_FOR_GOOD
            ):
                await facts.touch(ledger_id, reading.version, self._rng)  # the next look finds a version above the hold
            verdict = decide(first, proof, grace_s=settings.gc_grace_s, may_empty=may_empty)
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
        self._journal.append(RecordKind.TOMBSTONE, encode_tombstone(ledger_id, today))
        self._index.delete(Run(ledger_id, ledger_id, today))
        del self._candidates[ledger_id]
        self.elsewhere.pop(ledger_id, None)
        self.deleted += 1
        self._deleted_total.inc()
        _log.info("ledger deleted: its metadata is gone", ledger_id=ledger_id)

    def _empty(self, ledger_id: int) -> None:
        """Twice proven to be closed and to belong to other bookies. Raises as `_delete` does."""
        ledger = self._index.ledgers[ledger_id]
        if ledger.changed or ledger.fresh or ledger.flushing:
            return
        self._journal.append(RecordKind.EMPTIED, encode_ledger_id(ledger_id))
        self._index.empty(ledger)
        del self._candidates[ledger_id]
        self.elsewhere.pop(ledger_id, None)
        self.emptied += 1
        self._emptied_total.inc()
        _log.info("ledger emptied: it is closed and names other bookies", ledger_id=ledger_id)
