"""Commands of workflow code to the executor, and what is recorded beside its effects."""

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
from bokiflow.runtime.lock_entries import TakeLock
from bokiflow.runtime.transactional import RunTransaction
from bokilib.records.codec import Json


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
