"""The inbox of a workflow: what happened to it, in order, until its code gets it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from bokiflow.errors import NonDeterminism
from bokiflow.locks.lock_room import Ready
from bokiflow.model.flow_events import Incoming, TransactionPart
from bokiflow.model.outcomes import Outcome
from bokiflow.runtime.commands import SetTimer
from bokiflow.runtime.transactional import ReadyTransaction


class BodyEnded(NamedTuple):
    """The body of a step, a transaction or a lock request ended.

    Attributes:
        unfit: why this program cannot continue with the outcome; nothing is recorded then.
    """

    key: str
    outcome: Outcome
    took_ms: int = 0
    attempts: int = 1
    part: TransactionPart | None = None
    unfit: NonDeterminism | None = None


class StepWithdrawn(NamedTuple):
    """A step that runs at most once did not begin, and does not begin in this worker any more."""

    key: str


class LockTurn(NamedTuple):
    """The lock queue entry with that number holds its lock now."""

    key: str
    number: int


class Received(NamedTuple):
    """An event that others sent."""

    seqnum: int
    time_ms: int
    event: Incoming


class TimerDue(NamedTuple):
    """A timer is due."""

    command: SetTimer


Item: TypeAlias = BodyEnded | StepWithdrawn | TimerDue | LockTurn | Received | ReadyTransaction | Ready


class Inbox:
    """Items in the order in which they came. Belongs to one event loop.

    Attributes:
        items: oldest first.
        scheduled: `turn` will be called.
    """

    def __init__(self, turn: Callable[[], None]) -> None:
        """Open an empty inbox.

        Args:
            turn: called soon after each `put` and `wake`, in a callback of the event loop; once for those that come before it runs.
        """
        self.items: Final[deque[Item]] = deque()
        self.scheduled = False
        self._turn: Final = turn
        self._loop: Final = asyncio.get_running_loop()
        self._closed = False

    def put(self, item: Item) -> None:
        """Add an item."""
        if not self._closed:
            self.items.append(item)
            self.wake()

    def wake(self) -> None:
        """Have `turn` called."""
        if not (self.scheduled or self._closed):
            self.scheduled = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self.scheduled = False
        if not self._closed:
            self._turn()

    def close(self) -> None:
        """Drop all items, and those that come later."""
        self._closed = True
        self.items.clear()
