"""Deletes the storage of terms of which nothing is needed any more (DESIGN §8, Reclaim).

    ledgers → reclaimed     one compare-and-swap of the term's record: over, no live record, covered by the named snapshot
    a grace                 readers that hold places of the term, and engines that are behind, have the time to notice
    data ledgers, then the metalog ledger are deleted
    reclaimed → deleted     so that nobody looks for them again

Rules:
- Each step may be repeated and be done by two at once; another process continues from what the record says.
- One term that cannot be moved, or one ledger that cannot be deleted (its metadata is damaged, or of a later version), holds up no other:
  the rest is done, the log names it, and it is tried again later, less often each time. A term is `deleted` only once all its ledgers
  are. If the metadata store does not answer, the round ends.
- Liveness is that of this engine's own state, in which the term is applied to its end. No record ever becomes live again.
- The grace is counted from when this process saw that the term is reclaimed.
- A term that was copied into files is reclaimed as one in ledgers. Its record goes on naming the files, which `boki offload` deletes.

It decides neither which engine does it, nor when there is a snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from boki_common.errors import BadVersion, BokiError, MetadataUnavailable, MetadataUnknown, NoNode, NoSuchLedger
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
RETRY_FIRST_S: Final = 60.0
RETRY_LIMIT_S: Final = 3600.0
"""Between two tries at a term that failed; twice as long each time, up to the limit."""

_log = get_logger("reclaim")


class LedgersLeft(BokiError):
    """Some ledgers of a reclaimed term cannot be deleted."""

    retryable = True


class Reclaimer:
    """Reclaims the terms of one engine's state. Memory: an item for each dead term; its number alone once it is deleted.

    Invariant: a term is in `_waiting` from when its record says reclaimed until it says deleted, and in `_done` from then on.
    """

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
        self._retries: dict[int, tuple[float, float]] = {}
        """Term that failed → when it is tried again, and the pause before that."""

    def due(self, node: SnapshotNode) -> list[int]:
        """Terms that may be reclaimed, and are not known to be deleted; ascending."""
        state, done = self._state, self._done
        return sorted(
            term
            for term in self._frontier.ended
            if term not in done and not state.live(term) and node.covers(term, state.places.terms[term].log)
        )

    async def run(self, node: SnapshotNode) -> None:
        """Do one round. Raises MetadataUnavailable, MetadataUnknown: what is left is done in the next one."""
        now_s = asyncio.get_running_loop().time()
        due = [term for term in self.due(node) if max(self._waiting.get(term, 0.0), self._retry_at(term)) <= now_s]
        for term in due[:TERMS_PER_ROUND]:
            try:
                if term in self._waiting:
                    await self._delete(term)
                else:
                    await self._reclaim(term, now_s)
            except (MetadataUnavailable, MetadataUnknown):
                raise
            except BokiError as error:
                self._try_later(term, now_s, error)
            else:
                self._retries.pop(term, None)

    def _retry_at(self, term: int) -> float:
        return self._retries.get(term, (0.0, 0.0))[0]

    def _try_later(self, term: int, now_s: float, error: BokiError) -> None:
        pause_s = min(2 * self._retries[term][1], RETRY_LIMIT_S) if term in self._retries else RETRY_FIRST_S
        self._retries[term] = now_s + pause_s, pause_s
        _log.warning("term not reclaimed: others are, it is tried again", term=term, retry_s=pause_s, error=error)

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
        """Delete what ledgers can be. The metalog goes last: while it is there, a start without snapshot fails at the data, not half-way.

        Raises LedgersLeft: some cannot be deleted.
        """
        places = self._state.places.terms[term]
        record = await read_record(self._metadata, term)
        left = [shard.ledger_id for shard in places.shards.values() if not await self._deleted(shard.ledger_id)]
        if not left and not await self._deleted(record.metalog_ledger):
            left = [record.metalog_ledger]
        if left:
            raise LedgersLeft(
                f"expected to delete all ledgers of term {term}, could not delete {', '.join(map(str, left))}: `boki ledger show` says "
                "what is wrong with their metadata",
                ledgers=left,
            )
        try:
            await move_record(self._metadata, term, DELETED, when=(RECLAIMED,))
        except BadVersion:
            return
        _log.info("ledgers of a reclaimed term deleted", term=term, shards=len(places.shards))
        del self._waiting[term]
        self._done.add(term)

    async def _deleted(self, ledger_id: int) -> bool:
        """Whether a ledger is gone now. Raises MetadataUnavailable, MetadataUnknown."""
        try:
            await self._ledgers.delete(ledger_id)
        except NoSuchLedger:
            return True
        except (MetadataUnavailable, MetadataUnknown):
            raise
        except BokiError as error:
            _log.warning("ledger of a reclaimed term not deleted", ledger_id=ledger_id, error=error)
            return False
        return True


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
