"""Ends of workflows whose code does not run: a terminated workflow, and a stuck one that is cancelled."""

from __future__ import annotations

from typing import Final

import msgspec

from bokiflow.errors import NotRegistered, WorkflowStuck
from bokiflow.history.instance_state import InstanceState
from bokiflow.model import records
from bokiflow.model.delivery_order import end_of, locks_of, parts_left
from bokiflow.model.flow_events import Cancelled, ChildEnded, Ended, Invoked, Unlocked
from bokiflow.model.history_fold import History, bytes_of
from bokiflow.model.outcomes import Outcome, cancelled_while_blocked, terminated
from bokilib.records.contribution import Contribution, joined

REASON_CHARS: Final = 2_048
"""The most characters of a recorded reason why a workflow is blocked."""
CHILDREN: Final = 64
"""The most children that one record cancels."""
LOCKS: Final = 64
"""The most locks that one record releases."""
TERMINATED: Final = "Terminated"
"""First word of the blocked reason of a workflow that is being terminated."""


def waits_for_code(state: InstanceState) -> bool:
    """Return True if a workflow is blocked because a worker's program lacks its code; another program may have it."""
    return state.blocked.partition(":")[0] == NotRegistered.__name__


def is_stuck(state: InstanceState) -> bool:
    """Return True if a workflow is blocked because its code stopped the event loop, or because it is being terminated."""
    return state.blocked.partition(":")[0] == WorkflowStuck.__name__ or is_terminated(state)


def is_terminated(state: InstanceState) -> bool:
    """Return True if a workflow is blocked by a termination."""
    return state.blocked.partition(":")[0] == TERMINATED


def outcome_without_code(state: InstanceState) -> Outcome:
    """Return the outcome of a stuck workflow: terminated, or cancelled while it was blocked."""
    if is_terminated(state):
        return terminated(state.blocked.partition(": ")[2])
    return cancelled_while_blocked(WorkflowStuck.__name__)


def end_of_blocked(history: History, outcome: Outcome, now_ms: int) -> Ended:
    """Return the end of a blocked workflow, with the facts of its start."""
    end = end_of(history.begins, history.start, outcome, now_ms, history.topics)
    return msgspec.structs.replace(end, history_bytes=bytes_of(history))


def end_without_code(
    streams: records.InstanceStreams, history: History, ended: Ended, claim: int, partition_claim: int | None
) -> list[Contribution]:
    """Return the records that end a workflow without its code: they cancel its children, release its locks, and end it last.

    All records but the cancellations expect the workflow's newest claim, and that of its partition if it is given.
    """
    held: dict[str, int | None] = {streams.fence: claim}
    if partition_claim is not None:
        held[streams.partition_owner] = partition_claim
    queued, locked = locks_of(history.records)
    seats = sorted([*((one.key, one.name) for one in queued), *((one.key, one.name) for one in locked)])
    released = [records.worker_event(streams, Unlocked(streams.id, key, name), held) for key, name in seats]
    parts = [joined(released[at : at + LOCKS]) for at in range(0, len(released), LOCKS)]
    ends = [*([parts.pop()] if parts else []), records.end(streams, ended, held)]
    if ended.parent_key:
        notice = ChildEnded(ended.parent, ended.parent_key, streams.id, ended.outcome)
        ends.append(records.send(records.InstanceStreams(ended.parent, streams.group), notice))
    return [*cancelling_children(streams, history), *parts, joined(ends)]


def cancelling_children(streams: records.InstanceStreams, history: History) -> list[Contribution]:
    """Return the records that cancel the children that a workflow waits for and the parts of its transactions.

    Launched workflows are no children, and run on.
    """
    waited: dict[str, None] = {}
    for one in history.records:
        for made in one.own:
            if isinstance(made, Invoked) and made.child == f"{streams.id}/{made.key}":
                waited[made.child] = None
        for event in one.incoming:
            if isinstance(event, ChildEnded):
                waited.pop(event.child, None)
    waited.update(dict.fromkeys(part.child for part in parts_left(history.records)))
    notices = [Cancelled(child, "its parent was ended, and its code did not run") for child in waited]
    return [
        joined(
            [
                records.send(records.InstanceStreams(notice.id, streams.group), notice)
                for notice in notices[at : at + CHILDREN]
            ]
        )
        for at in range(0, len(notices), CHILDREN)
    ]
