"""When checkpoints run: on demand, at the latest after an interval, one at a time; how fast, and what waits for them.

A checkpoint that met a full disk is tried again when somebody asks; any other error is final for the store. Acknowledgements
that were held because the write cache is too full go on one by one, as stages of a checkpoint make the room that each waits
for; all of them when a checkpoint failed. `disk_pace` decides when one begins by itself, and how long it rests between its
writes; one that ends the store does not rest.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Protocol

from boki_bookie import metric_definitions
from boki_bookie.entries.checkpoint import Checkpointer
from boki_bookie.journal.disk_pace import IDLE_LOOK_S, CheckpointPace
from boki_bookie.journal.journal import Journal
from boki_bookie.journal.journal_queue import Done
from boki_bookie.settings import BookieSettings
from boki_common.background_tasks import error_taken
from boki_common.errors import BokiError, DiskFull, StorageError
from boki_common.metrics import Metrics


class CheckpointOwner(Protocol):
    """Called with the failures of checkpoints: a storage."""

    def met_full_disk(self, error: DiskFull) -> None: ...

    def fail(self, error: BokiError) -> None: ...


class CheckpointLoop:
    """Runs the checkpoints of one store, from its making on until `stop`."""

    def __init__(
        self,
        owner: CheckpointOwner,
        checkpointer: Checkpointer,
        journal: Journal,
        pace: CheckpointPace,
        settings: BookieSettings,
        metrics: Metrics,
    ) -> None:
        self._owner = owner
        self._checkpointer = checkpointer
        self._journal = journal
        self._interval_s = settings.checkpoint_interval_s
        self._pace = pace
        self._waiters: deque[tuple[int, Done]] = deque()
        """Oldest first, with the bytes that must have left memory before."""
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._stopped = False
        self._persisting: asyncio.Task[None] | None = None
        self._seconds = metrics.histogram(metric_definitions.CHECKPOINT)
        self._task = asyncio.create_task(self._run(), name="bookie checkpoints")

    def request(self) -> None:
        """Lets a checkpoint begin soon."""
        self._wanted.set()

    def when_freed(self, done: Done, freed_at: int) -> None:
        """Calls back when more than so many bytes have left memory (`LedgerIndex.freed_bytes`); a checkpoint is asked for."""
        self._waiters.append((freed_at, done))
        self._wanted.set()

    @property
    def room_is_wanted(self) -> bool:
        """For the checkpoint: somebody waits for room in the write cache."""
        return bool(self._waiters)

    async def wrote(self, seconds: float) -> None:
        """For the checkpoint: one of its writes, and a stage perhaps, took so long."""
        index = self._checkpointer.index
        self._release_waiters(index.freed_bytes)
        rest_s = 0.0 if self._stopped else self._pace.rest_s(seconds, index.cached_bytes)
        if rest_s:
            await asyncio.sleep(rest_s)

    async def run_one(self) -> None:
        """One checkpoint, after the one that may be running. Raises DiskFull, DiskFailed."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with self._lock:
                await self._checkpointer.run(self._journal, stages=self)
        except BaseException:
            self._release_waiters(sys.maxsize)
            raise
        self._release_waiters(self._checkpointer.index.freed_bytes)
        self._seconds.observe(loop.time() - begun)

    def _release_waiters(self, freed_bytes: int) -> None:
        waiters = self._waiters
        while waiters and waiters[0][0] < freed_bytes:
            self._journal.when_durable(waiters.popleft()[1])

    async def persist_index(self) -> None:
        """Deletions and moves so far are durable in journal and index. What is begun goes on if the caller is cancelled. Raises
        DiskFull, DiskFailed, and what failed the journal."""
        await self._journal.flushed()
        self._persisting = asyncio.create_task(self._persist_index(), name="bookie persists its index")
        self._persisting.add_done_callback(error_taken)
        await asyncio.shield(self._persisting)

    async def _persist_index(self) -> None:
        async with self._lock:
            await self._checkpointer.persist_index()

    def end(self) -> None:
        """No checkpoint begins by itself any more."""
        self._stopped = True
        self._wanted.set()

    async def stop(self) -> None:
        """The same, and waits for the one that runs."""
        self.end()
        running = [self._task] if self._persisting is None else [self._task, self._persisting]
        await asyncio.wait(running)

    async def _run(self) -> None:
        while not self._stopped:
            await self._until_needed()
            if self._stopped:
                return
            self._wanted.clear()
            try:
                await self.run_one()
                if self._checkpointer.index.fresh_bytes >= self._pace.begins_at:
                    self._wanted.set()
            except DiskFull as error:
                self._owner.met_full_disk(error)
            except BokiError as error:
                self._owner.fail(error)
            except Exception as fault:
                self._owner.fail(StorageError(f"checkpoints stopped on a defect of Boki: {fault!r}"))
                raise

    async def _until_needed(self) -> None:
        """Until somebody asks, the interval is over, or nothing more comes."""
        loop = asyncio.get_running_loop()
        due_at = loop.time() + self._interval_s
        while not self._wanted.is_set() and loop.time() < due_at:
            try:
                async with asyncio.timeout(min(IDLE_LOOK_S, due_at - loop.time())):
                    await self._wanted.wait()
            except TimeoutError:
                if self._pace.is_idle(self._checkpointer.index.fresh_bytes):
                    return
