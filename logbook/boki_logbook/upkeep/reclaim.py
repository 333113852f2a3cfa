"""Deletes the storage of terms of which nothing is needed any more (DESIGN §8, Reclaim).

    ledgers → reclaimed     one compare-and-swap of the term's record: over, no live record, covered by the named snapshot
    a grace                 readers that hold places of the term, and engines that are behind, have the time to notice
    data ledgers, then the metalog ledger are deleted
    reclaimed → deleted     so that nobody looks for them again

Rules:
- Each step may be repeated and be done by two at once; who begins anew goes on from what the record says.
- Liveness is that of this engine's own state, in which the term is applied to its end. No record ever becomes live again.
- The grace is counted from when this process saw that the term is reclaimed.
- A term that was copied into files is reclaimed as one in ledgers. Its record goes on naming the files: they are deleted by who
  offloads.

It does not decide who does it, nor when there is a snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from boki_common.errors import BadVersion, NoNode, NoSuchLedger
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_ledger.ledgers import Ledgers
from boki_logbook.state.frontier import Frontier
from boki_logbook.state.snapshot_rules import SnapshotNode
from boki_logbook.state.state import DecisionState
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.metadata_tree import move_record, read_record
from boki_metalog.terms.term_record import COPIED, DELETED, IN_LEDGERS, RECLAIMED, TermRecord

TERMS_PER_ROUND: Final = 64
"""Terms looked at in one round; the rest has its turn in the next."""

_log = get_logger("reclaim")


class Reclaimer:
    """See the module. Memory: one item per term that was found dead, and nothing of it once it is deleted but its number."""

    def __init__(
        self,
        *,
        state: DecisionState,
        frontier: Frontier,
        metadata: MetadataStore,
        ledgers: Ledgers,
        grace_s: float,
    ) -> None:
        self._state = state
        self._frontier = frontier
        self._metadata = metadata
        self._ledgers = ledgers
        self._grace_s = grace_s
        self._waiting: dict[int, float] = {}
        """Reclaimed term → when its ledgers may be deleted."""
        self._done: set[int] = set()
        """Terms of which nothing is left to do here."""

    def due(self, node: SnapshotNode) -> list[int]:
        """Terms that may be reclaimed, and are not known to be deleted; ascending."""
        state, done = self._state, self._done
        return sorted(
            term
            for term in self._frontier.ended
            if term not in done and not state.live(term) and node.covers(term, state.places.terms[term].log)
        )

    async def run(self, node: SnapshotNode) -> None:
        """One round. Raises BokiError: what is left is done in the next one."""
        now_s = asyncio.get_running_loop().time()
        looked = 0
        for term in self.due(node):
            if term in self._waiting:
                if self._waiting[term] <= now_s:
                    await self._delete(term)
                    looked += 1
            else:
                await self._reclaim(term, now_s)
                looked += 1
            if looked >= TERMS_PER_ROUND:
                break

    async def _reclaim(self, term: int, now_s: float) -> None:
        try:
            moved = await move_record(self._metadata, term, RECLAIMED, when=(IN_LEDGERS, COPIED))
        except (BadVersion, NoNode):
            return  # somebody else is at it
        if moved:
            _log.info("term reclaimed", term=term)
            self._waiting[term] = now_s + self._grace_s
        else:
            self._done.add(term)

    async def _delete(self, term: int) -> None:
        """The metalog goes last: while it is there, a start without snapshot fails at the data, not half-way."""
        places = self._state.places.terms[term]
        record = await read_record(self._metadata, term)
        for ledger_id in (*(shard.ledger_id for shard in places.shards.values()), record.metalog_ledger):
            try:
                await self._ledgers.delete(ledger_id)
            except NoSuchLedger:
                continue
        try:
            await move_record(self._metadata, term, DELETED, when=(RECLAIMED,))
        except BadVersion:
            return
        _log.info("ledgers of a reclaimed term deleted", term=term, shards=len(places.shards))
        del self._waiting[term]
        self._done.add(term)


async def first_missed(
    metadata: MetadataStore, history: TermHistory, frontier: Frontier, logs: Iterable[int]
) -> TermRecord | None:
    """The term that this engine would apply next in some log, if it was reclaimed meanwhile; None: it can go on.

    Who is so far behind needs the snapshot. Raises MetadataUnavailable.
    """
    for log in logs:
        position = frontier.positions.get(log)
        above = 0 if position is None else position.term - (position.term not in frontier.ended)
        waiting = history.sealed(log, above=above, below=history.next_term)
        if waiting:
            record = await read_record(metadata, waiting[0].term)
            if record.reclaimed:
                return record
    return None
