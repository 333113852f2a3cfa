"""Pushing: a contribution to a record, alone or beside those of other libraries.

Each push, or batch, is one record. Pushes that a process makes while others of its pushes are in flight share a record
(`AppendBatcher`). The messages of a batch without a key go to one shard; of pushes that share records, `RUN` go to each
shard in turn.

The record of a push expects the settings by which the push chose its shards. If they were changed, the push is made again by the new
ones: a queue that was deleted and made again may have other shards. A contribution expects nothing, since it must not make the record of
another library lose. What goes astray in it is moved (`strays`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from boki_common.errors import Conflict, InvalidArgument
from bokilib.append.batcher import AppendBatcher
from bokilib.append.log import Log, Tokens
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokiqueue import settings
from bokiqueue.model.events import Config, Id, Item, Pushed, PushedToGroup, for_group, shard_id
from bokiqueue.push.copies import DuplicateFinder, PushResult
from bokiqueue.sharding import RoundRobin, shard_of

IN_FLIGHT: Final = 2
"""Records of one producer in flight at once."""
RUN: Final = 16
"""Pushes in a row that go to one shard."""
AROUND: Final = 48
"""The approximate size of a message in bytes, beside key, body and deduplication id."""


class Producer:
    """Pushes messages into one queue.

    Invariant: `_run` is the shard of pushes that may go to any, and how many more go there.

    Attributes:
        config: the settings of the queue, as far as this producer has read them.
    """

    def __init__(self, log: Log, config: Config, random: Tokens, known: int = 0) -> None:
        """Prepare it.

        Args:
            known: the seqnum as of which these settings are the newest, for `push`.
        """
        self.config = config
        self._known = known
        self._reading: Final = asyncio.Lock()
        self._start: Final = int.from_bytes(random.token(4), "big")
        self._turns = RoundRobin(config.shards, self._start)
        self._log: Final = log
        self._origin: Final = log.origin(f"queue {config.queue!r}")
        self._batcher: Final = AppendBatcher(log, "bokiqueue batcher", in_flight=IN_FLIGHT)
        self._copies: dict[int, DuplicateFinder] = {}
        self._run = (0, 0)

    def follow(self, config: Config, known: int) -> None:
        """Push by these settings from now on, unless newer ones are known. `known`: as of which place they are the newest."""
        if known < self._known:
            return
        if config.shards != self.config.shards or config.made != self.config.made:
            self._turns, self._run, self._copies = RoundRobin(config.shards, self._start), (0, 0), {}
        self.config, self._known = config, known

    def part(self, items: Sequence[Item], group: str = "") -> Contribution:
        """Return the contribution that pushes these messages.

        Args:
            group: the only group that gets them; "" for all.

        Raises:
            InvalidArgument: there are none, or the queue is popped and they have a delay or a deduplication id.
        """
        if not items:
            raise InvalidArgument("expected one message at least, found none")
        if self.config.mode == "pop" and any(item.dedup or item.delay_ms for item in items):
            raise InvalidArgument("expected neither dedup_id= nor delay_s=: a queue that is popped has neither")
        by_shard: dict[int, list[Item]] = {}
        anywhere: int | None = None
        for item in items:
            shard = shard_of(self.config.shards, item.key, item.dedup)
            if shard is None:
                anywhere = shard = self._anywhere() if anywhere is None else anywhere
            by_shard.setdefault(shard, []).append(item)
        queue = self.config.queue
        return Contribution(
            tuple(tags.queue_messages(queue, shard) for shard in by_shard),
            {},
            tuple(_event(shard_id(queue, shard), chosen, group) for shard, chosen in by_shard.items()),
            self._origin,
        )

    async def push(self, items: Sequence[Item]) -> PushResult:
        """Push messages, all or none, and return the seqnum of their record.

        Raises:
            AtomicTooLarge: they do not fit one record.
            AppendUnknown: they may be in the log.
            InvalidArgument: as `part`.
        """
        size = sum(AROUND + len(bytes(item.body)) + len(item.key or "") + len(item.dedup or "") for item in items)
        tag = tags.queue_config(self.config.queue)
        while True:
            part, known = self.part(items), self._known
            expect = {tag: known}
            try:
                placed = await self._batcher.append(msgspec.structs.replace(part, expect=expect), size=size)
                break
            except Conflict as conflict:
                if not self._log.moved(expect, conflict):
                    raise
                await self._read_settings(known)
        if len(items) > 1 or items[0].dedup is None:
            return PushResult(placed.seqnum)
        (event,) = part.events
        assert isinstance(event, Pushed)
        before = (one for other in placed.before for one in other.events)
        number = sum(len(one.items) for one in before if isinstance(one, Pushed) and one.id == event.id)
        return PushResult(placed.seqnum, await self._is_copy(event, Id(placed.seqnum, number)))

    async def _read_settings(self, known: int) -> None:
        """Read the settings again, unless another push did since they were `known`.

        Messages of a deleted queue wait for one that is made later: it finds them in the streams of the shards that the deleted one had.
        """
        async with self._reading:
            if self._known != known:
                return
            newest = await settings.openable_at(self._log, self.config.queue)
            if isinstance(newest, int):
                self._known = newest  # settings of a later version hold no push back
                return
            found, snapshot = newest
            self._known = snapshot
            if found is not None:
                self.follow(found.config, snapshot)

    async def _is_copy(self, pushed: Pushed, id: Id) -> bool | None:
        """Return True if a pushed message with a deduplication id is a duplicate; None if that could not be found out."""
        shard = int(pushed.id.rpartition("/")[2])
        if shard not in self._copies:
            self._copies[shard] = DuplicateFinder(self._log, self.config.queue, shard)
        return await self._copies[shard].is_copy(id)

    def _anywhere(self) -> int:
        """Return a shard for messages that may go to any. Pushes that share a record go to one, so that few members are woken."""
        shard, left = self._run
        if not left or not self._batcher.waits:
            shard, left = self._turns.take(), RUN
        self._run = shard, left - 1
        return shard


def _event(id: str, items: Sequence[Item], group: str) -> Pushed:
    """Return the event that pushes messages to a shard, for one group alone or for all."""
    if not group:
        return Pushed(id, tuple(items))
    return PushedToGroup(id, tuple(for_group(one, group) for one in items))
