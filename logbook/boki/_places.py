"""Waiting for a place among the undecided records of a book.

Who finds the window full waits in line, and is numbered in the turn in which a place becomes free, who came first before all others:
numbers are given in the order of the calls. Who only waits for `submit` to find a place comes behind all these, and has one turn
to take it. A line is kept as long as somebody waits, or was promised a place that is not taken yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from boki._numbers import Numbers
from boki_common import limits
from boki_common.errors import BokiError, WindowFull

Take: TypeAlias = Callable[[int], None]
"""Called in somebody's turn, with how many places there are, at least one: numbers something. Raises BokiError."""
_Waiting: TypeAlias = deque[tuple[asyncio.Future[None], Take]]
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
        return numbers.free if line is None else line.places(numbers)

    async def take(self, numbers: Numbers, timeout: float | None, take: Take) -> None:
        """Calls `take`, at once or when it is its turn, and raises what it raises. Raises WindowFull: no place became free within
        `timeout` seconds. What `refuse` was called with."""
        free = self.of(numbers)
        if free > 0:
            take(free)
            return
        line = self.lines.setdefault(numbers, _Line())
        try:
            await line.wait(line.taking, timeout, take)
        finally:
            self._forget(numbers, line)

    async def ready(self, numbers: Numbers) -> None:
        """Waits once for a place that the caller may take in this turn, if nobody does before. Raises as `take`."""
        line = self.lines.setdefault(numbers, _Line())
        promised = 0

        def promise(_: int) -> None:
            nonlocal promised
            promised = 1
            line.promised += 1

        try:
            await line.wait(line.ready, None, promise)
        finally:
            line.promised -= promised
            asyncio.get_running_loop().call_soon(self.invite, numbers)  # it is taken by then, or free for the next

    def invite(self, numbers: Numbers) -> None:
        """Gives free places to those who wait longest."""
        line = self.lines.get(numbers)
        if line is not None:
            line.invite(numbers)
            self._forget(numbers, line)

    def refuse(self, error: BokiError) -> None:
        """Nobody gets a place: all who wait fail, each with an error of its own."""
        for line in self.lines.values():
            line.refuse(error)

    def _forget(self, numbers: Numbers, line: _Line) -> None:
        if not (line.taking or line.ready or line.promised) and self.lines.get(numbers) is line:
            del self.lines[numbers]


class _Line:
    """Who waits for a place of one book, to take it or to have it `ready`; places that were promised to these."""

    def __init__(self) -> None:
        self.taking: Final = _Waiting()
        self.ready: Final = _Waiting()
        self.promised = 0

    def places(self, numbers: Numbers) -> int:
        return 0 if self.taking else max(numbers.free - self.promised, 0)

    async def wait(self, waiting: _Waiting, timeout: float | None, take: Take) -> None:
        if len(waiting) >= WAITING_APPENDS:
            raise WindowFull(f"{len(waiting)} appends to this book wait for a place already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append((waiter, take))
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError as error:
            if waiter.cancelled():
                raise WindowFull(
                    f"no place in the window of {limits.WINDOW_RECORDS} undecided records within {timeout} s; "
                    "nothing was sent"
                ) from error
            waiter.result()  # it had its turn just before
        finally:
            if waiter.cancelled():
                with contextlib.suppress(ValueError):  # passed over already, between its cancelling and now
                    waiting.remove((waiter, take))
            else:
                waiter.exception()  # also of a call that was cancelled in its turn

    def invite(self, numbers: Numbers) -> None:
        for waiting in (self.taking, self.ready):
            while waiting and (free := numbers.free - self.promised) > 0:
                waiter, take = waiting.popleft()
                if not waiter.done():
                    try:
                        take(free)
                    except BokiError as error:
                        waiter.set_exception(error)
                    else:
                        waiter.set_result(None)

    def refuse(self, error: BokiError) -> None:
        for waiting in (self.taking, self.ready):
            while waiting:
                waiter, _ = waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(error.again())
