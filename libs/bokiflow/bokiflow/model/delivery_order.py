"""In which order the events of a history were delivered to the workflow's code. Pure.

A workflow's stream has records of its executors and records of others (results of children, signals, cancellation). An executor's record
names up to where it had *seen* the stream when it began to be filled. So the order of delivery is: for each own record, what came from
others at or below its `seen`, then its own events; and what came from others after the last one, at the end. By seqnum alone it would be
another one: a signal that lands between a result's delivery and the result's record has the lower seqnum, and was delivered later.
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
    Abandoned,
    AnyFlowEvent,
    Attempted,
    Delivered,
    Effect,
    Ended,
    Incoming,
    Locked,
    Note,
    Queued,
    Started,
    Stepped,
    Transacted,
    Unlocked,
)

Own: TypeAlias = Delivered | Effect | Note


class RecordedEvents(NamedTuple):
    """What one record has of one workflow."""

    seqnum: int
    time_ms: int
    seen: int
    own: tuple[Own, ...] = ()
    incoming: tuple[Incoming, ...] = ()
    started: Started | None = None


class OrderedEvent(NamedTuple):
    """One event, in the order of delivery.

    Attributes:
        seqnum, time_ms: of its record.
    """

    seqnum: int
    time_ms: int
    event: Own | Incoming


def recorded_events(seqnum: int, time_ms: int, seen: int, events: Iterable[AnyFlowEvent]) -> RecordedEvents:
    """Sorts the events of one record, all of one workflow."""
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


def begun(started: Started, time_ms: int) -> Started:
    """How a workflow began, with the time of its record where whoever started it did not know what time it was."""
    if started.origin and not started.forked_ms:
        started = msgspec.structs.replace(started, forked_ms=time_ms)
    return started if started.at_ms else msgspec.structs.replace(started, at_ms=time_ms)


def start_ms(started: Started) -> int:
    """Return when a workflow was started, for people: a fork was when it was forked."""
    return started.forked_ms or started.at_ms


def begun_before(ended: Ended) -> Started:
    """Return how a workflow began, as far as its end has it: without its arguments (`args` is None) and its version."""
    return Started(
        *(ended.id, ended.name, ended.digest, None, ended.began_ms),
        group=ended.group,
        parent=ended.parent,
        parent_key=ended.parent_key,
        attributes=ended.attributes,
    )


def locks_of(records: Iterable[RecordedEvents]) -> tuple[list[Queued], list[Locked]]:
    """Return the places in lock queues that a history ends with: those where the workflow waits, and the locks that it holds."""
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
    """Return the parts of transactions that may run although nothing waits for them, once no worker runs the workflow.

    A worker records that it abandons a part before it records how the transaction ended: so that end accounts for all parts.
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
    """What was delivered, in order. See the module.

    Args:
        records: of one workflow, ascending by seqnum.
    """
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
