"""What the leading controller does each round: one small object per concern. Decisions are in `controller_rules`.

    KeepTerms       a log without a living sequencer gets one that stands by, if the standbys do not do it themselves
    Balance         slots lie as `/boki/weights` says, if there is such a node: also after logs were added or removed
    GiveUpSpares    ledgers that sequencers and engines made and never used, and that died, are closed and deleted
    WatchEngines    reports slots that fewer than two engines index: engines choose by their settings
    RollWritten     logs begin new terms whose ledgers are written on bookies that are lost or drained, and that no writer replaces;
                    it needs an auditor (`boki_ledger.repair`), so it is none of the default ones

A policy keeps in memory only what another leader can find out again; it raises what kept it from being done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import LedgerError, NoSuchEntry, NoSuchLedger
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from boki_common.metadata.membership import members
from boki_common.metadata.store import MetadataStore
from boki_ledger.ledgers import Ledgers
from boki_ledger.metadata.member_trust import REMEMBERED
from boki_metalog.control.controller_rules import Absent, ClosedSpare, Vacant, is_named, may_delete, wanted_weights
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.control.weights import kept_weights
from boki_metalog.errors import MetalogUnreadable, ThinlyServed
from boki_metalog.follow.sequencer_member import sequencer_members
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.sequencer.spare_offer import INCARNATION, METALOG, ROLE
from boki_metalog.settings import ControllerSettings
from boki_metalog.terms.index_slots import ENGINE_ROLE, engine_members, thin_slots
from boki_metalog.terms.metadata_tree import ensure_view, read_record
from boki_metalog.terms.view import View

DATA: Final = b"data"
LOOKS_PER_ROUND: Final = 256
"""Ledgers looked at in one round: other policies wait meanwhile."""
CLOSED_SPARES: Final = 1_024
"""Bound of the spares that wait for a write of the view; the rest is found by the next look."""

_log = get_logger("policies")


def _vacancies() -> LogPace:
    return LogPace(_log.info, "a log has no sequencer")


@dataclass
class Cluster:
    """What a policy may use. `terms_led` grows as a leadership begins: what policies remember of an earlier one is stale.

    Attributes:
        vacancies: the log lines about logs without a sequencer.
    """

    metadata: MetadataStore
    ledgers: Ledgers
    settings: ControllerSettings
    changes: LogChanges
    watch: SequencerWatch
    terms_led: int = 0
    vacancies: LogPace = field(default_factory=_vacancies)


class Policy(Protocol):
    """See the module."""

    @property
    def name(self) -> str: ...

    async def run(self, cluster: Cluster) -> None:
        """One round. Raises BokiError: reported, and run again next round."""


def default_policies() -> Sequence[Policy]:
    return (KeepTerms(), Balance(), GiveUpSpares(), WatchEngines())


class KeepTerms:
    """See the module. Standbys are faster; this is for those that do not see what the leader sees."""

    name = "keep terms"

    def __init__(self) -> None:
        self._vacant = Vacant()

    async def run(self, cluster: Cluster) -> None:
        view = (await ensure_view(cluster.metadata)).view
        terms = {log: installed for log, installed in view.logs.items() if installed is not None}
        cluster.watch.look_at(terms)
        presence = {log: cluster.watch.presence(log, installed.term) for log, installed in terms.items()}
        due = self._vacant.due(
            view, presence, grace_s=cluster.settings.vacant_grace_s, now_s=asyncio.get_running_loop().time()
        )
        stuck: MetalogUnreadable | None = None
        for log in due:
            cluster.vacancies.say(log=log, term=view.term_of(log))
            try:
                await cluster.changes.roll(log, suspect=view.term_of(log))
            except MetalogUnreadable as error:  # the other logs can do without it
                stuck = stuck or error
        if stuck is not None:
            raise stuck


class Balance:
    """See the module. Without the node, slots lie where they were moved."""

    name = "balance"

    async def run(self, cluster: Cluster) -> None:
        stored = await kept_weights(cluster.metadata)
        if stored is None:
            return
        view = (await ensure_view(cluster.metadata)).view
        weights = wanted_weights(view, stored)
        if weights is not None:
            await cluster.changes.spread(weights)


class GiveUpSpares:
    """See the module, and `controller_rules` for why it is safe for metalogs.

    A data ledger is no term's, so it is safe as soon as it is closed without an entry: it never had one that was acknowledged,
    and never will. It is looked at without fencing first, for its engine may live, unlisted, and write to it. Its bookies are
    ours: of a ledger that is deleted they acknowledge nothing, whoever wakes up then; Apache's may, so those stay.
    """

    name = "give up spares"

    def __init__(self) -> None:
        self._led = 0
        self._absent = Absent()
        self._unseen: list[int] = []
        self._next_scan_s = 0.0
        self._spares: dict[int, str] = {}
        """Open ledgers that sequencers made and no view named when it was looked → their makers."""
        self._data_spares: dict[int, str] = {}
        """Ledgers of engines that perhaps are empty for ever → their makers."""
        self._closed: dict[int, ClosedSpare] = {}

    async def run(self, cluster: Cluster) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._led != cluster.terms_led or not cluster.watch.absence_counts():
            self._led = cluster.terms_led
            self._absent.forget()
        view = (await ensure_view(cluster.metadata)).view
        await self._look(cluster, view, now_s)
        listed = await sequencer_members(cluster.metadata)
        living = {*listed, *view.sequencers, *await members(cluster.metadata, ENGINE_ROLE)}
        makers = {*self._spares.values(), *self._data_spares.values()}
        for maker in self._absent.due(makers, living, absent_s=cluster.settings.absent_s, now_s=now_s):
            for ledger_id in [one for one, made_by in self._spares.items() if made_by == maker]:
                if len(self._closed) < CLOSED_SPARES:
                    await self._close(cluster, ledger_id)
            for ledger_id in [one for one, made_by in self._data_spares.items() if made_by == maker]:
                del self._data_spares[ledger_id]
                await self._delete_empty(cluster, ledger_id)
        for spare in list(self._closed.values()):
            await self._delete(cluster, spare)

    async def _look(self, cluster: Cluster, view: View, now_s: float) -> None:
        """Finds spares among all ledgers, a part of them each round. What is open and not in the view never was."""
        if not self._unseen and now_s >= self._next_scan_s:
            self._unseen = (await cluster.ledgers.list())[::-1]
            self._next_scan_s = now_s + cluster.settings.spare_scan_s
            self._spares.clear()  # what became of those of the living is not followed
            self._data_spares.clear()
        for _ in range(min(LOOKS_PER_ROUND, len(self._unseen))):
            ledger_id = self._unseen.pop()
            try:
                metadata = await cluster.ledgers.metadata_of(ledger_id)
            except NoSuchLedger:
                continue
            custom: Mapping[str, bytes] = dict(metadata.custom)
            maker = custom.get(INCARNATION, b"").decode(errors="replace")
            unused = metadata.state is LedgerState.OPEN and not is_named(view, ledger_id)
            if maker and custom.get(ROLE) == METALOG and unused and len(self._spares) < CLOSED_SPARES:
                self._spares[ledger_id] = maker
            if maker and _perhaps_empty(metadata, custom) and len(self._data_spares) < CLOSED_SPARES:
                self._data_spares[ledger_id] = maker

    async def _delete_empty(self, cluster: Cluster, ledger_id: int) -> None:
        """Deletes a data ledger that has no entry, and never will."""
        try:
            if await _has_entries(cluster.ledgers, ledger_id):
                return
            reader = await cluster.ledgers.open(ledger_id, recover=True)
            await reader.close()
            if reader.last_entry >= 0:
                return  # its first entry came meanwhile
            await cluster.ledgers.delete(ledger_id)
        except NoSuchLedger:
            return
        _log.info("a data ledger without entries is deleted", ledger_id=ledger_id)

    async def _close(self, cluster: Cluster, ledger_id: int) -> None:
        view = (await ensure_view(cluster.metadata)).view
        del self._spares[ledger_id]
        try:
            if (
                is_named(view, ledger_id)
                or (await cluster.ledgers.metadata_of(ledger_id)).state is not LedgerState.OPEN
            ):
                return  # it became a term's after all
            await (await cluster.ledgers.open(ledger_id, recover=True)).close()
        except NoSuchLedger:
            return
        version = (await ensure_view(cluster.metadata)).version
        self._closed[ledger_id] = ClosedSpare(ledger_id, version, view.next_term)
        _log.info("a spare that nobody needs is closed", ledger_id=ledger_id)

    async def _delete(self, cluster: Cluster, spare: ClosedSpare) -> None:
        view, version = await ensure_view(cluster.metadata)
        metalogs: dict[int, Any] = {}
        current = {view.term_of(log) for log in view.logs}
        for term in range(spare.next_term, view.next_term):
            if term not in current:
                metalogs[term] = (await read_record(cluster.metadata, term)).metalog_ledger
        verdict = may_delete(spare, view, version, metalogs)
        if verdict is None:
            return
        del self._closed[spare.ledger_id]
        if verdict:
            try:
                await cluster.ledgers.delete(spare.ledger_id)
            except NoSuchLedger:
                return
            _log.info("a spare that nobody needs is deleted", ledger_id=spare.ledger_id)


def _perhaps_empty(metadata: LedgerMetadata, custom: Mapping[str, bytes]) -> bool:
    if custom.get(ROLE) != DATA or REMEMBERED in custom:
        return False
    return metadata.state is not LedgerState.CLOSED or metadata.last_entry < 0


async def _has_entries(ledgers: Ledgers, ledger_id: int) -> bool:
    """Whether a bookie has its first entry, or may have it. Disturbs nobody."""
    reader = await ledgers.open(ledger_id, recover=False)
    try:
        await reader.read_unconfirmed(0, 0)
    except NoSuchEntry:
        return False
    except NoSuchLedger:
        raise
    except LedgerError as error:
        _log.debug("what a data ledger holds is not known", ledger_id=ledger_id, error=error)
    finally:
        await reader.close()
    return True


class RollWritten:
    """See the module. A ledger makes its log roll once, so one that stays open all the same rolls nothing for ever.

    The view says which log a metalog orders. The metadata of a data ledger does not say its log, so all logs are rolled for it: their
    engines close the ledgers of the terms before.
    """

    name = "roll what is written on lost bookies"

    def __init__(self, written: Callable[[], Iterable[int]]) -> None:
        """`written`: ledgers that keep a place on a bookie that is lost or drains, as an auditor sees it now."""
        self._written = written
        self._since_s: dict[int, float] = {}
        self._rolled: dict[int, None] = {}

    async def run(self, cluster: Cluster) -> None:
        """Raises NoSequencer, …: as `LogChanges.roll`; the next round goes on."""
        now_s = asyncio.get_running_loop().time()
        written = sorted(self._written())
        self._since_s = {one: self._since_s.get(one, now_s) for one in written}
        self._rolled = {one: None for one in self._rolled if one in self._since_s}
        due = [
            one
            for one, since_s in self._since_s.items()
            if now_s - since_s >= cluster.settings.repair_roll_s and one not in self._rolled
        ]
        if not due:
            return
        view = (await ensure_view(cluster.metadata)).view
        logs = await self._logs_of(cluster, view, due)
        for log in logs:
            _log.info("a log begins a new term: its ledgers are written on bookies that are lost or drained", log=log)
            await cluster.changes.roll(log, suspect=view.term_of(log))
        self._rolled.update(dict.fromkeys(due))

    @staticmethod
    async def _logs_of(cluster: Cluster, view: View, ledgers: Sequence[int]) -> list[int]:
        metalogs = {one.metalog_ledger: log for log, one in view.logs.items() if one is not None}
        found: dict[int, None] = {}
        for ledger_id in ledgers:
            if ledger_id in metalogs:
                found[metalogs[ledger_id]] = None
                continue
            try:
                metadata = await cluster.ledgers.metadata_of(ledger_id)
            except NoSuchLedger:
                continue
            if dict(metadata.custom).get(ROLE) == DATA and metadata.state is LedgerState.OPEN:
                found.update(dict.fromkeys(view.logs))
        return sorted(found)


class WatchEngines:
    """See the module. It only reports: `boki status` prints what it raises until that is mended."""

    name = "engines for every slot"

    async def run(self, cluster: Cluster) -> None:
        """Raises ThinlyServed."""
        engines = engine_members(await members(cluster.metadata, ENGINE_ROLE))
        none, one = thin_slots(engines)
        if none:
            raise ThinlyServed(
                f"no engine indexes slots {none}: calls about their books wait; start one with index_slots that has them"
            )
        if one:
            raise ThinlyServed(
                f"only one engine indexes slots {one}: while it is away, calls about their books wait; give another of the "
                f"{len(engines)} engines these index_slots too"
            )
