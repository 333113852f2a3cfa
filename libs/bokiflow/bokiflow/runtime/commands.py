"""What code of a workflow asks for while it runs, and what goes with what it did: between an instance and who runs it."""

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
    """The body of a step shall run, once all that was done before is in the log. `names`: of the module of the workflow."""

    key: str
    step: AnyStep
    args: tuple[Any, ...]
    options: dict[str, Any]
    names: Names


class CancelCommand(NamedTuple):
    """Nobody waits for it any more."""

    key: str


class SetTimer(NamedTuple):
    """A timer shall fire, not before `due_ms`."""

    key: str
    due_ms: int


class CancelTimer(NamedTuple):
    """It shall not."""

    key: str


class SnapshotRead(NamedTuple):
    """The code waits, before anything else, for the result of `ask` as of a place of the log; no record is made of it."""

    future: asyncio.Future[Any]
    read: Callable[[int], Awaitable[Any]]


class SnapshotReads:
    """What has to be delivered to the code before anything else.

    Attributes:
        cursor: seqnum of the newest record in the log of which something was delivered to it.
        waiting: what it asked for, oldest first.
    """

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.waiting: Final[deque[SnapshotRead]] = deque()


Command: TypeAlias = RunStep | RunTransaction | TakeLock | CancelCommand | SetTimer | CancelTimer


class ChildStart(NamedTuple):
    """The workflow to start that goes with an effect, or a notice.

    Attributes:
        detached: the workflow is nobody's child. within: the transaction that it is a part of. due_ms, attributes: see
            `flow_events.Started`.
    """

    workflow: Workflow[..., Any] | None = None
    args: Json = None
    notice: Incoming | None = None
    detached: bool = False
    within: EnclosingTransaction | None = None
    due_ms: int = 0
    attributes: Mapping[str, str] = MappingProxyType({})

    def tags(self, event: Effect) -> int:
        """Streams that it joins beside those of the workflow."""
        if self.workflow is not None:
            return 4 + len(self.attributes)
        if self.notice is not None:
            return 2
        return int(isinstance(event, events.Emitted | events.Unlocked))
