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
- The next segment is prepared while the current one fills, slowly as long as nobody waits for it. A full disk only makes
  the journal wait for it.
- The queue is bounded in bytes and records: `append` raises Overloaded and has then taken nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from boki_bookie import metric_definitions
from boki_bookie.disk_pace import rest_s
from boki_bookie.journal_format import (
    GROUP_HEADER_BYTES,
    NO_SUMS,
    PAGE_BYTES,
    RECORD_HEADER_BYTES,
    SEGMENT_OVERHEAD_BYTES,
    encode_alone,
    encode_group,
)
from boki_bookie.journal_segments import Segment, SegmentFiles
from boki_bookie.settings import BookieSettings
from boki_common.errors import BokiError, ClosedError, DiskFull, InvalidArgument, Overloaded, StorageError
from boki_common.logs import get_logger
from boki_common.metrics import Metrics
from boki_common.runtime.ports import Buffer, DiskFile

FULL_DISK_RETRY_S: Final = 1.0
"""How soon a segment is tried again that a full disk refused, if no segment is recycled before."""
AHEAD: Final = 1.5
"""The next segment is filled so much faster than this one is used, or without rest."""
_KINDS: Final = tuple(bytes((kind,)) for kind in range(256))

Done = Callable[[BokiError | None], None]

_log = get_logger("bookie")


class JournalPosition(NamedTuple):
    """Everything appended from now on is in this group or later ones, in this segment or later ones."""

    generation: int
    group: int


class _Group:
    """Records that are durable together; columns, because there may be thousands a millisecond."""

    __slots__ = ("bodies", "count", "done", "kinds", "record_bytes", "sums")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.bodies: list[Buffer] = []
        self.count = 0
        self.record_bytes = 0
        """Bodies with their record headers."""
        self.done: list[Done] = []
        self.sums = NO_SUMS
        """crc32c of bodies, by their place in the group, where it is known."""


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
        self._record_bytes_limit = settings.journal_segment_bytes - SEGMENT_OVERHEAD_BYTES
        self._group_bytes_limit = min(settings.journal_group_bytes, self._record_bytes_limit)
        self._queue_bytes_limit = settings.journal_queue_bytes
        self._queue_records_limit = settings.journal_queue_records
        self._queued_bytes = 0
        self._queued_records = 0
        self._waiting: deque[_Group] = deque()
        self._flying: _Group | None = None
        self._loop = asyncio.get_running_loop()
        self._is_quick = False
        """Whether the last write was made at once."""
        self._writing = False
        """Whether somebody writes, or will at the end of this turn."""
        self._writer: asyncio.Task[None] | None = None
        """Who writes while the disk is not quick."""
        self._segment: Segment | None = None
        self._file: DiskFile
        """Of the segment."""
        self._offset = 0
        self._room_ends = 0
        """A group fits if its records, without its header, put at `_offset`, end up to here."""
        self._next_number = 0
        self._next_segment: asyncio.Task[Segment] | None = None
        self._recycled = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set when somebody waits for the segment that is being prepared."""
        self._closing = False
        self._refusal: BokiError | None = None
        """Why `append` takes nothing any more."""
        self._failure: BokiError | None = None
        """What `failed` tells."""
        self._write_seconds = metrics.histogram(metric_definitions.JOURNAL_WRITE)
        self._records_total = metrics.counter(metric_definitions.JOURNAL_RECORDS)
        self._bytes_total = metrics.counter(metric_definitions.JOURNAL_BYTES)

    async def start(self, generation: int, first_group: int, *, older: Sequence[int] = ()) -> None:
        """Prepares the first segment and begins; `older` ones wait for a checkpoint. Raises DiskFull, DiskFailed."""
        segment = await self._files.prepare(generation)
        self.live.extend(older)
        self._next_number = first_group
        self._begin_segment(segment)
        self._next_segment = asyncio.create_task(self._prepare(generation + 1), name="bookie journal segment")

    # -- appending

    def append(self, kind: int, body: Buffer) -> None:
        """Takes one record; it is durable once a later `when_durable` calls back.

        Raises:
            Overloaded: the queue is full. InvalidArgument: no segment can hold it. What failed the journal.
        """
        if self.append_run(kind, (body,), len(body)):
            return
        if self._refusal is not None:
            raise self._refusal
        if len(body) + RECORD_HEADER_BYTES > self._record_bytes_limit:
            raise InvalidArgument(
                f"expected an entry of at most {self._record_bytes_limit - RECORD_HEADER_BYTES} bytes, found {len(body)}; "
                "journal_segment_bytes bounds it"
            )
        raise Overloaded(
            f"{self._queued_bytes} bytes in {self._queued_records} records wait for the journal: try again later"
        )

    def append_run(self, kind: int, bodies: Sequence[Buffer], body_bytes: int, sums: Sequence[int] = ()) -> bool:
        """`append` for several at once, all or none; False where they have to go one by one, for whatever reason.

        With the crc32c of each body in `sums` they are not read for it.
        """
        count = len(bodies)
        size = body_bytes + RECORD_HEADER_BYTES * count
        if (
            self._refusal is not None
            or size > (self._record_bytes_limit if count == 1 else self._group_bytes_limit)
            or self._queued_bytes + size > self._queue_bytes_limit
            or self._queued_records + count > self._queue_records_limit
        ):
            return False
        group = self._waiting[-1] if self._waiting else None
        if group is None or group.record_bytes + size > self._group_bytes_limit:
            group = _Group()
            self._waiting.append(group)
            if not self._writing:  # it goes out when this turn of the loop is over
                self._writing = True
                if self._is_quick:
                    self._loop.call_soon(self._write_now)
                else:
                    self._write_in_task(None)
        if sums:
            group.sums = {**group.sums, **dict(enumerate(sums, group.count))}
        group.kinds += _KINDS[kind] * count
        group.bodies += bodies
        group.count += count
        group.record_bytes += size
        self._queued_bytes += size
        self._queued_records += count
        return True

    def when_durable(self, done: Done) -> None:
        """Calls `done` once all that was appended so far is durable: at once if it is."""
        if self._waiting:
            self._waiting[-1].done.append(done)
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
                future.set_exception(error)

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
            self._recycled.set()

    async def close(self) -> None:
        """Writes what was appended, then ends. Idempotent."""
        self._closing = True
        self._hurry.set()
        self._refusal = self._refusal or ClosedError("the journal is closed")
        self._recycled.set()
        if self._next_segment is not None and not self._waiting:
            self._next_segment.cancel()
        if self._waiting and self._writer is None:
            self._write_now()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        if self._failure is None:
            self._fail_with(ClosedError("the journal is closed"), quietly=True)
        if self._next_segment is not None:
            if not self._next_segment.cancelling():  # it tidies up after the first time
                self._next_segment.cancel()
            await asyncio.wait([self._next_segment])
            if not self._next_segment.cancelled() and self._next_segment.exception() is None:
                await self._next_segment.result().file.close()
        if self._segment is not None:
            await self._segment.file.close()

    # -- the writer

    def _write_now(self) -> None:
        """The writer while the disk is quick; what is not goes to the other one."""
        taken: _Taken | None = None
        try:
            while self._waiting and self._offset + self._waiting[0].record_bytes <= self._room_ends:
                taken = buffers, size = self._take()
                seconds = self._file.write_now(self._offset, buffers, size)
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
        if (taken is not None and self._failure is None) or self._waiting:
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
        try:
            while taken is not None or self._waiting:
                if taken is None:
                    while self._offset + self._waiting[0].record_bytes > self._room_ends:
                        await self._roll()
                    taken = self._take()
                buffers, size = taken
                seconds = self._file.write_now(self._offset, buffers, size)
                self._is_quick = seconds is not None
                if seconds is None:
                    begun = self._loop.time()
                    await self._file.write(self._offset, buffers, durable=True)
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
        group = self._flying = self._waiting.popleft()
        number, self._next_number = self._next_number, self._next_number + 1
        if group.count == 1:
            return encode_alone(self._segment.header, number, group.kinds[0], group.bodies[0], group.sums)
        return encode_group(self._segment.header, number, group.kinds, group.bodies, group.sums)

    def _is_written(self, size: int, seconds: float) -> None:
        """What `_take` gave is durable."""
        group, self._flying = self._flying, None
        assert group is not None
        count = group.count
        self._write_seconds.observe(seconds)
        self._records_total.value += count
        self._bytes_total.value += size
        self._offset += size
        self.groups_written += 1
        self._queued_bytes -= group.record_bytes
        self._queued_records -= count
        for done in group.done:
            done(None)

    def _begin_segment(self, segment: Segment) -> None:
        self._segment = segment
        self._file = segment.file
        self._offset = PAGE_BYTES
        self._room_ends = segment.header.segment_bytes // PAGE_BYTES * PAGE_BYTES - GROUP_HEADER_BYTES
        self.live.append(segment.header.generation)

    async def _roll(self) -> None:
        """Goes on in the next segment, waiting for it if the disk is full."""
        assert self._segment is not None and self._next_segment is not None
        self._hurry.set()
        following = await asyncio.shield(self._next_segment)
        full = self._segment
        self._begin_segment(following)
        self._next_segment = asyncio.create_task(
            self._prepare(following.header.generation + 1), name="bookie journal segment"
        )
        await full.file.close()

    async def _prepare(self, generation: int) -> Segment:
        self._hurry.clear()
        while True:
            self._recycled.clear()
            try:
                return await self._files.prepare(generation, rest=self._rest)
            except DiskFull as error:
                if self._closing:
                    raise
                _log.warning("no space for the next journal segment", generation=generation, error=error)
            try:
                async with asyncio.timeout(FULL_DISK_RETRY_S):
                    await self._recycled.wait()
            except TimeoutError:
                continue

    async def _rest(self, write_s: float, filled: float) -> None:
        """Leaves the disk to groups and checkpoints for a while, if the next segment will be there in time."""
        assert self._segment is not None
        used = self._offset / self._segment.header.segment_bytes
        seconds = rest_s(write_s)
        if seconds and filled > AHEAD * used and not self._hurry.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()
            except TimeoutError:
                return  # rested

    def _fail_with(self, error: BokiError, *, quietly: bool = False) -> None:
        if not quietly:
            _log.error("the journal failed; nothing more is acknowledged", error=error)
        self._refusal = self._failure = error
        self._writer = None
        self.failed.set_result(error)
        groups = [self._flying] if self._flying is not None else []
        groups.extend(self._waiting)
        self._flying = None
        self._waiting.clear()
        for group in groups:
            for done in group.done:
                done(error)
