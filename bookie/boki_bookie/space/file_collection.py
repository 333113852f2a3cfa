"""Which files are given back: those that nothing lives in, and those that little lives in once the rest is copied.

What deletes is durable before the index says so, and the index is durable before a file goes. `gc_rules` chooses the files; on
a full disk the reserve is spent first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from boki_bookie import metric_definitions
from boki_bookie.entries.checkpoint_loop import CheckpointLoop
from boki_bookie.entries.entry_log import EntryLog
from boki_bookie.entries.ledger_index import LedgerIndex
from boki_bookie.journal.journal import Journal
from boki_bookie.journal.next_segment import FULL_DISK_RETRY_S
from boki_bookie.settings import BookieSettings
from boki_bookie.space.compaction import Compactor, file_use
from boki_bookie.space.disk_reserve import DiskReserve
from boki_bookie.space.gc_rules import FileUse, dead_files, files_to_compact
from boki_common.errors import BokiError, DiskFull
from boki_common.logs import get_logger
from boki_common.metrics import Metrics

FLUSH_TIMEOUT_S: Final = 0.5
"""How long a flush may take on a full disk before the journal is taken to wait for space."""

_log = get_logger("bookie")


class GcOwner(Protocol):
    """The storage around it."""

    read_only: bool
    drains: bool
    """Whether what lies elsewhere is to go, whatever the settings say."""

    @property
    def limbo(self) -> object:
        """Not None while what this store denies, or forgot, proves nothing."""

    def fail(self, error: BokiError) -> None: ...


@dataclass(frozen=True, slots=True)
class GcParts:
    """What garbage collection works on."""

    index: LedgerIndex
    entry_log: EntryLog
    journal: Journal
    checkpoints: CheckpointLoop
    reserve: DiskReserve
    free_bytes: Callable[[], Awaitable[int]]


class FileCollection:
    """See the module."""

    def __init__(self, owner: GcOwner, parts: GcParts, settings: BookieSettings, metrics: Metrics) -> None:
        self.uses: list[FileUse] = []
        """Of the files that are not written any more, as they were last seen."""
        self.removed = self.reclaimed_bytes = self.copied_bytes = 0
        """Since the start."""
        self.compacting = 0
        """The file that is being copied, 0 for none."""
        self._owner = owner
        self._parts = parts
        self._index = parts.index
        self._entry_log = parts.entry_log
        self._settings = settings
        self._compactor = Compactor(
            parts.index,
            parts.entry_log,
            bytes_per_s=settings.compaction_bytes_per_s,
            is_busy=lambda: parts.index.cached_bytes >= settings.write_cache_bytes // 2,
        )
        self._reclaimed_total = metrics.counter(metric_definitions.GC_RECLAIMED_BYTES)
        self._copied_total = metrics.counter(metric_definitions.COMPACTION_BYTES)

    @property
    def damaged(self) -> tuple[int, ...]:
        """Files with an entry that cannot be read, ascending; they are kept."""
        return tuple(sorted(self._compactor.damaged))

    def close(self) -> None:
        """Nothing is copied any more."""
        self._compactor.close()

    async def collect(self, *, major: bool) -> None:
        """Removes what is dead, compacts what is worth it. Raises DiskFull, DiskFailed."""
        settings = self._settings
        await self.remove_dead_files()
        begun = dict.fromkeys(use.number for use in self.uses)
        without: dict[int, None] = {}
        while True:
            urgent = self._owner.read_only
            below = settings.compact_major_below if major or urgent else settings.compact_below
            room_bytes = await self._room(urgent=urgent)
            skipped = {**without, **self._compactor.damaged}
            uses = [use for use in self.uses if use.number in begun]
            chosen = files_to_compact(uses, below=below, room_bytes=room_bytes, without=skipped)
            if not chosen:
                break
            without[chosen[0]] = None
            await self._compact(chosen[0])
            await self.remove_dead_files()
        if not self._owner.read_only:
            await self._parts.reserve.fill()

    async def _room(self, *, urgent: bool) -> int:
        """Bytes that copies may take: what checkpoints need is left to them, and so is the space for recovery."""
        kept = self._index.cached_bytes
        if not urgent:
            kept = max(kept, self._settings.read_only_below_bytes)
        return max(0, await self._parts.free_bytes() - kept) + (self._parts.reserve.reserved_bytes if urgent else 0)

    async def _compact(self, number: int) -> None:
        self.compacting = number
        try:
            try:
                copied = await self._compactor.compact(number)
            except DiskFull:
                if not await self._parts.reserve.spend():
                    raise
                copied = await self._compactor.compact(number)
        finally:
            self.compacting = 0
        self.copied_bytes += copied.copied_bytes
        self._copied_total.inc(copied.copied_bytes)
        _log.debug("copied what lives in a file", file=number, entries=copied.entries, whole=copied.is_whole)

    async def _persist_index(self) -> None:
        """Deletions and moves so far are durable. On a full disk that may take the reserve. Raises DiskFull."""
        if self._owner.read_only:
            await self._wait_for_journal()
        try:
            await self._parts.checkpoints.persist_index()
        except DiskFull:
            if not await self._parts.reserve.spend():
                raise
            await self._parts.checkpoints.persist_index()

    async def _wait_for_journal(self) -> None:
        """What was appended is durable, also if the journal needs the reserve for its next segment. Raises DiskFull."""
        for timeout_s in (FLUSH_TIMEOUT_S, FLUSH_TIMEOUT_S + 2 * FULL_DISK_RETRY_S):
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._parts.journal.flushed()
            except TimeoutError:
                await self._parts.reserve.spend()  # if it was not spent before; the journal tries again by itself
        raise DiskFull(
            "the journal waits for space, and nothing is deleted before it is durable there: free some space"
        )

    async def remove_dead_files(self) -> None:
        """Looks at all files, and removes those that nothing lives in once the index on disk agrees."""
        self.uses = await file_use(self._index, self._entry_log)
        dead = dead_files(self.uses)
        if not dead:
            return
        await self._persist_index()
        sizes = {use.number: use.size_bytes for use in self.uses}
        for number in dead:
            await self._entry_log.remove(number)
            self.removed += 1
            self.reclaimed_bytes += sizes[number]
            self._reclaimed_total.inc(sizes[number])
        self.uses = [use for use in self.uses if use.live_bytes]
        _log.info("removed entry log files that nothing lived in", files=len(dead))
