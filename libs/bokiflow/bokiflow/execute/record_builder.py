"""Builds the records of one workflow: the events of a batch, the starts of its children, and its messages to other workflows.

The start of a child is in the record of its parent's call, and expects that no workflow has the child's id. If one has it, the record is
appended without the start: the call waits for that workflow if it is the same child of an earlier attempt, and fails otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from boki_common.errors import Conflict
from bokiflow.execute.traces import Spans
from bokiflow.execute.worker_host import WorkerHost
from bokiflow.history import addresses, inspection
from bokiflow.model import flow_events as events
from bokiflow.model import records
from bokiflow.model.delivery_order import end_of
from bokiflow.model.flow_events import Restarted, Started
from bokiflow.model.history_fold import restart_events
from bokiflow.model.lock_rules import Enqueued
from bokiflow.model.outcomes import Outcome
from bokiflow.model.record_batcher import EVENT_BYTES, SHARED_BYTES, BatchEntry, EventBatch, size_of, within_bounds
from bokiflow.runtime.commands import ChildStart
from bokiflow.runtime.instance import Instance
from bokilib.ports import TicketPort
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined

ABANDONED: Final = "the attempt of a transaction that it was a part of is over"
"""The reason with which an abandoned part of a transaction is cancelled."""


class _Child(NamedTuple):
    """A child to start. `claim` is its owner's claim of its partition."""

    started: Started
    key: str
    claim: int = 0


class RecordBuilder:
    """The builder of one workflow's records.

    Attributes:
        place: the streams of the workflow.
        held: the claim that each of its records expects, by the fence's tag.
    """

    def __init__(self, host: WorkerHost, place: records.InstanceStreams, claim: int, start: int) -> None:
        """Build records under a claim.

        Args:
            host: the worker.
            place: the streams of the workflow.
            claim: the claim of the workflow.
            start: the seqnum of its start.
        """
        self.place: Final = place
        self.held: Final[dict[str, int | None]] = {place.fence: claim}
        self._host: Final = host
        self._start: Final = start
        # What the record of an event has beside it, by the identity of the event.
        self._starts: dict[int, ChildStart] = {}
        self._children: dict[int, _Child] = {}
        self._lock_entries: dict[int, Enqueued] = {}
        self._unreceived: dict[int, events.Unreceived] = {}

    # -- entries of batches

    def queued(self, event: events.Queued, enqueued: Enqueued) -> BatchEntry:
        """Return the entry for a lock queue entry that shares a record with other events."""
        self._lock_entries[id(event)] = enqueued
        return BatchEntry(event, delivers=True, tags=1, more_bytes=size_of(enqueued))

    def effect(self, event: events.Effect, start: ChildStart) -> BatchEntry:
        """Return the entry for an effect of the code, with the child that it starts or the notice that it sends."""
        self._starts[id(event)] = start
        attributes_bytes = size_of(dict(start.attributes)) if start.attributes else 0
        more_bytes = size_of([start.args, start.notice, start.within]) + attributes_bytes
        begins, note = isinstance(event, events.Begun), isinstance(event, events.Patched)
        return BatchEntry(event, tags=start.tags(event), more_bytes=more_bytes, begins=begins, note=note)

    def abandoned(self, part: events.Attempted) -> BatchEntry:
        """Return the entry that cancels a part of a transaction, and records that the transaction has abandoned it."""
        event = events.Abandoned(self.place.id, part.key, part.child)
        notice = events.Cancelled(part.child, ABANDONED)
        self._starts[id(event)] = ChildStart(notice=notice)
        return BatchEntry(event, tags=2, more_bytes=size_of(notice), note=True)

    def restart(self, restarted: Restarted) -> list[BatchEntry]:
        """Return the entries for a restart: several if the signals that it hands on do not fit its record."""
        before, event, beside = restart_events(restarted)
        if beside is None:
            return [BatchEntry(event)]
        self._unreceived[id(event)] = beside
        return [*map(BatchEntry, before), BatchEntry(event, more_bytes=size_of(beside))]

    # -- records

    def prepare(self, batch: EventBatch[Any], instance: Instance) -> None:
        """Set the arguments and the time of the children that a batch starts."""
        for entry in batch.items:
            start = self._starts.get(id(entry.event))
            if start is not None and start.workflow is not None and isinstance(entry.event, events.Invoked):
                started = _child(instance, entry.event, start, self._start, self._host.spans)
                self._children[id(entry.event)] = _Child(started, entry.event.key)

    async def append(self, batch: EventBatch[Any]) -> tuple[int | None, list[tuple[str, str]]]:
        """Append a batch, without the starts of children whose ids are in use.

        Returns:
            The seqnum of the record, or None if another worker runs the workflow; and the calls (key, child's id) whose ids other
            workflows have.
        """
        failed: list[tuple[str, str]] = []
        while True:
            one = self._record(batch)
            unanswered = partial(self._unanswered, batch)
            try:
                return await self._host.log.append(one, seen=batch.seen, settle=True, unanswered=unanswered), failed
            except Conflict as conflict:
                taken = await self._after_conflict(one, conflict)
                if taken is None:
                    return None, failed
                failed += taken

    def _unanswered(self, batch: EventBatch[Any], ticket: TicketPort) -> None:
        """Let the worker run the children whose starts are in a record if that turns out to be in the log."""
        for entry in batch.items:
            child = self._children.get(id(entry.event))
            if child is not None:
                self._host.unsure(child.started.id, ticket)

    def _record(self, batch: EventBatch[Any]) -> Contribution:
        parts: list[Contribution] = []
        for entry in batch.items:
            event = entry.event
            if isinstance(event, events.Ended):
                parts.extend(self._end(event))
                continue
            parts.append(records.worker_event(self.place, event, self.held))
            if id(event) in self._unreceived:
                parts.append(records.worker_event(self.place, self._unreceived[id(event)], self.held))
            if id(event) in self._children:
                parts.append(self._child_start(id(event)))
            enqueued = self._lock_entries.get(id(event))
            if enqueued is not None:
                parts.append(Contribution((tags.lock(enqueued.id),), {}, (enqueued,)))
            start = self._starts.get(id(event))
            if start is not None and start.notice is not None:
                parts.append(self._notice(start.notice))
        return joined(parts)

    def _notice(self, notice: events.Incoming) -> Contribution:
        """Return the record of a message to another workflow. A child is of this app; a signal may be for a workflow of any app."""
        if isinstance(notice, events.Signalled) and notice.id != self.place.id:
            return addresses.signal(self._host.log, notice, self.place.group)
        return records.send(records.InstanceStreams(notice.id, self.place.group), notice)

    def _child_start(self, number: int) -> Contribution:
        child = self._children[number]
        owner, claim = self._host.owner_of(child.started.id)
        if (owner, claim) != (child.started.owner, child.claim):
            made = msgspec.structs.replace(child.started, owner=owner)
            self._children[number] = child = _Child(made, child.key, claim)
        return records.start(child.started, claim)

    def _end(self, ended: events.Ended) -> list[Contribution]:
        parts = [records.end(self.place, ended, self.held)]
        if ended.parent_key:  # a transaction that called it waits for its end
            notice = events.ChildEnded(ended.parent, ended.parent_key, self.place.id, ended.outcome, ended.parts)
            parts.append(records.send(records.InstanceStreams(ended.parent, self.place.group), notice))
        return parts

    async def _after_conflict(self, one: Contribution, conflict: Conflict) -> list[tuple[str, str]] | None:
        """Drop the starts that cannot be appended, so that the record may be appended again.

        Returns:
            The calls (key, child's id) whose ids other workflows have; None if another worker runs the workflow.
        """
        moved = self._host.log.moved(one.expect, conflict)
        if self.place.fence in moved or not moved:
            return None
        taken = []
        for number, child in list(self._children.items()):
            place = records.InstanceStreams(child.started.id, self.place.group)
            if place.partition_owner in moved:
                self._host.lost(place.partition, child.claim)
            if place.fence in moved:
                del self._children[number]
                here = (self.place.id, child.key, self._start)
                if not await inspection.is_child(self._host.log, child.started.id, *here):
                    taken.append((child.key, child.started.id))
        return taken

    def appended(self, batch: EventBatch[Any], seqnum: int) -> None:
        """Run the children that a record has started here, also if their parent was stopped here meanwhile."""
        for entry in batch.items:
            self._starts.pop(id(entry.event), None)
            self._lock_entries.pop(id(entry.event), None)
            self._unreceived.pop(id(entry.event), None)
            child = self._children.pop(id(entry.event), None)
            if child is not None and child.started.owner:
                self._host.began(child.started, seqnum)


def last_event(
    instance: Instance,
    start: int,
    outcome: Outcome,
    topics: Iterable[str],
    carried_ms: int,
    history_bytes: int,
    now_ms: int,
) -> tuple[events.Ended | Restarted, int]:
    """Return the event of a workflow's end or restart, and how many bytes of it are sent to its parent too.

    Args:
        start: the seqnum of its start.
        topics: of everything that it emitted.
        carried_ms: when its oldest record was written.
        history_bytes: the size of its history.
        now_ms: the time by the clock of the log, which may be long after that of the last delivery.
    """
    if instance.next is not None:
        return _restarted(instance, start, topics, carried_ms), 0
    begun = instance.started
    parts = instance.parts.for_caller(failed=outcome.error is not None)
    limit = SHARED_BYTES if begun.parent else EVENT_BYTES
    bounded = within_bounds(outcome, begun.name, max(0, limit - size_of(parts)))
    made = msgspec.structs.replace(
        end_of(begun, start, bounded, now_ms, topics), parts=parts, history_bytes=history_bytes
    )
    return made, size_of([made.outcome, made.parts]) if begun.parent else 0


def _restarted(instance: Instance, start: int, topics: Iterable[str], carried_ms: int) -> Restarted:
    started = msgspec.structs.replace(instance.started, args=instance.next, origin="", names=(), cursors=())
    return Restarted(
        instance.id,
        instance.run + 1,
        started,
        start,
        tuple(instance.unreceived),
        instance.now_ms,
        tuple(topics),
        carried_ms,
        instance.reads.cursor,
    )


def _child(instance: Instance, event: events.Invoked, child_start: ChildStart, start: int, spans: Spans) -> Started:
    parent = instance.started
    assert child_start.workflow is not None
    started = Started(
        event.child,
        event.name,
        event.digest,
        child_start.args,
        instance.now_ms,
        version=child_start.workflow.version,
        group=parent.group,
        traceparent=spans.child(
            instance.id, event.name, event.child, parent.traceparent, detached=child_start.detached
        ),
        within=child_start.within,
        due_ms=child_start.due_ms,
        attributes=dict(child_start.attributes),
        own_uniques=True,
    )
    if child_start.detached:
        return started
    return msgspec.structs.replace(started, parent=instance.id, parent_key=event.key, age=parent.age or start)
