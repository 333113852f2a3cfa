"""Callers that do not wait for their call: a web request that is cut off, an `asyncio.timeout`, a task group that ends.

Random numbers say which calls are cancelled, and when. A call that was cancelled happened once or not at all, as one whose append has no
answer: `CallCancelled` is an OutcomeUnknown, so programs judge both alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from boki_common.errors import OutcomeUnknown
from boki_common.runtime.ports import Random

T = TypeVar("T")

TURNS: Final = 48
"""Turns of the event loop after which a call is cancelled at most, where turns are counted."""
HALVES: Final = 11
"""A call is cancelled after its longest time or this number of halves of it at most."""
ENDS_WITHIN_S: Final = 60.0
CHECK_EVERY_S: Final = 0.25


class CallCancelled(OutcomeUnknown):
    """A call that its caller cancelled: it happened once or not at all."""


class Cancellations:
    """Cancels calls of a program while they are in flight.

    Attributes:
        cancelled: number of calls that were cancelled.
    """

    def __init__(self, random: Random, *, one_in: int = 5) -> None:
        """`one_in`: one of so many calls is cancelled, unless it ends before; 0: none is, and no number is drawn."""
        self.cancelled = 0
        self._random: Final = random
        self._one_in: Final = one_in

    async def call(self, call: Callable[[], Awaitable[T]], *, longest_s: float = 1.0) -> T:
        """Await a call and return its result, or cancel it at some turn of the event loop or after `longest_s` seconds at most.

        Raises:
            CallCancelled: the call was cancelled.
            AssertionError: the call returned as if it had not been cancelled.
        """
        if not self._one_in or self._random.below(self._one_in):
            return await call()
        how, seconds = self._random.below(3), longest_s / (1 << self._random.below(HALVES))
        if how == 0:
            return await self._timed(call, seconds)
        return await self._cut_off(call, seconds if how == 1 else None)

    async def _timed(self, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                result = await call()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.cancelled += 1
            raise CallCancelled(f"the call was cancelled by a timeout of {seconds:g} s") from None
        assert not deadline.expired(), "a call that was cancelled by a timeout returned as if it had not been cancelled"
        return result

    async def _cut_off(self, call: Callable[[], Awaitable[T]], seconds: float | None) -> T:
        """Cancel a task of its own after some seconds, or turns of the event loop; one of three is cancelled again."""

        async def awaited() -> T:
            return await call()

        task = asyncio.get_running_loop().create_task(awaited())
        try:
            if seconds is None:
                await self._turns(task)
            else:
                await asyncio.wait([task], timeout=seconds)
            asked = task.cancel()
            if asked and not self._random.below(3):
                await self._turns(task)
                task.cancel()
            await asyncio.wait([task])
        finally:
            if not task.done():  # the caller is cancelled
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            self.cancelled += 1
            raise CallCancelled("the call was cancelled")
        result = task.result()
        assert not asked, "a call that was cancelled returned as if it had not been cancelled"
        return result

    async def _turns(self, task: asyncio.Task[T]) -> None:
        for _ in range(self._random.below(TURNS)):
            if task.done():
                return
            await asyncio.sleep(0)


async def until(over: Callable[[], bool], life: Callable[[], Awaitable[None]]) -> None:
    """Run a life of a program until it ends, or cancel it when `over()` is true."""
    living = asyncio.ensure_future(life())
    try:
        while not over() and not living.done():
            await asyncio.wait([living], timeout=CHECK_EVERY_S)
        if living.done():
            living.result()
    finally:
        cut_off: asyncio.CancelledError | None = None
        while not living.done():
            living.cancel()
            try:
                await asyncio.wait([living])
            except asyncio.CancelledError as error:  # cancelled again, and so is the life
                cut_off = error
        if cut_off is not None:
            raise cut_off


async def all_ended(running: Callable[[], list[str]], *beginnings: str) -> None:
    """Wait until no task runs whose name begins so: parts that a worker or member leaves behind, such as heartbeats.

    Args:
        running: returns the names of the tasks of a process.
        beginnings: beginnings of the names of those that have to end.

    Raises:
        AssertionError: one runs on after a minute.
    """
    left: list[str] = []
    for _ in range(int(ENDS_WITHIN_S / CHECK_EVERY_S)):
        left = [name for name in running() if name.startswith(beginnings)]
        if not left:
            return
        await asyncio.sleep(CHECK_EVERY_S)
    raise AssertionError(f"tasks run on {ENDS_WITHIN_S:g} s after their owner was left: {left}")
