"""Where a workflow stands, from its fence's stream (`flow/own/<id>`). Pure.

Started, then claims, then Ended: nothing follows it. A claim that is repeated by the same worker keeps its `since`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from bokiflow.flow_events import AnyFlowEvent, Claimed, Ended, Started

Status: TypeAlias = Literal["running", "completed", "failed", "cancelled"]


class Held(NamedTuple):
    """The newest that is known of a workflow's fence.

    Attributes:
        claim: seqnum of the newest record of the fence: what the holder's records expect.
        owner: who runs it; "": nobody yet.
        ended: how it ended.
    """

    claim: int
    owner: str = ""
    ended: Ended | None = None


def held(seqnum: int, events: Iterable[AnyFlowEvent]) -> Held | None:
    """What the newest record of the fence says; None: nothing of this workflow."""
    found: Held | None = None
    for event in events:
        if isinstance(event, Started | Claimed):
            found = Held(seqnum, event.owner)
        elif isinstance(event, Ended):
            return Held(seqnum, "", event)
    return found


def status_of(ended: Ended | None) -> Status:
    """For people, and for programs that ask."""
    if ended is None:
        return "running"
    if ended.outcome.cancelled:
        return "cancelled"
    return "completed" if ended.outcome.error is None else "failed"
