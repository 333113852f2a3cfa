"""What an engine does beside serving: it begins with the newest snapshot, writes new ones, and reclaims storage (DESIGN §7, §8).

Every engine decides by itself when there is something to do. The one with the lowest incarnation among those that are listed
and index all slots does it: one that indexes some has no whole snapshot to write, and cannot say what nobody needs. When it does
not for long, because one of its logs stands still, the next one does. Two at once, or none for a while, do no harm: a snapshot is
named by one swap, terms are reclaimed by another.

    round: index in order? → are we behind what was reclaimed? → snapshot due? → reclaim terms → delete old snapshots → leftovers

A round that fails is logged and repeated. An engine that is behind (`EngineBehind`) begins anew from the snapshot.
So does one that lacks entries which only the snapshot has, by a LOST command; a snapshot that has what such a command took
from the log, or that cannot be used, is not begun with, and superseded (docs/adr/0013): the index is rebuilt from the logs, or the
engine waits for another engine's snapshot, where terms were reclaimed. No snapshot replaces one that is further in any log.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki_common.errors import BokiError
from boki_common.logs import get_logger
from boki_common.metadata.membership import members
from boki_common.metadata.store import MetadataStore
from boki_ledger.ledgers import Ledgers
from boki_logbook.core import EngineCore
from boki_logbook.settings import EngineSettings
from boki_logbook.state.snapshot_rules import NO_SNAPSHOT, SnapshotNode, behind, snapshot_due
from boki_logbook.state.snapshots import SnapshotStore, snapshot_to_start_from
from boki_logbook.upkeep.reclaim import Reclaimer, first_missed
from boki_metalog.follow.term_history import TermHistory
from boki_metalog.terms.index_slots import engine_members
from boki_metalog.terms.metadata_tree import ensure_view, read_record
from boki_metalog.terms.term_order import ALL_SLOTS

LOOKS_PER_ROUND: Final = 64
"""Ledgers looked at in one round, for snapshots that were never named."""

TAKE_OVER_ROUNDS: Final = 60
"""A snapshot that was due for so many rounds, times its place in the list, is written by another engine than the first."""

_log = get_logger("housekeeping")


class EngineBehind(BokiError):
    """Terms that this engine has not applied yet were reclaimed: it has to begin anew, from the snapshot."""


class Housekeeping:
    """See the module. First `load`, then `run`."""

    def __init__(
        self,
        *,
        core: EngineCore,
        metadata: MetadataStore,
        ledgers: Ledgers,
        settings: EngineSettings,
        role: str,
    ) -> None:
        self._core = core
        self._metadata = metadata
        self._ledgers = ledgers
        self._settings = settings
        self._role = role
        self._store = SnapshotStore(
            metadata=metadata,
            ledgers=ledgers,
            incarnation=core.incarnation,
            replicas=settings.replicas,
            acks=settings.acks,
        )
        self._history = TermHistory(metadata)
        self._node: SnapshotNode = NO_SNAPSHOT
        self._node_since_s = 0.0
        self._reclaimer: Reclaimer
        self._retired: dict[int, float] = {}
        """Ledgers of earlier snapshots → when they may be deleted."""
        self._unseen: list[int] = []
        self._next_scan_s = 0.0
        self._waited = 0
        """Rounds for which a snapshot was due, and nobody wrote one."""
        self._supersede = False
        """The snapshot that is named has what was given up, or cannot be used."""

    async def load(self) -> None:
        """Brings the engine to the newest snapshot, if there is one that can be used; before its logs are followed. Waits for the
        next one where it cannot, and the logs do not have everything."""
        core = self._core

        def waits(why: str) -> None:
            core.snapshots.waits_for = why

        snapshot, fault = await snapshot_to_start_from(
            self._store,
            whole=self._nothing_reclaimed,
            usable=core.snapshots.check_usable,
            waits=waits,
            retry_s=self._settings.retry_limit_s,
        )
        core.snapshots.waits_for = ""
        self._supersede = fault is not None
        if snapshot is not None:
            core.restore(snapshot)
            _log.info("snapshot loaded", records=snapshot.state.records, terms=len(snapshot.state.terms))
        self._reclaimer = Reclaimer(
            state=self._core.state,
            frontier=self._core.frontier,
            metadata=self._metadata,
            ledgers=self._ledgers,
            grace_s=self._settings.reclaim_grace_s,
        )

    async def _nothing_reclaimed(self) -> bool:
        await ensure_view(self._metadata)
        await self._history.refresh()
        for number in self._history.numbers:
            if (await read_record(self._metadata, number)).reclaimed:
                return False
        return True

    async def run(self) -> None:
        """Rounds, until it is cancelled. Each puts the index in order, a slice a turn: rows that trims left dead go also when
        nothing is added. Raises EngineBehind."""
        while True:
            await asyncio.sleep(self._settings.housekeeping_s)
            while self._core.state.index.tidy():  # noqa: ASYNC110 - nothing is waited for: others have their turn
                await asyncio.sleep(0)
            try:
                await self._round()
            except EngineBehind:
                raise
            except (BokiError, TimeoutError) as error:
                _log.info("housekeeping goes on next round", error=error)

    async def check_behind(self) -> None:
        """Raises EngineBehind, if this engine is."""
        core = self._core
        await self._history.refresh()
        record = await first_missed(self._metadata, self._history, core.frontier, sorted(core.logs))
        if record is not None:
            raise EngineBehind(
                f"term {record.term} of log {record.log} was reclaimed before this engine had applied it: beginning anew "
                "from the snapshot"
            )
        stuck = core.needing_snapshot()
        if stuck:
            node, _ = await self._store.newest()
            for point in node.logs:
                if (point.term, point.entry + point.ended) > stuck.get(point.log, (point.term + 1, 0)):
                    raise EngineBehind(
                        f"log {point.log} goes on with entries that only the snapshot has: beginning anew from it"
                    )

    async def _round(self) -> None:
        core = self._core
        if core.pending or not core.ready or core.needing_snapshot():
            await self.check_behind()
        if core.slots != ALL_SLOTS or not core.ready or not self._anything_due():
            return
        listed = engine_members(await members(self._metadata, self._role))
        able = [one.incarnation for one in listed if one.slots == ALL_SLOTS]
        rank = able.index(core.incarnation) if core.incarnation in able else len(able)
        before = self._node
        node, version = await self._store.newest(make=not rank)
        self._take(node)
        self._waited = self._waited + 1 if rank and self._snapshot_due() and self._node == before else 0
        if self._waited < rank * TAKE_OVER_ROUNDS:
            return
        if self._snapshot_due():
            await self._snapshot(version)
        if self._supersede:
            return  # nothing may be reclaimed on the word of a snapshot that cannot be used
        await self._reclaimer.run(self._node)
        await self._delete_retired()
        await self._look_for_leftovers()

    def _take(self, node: SnapshotNode) -> None:
        """The newest snapshot, as seen now."""
        if node != self._node:
            self._node, self._node_since_s = node, asyncio.get_running_loop().time()

    def _anything_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return (
            self._snapshot_due()
            or bool(self._retired or self._unseen or self._reclaimer.due(self._node))
            or now_s >= self._next_scan_s
        )

    def _snapshot_due(self) -> bool:
        core = self._core
        if self._supersede:
            return True
        terms = core.state.places.terms
        newest: dict[int, int] = {}
        for term in core.frontier.ended:
            log = terms[term].log
            newest[log] = max(term, newest.get(log, 0))
        return snapshot_due(
            self._node,
            records=core.state.records,
            ended={term: log for log, term in newest.items()},
            least_records=self._settings.snapshot_records,
            age_s=asyncio.get_running_loop().time() - self._node_since_s,
        )

    async def _snapshot(self, version: int) -> None:
        snapshot = await self._core.snapshots.snapshot()
        before = self._node
        late = behind(before, snapshot.logs)
        if late:
            _log.info("no snapshot yet: the one that is named is further", logs=late)
            return
        saved = await self._store.save(snapshot, version=version)
        self._supersede = False
        if saved is None:
            return
        self._take(saved)
        until_s = asyncio.get_running_loop().time() + self._settings.reclaim_grace_s
        self._retired.update(dict.fromkeys(before.ledgers, until_s))
        _log.info("snapshot written", ledgers=saved.ledgers, rows=saved.rows, bytes=saved.bytes)

    async def _delete_retired(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = [ledger_id for ledger_id, until_s in self._retired.items() if until_s <= now_s]
        await self._store.delete(due)
        for ledger_id in due:
            del self._retired[ledger_id]

    async def _look_for_leftovers(self) -> None:
        """Snapshots whose writers ended before they were named, or before they deleted the one before; some each round."""
        now_s = asyncio.get_running_loop().time()
        if not self._unseen and now_s >= self._next_scan_s:
            self._unseen = (await self._ledgers.list())[::-1]
            self._next_scan_s = now_s + self._settings.leftover_scan_s
        if not self._unseen:
            return
        node, version = await self._store.newest()
        for _ in range(min(LOOKS_PER_ROUND, len(self._unseen))):
            ledger_id = self._unseen.pop()
            if ledger_id not in self._retired and await self._store.unnamed(ledger_id, node, version):
                _log.info("snapshot ledger that nobody named deleted", ledger_id=ledger_id)
                await self._store.delete([ledger_id])
