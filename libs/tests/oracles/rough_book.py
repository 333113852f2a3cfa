"""A book of one process that lives rough: answers come late, followers lag, outcomes are unknown, and the process dies or is cut off.

Everything is drawn from the run's random numbers and happens in virtual time, so a seed is one run. `FaultyBook` counts operations and
makes a dead process harmless; here faults come by chance in the place of one planned fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple, overload

import boki
from bokilib.ports import BookPort, CursorPort, Expect, RecordsPort, Tag, TicketPort
from bokilib.testing import Died, FaultyBook
from bokilib.testing._faults import FaultKind

STOPPED_S: Final = (0.5, 4.0, 20.0, 45.0)
"""Lengths of a stop (SIGSTOP, or a network that is away): shorter and longer than any lease of the runs."""


class Weather(NamedTuple):
    """How rough the life of a process is.

    Attributes:
        slow: share of operations that take up to `slow_s` seconds.
        lag_s: records reach a follower up to so many seconds late.
        unknown: share of appends whose outcome the caller does not learn; half of them did not happen.
    """

    slow: float = 0.0
    slow_s: float = 0.0
    lag_s: float = 0.0
    unknown: float = 0.0


CALM: Final = Weather()
WEATHERS: Final = (
    CALM,
    CALM,
    Weather(slow=0.2, slow_s=0.5, lag_s=0.5),
    Weather(unknown=0.05),
    Weather(slow=0.1, slow_s=2.0, lag_s=5.0, unknown=0.03),
)


class RoughBook(FaultyBook):
    """A book of a process that lives rough. `die` ends the process; `stop` holds up its operations for a time."""

    def __init__(self, book: BookPort, chances: random.Random, weather: Weather) -> None:
        super().__init__(book)
        self._chances: Final = chances
        self._weather: Final = weather
        self._stopped_until_s = 0.0

    def stop(self, seconds: float) -> None:
        """Hold up every operation that begins within the next `seconds`, and every record that arrives."""
        self._stopped_until_s = asyncio.get_running_loop().time() + seconds

    @property
    def stopped(self) -> bool:
        """True while operations are held up by `stop`."""
        return asyncio.get_running_loop().time() < self._stopped_until_s

    async def delay(self, longest_s: float) -> None:
        """Wait as an answer or a record does in this weather."""
        pause = self._chances.random() * longest_s
        until = max(self._stopped_until_s, asyncio.get_running_loop().time() + pause)
        if until > asyncio.get_running_loop().time():
            await asyncio.sleep(until - asyncio.get_running_loop().time())

    def _count(self, what: str) -> FaultKind | None:
        super()._count("")
        if what.startswith("append") and self._chances.random() < self._weather.unknown:
            return self._chances.choice(("lost", "never"))
        return None

    def submit(self, data: bytes, *, tags: Sequence[Tag] = (), expect: Expect | None = None) -> TicketPort:
        ticket = super().submit(data, tags=tags, expect=expect)
        self._tickets.clear()  # runs are long; nothing here waits for what a dead process sent
        self.appends.clear()
        self.operations.clear()
        return _Late(self, ticket)

    async def _do(self, what: str, operation: Awaitable[Any]) -> Any:
        try:
            await self.delay(self._weather.slow_s if self._chances.random() < self._weather.slow else 0.0)
        except BaseException:
            close = getattr(operation, "close", None)
            if close is not None:
                close()
            raise
        return await super()._do(what, operation)

    @overload
    def read(
        self, tag: Tag | None = None, *, start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> RecordsPort: ...

    @overload
    def read(
        self, *, tags: Sequence[Tag], start: int | None = None, stop: int | None = None, follow: bool = False
    ) -> CursorPort: ...

    def read(
        self,
        tag: Tag | None = None,
        *,
        tags: Sequence[Tag] | None = None,
        start: int | None = None,
        stop: int | None = None,
        follow: bool = False,
    ) -> RecordsPort | CursorPort:
        if tags is None:
            return super().read(tag, start=start, stop=stop, follow=follow)
        cursor = self._book.read(tags=tags, start=start, stop=stop, follow=follow)
        return _LateCursor(self, cursor) if follow and isinstance(cursor, boki.Cursor) else cursor


class _Late:
    """A ticket whose answer may come late."""

    def __init__(self, book: RoughBook, ticket: TicketPort) -> None:
        self._book = book
        self._ticket = ticket

    def __await__(self) -> Any:
        return self._wait().__await__()

    async def _wait(self) -> int:
        try:
            return await self._ticket
        finally:
            weather = self._book._weather
            await self._book.delay(weather.slow_s if self._book._chances.random() < weather.slow else 0.0)

    async def outcome(self, *, settle: bool = False) -> boki.Outcome:
        return await self._ticket.outcome(settle=settle)


class _LateCursor:
    """A follower that lags. A record that is on its way lies in the SDK's cursor, which knows that it was not given yet."""

    def __init__(self, book: RoughBook, cursor: boki.Cursor) -> None:
        self._book = book
        self._cursor = cursor

    @property
    def position(self) -> int:
        return self._cursor.position

    @property
    def ready(self) -> bool:
        return self._cursor.ready

    def current(self, *, within_s: float) -> bool:
        return self._cursor.current(within_s=within_s)

    def refresh(self) -> None:
        self._cursor.refresh()

    def add(self, tag: Tag, start: int | None = None) -> None:
        self._cursor.add(tag, start)

    def discard(self, tag: Tag) -> None:
        self._cursor.discard(tag)

    def __aiter__(self) -> _LateCursor:
        return self

    async def __anext__(self) -> boki.Record | boki.Gap:
        while True:
            if not self._cursor.ready and not await self._cursor.fill():
                raise StopAsyncIteration
            await self._book.delay(self._book._weather.lag_s)
            if self._book.dead:
                raise Died
            if self._cursor.ready:  # else its tag was discarded meanwhile
                return self._cursor.pop()
