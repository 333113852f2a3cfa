"""Appends that are made at the same time share a record while the record before them is in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.errors import Conflict
from boki_common.limits import RECORD_TAGS
from boki_common.runtime import confined
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.records.contribution import Contribution, joined

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


class _Waits:
    """A caller that waits for its contribution to be in the log."""

    __slots__ = ("done", "part", "seen", "size")

    def __init__(self, part: Contribution, size: int, seen: int, done: asyncio.Future[Placed]) -> None:
        self.part = part
        self.size = size
        self.seen = seen
        self.done = done


class Together:
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
        self._waiting: deque[_Waits] = deque()
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
        one = _Waits(part, size, seen, loop.create_future())
        self._waiting.append(one)
        if self._running < self._in_flight:
            self._running += 1
            task = loop.create_task(self._send_all(), name="bokiqueue together")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await one.done

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._running -= 1

    def _next(self) -> list[_Waits]:
        """Return the first waiting callers, as many as a record takes."""
        chosen: list[_Waits] = []
        size = tags = expectations = 0
        while self._waiting:
            one = self._waiting[0]
            size, tags = size + one.size, tags + len(one.part.tags)
            expectations += len(one.part.expect)
            if chosen and (size > BYTES or max(tags, expectations) > RECORD_TAGS):
                break
            chosen.append(self._waiting.popleft())
        return chosen

    async def _send(self, several: Sequence[_Waits]) -> None:
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

    async def _apart(self, several: Sequence[_Waits], error: Conflict | AtomicTooLarge) -> None:
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


def _fails(one: _Waits, error: Exception) -> None:
    if not one.done.done():
        one.done.set_exception(error)
