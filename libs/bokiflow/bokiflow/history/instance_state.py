"""Where a workflow stands, from its fence's stream (`flow/own/<id>`). Pure.

Started, then claims, then Ended, and Tombed again and again, until it is forgotten. A claim that is repeated by the same worker keeps its
`since`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from bokiflow.model.flow_events import AnyFlowEvent, Claimed, Ended, Started, Tombed

Status: TypeAlias = Literal["running", "blocked", "completed", "failed", "cancelled"]


class InstanceState(NamedTuple):
    """The newest that is known of a workflow's fence.

    Attributes:
        claim: seqnum of the newest record of the fence: what the holder's records expect.
        owner: who runs it; "": nobody yet.
        ended: how it ended. large: where its outcome is, if that is not here.
        newest: the event that it is from. time_ms: of its record, by the clock of the log; 0 if that was not asked for.
    """

    claim: int
    owner: str = ""
    ended: Ended | None = None
    large: int = 0
    newest: Started | Claimed | Ended | Tombed | None = None
    time_ms: int = 0

    @property
    def blocked(self) -> str:
        """Why it cannot go on; "" if it can."""
        return self.newest.blocked if isinstance(self.newest, Claimed) else ""

    @property
    def vain(self) -> int:
        """How often in a row it was begun in vain before its newest claim, at most (`held_back`)."""
        return self.newest.vain if isinstance(self.newest, Claimed) else 0

    @property
    def pause_ms(self) -> int:
        """For how long after its newest claim it is held back, if that is in vain too."""
        return self.newest.pause_ms if isinstance(self.newest, Claimed) else 0

    @property
    def start(self) -> int:
        """Seqnum of its Started; 0: it is older than a claim that does not name it."""
        if isinstance(self.newest, Started):
            return self.claim
        if isinstance(self.newest, Claimed):
            return self.newest.start
        return 0 if self.ended is None else self.ended.start


class LockWait(NamedTuple):
    """A lock that a workflow waits for.

    Attributes:
        name: of the lock. since_ms: when it asked, in milliseconds since 1970 UTC, by the clock of the log.
        holder: id of the workflow that holds it, the first of several that share; "": its turn has come.
        holder_blocked: why the holder is blocked; "" if it is not.
    """

    name: str
    since_ms: int
    holder: str
    holder_blocked: str = ""


def state_after(seqnum: int, events: Iterable[AnyFlowEvent]) -> InstanceState | None:
    """The state after the newest record of the fence; None: it has nothing of this workflow."""
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
    """For people, and for programs that ask."""
    if ended is None:
        return "blocked" if blocked else "running"
    if ended.outcome.cancelled:
        return "cancelled"
    return "completed" if ended.outcome.error is None else "failed"
