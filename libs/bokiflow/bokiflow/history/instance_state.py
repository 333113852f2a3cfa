"""The state of a workflow, folded from its fence (`flow/own/<id>`). Pure.

A fence has Started, then claims, then Ended, then repeated Tombed until the id is forgotten. A worker that repeats its claim keeps `since`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from bokiflow.model.flow_events import AnyFlowEvent, Claimed, Ended, Started, Tombed

Status: TypeAlias = Literal["running", "blocked", "completed", "failed", "cancelled"]


class InstanceState(NamedTuple):
    """The state of a workflow after the newest record of its fence.

    Attributes:
        claim: the seqnum of that record, which records of the workflow's worker expect.
        owner: the worker that runs the workflow; "" before the first claim.
        large: the seqnum of the record with the outcome, if it is too large for `ended`.
        time_ms: the time of the newest record by the clock of the log; 0 if it was not read.
    """

    claim: int
    owner: str = ""
    ended: Ended | None = None
    large: int = 0
    newest: Started | Claimed | Ended | Tombed | None = None
    time_ms: int = 0

    @property
    def blocked(self) -> str:
        """The reason why the workflow is blocked; "" if it is not."""
        return self.newest.blocked if isinstance(self.newest, Claimed) else ""

    @property
    def vain(self) -> int:
        """The most runs in a row before the newest claim whose worker was lost before it recorded progress (`held_back`)."""
        return self.newest.vain if isinstance(self.newest, Claimed) else 0

    @property
    def pause_ms(self) -> int:
        """The time after the newest claim for which the workflow is held back if that run is lost, too."""
        return self.newest.pause_ms if isinstance(self.newest, Claimed) else 0

    @property
    def start(self) -> int:
        """Seqnum of the Started; 0 if the newest event is of an older program, which does not name it."""
        if isinstance(self.newest, Started):
            return self.claim
        if isinstance(self.newest, Claimed):
            return self.newest.start
        return 0 if self.ended is None else self.ended.start


class LockWait(NamedTuple):
    """A lock that a workflow waits for.

    Attributes:
        name: the lock's name.
        since_ms: when it joined the lock's queue, in milliseconds since 1970 UTC, by the clock of the log.
        holder: the id of the workflow that holds the lock, the first if several share it; "" if the lock is this workflow's now.
        holder_blocked: why the holder is blocked; "" if it is not.
    """

    name: str
    since_ms: int
    holder: str
    holder_blocked: str = ""


def state_after(seqnum: int, events: Iterable[AnyFlowEvent]) -> InstanceState | None:
    """Return the state after the newest record of a fence; None if the record has no event of this workflow's fence."""
    found: InstanceState | None = None
    for event in events:
        if isinstance(event, Started | Claimed):
            found = InstanceState(seqnum, event.owner, newest=event)
        elif isinstance(event, Ended):
            return InstanceState(seqnum, "", event, newest=event)
        elif isinstance(event, Tombed):
            return InstanceState(seqnum, "", event.ended, event.large, event)
    return found


def status_of(ended: Ended | None, blocked: str = "") -> Status:
    if ended is None:
        return "blocked" if blocked else "running"
    if ended.outcome.cancelled:
        return "cancelled"
    return "completed" if ended.outcome.error is None else "failed"
