"""Locks that the code of a workflow holds or waits for. It does not know the log.

A workflow requests one lock at a time: while it waits for one, its other tasks wait for their turn. Otherwise a workflow that holds no lock
could be part of a circle of waits (`lock_rules`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple


class TakeLock(NamedTuple):
    """The command to acquire a lock, once all earlier effects are in the log.

    Attributes:
        try_: it fails instead of waiting.
        waits_for_any: it may wait for older workflows too.
        again: an earlier attempt lost to another workflow.
    """

    key: str
    name: str
    shared: bool
    try_: bool
    waits_for_any: bool
    again: bool = False


class LockEntry(NamedTuple):
    """An entry of this workflow in a lock queue. `number`: the seqnum of its record; 0 until the append is acknowledged."""

    key: str
    name: str
    number: int


class LockEntries:
    """The lock queue entries of one workflow; see the module.

    Attributes:
        queued: entries by key that are appended, or being appended, and not released; oldest first.
    """

    def __init__(self, *, child: bool) -> None:
        self.queued: Final[dict[str, LockEntry]] = {}
        self._child: Final = child
        self._asking = False
        self._turns: Final[deque[asyncio.Future[None]]] = deque()

    @property
    def waits_for_any(self) -> bool:
        """True if the next lock may wait for any workflow."""
        return not self._child and not self.queued

    def placed(self, key: str, number: int) -> bool:
        """Note the record of an entry. Return False if the entry was released meanwhile."""
        entry = self.queued.get(key)
        if entry is not None:
            self.queued[key] = entry._replace(number=number)
        return entry is not None

    async def turn(self) -> None:
        """Wait until no other task of this workflow requests a lock. `done` must follow."""
        if self._asking:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self.done()
                raise
        self._asking = True

    def done(self) -> None:
        """End the turn of this task, and begin that of the next."""
        while self._turns:
            following = self._turns.popleft()
            if not following.done():
                following.set_result(None)  # `_asking` stays set for the next task
                return
        self._asking = False
