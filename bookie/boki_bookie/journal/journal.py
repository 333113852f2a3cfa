"""The journal: what is appended is durable when its group's callback comes. Group commit without timers.

What one turn of the loop brought goes out together, as one write and one flush. While that runs, everything that is
appended collects in the next group, which follows when the flush returns. So a lone add waits for one flush, and under load
one flush serves hundreds. Appending costs two list operations; checksums are made in one loop when the group goes out.

While the disk is quick (`DiskFile.write_now`) the writer is a callback of the loop, at the end of the turn; else it is a
task, as long as something waits.

Rules:
- Callbacks run in order, on the loop, after the flush, once; with an error when the journal failed before.
- Any error of a write or flush is final: `failed` is set, nothing more is written, nothing is acknowledged. A flush that
  failed is never tried again: the system may have dropped the pages and would report success.
- The next segment is prepared while the current one fills (`next_segment`).
- The queue is bounded in bytes and records (`journal_queue`): `append` raises Overloaded and has then taken nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from boki_bookie import metric_definitions
from boki_bookie.formats.journal_format import (
    GROUP_HEADER_BYTES,
    PAGE_BYTES,
    encode_group,
    encode_single,
)
from boki_bookie.journal.journal_queue import Done, Group, GroupQueue
from boki_bookie.journal.journal_segments import Segment, SegmentFiles
from boki_bookie.journal.next_segment import NextSegment
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, ClosedError, DiskFull, StorageError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Buffer

_log = get_logger("bookie")


class JournalPosition(NamedTuple):
    """Everything appended from now on is in this group or later ones, in this segment or later ones."""

    generation: int
    group: int


_Taken = tuple[list[Buffer], int]
"""An encoded group and its length."""


class Journal:
    """See the module. `start` before the first append."""

    def __init__(self, files: SegmentFiles, settings: BookieSettings, metrics: Metrics) -> None:
        self.failed: asyncio.Future[BokiError] = asyncio.get_running_loop().create_future()
        self.live: deque[int] = deque()
        """Generations whose records a checkpoint still has to cover, ascending; the last is being written."""
        self.groups_written = 0
        self._files = files
        self._queue = GroupQueue(settings)
        self._flying: Group | None = None
        self._loop = asyncio.get_running_loop()
        self._is_quick = False
        """Whether the last write was made at once."""
        self._writing = False
        """Whether somebody writes, or will at the end of this turn."""
        self._writer: asyncio.Task[None] | None = None
        """The task that writes while the disk is not quick."""
        self._segment: Segment | None = None
        self._offset = 0
        self._room_ends = 0
        """A group fits if its records, without its header, put at `_offset`, end up to here."""
        self._next_number = 0
        self._next_segment = NextSegment(files, self._used)
        self._refusal: BokiError | None = None
        """Why `append` takes nothing any more."""
        self._failure: BokiError | None = None
        """The result of `failed`."""
        self._write_seconds = metrics.histogram(metric_definitions.JOURNAL_WRITE)
        self._records_total = metrics.counter(metric_definitions.JOURNAL_RECORDS)
        self._bytes_total = metrics.counter(metric_definitions.JOURNAL_BYTES)

    async def start(
        self, generation: int, first_group: int, *, older: Sequence[int] = (), ends_at: int | None = None
    ) -> None:
        """Prepares the first segment and begins; `older` ones wait for a checkpoint.

        Where a full disk has no space for it, the journal goes on in the last of the older ones, from the offset `ends_at`.

        Raises:
            DiskFull: and there is no such offset. DiskFailed.
        """
        self.live.extend(older)
        self._next_number = first_group
        try:
            self._begin_segment(await self._files.prepare(generation))
        except DiskFull as error:
            if ends_at is None:
                raise
            _log.warning("no space for a journal segment: the last one is written on", error=error)
            self.live.pop()
            generation -= 1
            self._begin_segment(await self._files.resume(generation), ends_at)
        self._next_segment.prepare(generation + 1)

    # -- appending

    def append(self, kind: int, body: Buffer) -> None:
        """Takes one record; it is durable once a later `when_durable` calls back. Raises Overloaded: the queue is full;
        InvalidArgument: no segment can hold it. What failed the journal."""
        if self.append_run(kind, (body,), len(body)):
            return
        raise self._refusal or self._queue.refusal(body)

    def append_run(self, kind: int, bodies: Sequence[Buffer], body_bytes: int, sums: Sequence[int] = ()) -> bool:
        """`append` for several at once, all or none; False where they have to go one by one, for whatever reason.

        With the crc32c of each body in `sums` they are not read for it.
        """
        if self._refusal is not None or not self._queue.add(kind, bodies, body_bytes, sums):
            return False
        if not self._writing:  # it goes out when this turn of the loop is over
            self._writing = True
            if self._is_quick:
                self._loop.call_soon(self._write_now)
            else:
                self._write_in_task(None)
        return True

    def when_durable(self, done: Done) -> None:
        """Calls `done` once all that was appended so far is durable: at once if it is."""
        if self._queue.waiting:
            self._queue.waiting[-1].done.append(done)
        elif self._flying is not None:
            self._flying.done.append(done)
        else:
            done(self._failure)

    async def flushed(self) -> None:
        """Returns when all that was appended so far is durable. Raises what failed the journal."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BokiError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error.again())

        self.when_durable(done)
        await future

    @property
    def position(self) -> JournalPosition:
        """Before everything that is not on its way to the disk yet."""
        return JournalPosition(self.live[-1], self._next_number)

    # -- segments

    async def release(self, generation: int) -> None:
        """Segments below `generation` are no longer needed: recycles them."""
        while self.live and self.live[0] < generation:
            await self._files.recycle(self.live[0])
            self.live.popleft()
            self._next_segment.recycled()

    async def close(self) -> None:
        """Writes what was appended, then ends. Idempotent."""
        self._refusal = self._refusal or ClosedError("the journal is closed")
        self._next_segment.hurry(needed=bool(self._queue.waiting))
        if self._queue.waiting and self._writer is None:
            self._write_now()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        if self._failure is None:
            self._fail_with(ClosedError("the journal is closed"), quietly=True)
        await self._next_segment.close()
        if self._segment is not None:
            await self._segment.file.close()

    # -- the writer

    def _write_now(self) -> None:
        """The writer while the disk is quick; what is not goes to the other one."""
        assert self._segment is not None
        file = self._segment.file
        taken: _Taken | None = None
        try:
            while self._queue.waiting and self._offset + self._queue.waiting[0].record_bytes <= self._room_ends:
                taken = buffers, size = self._take()
                seconds = file.write_now(self._offset, buffers, size)
                if seconds is None:
                    self._is_quick = False
                    break
                self._is_written(size, seconds)
                taken = None
        except StorageError as error:
            self._fail_with(error)
        except Exception as fault:
            self._fail_with(StorageError(f"the journal stopped on a defect of Boki: {fault!r}"))
            raise
        if (taken is not None and self._failure is None) or self._queue.waiting:
            self._write_in_task(taken)
        else:
            self._writing = False

    def _write_in_task(self, taken: _Taken | None) -> None:
        self._writer = self._loop.create_task(self._write_slowly(taken), name="bookie journal")
        self._writer.add_done_callback(self._writer_ended)

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """Also one that was stopped before it began."""
        if writer.cancelled() and self._failure is None:
            self._fail_with(ClosedError("the journal was stopped"), quietly=True)

    async def _write_slowly(self, taken: _Taken | None) -> None:
        """The writer that waits for the disk, and for segments; it ends when nothing is left to write."""
        assert self._segment is not None
        try:
            while taken is not None or self._queue.waiting:
                if taken is None:
                    while self._offset + self._queue.waiting[0].record_bytes > self._room_ends:
                        await self._roll()
                    taken = self._take()
                buffers, size = taken
                file = self._segment.file
                seconds = file.write_now(self._offset, buffers, size)
                self._is_quick = seconds is not None
                if seconds is None:
                    begun = self._loop.time()
                    await file.write(self._offset, buffers, durable=True)
                    seconds = self._loop.time() - begun
                self._is_written(size, seconds)
                taken = None
            self._writing = False
            self._writer = None
        except StorageError as error:
            self._fail_with(error)
        except Exception as fault:
            self._fail_with(StorageError(f"the journal stopped on a defect of Boki: {fault!r}"))
            raise

    def _take(self) -> _Taken:
        """The oldest group leaves the queue, encoded; until now it could grow."""
        assert self._segment is not None
        group = self._flying = self._queue.waiting.popleft()
        number, self._next_number = self._next_number, self._next_number + 1
        if group.count == 1:
            return encode_single(self._segment.header, number, group.kinds[0], group.bodies[0], group.sums)
        return encode_group(self._segment.header, number, group.kinds, group.bodies, group.sums)

    def _is_written(self, size: int, seconds: float) -> None:
        """What `_take` gave is durable."""
        group, self._flying = self._flying, None
        assert group is not None
        self._write_seconds.observe(seconds)
        self._records_total.value += group.count
        self._bytes_total.value += size
        self._offset += size
        self.groups_written += 1
        self._queue.written(group)
        for done in group.done:
            done(None)

    def _begin_segment(self, segment: Segment, offset: int = PAGE_BYTES) -> None:
        self._segment = segment
        self._offset = offset
        self._room_ends = segment.header.segment_bytes // PAGE_BYTES * PAGE_BYTES - GROUP_HEADER_BYTES
        self.live.append(segment.header.generation)

    async def _roll(self) -> None:
        """Goes on in the next segment, waiting for it if the disk is full."""
        assert self._segment is not None
        following = await self._next_segment.take()
        full = self._segment
        self._begin_segment(following)
        self._next_segment.prepare(following.header.generation + 1)
        await full.file.close()

    def _used(self) -> float:
        """The part of the segment that is written."""
        assert self._segment is not None
        return self._offset / self._segment.header.segment_bytes

    def _fail_with(self, error: BokiError, *, quietly: bool = False) -> None:
        if not quietly:
            _log.error("the journal failed; nothing more is acknowledged", error=error)
        self._refusal = self._failure = error
        self._writer = None
        self.failed.set_result(error)
        groups = [self._flying] if self._flying is not None else []
        groups.extend(self._queue.waiting)
        self._flying = None
        self._queue.waiting.clear()
        for group in groups:
            for done in group.done:
                done(error)
