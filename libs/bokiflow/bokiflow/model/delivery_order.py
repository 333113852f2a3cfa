"""The order in which the events of a history were delivered to the workflow's code. Pure.

A history has records of the workflow's workers and messages of other processes (results of children, signals, cancellations). A worker's
record names its `seen`, the seqnum up to which messages had been delivered when the record was begun. So the order of delivery is: before
each own record the messages at or below its `seen`, then its events; after the last own record the remaining messages. The order of seqnums
differs: a signal between a result's delivery and the result's record has the lower seqnum, but was delivered later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from bokiflow.model.flow_events import (
    DELIVERED,
    EFFECTS,
    INCOMING,
    NOTES,
    OWN_UNIQUES,
    Abandoned,
    AnyFlowEvent,
    Attempted,
    Delivered,
    Effect,
    Ended,
    Incoming,
    Locked,
    Note,
    Patched,
    Queued,
    Started,
    Stepped,
    Transacted,
    Unlocked,
)
from bokiflow.model.outcomes import Outcome

Own: TypeAlias = Delivered | Effect | Note


class RecordedEvents(NamedTuple):
    """The events of one workflow in one record. `own` are its worker's, `incoming` those of other processes."""

    seqnum: int
    time_ms: int
    seen: int
    own: tuple[Own, ...] = ()
    incoming: tuple[Incoming, ...] = ()
    started: Started | None = None


class OrderedEvent(NamedTuple):
    """An event in the order of delivery, with the seqnum and time of its record."""

    seqnum: int
    time_ms: int
    event: Own | Incoming


def recorded_events(seqnum: int, time_ms: int, seen: int, events: Iterable[AnyFlowEvent]) -> RecordedEvents:
    """Sort the events of one record, all of one workflow, by their source."""
    own: list[Own] = []
    incoming: list[Incoming] = []
    started: Started | None = None
    for event in events:
        if isinstance(event, INCOMING):
            incoming.append(event)
        elif isinstance(event, (*DELIVERED, *EFFECTS, *NOTES)):
            if isinstance(event, Queued | Locked) and not event.number:
                event = msgspec.structs.replace(event, number=seqnum)
            own.append(event)
            if isinstance(event, Transacted):
                seen = event.seen
        elif isinstance(event, Started):
            started = begun(event, time_ms)
    return RecordedEvents(seqnum, time_ms, seen, tuple(own), tuple(incoming), started)


def counts_uniques(event: object) -> bool:
    """Return whether an event is the patch `OWN_UNIQUES`, which is not the code's."""
    return isinstance(event, Patched) and event.name == OWN_UNIQUES


def begun(started: Started, time_ms: int) -> Started:
    """Return the start of a workflow, with the time of its record if its starter left the time open."""
    if started.origin and not started.forked_ms:
        started = msgspec.structs.replace(started, forked_ms=time_ms)
    return started if started.at_ms else msgspec.structs.replace(started, at_ms=time_ms)


def start_ms(started: Started) -> int:
    """Return when a workflow was started, for people; for a fork, when it was forked."""
    return started.forked_ms or started.at_ms


def end_of(begun: Started, start: int, outcome: Outcome, now_ms: int, topics: Iterable[str]) -> Ended:
    """Return the end of a workflow, with the facts of its start.

    Args:
        begun: how its newest run began.
        start: the seqnum of its start.
        outcome: its outcome.
        now_ms: the time by the clock of the log.
        topics: of everything that it emitted.
    """
    return Ended(
        begun.id,
        start,
        begun.name,
        begun.digest,
        outcome,
        now_ms,
        begun.group,
        start_ms(begun),
        begun.parent,
        begun.parent_key,
        begun.attributes,
        tuple(topics),
    )


def begun_before(ended: Ended) -> Started:
    """Return the start of an ended workflow from the facts of its end; `args` is None, and the version is missing."""
    return Started(
        *(ended.id, ended.name, ended.digest, None, ended.began_ms),
        group=ended.group,
        parent=ended.parent,
        parent_key=ended.parent_key,
        attributes=ended.attributes,
    )


def locks_of(records: Iterable[RecordedEvents]) -> tuple[list[Queued], list[Locked]]:
    """Return the places at which a workflow waits in lock queues, and the locks that it holds, at the end of a history."""
    waiting: dict[str, Queued] = {}
    held: dict[str, Locked] = {}
    for event in (event for one in records for event in one.own):
        if isinstance(event, Queued):
            waiting[event.key] = event
        elif isinstance(event, Locked):
            waiting.pop(event.key, None)
            held[event.key] = event
        elif isinstance(event, Unlocked):
            waiting.pop(event.key, None)
            held.pop(event.key, None)
    return list(waiting.values()), list(held.values())


def parts_left(records: Iterable[RecordedEvents]) -> list[Attempted]:
    """Return the parts of transactions that may still run once no worker runs the workflow.

    The outcome of a transaction accounts for all its parts: a worker records each abandoned part before it.
    """
    left: dict[str, dict[str, Attempted]] = {}
    for event in (event for one in records for event in one.own):
        if isinstance(event, Attempted):
            left.setdefault(event.key, {})[event.child] = event
        elif isinstance(event, Abandoned):
            left.get(event.key, {}).pop(event.child, None)
        elif isinstance(event, Stepped | Transacted):
            left.pop(event.key, None)
    return [part for parts in left.values() for part in parts.values()]


def in_order(records: Iterable[RecordedEvents]) -> Iterator[OrderedEvent]:
    """Yield the events of one workflow's records, which ascend by seqnum, in the order of delivery. See the module."""
    ordered = list(records)
    coming = [(one.seqnum, one.time_ms, event) for one in ordered for event in one.incoming]
    at = 0
    for one in ordered:
        if not one.own:
            continue
        while at < len(coming) and coming[at][0] <= one.seen:
            yield OrderedEvent(*coming[at])
            at += 1
        for event in one.own:
            yield OrderedEvent(one.seqnum, one.time_ms, event)
    for rest in coming[at:]:
        yield OrderedEvent(*rest)
