"""When checkpoints run: on demand, at the latest after an interval, one at a time; and what waits for them to end.

A checkpoint that met a full disk is tried again when somebody asks; any other error is final for the store. Acknowledgements
that were held because the write cache is too full go on when a checkpoint has ended, however it ended: whoever held them
looks again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from boki_bookie import metric_definitions
from boki_bookie.checkpoint import Checkpointer
from boki_bookie.journal import Done, Journal
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, DiskFull, StorageError
from boki_common.metrics import Metrics


class CheckpointOwner(Protocol):
    """Who hears how checkpoints end: a storage."""

    def met_full_disk(self, error: DiskFull) -> None: ...

    def fail(self, error: BokiError) -> None: ...


class CheckpointLoop:
    """Runs the checkpoints of one store, from its making on until `stop`."""

    def __init__(
        self,
        owner: CheckpointOwner,
        checkpointer: Checkpointer,
        journal: Journal,
        settings: BookieSettings,
        metrics: Metrics,
    ) -> None:
        self._owner = owner
        self._checkpointer = checkpointer
        self._journal = journal
        self._interval_s = settings.checkpoint_interval_s
        self._full_at = settings.write_cache_bytes // 2
        self._held: list[Done] = []
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._stopped = False
        self._settling: asyncio.Task[None] | None = None
        self._seconds = metrics.histogram(metric_definitions.CHECKPOINT)
        self._task = asyncio.create_task(self._run(), name="bookie checkpoints")

    def request(self) -> None:
        """Lets a checkpoint begin soon."""
        self._wanted.set()

    def hold(self, done: Done) -> None:
        """Calls back when all is durable and a checkpoint has ended, which is asked for."""
        self._held.append(done)
        self._wanted.set()

    async def run_one(self) -> None:
        """One checkpoint, after the one that may be running. Raises DiskFull, DiskFailed."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with self._lock:
                await self._checkpointer.run(self._journal)
        finally:
            held, self._held = self._held, []
            for done in held:
                self._journal.when_durable(done)
        self._seconds.observe(loop.time() - begun)

    async def settle(self) -> None:
        """Deletions and moves so far are durable in journal and index. What is begun goes on if the caller is cancelled.

        Raises:
            DiskFull, DiskFailed, and what failed the journal.
        """
        await self._journal.flushed()
        self._settling = asyncio.create_task(self._settle(), name="bookie settles its index")
        self._settling.add_done_callback(_look_at_outcome)
        await asyncio.shield(self._settling)

    async def _settle(self) -> None:
        async with self._lock:
            await self._checkpointer.settle()

    def end(self) -> None:
        """No checkpoint begins by itself any more."""
        self._stopped = True
        self._wanted.set()

    async def stop(self) -> None:
        """The same, and waits for the one that runs."""
        self.end()
        running = [self._task] if self._settling is None else [self._task, self._settling]
        await asyncio.wait(running)

    async def _run(self) -> None:
        while not self._stopped:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # the interval is over: checkpoint what little there is
            if self._stopped:
                return
            self._wanted.clear()
            try:
                await self.run_one()
                if self._checkpointer.index.fresh_bytes >= self._full_at:
                    self._wanted.set()
            except DiskFull as error:
                self._owner.met_full_disk(error)
            except BokiError as error:
                self._owner.fail(error)
            except Exception as fault:
                self._owner.fail(StorageError(f"checkpoints stopped on a defect of Boki: {fault!r}"))
                raise


def _look_at_outcome(ended: asyncio.Task[None]) -> None:
    """An error is told to who waits, if he still does."""
    if not ended.cancelled():
        ended.exception()
