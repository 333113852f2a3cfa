"""The journal segment after the one that is written: prepared while that fills, slowly as long as nobody waits for it.

A full disk only makes it wait: for a segment to be recycled, or for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from boki_bookie.journal.disk_pace import rest_s
from boki_bookie.journal.journal_segments import Segment, SegmentFiles
from boki_common.errors import DiskFull
from boki_common.logs import get_logger
from boki_common.retry import event_or_timeout

FULL_DISK_RETRY_S: Final = 1.0
"""How soon a segment is tried again that a full disk refused, if no segment is recycled before."""
AHEAD: Final = 1.5
"""The next segment is filled so much faster than this one is used, or without rest."""

_log = get_logger("bookie")


class NextSegment:
    """See the module. One at a time: `prepare`, then `take`, and so on."""

    def __init__(self, files: SegmentFiles, used: Callable[[], float]) -> None:
        """`used`: the part of the present segment that is written."""
        self._files = files
        self._used = used
        self._task: asyncio.Task[Segment] | None = None
        self._recycled = asyncio.Event()
        self._wanted = asyncio.Event()
        self._closing = False

    def prepare(self, generation: int) -> None:
        """Begins to prepare it."""
        self._task = asyncio.create_task(self._prepare(generation), name="bookie journal segment")

    async def take(self) -> Segment:
        """The one that was begun, as soon as it can be."""
        assert self._task is not None
        self._wanted.set()
        return await asyncio.shield(self._task)

    def recycled(self) -> None:
        """A segment was recycled: there is space for one."""
        self._recycled.set()

    def hurry(self, *, needed: bool) -> None:
        """The journal is about to end; `needed`: it waits for this segment, or may have to."""
        self._closing = True
        self._wanted.set()
        self._recycled.set()
        if self._task is not None and not needed:
            self._task.cancel()

    async def close(self) -> None:
        """Ends what is under way, and closes what is ready."""
        if self._task is None:
            return
        if not self._task.cancelling():  # it tidies up after the first time
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and self._task.exception() is None:
            await self._task.result().file.close()

    async def _prepare(self, generation: int) -> Segment:
        self._wanted.clear()
        while True:
            self._recycled.clear()
            try:
                return await self._files.prepare(generation, rest=self._pause_between_writes)
            except DiskFull as error:
                if self._closing:
                    raise
                _log.warning("no space for the next journal segment", generation=generation, error=error)
            await event_or_timeout(self._recycled, FULL_DISK_RETRY_S)

    async def _pause_between_writes(self, write_s: float, filled: float) -> None:
        """Leaves the disk to groups and checkpoints for a while, if the segment will be there in time."""
        seconds = rest_s(write_s)
        if seconds and filled > AHEAD * self._used() and not self._wanted.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()
            except TimeoutError:
                return  # rested
