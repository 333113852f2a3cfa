"""Locks of one workflow, as its code has them or waits for them. It knows no log.

One lock is asked for after the other: while the workflow waits for one, its other tasks wait here for their turn to ask. That is
what keeps a workflow that has nothing from waiting in a circle (`lock_rules`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple


class TakeLock(NamedTuple):
    """A lock shall be taken, once all that was done before is in the log.

    Attributes:
        waits_for_any: also for older workflows. try_: it does not wait at all. again: it was tried already, and others were faster.
    """

    key: str
    name: str
    shared: bool
    try_: bool
    waits_for_any: bool
    again: bool = False


class LockEntry(NamedTuple):
    """A place in a lock's queue. `number`: of its record; 0: that is under way."""

    key: str
    name: str
    number: int


class LockEntries:
    """See the module. Attributes: queued: by key, places that are in the log, or under way, and were not given up, oldest first."""

    def __init__(self, *, child: bool) -> None:
        self.queued: Final[dict[str, LockEntry]] = {}
        self._child: Final = child
        self._asking = False
        self._turns: Final[deque[asyncio.Future[None]]] = deque()

    @property
    def waits_for_any(self) -> bool:
        """Whether whoever asks now may wait for anybody."""
        return not self._child and not self.queued

    def placed(self, key: str, number: int) -> bool:
        """A place is in the log; whether it was not given up meanwhile."""
        entry = self.queued.get(key)
        if entry is not None:
            self.queued[key] = entry._replace(number=number)
        return entry is not None

    async def turn(self) -> None:
        """Waits until nobody else of this workflow asks. `done` must follow."""
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
        """Whose turn it was has asked; the next one may."""
        while self._turns:
            following = self._turns.popleft()
            if not following.done():
                following.set_result(None)  # it is asking from here on
                return
        self._asking = False
