"""Commands of workflow code to the executor, its entries in the queues of locks, and what is recorded beside its effects.

A workflow requests one lock at a time: while it waits for one, its other tasks wait for their turn. Otherwise a workflow that holds no lock
could be part of a circle of waits (`lock_rules`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from bokiflow.model import flow_events as events
from bokiflow.model.flow_events import Effect, EnclosingTransaction, Incoming
from bokiflow.model.outcomes import Names
from bokiflow.runtime.calls import AnyStep, Workflow
from bokiflow.runtime.transactional import RunTransaction
from bokilib.records.codec import Json


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


class RunStep(NamedTuple):
    """The command to run the body of a step, once all earlier effects are in the log.

    Attributes:
        names: the names of the workflow's module, in which classes of errors are looked up.
    """

    key: str
    step: AnyStep
    args: tuple[Any, ...]
    options: dict[str, Any]
    names: Names


class CancelCommand(NamedTuple):
    """The command to stop the step, transaction or lock of a key: the code waits for it no longer."""

    key: str


class SetTimer(NamedTuple):
    """The command to fire a timer, not before `due_ms`."""

    key: str
    due_ms: int


class CancelTimer(NamedTuple):
    """The command to cancel a timer."""

    key: str


class SnapshotRead(NamedTuple):
    """A read as of a position of the log, without a record. The code waits for the result before anything else is delivered."""

    future: asyncio.Future[Any]
    read: Callable[[int], Awaitable[Any]]


class SnapshotReads:
    """The snapshot reads of a workflow.

    Attributes:
        cursor: the seqnum of the newest record from which an event was delivered to the code; reads are answered as of it.
        waiting: reads without an answer, oldest first.
    """

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.waiting: Final[deque[SnapshotRead]] = deque()


Command: TypeAlias = RunStep | RunTransaction | TakeLock | CancelCommand | SetTimer | CancelTimer


class ChildStart(NamedTuple):
    """The workflow to start, or the notice to send, in the record of an effect; empty for other effects.

    Attributes:
        notice: the event for another workflow.
        detached: the workflow is not a child, so its caller gets no result.
        within: the transaction that it is a part of.
        due_ms, attributes: see `flow_events.Started`.
    """

    workflow: Workflow[..., Any] | None = None
    args: Json = None
    notice: Incoming | None = None
    detached: bool = False
    within: EnclosingTransaction | None = None
    due_ms: int = 0
    attributes: Mapping[str, str] = MappingProxyType({})

    def tags(self, event: Effect) -> int:
        """Return how many streams its record joins beside those of the workflow."""
        if self.workflow is not None:
            return 4 + len(self.attributes)
        if self.notice is not None:
            return 2
        return int(isinstance(event, events.Emitted | events.Unlocked))
