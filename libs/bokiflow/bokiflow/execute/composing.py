"""What becomes of a batch of one workflow: a record, with the starts of its children, and its messages to others.

A child's start expects that nobody has its id, and joins the record of its parent's call. If somebody has it (an earlier attempt of this
call, for one), the call goes without.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from boki_common.errors import Conflict
from bokiflow.execute.traces import Spans
from bokiflow.history import inspection
from bokiflow.model import flow_events as events
from bokiflow.model import records
from bokiflow.model.delivery_order import start_ms
from bokiflow.model.flow_events import Restarted, Started
from bokiflow.model.lock_rules import Enqueued
from bokiflow.model.outcomes import Outcome
from bokiflow.model.record_batcher import EVENT_BYTES, SHARED_BYTES, Batch, BatchEntry, size_of, within_bounds
from bokiflow.runtime.commands import ChildStart
from bokiflow.runtime.instance import Instance
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined

ABANDONED: Final = "the attempt of a transaction that it was a part of is over"
"""The reason of the cancellation of a part."""


class ComposerHost(Protocol):
    """What a composer needs of its worker."""

    @property
    def log(self) -> Log: ...

    @property
    def spans(self) -> Spans: ...

    def owner_of(self, id: str) -> tuple[str, int]:
        """Who runs a workflow that is started now, and its claim of the partition; ("", 0): whoever will."""

    def began(self, started: Started, seqnum: int) -> None:
        """A child was started here, at that place."""

    def lost(self, partition: int, claim: int) -> None:
        """Somebody else owns a partition now, or its owner claimed it anew."""


class _Child(NamedTuple):
    """An entry's child, and what became of its start. `claim`: of its partition, by its owner."""

    started: Started
    key: str
    claim: int = 0


class Composer:
    """See the module.

    Attributes:
        place: its streams. held: its fence.
    """

    def __init__(self, host: ComposerHost, place: records.InstanceStreams, claim: int, start: int) -> None:
        """`claim`: of the workflow. `start`: seqnum of its Started."""
        self._start_of_parent: Final = start
        self.place: Final = place
        self.held: Final[dict[str, int | None]] = {place.fence: claim}
        self._host: Final = host
        self._spawns: dict[int, ChildStart] = {}
        self._children: dict[int, _Child] = {}
        self._places: dict[int, Enqueued] = {}

    def place_taken(self, event: events.Queued, enqueued: Enqueued) -> BatchEntry:
        """A place in a lock's queue, that goes with what else is appended."""
        self._places[id(event)] = enqueued
        return BatchEntry(event, delivers=True, tags=1, more_bytes=size_of(enqueued))

    def entry(self, event: events.Effect, spawn: ChildStart) -> BatchEntry:
        """What the code did, to be appended."""
        self._spawns[id(event)] = spawn
        attributes_bytes = size_of(dict(spawn.attributes)) if spawn.attributes else 0
        more_bytes = size_of([spawn.args, spawn.notice, spawn.within]) + attributes_bytes
        begins, note = isinstance(event, events.Begun), isinstance(event, events.Patched)
        return BatchEntry(event, tags=spawn.tags(event), more_bytes=more_bytes, begins=begins, note=note)

    def abandoned(self, part: events.Attempted) -> BatchEntry:
        """Return the entry that cancels a part of a transaction which nothing waits for any more, and records that."""
        event = events.Abandoned(self.place.id, part.key, part.child)
        notice = events.Cancelled(part.child, ABANDONED)
        self._spawns[id(event)] = ChildStart(notice=notice)
        return BatchEntry(event, tags=2, more_bytes=size_of(notice), note=True)

    def prepare(self, batch: Batch[Any], instance: Instance) -> None:
        """Children that a batch starts begin now, for their code."""
        for entry in batch.entries:
            spawn = self._spawns.get(id(entry.event))
            if spawn is not None and spawn.workflow is not None and isinstance(entry.event, events.Invoked):
                started = _child(instance, entry.event, spawn, self._start_of_parent, self._host.spans)
                self._children[id(entry.event)] = _Child(started, entry.event.key)

    async def append(self, batch: Batch[Any]) -> tuple[int | None, list[tuple[str, str]]]:
        """Appends a batch, in the end without what cannot be any more.

        Returns:
            Where it is (None: somebody else runs the workflow), and calls (key, child's id) that failed, because somebody else has the id.
        """
        failed: list[tuple[str, str]] = []
        while True:
            one = self.record(batch)
            try:
                return await self._host.log.append(one, seen=batch.seen, settle=True), failed
            except Conflict as conflict:
                taken = await self.after_conflict(one, conflict)
                if taken is None:
                    return None, failed
                failed += taken

    def record(self, batch: Batch[Any]) -> Contribution:
        """All of a batch."""
        parts: list[Contribution] = []
        for entry in batch.entries:
            event = entry.event
            if isinstance(event, events.Ended):
                parts.extend(self._end(event))
                continue
            parts.append(records.worker_event(self.place, event, self.held))
            if id(event) in self._children:
                parts.append(self._start(id(event)))
            enqueued = self._places.get(id(event))
            if enqueued is not None:
                parts.append(Contribution((tags.lock(enqueued.id),), {}, (enqueued,)))
            spawn = self._spawns.get(id(event))
            if spawn is not None and spawn.notice is not None:
                parts.append(records.send(records.InstanceStreams(spawn.notice.id, self.place.group), spawn.notice))
        return joined(parts)

    def _start(self, number: int) -> Contribution:
        child = self._children[number]
        owner, claim = self._host.owner_of(child.started.id)
        if (owner, claim) != (child.started.owner, child.claim):
            made = msgspec.structs.replace(child.started, owner=owner)
            self._children[number] = child = _Child(made, child.key, claim)
        return records.start(child.started, claim)

    def _end(self, ended: events.Ended) -> list[Contribution]:
        parts = [records.end(self.place, ended, self.held)]
        if ended.parent_key:  # else it is a transaction that called it, and waits for its end
            notice = events.ChildEnded(ended.parent, ended.parent_key, self.place.id, ended.outcome, ended.parts)
            parts.append(records.send(records.InstanceStreams(ended.parent, self.place.group), notice))
        return parts

    async def after_conflict(self, one: Contribution, conflict: Conflict) -> list[tuple[str, str]] | None:
        """Looks at what moved.

        Returns:
            Calls (key, child's id) that failed, because somebody else has the id: the record may be appended again, without what cannot
            be any more. None: somebody else runs the workflow.
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
                if not await inspection.is_child(self._host.log, child.started.id, self.place.id, child.key):
                    taken.append((child.key, child.started.id))
        return taken

    def acked(self, batch: Batch[Any], seqnum: int) -> None:
        """It is in the log."""
        for entry in batch.entries:
            self._spawns.pop(id(entry.event), None)
            self._places.pop(id(entry.event), None)
            child = self._children.pop(id(entry.event), None)
            if child is not None and child.started.owner:
                self._host.began(child.started, seqnum)


def over(
    instance: Instance,
    start: int,
    outcome: Outcome,
    topics: Iterable[str],
    carried_ms: int,
    history_bytes: int,
    now_ms: int,
) -> tuple[events.Ended | Restarted, int]:
    """The event of a workflow's end, or of its restart; and how many bytes of it its parent gets too."""
    if instance.next is not None:
        return restarted(instance, start, topics, carried_ms), 0
    begun = instance.started
    parts_bytes = size_of(instance.parts.for_caller(failed=outcome.error is not None))
    limit = SHARED_BYTES if begun.parent else EVENT_BYTES
    bounded = within_bounds(outcome, begun.name, max(0, limit - parts_bytes))
    made = ended(instance, start, bounded, topics, now_ms)
    made = msgspec.structs.replace(made, history_bytes=history_bytes)
    return made, size_of([made.outcome, made.parts]) if begun.parent else 0


def ended(instance: Instance, start: int, outcome: Outcome, topics: Iterable[str], now_ms: int) -> events.Ended:
    """Return the end of a workflow. `now_ms`: by the clock of the log, which may be long after what was delivered last."""
    begun = instance.started
    return events.Ended(
        instance.id,
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
        instance.parts.for_caller(failed=outcome.error is not None),
    )


def restarted(instance: Instance, start: int, topics: Iterable[str], carried_ms: int) -> Restarted:
    """It begins again."""
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


def _child(instance: Instance, event: events.Invoked, spawn: ChildStart, start: int, spans: Spans) -> Started:
    parent = instance.started
    assert spawn.workflow is not None
    started = Started(
        event.child,
        event.name,
        event.digest,
        spawn.args,
        instance.now_ms,
        version=spawn.workflow.version,
        group=parent.group,
        traceparent=spans.child(instance.id, event.name, event.child, parent.traceparent, detached=spawn.detached),
        within=spawn.within,
        due_ms=spawn.due_ms,
        attributes=dict(spawn.attributes),
    )
    if spawn.detached:
        return started
    return msgspec.structs.replace(started, parent=instance.id, parent_key=event.key, age=parent.age or start)
