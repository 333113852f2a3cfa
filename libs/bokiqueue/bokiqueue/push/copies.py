"""Verdicts on pushed messages with a deduplication id: the first one of its id within the queue's window, or a duplicate that is dropped.

The owner of a shard decides this when it folds the shard's messages (`DedupWindow`), perhaps long after the push. A producer
that wants to know at once folds the same records in the same order with the same window, from the newest checkpoint of
the group that was registered first. So it reaches the same verdict, and appends nothing.

- Only pushes with an id pay for this: they read the records pushed to their shard since the last read, which waiting
  pushes share.
- A verdict is best effort: None if the records cannot be read, or if more than `LOOK_RECORDS` would have to be.
- It ignores groups that were registered after the first message: such a group handles the duplicate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import boki
from boki_common.errors import BokiError
from bokilib.append.batcher import Driver
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.dedup import DedupWindow
from bokiqueue import settings
from bokiqueue.checkpoint.checkpointing import stream
from bokiqueue.checkpoint.old_messages import messages, newest
from bokiqueue.model.events import PICKER, Id, consumer_id, items_of, shard_id
from bokiqueue.model.shard_state import Progress, fold_group

LOOK_RECORDS: Final = 8_192
"""Records that are read for one verdict; the next verdict continues there."""
KEPT: Final = 4_096
"""Verdicts on messages of this process that are kept until its pushes ask for them; the oldest are dropped."""


class PushResult(int):
    """The seqnum of the record of a push.

    Attributes:
        duplicate: True if the message was dropped because one with its `dedup_id` was pushed within the queue's window;
            None if that could not be found out; False without a `dedup_id`.
    """

    duplicate: bool | None

    def __new__(cls, seqnum: int, duplicate: bool | None = False) -> PushResult:
        made = super().__new__(cls, seqnum)
        made.duplicate = duplicate
        return made

    def __repr__(self) -> str:
        return f"PushResult({int(self)}, duplicate={self.duplicate})"


class DuplicateFinder:
    """The verdicts of one shard, in one event loop.

    Invariant: one task reads at a time.
    """

    def __init__(self, log: Log, queue: str, shard: int) -> None:
        self._log = log
        self._queue = queue
        self._shard = shard
        self._window: DedupWindow | None = None
        self._read = 0
        self._dropped: frozenset[int] = frozenset()
        self._verdicts: dict[Id, bool] = {}
        self._waiting: deque[tuple[Id, asyncio.Future[bool | None]]] = deque()
        self._reader: Final = Driver(self._read_all, "bokiqueue copies")

    async def is_copy(self, id: Id) -> bool | None:
        """Return True if a message that this process pushed is a duplicate; None if that could not be found out."""
        verdict: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((id, verdict))
        self._reader.wake()
        return await verdict

    async def _read_all(self) -> None:
        while self._waiting:
            several, self._waiting = self._waiting, deque()
            try:
                await self._read_up_to(max(id.seqnum for id, _ in several))
            except BokiError:  # the pushes are in the log anyway
                pass
            finally:
                for id, verdict in several:
                    found = self._verdicts.pop(id, None)
                    if not verdict.done():
                        verdict.set_result(found)

    async def _read_up_to(self, last: int) -> None:
        if self._window is None:
            self._window = await self._load()
        if last > self._read and not await self._fold(self._window, last):
            self._window = await self._load()  # unread records are trimmed: a newer checkpoint or set has them
            await self._fold(self._window, last)

    async def _load(self) -> DedupWindow:
        """Return the window as of the newest checkpoint and the messages that were rewritten since."""
        config = (await settings.existing(self._log, self._queue)).config
        snapshot = await self._log.book.now()
        self._dropped = frozenset(config.dropped)
        progress = Progress(1, DedupWindow(config.dedup_ms))
        if config.groups:
            group = min(config.groups, key=lambda one: (config.window_from(one), one))
            tag = tags.queue_consumer(self._queue, self._shard, group)
            found = await stream(self._log, consumer_id(self._queue, self._shard, group), tag, snapshot)
            progress = fold_group(found.rows, config, group).progress
        old = await newest(self._log, self._queue, self._shard, snapshot)
        async for one in messages(self._log, self._queue, self._shard, old, Id(progress.read + 1, -1)):
            if one.item.dedup is not None and one.id.seqnum not in self._dropped:
                progress.window.twice(one.item.dedup, one.pushed_ms)
        self._read = max(progress.read, old.covers)
        return progress.window

    async def _fold(self, window: DedupWindow, last: int) -> bool:
        """Fold records above `_read` up to `last` or `LOOK_RECORDS` of them. Return False if some are trimmed."""
        tag, about = tags.queue_messages(self._queue, self._shard), shard_id(self._queue, self._shard)
        count = 0
        async for item in self._log.book.read(tag, start=self._read + 1, stop=last + 1):
            if isinstance(item, boki.Gap):
                if item.kind is not boki.GapKind.TRIMMED:
                    raise item.error()
                return False
            if item.seqnum not in self._dropped:
                envelope = await self._log.open(item)
                items = items_of(PICKER.of(item.seqnum, envelope, about=about))
                for number, one in enumerate(items):
                    if one.dedup is not None:
                        copy = window.twice(one.dedup, item.time_ms)
                        if envelope.by == self._log.by:
                            self._keep(Id(item.seqnum, number), copy)
            self._read = item.seqnum
            count += 1
            if count >= LOOK_RECORDS:
                break
        return True

    def _keep(self, id: Id, copy: bool) -> None:
        self._verdicts[id] = copy
        if len(self._verdicts) > KEPT:
            del self._verdicts[next(iter(self._verdicts))]
