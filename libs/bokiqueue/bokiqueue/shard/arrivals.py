"""Reading a shard's messages into its owner's memory: rewritten old messages first, then the pushed ones, up to a limit.

The owner reads each record once, in order. If a record was trimmed because it was rewritten meanwhile, the owner reads
its newer copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import boki
from boki_common.errors import BokiError
from boki_common.logs import get_logger
from bokilib.append.log import Log, Read
from bokilib.follow.follower import Follower
from bokilib.pauses import pauses
from bokilib.records import tags
from bokiqueue.checkpoint import old_messages
from bokiqueue.model.delivery_rules import READ_AHEAD, DeliverySchedule
from bokiqueue.model.events import PICKER, Id, Item, items_of, shard_id

PAST: Final = 1 << 40
"""Larger than the number of any message in a record."""

log = get_logger(__name__)


class ArrivalReader:
    """The reader of one shard's messages. See the module.

    Invariant: every unfinished message up to `deliveries.reached` is in memory.
    """

    def __init__(
        self,
        opened: Log,
        queue: str,
        shard: int,
        schedule: DeliverySchedule,
        follower: Follower,
        came: Callable[[boki.Record | None], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Prepare the reader; `read_on` starts it.

        Args:
            came: called after new messages are in memory, with the record that was read, if it was a single one.
            failed: called with an error that is no BokiError, a defect, after which nothing more is read.
        """
        self._log = opened
        self._queue = queue
        self._shard = shard
        self._tag = tags.queue_messages(queue, shard)
        self._about = shard_id(queue, shard)
        self._place = {"queue": queue, "shard": shard}
        """The facts by which log lines name the shard."""
        self._schedule = schedule
        self._follower = follower
        self._came = came
        self._failed = failed
        self._open = True
        self._following = False
        self._loading: asyncio.Task[None] | None = None
        self._covers = 0
        """`covers` of the newest set of rewritten messages that was read completely."""

    def read_on(self) -> None:
        """Read more messages if there is room in memory for them."""
        if self._open and not self._following and self._loading is None and self._schedule.wants_more(READ_AHEAD):
            self._loading = asyncio.get_running_loop().create_task(self._load_all(), name="bokiqueue arrivals")

    def close(self) -> None:
        """Stop reading."""
        self._open = False
        self._stop_following()
        if self._loading is not None:
            self._loading.cancel()

    # -- rewritten messages

    async def _load_all(self) -> None:
        """Read the rest of the newest set of rewritten messages, then follow the pushed ones."""
        pause = pauses()
        while self._open:
            try:
                whole = await self._load()
            except boki.Trimmed:  # a newer set replaced it
                continue
            except BokiError as error:
                if not error.retryable:
                    self._loading = None
                    self._log_unreadable(error)
                    return
                await asyncio.sleep(pause.next())
                continue
            except Exception as error:  # noqa: BLE001 - no caller awaits this task: the member ends aloud
                self._loading = None
                self._failed(error)
                return
            self._loading = None
            if whole and self._open:
                self._follow()
            return

    def _log_unreadable(self, error: BokiError) -> None:
        log.error("rewritten messages cannot be read: the shard delivers nothing more", **self._place, error=error)

    async def _load(self) -> bool:
        """Read messages of the newest set until it ends or memory is full. Return True if the whole set is in memory."""
        snapshot = await self._log.book.now()
        found = await old_messages.newest(self._log, self._queue, self._shard, snapshot)
        record: list[tuple[int, Item]] = []
        seqnum = pushed_ms = 0
        async for one in old_messages.messages(
            self._log, self._queue, self._shard, found, Id(self._schedule.reached, PAST)
        ):
            if record and one.id.seqnum != seqnum:
                self._schedule.offer_some(seqnum, pushed_ms, record)
                record = []
                self._came(None)
                if self._schedule.full(READ_AHEAD):
                    return False
            seqnum, pushed_ms = one.id.seqnum, one.pushed_ms
            record.append((one.id.number, one.item))
        if record:
            self._schedule.offer_some(seqnum, pushed_ms, record)
            self._came(None)
        self._covers = max(self._covers, found.covers)
        self._schedule.reaches(found.covers)
        return not self._schedule.full(READ_AHEAD)

    # -- pushed messages

    def _follow(self) -> None:
        self._following = True
        self._follower.add(self._tag, self._schedule.reached + 1, self._pushed)

    def _stop_following(self) -> None:
        if self._following:
            self._following = False
            self._follower.discard(self._tag)

    def _pushed(self, item: Read | boki.Gap | BokiError) -> None:
        if isinstance(item, boki.Gap):
            self._missing(item)
            return
        record: boki.Record | None = None
        try:
            if isinstance(item, BokiError):
                raise item
            items = items_of(PICKER.of(item.record.seqnum, item.envelope, about=self._about))
            self._schedule.offer(item.record.seqnum, item.record.time_ms, items)
            record = item.record
        except BokiError as error:
            seqnum = error.facts["seqnum"]
            if self._schedule.passes(seqnum):
                log.error("record of messages cannot be opened: it is kept", **self._place, record=seqnum, error=error)
        if self._schedule.full(READ_AHEAD):
            self._stop_following()
        self._came(record)

    def _missing(self, gap: boki.Gap) -> None:
        """Handle a gap: trimmed messages are finished, or are in a newer set, which is read then."""
        if gap.kind is not boki.GapKind.TRIMMED:
            log.error("messages are lost", **self._place, first=gap.first, last=gap.last)
        elif gap.last > max(self._covers, self._schedule.reached):
            self._covers = gap.last
            self._stop_following()
            self.read_on()
