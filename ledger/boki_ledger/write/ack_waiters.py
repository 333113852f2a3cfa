"""Waiters for acknowledgements of one ledger: callbacks of every batch, and futures of single entries."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from boki_common.errors import BokiError


class AckWaiters:
    """See the module."""

    __slots__ = ("_ended", "_listeners", "_waiting")

    def __init__(self) -> None:
        self._listeners: list[tuple[Callable[[int], None], Callable[[BokiError], None]]] = []
        self._ended: list[Callable[[BokiError], None]] = []
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        """By entry, ascending."""

    def listen(self, acked: Callable[[int], None], failed: Callable[[BokiError], None]) -> None:
        self._listeners.append((acked, failed))

    def when_ended(self, callback: Callable[[BokiError], None]) -> None:
        self._ended.append(callback)

    def wait(self, entry_id: int) -> asyncio.Future[int]:
        """Is done when entries up to this one are acknowledged."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        at = len(waiting)
        while at and waiting[at - 1][0] > entry_id:
            at -= 1
        waiting.insert(at, (entry_id, future))
        return future

    def acked(self, last: int) -> None:
        """Entries up to `last` are acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry_id, future = waiting.popleft()
            if not future.done():
                future.set_result(entry_id)
        for acked, _ in self._listeners:
            acked(last)

    def ended(self, error: BokiError) -> None:
        """No more acknowledgements come: all waiters get the error."""
        listeners, self._ended = self._ended, []
        for ended in listeners:
            ended(error)
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error.again())

    def failed(self, error: BokiError) -> None:
        """The writer failed; `ended` was called before."""
        for _, failed in self._listeners:
            failed(error)
