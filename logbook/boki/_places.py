"""Waiting for a place among the undecided records of a book.

Who finds the window full waits in line: a freed place is given to the longest waiting call and to nobody else. Who only waits for
`submit` to find a place comes behind all these, and has one turn to take it. A line is kept as long as somebody waits, or was given
a place that is not taken yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, TypeAlias

from boki._numbers import Numbers
from boki_common import limits
from boki_common.errors import BokiError, WindowFull

_Waiting: TypeAlias = deque[asyncio.Future[None]]
WAITING_APPENDS: Final = 65_536
"""Calls that may wait for a place in the window of one book."""


class Places:
    """The lines of all books of a client. Invariant: while somebody waits, no place is free that was not promised."""

    def __init__(self) -> None:
        self.lines: Final[dict[Numbers, _Line]] = {}
        """Of books of which somebody waits."""

    def of(self, numbers: Numbers) -> int:
        """Numbers that may be given, and that nobody waits for."""
        line = self.lines.get(numbers)
        return numbers.free if line is None else line.places(numbers.free)

    async def take(self, numbers: Numbers, timeout: float | None) -> int:
        """Waits for a place, which the caller takes before anybody else has a turn. Returns how many there are, with this one.
        Raises WindowFull: none became free within `timeout` seconds; nothing was numbered. What `refuse` was called with."""
        free = self.of(numbers)
        if free > 0:
            return free
        line = self.lines.setdefault(numbers, _Line())
        try:
            await line.wait(line.taking, timeout)
        except BaseException:
            self.invite(numbers)
            raise
        self._forget(numbers, line)
        return max(numbers.free - line.promised, 1)

    async def ready(self, numbers: Numbers) -> None:
        """Waits once for a place that the caller may take in this turn, if nobody does before. Raises as `take`."""
        line = self.lines.setdefault(numbers, _Line())
        try:
            await line.wait(line.ready, None)
        finally:
            asyncio.get_running_loop().call_soon(self.invite, numbers)  # it is taken by then, or free for the next

    def invite(self, numbers: Numbers) -> None:
        """Gives free places to those who wait longest."""
        line = self.lines.get(numbers)
        if line is not None:
            line.invite(numbers.free)
            self._forget(numbers, line)

    def refuse(self, error: BokiError) -> None:
        """Nobody gets a place: all who wait fail, each with an error of its own."""
        for line in self.lines.values():
            line.refuse(error)

    def _forget(self, numbers: Numbers, line: _Line) -> None:
        if line.over and self.lines.get(numbers) is line:
            del self.lines[numbers]


class _Line:
    """Who waits for a place of one book, to take it or to have it `ready`; places that were promised and are not taken yet."""

    def __init__(self) -> None:
        self.taking: Final = _Waiting()
        self.ready: Final = _Waiting()
        self.promised = 0

    @property
    def over(self) -> bool:
        return not self.taking and not self.ready and not self.promised

    def places(self, free: int) -> int:
        return 0 if self.taking else max(free - self.promised, 0)

    async def wait(self, waiting: _Waiting, timeout: float | None) -> None:
        if len(waiting) >= WAITING_APPENDS:
            raise WindowFull(f"{len(waiting)} appends to this book wait for a place already")
        waiter = asyncio.get_running_loop().create_future()
        waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError as error:
            self._leave(waiting, waiter)
            raise WindowFull(
                f"no place in the window of {limits.WINDOW_RECORDS} undecided records within {timeout} s; "
                "nothing was sent"
            ) from error
        except asyncio.CancelledError:
            self._leave(waiting, waiter)
            raise
        self.promised -= 1

    def invite(self, free: int) -> None:
        free -= self.promised
        for waiting in (self.taking, self.ready):
            while free > 0 and waiting:
                waiter = waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    self.promised += 1
                    free -= 1

    def refuse(self, error: BokiError) -> None:
        for waiting in (self.taking, self.ready):
            while waiting:
                waiter = waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(error.again())

    def _leave(self, waiting: _Waiting, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            if waiter.exception() is None:  # else nothing was promised: it was refused
                self.promised -= 1
        elif waiter in waiting:  # else it was passed over already, between its cancelling and now
            waiting.remove(waiter)
