"""What several have to append at the same time goes as one record, while one before it is on its way.

    together = Together(log)
    seqnum = await together.append(part, size=100)

- A record costs the log what it costs, however little is in it. So nobody waits for others where nothing is on its way; what comes
  meanwhile goes together, in order, as soon as there is room (`in_flight`).
- It happens as a whole, or not at all. If it cannot because of what one of them expected, that one gets the error, and the others go again:
  a record that lost is not in the log, and never will be.
- Only what is of one queue should share records: storage of a record goes when it was trimmed from all of its streams.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from boki_common.errors import Conflict
from boki_common.limits import RECORD_TAGS
from boki_common.runtime import confined
from bokilib.contribution import Contribution, joined
from bokilib.errors import AtomicTooLarge
from bokilib.log import Log

BYTES: Final = 256 * 1024
"""Of what goes together; a single part that is larger is the log's to refuse."""


class Placed(NamedTuple):
    """A part that is in the log. `before`: the parts that come before it in the record at `seqnum`."""

    seqnum: int
    before: Sequence[Contribution]


class _Waits:
    """A caller that waits for its part to be in the log."""

    __slots__ = ("done", "part", "seen", "size")

    def __init__(self, part: Contribution, size: int, seen: int, done: asyncio.Future[Placed]) -> None:
        self.part = part
        self.size = size
        self.seen = seen
        self.done = done


class Together:
    """See the module."""

    def __init__(self, log: Log, *, in_flight: int = 1, settle: bool = False) -> None:
        """`settle`: as of `Log.append`, for all."""
        self._log: Final = log
        self._in_flight: Final = in_flight
        self._settle: Final = settle
        self._waiting: deque[_Waits] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waits(self) -> bool:
        """Whether something waits for its turn."""
        return bool(self._waiting)

    async def append(self, part: Contribution, *, size: int, seen: int = 0) -> int:
        """Appends it with what others have; returns where. Raises as `Log.append`; `size`: its bytes, about."""
        return (await self.placed(part, size=size, seen=seen)).seqnum

    async def placed(self, part: Contribution, *, size: int, seen: int = 0) -> Placed:
        """As `append`; return also what comes before it in its record."""
        confined.check(confined.A_CLIENT)  # a record that is being sent for another caller would take it along
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
        """Those who come first, as many as a record takes."""
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
        several = [one for one in several if not one.done.done()]  # who gave up waiting before it was sent
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
        """Nothing is in the log. Whose expectation failed gets the error; the rest go again, each by itself if none failed."""
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
