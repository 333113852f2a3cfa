"""Pushing: a contribution to a record, alone or beside those of other libraries.

Each push, or batch, is one record. Pushes that a process makes while others of its pushes are in flight share a record
(`batcher`). The messages of a batch without a key go to one shard; of pushes that share records, `RUN` go to each
shard in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.errors import Conflict, InvalidArgument
from boki_common.limits import RECORD_TAGS
from boki_common.runtime import confined
from bokilib.append.log import Log, Tokens
from bokilib.errors import AtomicTooLarge
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined
from bokiqueue.model.events import Config, Id, Item, Pushed, shard_id
from bokiqueue.push.copies import DuplicateFinder, PushResult
from bokiqueue.sharding import RoundRobin, shard_of

BYTES: Final = 256 * 1024
"""The most bytes that share a record; the log refuses a single contribution that is too large."""


class Placed(NamedTuple):
    """A contribution that is in the log.

    Attributes:
        seqnum: the record's.
        before: contributions before it in that record.
    """

    seqnum: int
    before: Sequence[Contribution]


class _Waiter:
    """A caller that waits for its contribution to be in the log."""

    __slots__ = ("done", "part", "seen", "size")

    def __init__(self, part: Contribution, size: int, seen: int, done: asyncio.Future[Placed]) -> None:
        self.part = part
        self.size = size
        self.seen = seen
        self.done = done


class AppendBatcher:
    """A batcher of appends: contributions that are appended at the same time share a record while the record before them is in flight.

        seqnum = await batcher.append(part, size=100)

    - A record has a fixed cost, however little is in it. While nothing is in flight a contribution is sent at once.
      Contributions that come meanwhile are sent together, in order, as soon as fewer than `in_flight` records are in
      flight.
    - A record happens as a whole, or not at all. If it cannot happen because of the expectation of one contribution,
      that caller gets the error and the others are sent again: a record that lost is not in the log, and never will be.
    - Only contributions to one queue may share records: a record's storage is reclaimed when it is trimmed from all of
      its streams.
    """

    def __init__(self, log: Log, *, in_flight: int = 1, settle: bool = False) -> None:
        """Prepare the batcher. `settle` is that of `Log.append`, for all contributions."""
        self._log: Final = log
        self._in_flight: Final = in_flight
        self._settle: Final = settle
        self._waiting: deque[_Waiter] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waits(self) -> bool:
        """True if a contribution waits for its turn."""
        return bool(self._waiting)

    async def append(self, part: Contribution, *, size: int, seen: int = 0) -> int:
        """Append a contribution together with those of other callers, and return the seqnum of the record.

        Args:
            size: its approximate size in bytes.
            seen: as in `Log.append`.

        Raises:
            BokiError: as `Log.append`.
        """
        return (await self.placed(part, size=size, seen=seen)).seqnum

    async def placed(self, part: Contribution, *, size: int, seen: int = 0) -> Placed:
        """Append as `append` does; return also which contributions come before it in its record."""
        confined.check(confined.A_CLIENT)  # a record that is being sent for another caller would contain it
        loop = asyncio.get_running_loop()
        one = _Waiter(part, size, seen, loop.create_future())
        self._waiting.append(one)
        if self._running < self._in_flight:
            self._running += 1
            task = loop.create_task(self._send_all(), name="bokiqueue batcher")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await one.done

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._running -= 1

    def _next(self) -> list[_Waiter]:
        """Return the first waiting callers, as many as a record takes."""
        chosen: list[_Waiter] = []
        size = tags = expectations = 0
        while self._waiting:
            one = self._waiting[0]
            size, tags = size + one.size, tags + len(one.part.tags)
            expectations += len(one.part.expect)
            if chosen and (size > BYTES or max(tags, expectations) > RECORD_TAGS):
                break
            chosen.append(self._waiting.popleft())
        return chosen

    async def _send(self, several: Sequence[_Waiter]) -> None:
        several = [one for one in several if not one.done.done()]  # callers that were cancelled before this was sent
        if not several:
            return
        try:
            whole = joined(one.part for one in several) if len(several) > 1 else several[0].part
            seqnum = await self._log.append(whole, seen=max(one.seen for one in several), settle=self._settle)
        except (Conflict, AtomicTooLarge) as error:
            await self._apart(several, error)
        except BaseException as error:
            for one in several:
                if isinstance(error, Exception):
                    _fails(one, error)
                else:
                    one.done.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            parts = [one.part for one in several]
            for number, one in enumerate(several):
                if not one.done.done():
                    one.done.set_result(Placed(seqnum, parts[:number]))

    async def _apart(self, several: Sequence[_Waiter], error: Conflict | AtomicTooLarge) -> None:
        """Handle a record that is not in the log.

        Callers whose expectation failed get the error. The others are sent again, each in its own record if no
        expectation failed.
        """
        if len(several) == 1:
            _fails(several[0], error)
            return
        failed = [one for one in several if isinstance(error, Conflict) and self._log.moved(one.part.expect, error)]
        for one in failed:
            _fails(one, error)
        rest = [one for one in several if one not in failed]
        for some in [rest] if failed else [[one] for one in rest]:
            await self._send(some)


def _fails(one: _Waiter, error: Exception) -> None:
    if not one.done.done():
        one.done.set_exception(error)


IN_FLIGHT: Final = 2
"""Records of one producer in flight at once."""
RUN: Final = 16
"""Pushes in a row that go to one shard."""
AROUND: Final = 48
"""The approximate size of a message in bytes, beside key, body and deduplication id."""


class Producer:
    """Pushes messages into one queue.

    Invariant: `_run` is the shard of pushes that may go to any, and how many more go there.
    """

    def __init__(self, log: Log, config: Config, random: Tokens) -> None:
        self._config: Final = config
        self._turns: Final = RoundRobin(config.shards, int.from_bytes(random.token(4), "big"))
        self._log: Final = log
        self._origin: Final = log.origin(f"queue {config.queue!r}")
        self._batcher: Final = AppendBatcher(log, in_flight=IN_FLIGHT)
        self._copies: Final[dict[int, DuplicateFinder]] = {}
        self._run = (0, 0)

    def part(self, items: Sequence[Item]) -> Contribution:
        """Return the contribution that pushes these messages.

        Raises:
            InvalidArgument: there are none, or the queue is popped and they have a delay or a deduplication id.
        """
        if not items:
            raise InvalidArgument("expected one message at least, found none")
        if self._config.mode == "pop" and any(item.dedup or item.delay_ms for item in items):
            raise InvalidArgument("expected neither dedup_id= nor delay_s=: a queue that is popped has neither")
        by_shard: dict[int, list[Item]] = {}
        anywhere: int | None = None
        for item in items:
            shard = shard_of(self._config.shards, item.key, item.dedup)
            if shard is None:
                anywhere = shard = self._anywhere() if anywhere is None else anywhere
            by_shard.setdefault(shard, []).append(item)
        queue = self._config.queue
        return Contribution(
            tuple(tags.queue_messages(queue, shard) for shard in by_shard),
            {},
            tuple(Pushed(shard_id(queue, shard), tuple(chosen)) for shard, chosen in by_shard.items()),
            self._origin,
        )

    async def push(self, items: Sequence[Item]) -> PushResult:
        """Push messages, all or none, and return the seqnum of their record.

        Raises:
            AtomicTooLarge: they do not fit one record.
            AppendUnknown: they may be in the log.
            InvalidArgument: as `part`.
        """
        part = self.part(items)
        size = sum(AROUND + len(bytes(item.body)) + len(item.key or "") + len(item.dedup or "") for item in items)
        if len(items) > 1 or items[0].dedup is None:
            return PushResult(await self._batcher.append(part, size=size))
        placed = await self._batcher.placed(part, size=size)
        (event,) = part.events
        assert isinstance(event, Pushed)
        before = (one for other in placed.before for one in other.events)
        number = sum(len(one.items) for one in before if isinstance(one, Pushed) and one.id == event.id)
        return PushResult(placed.seqnum, await self._is_copy(items[0], Id(placed.seqnum, number)))

    async def _is_copy(self, item: Item, id: Id) -> bool | None:
        """Return True if a pushed message with a deduplication id is a duplicate; None if that could not be found out."""
        shard = shard_of(self._config.shards, item.key, item.dedup)
        assert shard is not None, "it has an id"
        if shard not in self._copies:
            self._copies[shard] = DuplicateFinder(self._log, self._config.queue, shard)
        return await self._copies[shard].is_copy(id)

    def _anywhere(self) -> int:
        """Return a shard for messages that may go to any. Pushes that share a record go to one, so that few members are woken."""
        shard, left = self._run
        if not left or not self._batcher.waits:
            shard, left = self._turns.take(), RUN
        self._run = shard, left - 1
        return shard
