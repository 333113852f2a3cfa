"""Looks at all ledgers and bookies, and has the copies of lost bookies made anew, the most urgent first.

    auditor = Auditor(ports, store, settings)
    await auditor.audit()          # one look
    await auditor.run("ours")      # until it is cancelled: looks again and again, and repairs

- Every ledger is read in the first round, when the bookies that are away are others than before, and each `scan_s`. Between,
  only ledgers that missed copies are.
- A bookie that is not registered, but answers a direct call, is not away. One that returns is not lost any more: who is lost is asked
  anew for each version of the metadata that a worker reads, and the bookies are looked at each `round_s` meanwhile.
- Where more bookies are lost during a round, it ends early, so that ledgers with fewer copies come first.
- A ledger that could not be repaired is tried again each round: a source or a target may have returned.
- Closed ledgers are scrubbed, once each, some in each round: a copy that was never made is made (`scrub`). Their digests are not read.
- Bookies that drain have their copies made elsewhere as well, after all that is lost, and are retired in the end (`drain`).

Any number of auditors may run at once: they do things twice, and nothing wrong (`worker`). While Apache's auditor is elected
in the same cluster this one only looks, since that one fences ledgers and knows no holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState
from boki_common.errors import BokiError, CorruptData, NoSuchLedger
from boki_common.ids import BookieId
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Counter, Metrics
from boki_ledger import metric_definitions
from boki_ledger.ports import LedgerPorts
from boki_ledger.repair.audit import LISTED, Audit, audit_of, describe
from boki_ledger.repair.autorecovery import AutoRecovery, read_autorecovery
from boki_ledger.repair.away import Away
from boki_ledger.repair.drain import Drains, read_ledgers
from boki_ledger.repair.pace import RatePace
from boki_ledger.repair.pause import Pause, read_pause
from boki_ledger.repair.plan import FOR_GOOD, lost_bookies
from boki_ledger.repair.scrub import Scrubber
from boki_ledger.repair.settings import Mode, RepairLimits
from boki_ledger.repair.worker import Outcome, Repaired, RepairWorker

SCRUBBED_A_ROUND: Final = 256
APART: Final = 64
"""Ledgers whose metadata is in memory at a time during a scan."""

_log = get_logger("repair")


class Auditor:
    """See the module."""

    def __init__(self, ports: LedgerPorts, store: MetadataStore, limits: RepairLimits) -> None:
        self._ports = ports
        self._store = store
        self._limits = limits
        self._worker = RepairWorker(ports, pace=RatePace(limits.bytes_per_s))
        self._drains = Drains(ports, store)
        self._memory = Away()
        self._named: dict[BookieId, None] = {}
        self._away: dict[BookieId, float] = {}
        self._bookies = 0
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._scanned_at = float("-inf")
        self._scanned_for: tuple[BookieId, ...] | None = None
        self._read_last: dict[int, LedgerMetadata | None] = {}
        self._candidates: dict[int, None] = {}
        self._scrubber = Scrubber(ports, pace=RatePace(limits.bytes_per_s), mend=True)
        self._scrubbed: dict[int, None] = {}
        """Closed ledgers of which each copy was found, or made, by this one."""
        self._unscrubbed: dict[int, None] = {}
        self._never_made = 0
        self._ledgers = 0
        self._unreadable: tuple[int, ...] = ()
        self._last: Audit | None = None
        self._blocked: dict[int, Repaired] = {}
        self._pause = Pause()
        self._apaches = AutoRecovery()
        self._written: dict[int, None] = {}
        self._mode = Mode.OBSERVE
        self._why = ""
        self._repaired = self._copied = self._copied_bytes = 0
        self._working_s = 0.0
        self._copied_total: Counter | None = None
        store.on_session_lost(self._memory.forget)

    # -- looking

    async def audit(self) -> Audit:
        """One look at all bookies, and at all ledgers that may miss copies. Raises MetadataError."""
        loop = asyncio.get_running_loop()
        await self._look()
        if self._must_scan(loop.time()):
            await self._scan()
            await self._look()  # the ledgers may name bookies that are retired
            self._scanned_at, self._scanned_for = loop.time(), self._leaving()
        self._read_last = found = await read_ledgers(self._ports, list(self._candidates))
        audit = audit_of(found, self._away, self._bookies, grace_s=self._limits.grace_s, draining=self._drains.bookies)
        self._candidates = {one.urgency.ledger_id: None for one in (*audit.missing, *audit.leaving)}
        unreadable = tuple(sorted({*self._unreadable, *audit.unreadable}))
        self._last = replace(audit, ledgers=self._ledgers, unreadable=unreadable, away=dict(audit.away))
        self._blocked = {key: value for key, value in self._blocked.items() if key in self._candidates}
        return self._last

    def _must_scan(self, now_s: float) -> bool:
        return self._scanned_for != self._leaving() or now_s >= self._scanned_at + self._limits.scan_s

    def _leaving(self) -> tuple[BookieId, ...]:
        """Those that are away, and those that drain."""
        return (*self._away, *sorted(self._drains.bookies - self._away.keys()))

    async def _look(self) -> None:
        """Who is away now. Raises MetadataError."""
        async with self._looking:
            loop = asyncio.get_running_loop()
            await self._drains.look()
            self._pause = await read_pause(self._store)
            registered = {
                bookie
                for read_only in (False, True)
                for bookie in await layout.available_bookies(self._store, read_only=read_only)
            }
            cookies = frozenset(await layout.bookie_cookies(self._store))
            away = self._memory.seen(self._named, registered, cookies, now_s=loop.time())
            asked = [bookie for bookie, away_s in away.items() if away_s != FOR_GOOD]
            for bookie, answer in zip(asked, await asyncio.gather(*map(self._call, asked)), strict=True):
                if answer:
                    self._memory.answered(bookie)
                    del away[bookie]
            self._away, self._bookies = away, len(cookies)
            self._looked_at = loop.time()

    async def _call(self, bookie: BookieId) -> bool:
        """Whether a bookie that is not registered answers all the same."""
        return (await self._ports.transport.bookie_info(bookie)).status is not None

    async def _scan(self) -> None:
        """Reads all ledgers: which bookies they name, and which of them may miss copies. Raises MetadataError."""
        listed: list[int] = [*await layout.list_ledgers(self._store)]
        named: dict[BookieId, None] = {}
        holders: dict[int, frozenset[BookieId]] = {}
        unreadable: list[int] = []
        closed: list[int] = []
        for some in _parts(listed):
            for ledger_id, metadata in (await read_ledgers(self._ports, some)).items():
                if metadata is None:
                    unreadable.append(ledger_id)
                    continue
                if metadata.state is LedgerState.CLOSED and metadata.last_entry >= 0:
                    closed.append(ledger_id)
                members = [bookie for _, bookies in metadata.ensembles for bookie in bookies]
                named.update(dict.fromkeys(members))
                holders[ledger_id] = frozenset(members)
        self._apaches = await read_autorecovery(self._store)
        self._named = named
        self._scrubbed = {one: None for one in closed if one in self._scrubbed}
        self._unscrubbed = {one: None for one in closed if one not in self._scrubbed}
        present = frozenset(await layout.bookie_cookies(self._store)) - self._away.keys() - self._drains.bookies
        self._candidates = {ledger_id: None for ledger_id, members in holders.items() if members - present}
        self._ledgers, self._unreadable = len(listed), tuple(unreadable)

    # -- repairing

    async def run(self, mode: Mode) -> None:
        """Looks and, with OURS, repairs, round after round. Errors of a round are logged; the next one follows."""
        known = ""
        while True:
            try:
                await self.round(mode)
                known = ""
            except BokiError as error:
                if str(error) != known:
                    _log.warning("a round of repair failed; another one follows", error=error)
                known = str(error)
            await asyncio.sleep(self._limits.round_s)

    async def round(self, mode: Mode) -> None:
        """One round. Raises MetadataError."""
        self._mode, self._why = mode, ""
        if mode is Mode.OFF:
            return
        audit = await self.audit()
        found = await read_autorecovery(self._store, marks=False)
        self._apaches = found._replace(marked=self._apaches.marked)
        if mode is Mode.OURS and self._apaches.elected:
            self._mode, self._why = (
                Mode.OBSERVE,
                "the auditor of Apache BookKeeper's AutoRecovery is elected: stop it first",
            )
        if self._mode is Mode.OURS and self._pause.paused:
            reason = f" ({self._pause.reason})" if self._pause.reason else ""
            self._mode, self._why = Mode.OBSERVE, f"paused{reason}: boki repair resume ends that"
        if self._mode is Mode.OURS and audit.due:
            await self._repair_due(audit)
            await self.audit()
        if self._mode is Mode.OURS and not self._pause.paused:
            await self._finish_drains()
            await self._scrub_some()
            self._written = dict.fromkeys([*await self._written_on_lost(audit), *self._drains.written])

    async def _scrub_some(self) -> None:
        """Scrub ledgers of which no bookie is away or drains. Raises MetadataError."""
        leaving = frozenset(self._leaving())
        for ledger_id in [one for one in self._unscrubbed if one not in self._candidates][:SCRUBBED_A_ROUND]:
            del self._unscrubbed[ledger_id]  # tried again after the next scan
            try:
                done = await self._scrubber.scrub(ledger_id, without=leaving)
            except (NoSuchLedger, CorruptData):
                continue
            self._never_made += done.copied
            if done.copied:
                _log.info("copies that were never made are made", ledger_id=ledger_id, copies=done.copied)
            if done.is_whole:
                self._scrubbed[ledger_id] = None
            else:
                _log.warning("ledger is not whole", **done.describe())

    async def _written_on_lost(self, audit: Audit) -> list[int]:
        """Return ledgers whose last fragment gets entries and has a bookie that is lost, where new ledgers would have all copies. Raises
        MetadataError."""
        found = []
        there = len(self._targets())
        for one in audit.missing:
            metadata = self._read_last.get(one.urgency.ledger_id)
            if one.written and metadata is not None and metadata.ensemble_size <= there:
                for bookie in sorted(one.due):
                    if await self._drains.is_written(one.urgency.ledger_id, metadata, bookie, self._away):
                        found.append(one.urgency.ledger_id)
        return found

    async def _finish_drains(self) -> None:
        """Retire the bookies that nothing names any more. Raises MetadataError."""
        naming: dict[BookieId, dict[int, LedgerMetadata]] = {bookie: {} for bookie in self._drains.bookies}
        for ledger_id, metadata in self._read_last.items():
            for bookie, ledgers in naming.items():
                if metadata is not None and any(bookie in bookies for _, bookies in metadata.ensembles):
                    ledgers[ledger_id] = metadata
        found = await self._drains.finish(naming, self._away, grace_s=self._limits.grace_s)
        self._candidates.update(dict.fromkeys(found))

    async def _repair_due(self, audit: Audit) -> None:
        """Let several workers repair the ledgers that are due, until none is left or one worker fails. Raises MetadataError."""
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        queue = iter([one.urgency.ledger_id for one in audit.due])
        known = self._leaving()
        workers = [
            asyncio.create_task(self._work(queue, known), name="repair") for _ in range(self._limits.ledgers_at_once)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            self._working_s += loop.time() - begun_at

    async def _work(self, queue: Iterator[int], known: tuple[BookieId, ...]) -> None:
        """One of several that share the queue. Raises MetadataError."""
        for ledger_id in queue:
            if asyncio.get_running_loop().time() >= self._looked_at + self._limits.round_s:
                await self._look()
            if self._leaving() != known or self._pause.paused:
                return  # others are lost, or some returned: what is urgent is decided again
            self._count(await self._worker.repair(ledger_id, self._lost, self._targets()))

    def _lost(self, metadata: LedgerMetadata) -> frozenset[BookieId]:
        audit = self._last
        assert audit is not None
        lost = lost_bookies(metadata, self._away, grace_s=self._limits.grace_s, mass_outage=audit.mass_outage)
        return lost if audit.mass_outage else lost | self._drains.bookies

    def _targets(self) -> list[BookieId]:
        """Bookies that take writes and are not failing, in random order."""
        chooser = self._ports.chooser
        leaving = self._leaving()
        return [one for one in self._ports.rng.shuffled(chooser.writable()) if one not in leaving]

    def _count(self, done: Repaired) -> None:
        self._copied += done.copied
        self._copied_bytes += done.copied_bytes
        if self._copied_total is not None:
            self._copied_total.inc(done.copied_bytes)
        self._repaired += done.outcome is Outcome.REPAIRED
        if done.outcome is Outcome.BLOCKED:
            before = self._blocked.get(done.ledger_id)
            if before is None or before.faults != done.faults:
                _log.warning(
                    "ledger not repaired", ledger_id=done.ledger_id, why=done.faults, lost_entries=done.lost[:LISTED]
                )
            self._blocked[done.ledger_id] = done
        else:
            self._blocked.pop(done.ledger_id, None)

    def written(self) -> list[int]:
        """Ledgers that keep a place on a bookie which is lost or drains until they are closed: their logs may be rolled. None unless
        this one repairs."""
        return list(self._written) if self._mode is Mode.OURS else []

    # -- for people

    def measure(self, metrics: Metrics) -> None:
        """Keep metrics of what it saw last, and of what it copied."""
        for definition, value in (
            (metric_definitions.REPAIR_MISSING, lambda audit: len(audit.missing)),
            (
                metric_definitions.REPAIR_SINGLE,
                lambda audit: sum(one.urgency.copies_left <= 1 for one in audit.missing),
            ),
            (metric_definitions.REPAIR_DUE, lambda audit: sum(one.urgency.missing_bytes for one in audit.due)),
            (metric_definitions.REPAIR_BLOCKED, lambda _: len(self._blocked)),
            (metric_definitions.REPAIR_DRAINS, lambda _: len(self._drains.bookies)),
        ):
            metrics.gauge(definition).set_function(partial(self._measured, value))
        self._copied_total = metrics.counter(metric_definitions.REPAIR_COPIED)

    def _measured(self, value: Callable[[Audit], int]) -> int:
        """A figure of the last look; 0 before it."""
        return 0 if self._last is None else value(self._last)

    def status(self) -> dict[str, Any]:
        """What it last saw and did, as JSON."""
        rate = self._copied_bytes / self._working_s if self._working_s > 0 else 0.0
        audit = None if self._last is None else describe(self._last)
        due_bytes = 0 if audit is None else audit["due_bytes"]
        return {
            "mode": self._mode.value,
            "why": self._why,
            "paused": self._pause.paused,
            "audit": audit,
            "drains": self._drains.status(),
            "apaches_autorecovery": self._apaches.describe(),
            "repaired_ledgers": self._repaired,
            "copied_entries": self._copied,
            "scrubbed_ledgers": len(self._scrubbed),
            "unscrubbed_ledgers": len(self._unscrubbed),
            "never_made_copies": self._never_made,
            "copied_bytes": self._copied_bytes,
            "bytes_per_s": round(rate),
            "left_s": round(due_bytes / rate, 1) if rate and due_bytes else None,
            "blocked_ledgers": len(self._blocked),
            "blocked": [
                {"ledger_id": one.ledger_id, "why": list(one.faults), "lost_entries": list(one.lost[:LISTED])}
                for one in list(self._blocked.values())[:LISTED]
            ],
        }


def _parts(ledgers: list[int]) -> Iterator[list[int]]:
    for begin in range(0, len(ledgers), APART):
        yield ledgers[begin : begin + APART]
