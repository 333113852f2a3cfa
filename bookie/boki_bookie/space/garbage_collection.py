"""Gives back what nobody needs: deleted ledgers, files that nothing lives in, and the gaps in files that little lives in.

One run after the other, every `gc_interval_s`, when somebody asks, and while the disk is full:

    1. ledgers     (`ledger_collection`) read the metadata of those that a listing lacks; delete on two proofs
    2. dead files  (`file_collection`) journal durable, index persisted, then the files that nothing lives in are removed
    3. compaction  the emptiest files, one at a time: copied (`compaction`), index persisted, removed

The order within each step is what makes a crash harmless: what deletes is durable before the index says so, and the index is
durable before a file goes. Nothing is deleted because of an error, a time-out, a listing or a lost session.

It owns no rule and no format. It ends at the next await when it is cancelled.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from boki_bookie.settings import BookieSettings
from boki_bookie.space.file_collection import FileCollection, GcOwner, GcParts
from boki_bookie.space.ledger_collection import LedgerCollection
from boki_bookie.space.ledger_facts import LedgerFacts
from boki_common.errors import BokiError, DiskFull, StorageError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.retry import event_or_timeout
from boki_common.runtime.ports import Clock, Random

ELSEWHERE_LOGGED: Final = 1_000
"""So many ledgers that lie elsewhere are named, at most."""
JITTER_PERCENT: Final = 25
"""Runs are this much sooner than due at most, so that the bookies of a cluster do not ask all at once."""

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
    elsewhere_ledgers: int = 0
    """Ledgers that are held here, closed, and name other bookies only, as far as their metadata was read since the start."""
    elsewhere: tuple[int, ...] = ()
    """The first of them."""
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
        self._index = parts.index
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._ledgers = LedgerCollection(
            parts.index,
            parts.journal,
            facts,
            clock,
            settings,
            metrics,
            rng=rng,
            in_limbo=lambda: owner.limbo is not None,
            drains=lambda: owner.drains,
        )
        self._files = FileCollection(owner, parts, settings, metrics)
        self._runs = self._last_run_ms = 0
        self._is_running = False
        self._wanted = asyncio.Event()
        self._major_wanted = False
        self._lock = asyncio.Lock()
        self._task = asyncio.create_task(self._run(), name="bookie garbage collection")

    def state(self) -> GcState:
        ledgers, files = self._ledgers, self._files
        return GcState(
            runs=self._runs,
            is_running=self._is_running,
            last_run_ms=self._last_run_ms,
            ledgers=len(self._index.ledgers),
            candidates=ledgers.candidates,
            deleted_ledgers=ledgers.deleted,
            emptied_ledgers=ledgers.emptied,
            elsewhere_ledgers=len(ledgers.elsewhere),
            elsewhere=tuple(sorted(ledgers.elsewhere)[:ELSEWHERE_LOGGED]),
            tombstones=len(self._index.tombstones),
            files=len(files.uses),
            live_bytes=sum(use.live_bytes for use in files.uses),
            dead_bytes=sum(use.dead_bytes for use in files.uses),
            removed_files=files.removed,
            reclaimed_bytes=files.reclaimed_bytes,
            compacted_bytes=files.copied_bytes,
            compacting=files.compacting,
            damaged_files=files.damaged,
        )

    def request(self, *, major: bool = False) -> None:
        """Lets a run begin soon."""
        self._major_wanted |= major
        self._wanted.set()

    async def stop(self) -> None:
        """Ends it where it stands."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._files.close()

    # -- runs

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        major_at = loop.time() + self._settings.gc_major_interval_s
        while True:
            await event_or_timeout(self._wanted, self._pause_s())
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
        oldest = self._ledgers.oldest_proof_at()
        if oldest is not None:
            ripe_in_s = oldest + self._settings.gc_grace_s - asyncio.get_running_loop().time()
            pause_s = min(pause_s, max(ripe_in_s, self._settings.gc_interval_s / 10))
        return pause_s

    async def run_once(self, *, major: bool = False) -> None:
        """One run, after the one that may be running. Raises DiskFailed: and other errors after which the store cannot go on. A
        full disk and an absent metadata store are no errors: the rest is left to the next run."""
        async with self._lock:
            self._is_running = True
            try:
                if self._owner.read_only:
                    await self._files.remove_dead_files()  # ledgers may take long, and space is needed now
                await self._ledgers.collect(major=major)
                await self._files.collect(major=major)
            except DiskFull as error:
                _log.warning("no space to go on giving back space", error=error)
            finally:
                self._is_running = False
            self._runs += 1
            if self._clock is not None:
                self._last_run_ms = self._clock.now_ms()
