"""What the log says of workflows: how they stand, what they did, which there are. It reads, and runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NamedTuple

import boki
from bokiflow import flow_events as events
from bokiflow.flow_events import PICKER, AnyFlowEvent, Ended, Started
from bokiflow.history import Recorded, recorded
from bokiflow.instance_state import Held, Status, held, status_of
from bokiflow.outcomes import Outcome
from bokilib import tags
from bokilib.log import Log
from bokilib.ports import ConsistencyName

MANY: Final = 1_024


class Known(NamedTuple):
    """A workflow, for people.

    Attributes:
        owner: who runs it. started_ms, ended_ms: milliseconds since 1970 UTC, by the clocks of who did.
    """

    id: str
    name: str
    status: Status
    owner: str
    started_ms: int
    ended_ms: int | None
    attributes: Mapping[str, str]
    parent: str
    outcome: Outcome | None


class Done(NamedTuple):
    """One thing that a workflow did or was told.

    Attributes:
        kind: "step", "timer", "child", "signal", … detail: of whom, or what.
    """

    seqnum: int
    time_ms: int
    kind: str
    key: str
    detail: str
    outcome: Outcome | None = None


async def newest(log: Log, id: str, *, consistency: ConsistencyName = "session") -> Held | None:
    """Where a workflow stands; None: there is none."""
    (found,) = await newest_of(log, [id], consistency=consistency)
    return found


async def newest_of(log: Log, ids: Sequence[str], *, consistency: ConsistencyName = "session") -> list[Held | None]:
    """The same of many, in few round trips."""
    found: list[Held | None] = []
    for at in range(0, len(ids), MANY):
        some = ids[at : at + MANY]
        rows = await log.book.read_prev_many([(tags.flow_own(id), None) for id in some], consistency=consistency)
        for id, record in zip(some, rows, strict=True):
            state: Held | None = None
            while record is not None:
                state = held(record.seqnum, PICKER.of(record.seqnum, await log.open(record), about=id))
                if state is not None:
                    break
                record = await log.book.read_prev(tags.flow_own(id), at_most=record.seqnum - 1)
            found.append(state)
    return found


async def first(log: Log, id: str) -> tuple[int, Started] | None:
    """How a workflow began, and where; None: there is none."""
    async for item in log.book.read(tags.flow_own(id)):
        if isinstance(item, boki.Gap):
            continue
        for event in PICKER.of(item.seqnum, await log.open(item), about=id):
            if isinstance(event, Started):
                return item.seqnum, event
    return None


async def history(log: Log, id: str, last: int) -> list[Recorded]:
    """All records of a workflow's history up to a place. Raises Trimmed: it is over, and not kept any more."""
    found = []
    async for read in log.between(tags.flow_history(id), 1, last):
        record = read.record
        mine = PICKER.of(record.seqnum, read.envelope, about=id)
        if mine:
            found.append(recorded(record.seqnum, record.time_ms, read.envelope.seen, mine))
    return found


async def known(log: Log, id: str) -> Known | None:
    """All about one workflow; None: there is none."""
    began = await first(log, id)
    state = await newest(log, id)
    if began is None or state is None:
        return None
    _, started = began
    ended = state.ended
    return Known(
        id,
        started.name,
        status_of(ended),
        state.owner,
        started.at_ms,
        None if ended is None else ended.at_ms,
        started.attributes,
        started.parent,
        None if ended is None else ended.outcome,
    )


async def done(log: Log, id: str) -> AsyncIterator[Done]:
    """What a workflow did and was told, in the order of the log."""
    position = await log.book.now()
    async for read in log.between(tags.flow_history(id), 1, position):
        for event in PICKER.of(read.record.seqnum, read.envelope, about=id):
            if not isinstance(event, Started):
                yield _done(read.record, event)


def _done(record: boki.Record, event: AnyFlowEvent) -> Done:
    kinds: dict[type[AnyFlowEvent], tuple[str, str]] = {
        events.Stepped: ("step", "name"),
        events.Transacted: ("transact", "name"),
        events.Fired: ("timer", ""),
        events.Queued: ("lock asked", "name"),
        events.Locked: ("lock", "name"),
        events.Unlocked: ("unlock", "name"),
        events.Begun: ("begun", "name"),
        events.Sleeping: ("sleep", "due_ms"),
        events.Invoked: ("invoke", "child"),
        events.Sent: ("send", "to"),
        events.Emitted: ("emit", "topic"),
        events.Patched: ("patch", "name"),
        events.ChildEnded: ("child", "child"),
        events.Signalled: ("signal", "topic"),
        events.Cancelled: ("cancel", "reason"),
        Ended: ("end", "name"),
    }
    kind, field = kinds.get(type(event), (type(event).__name__, ""))
    detail = str(getattr(event, field)) if field else ""
    return Done(record.seqnum, record.time_ms, kind, getattr(event, "key", ""), detail, getattr(event, "outcome", None))


async def ids(log: Log, group: str, attribute: tuple[str, str] | None = None) -> list[str]:
    """Ids of a group's workflows, running and over, in the order of their beginnings; those that have an attribute, if one is named."""
    found: list[tuple[int, str]] = []
    for partition in range(tags.PARTITIONS):
        tag = tags.flow_part(group, partition)
        if attribute is not None:
            tag = tags.flow_attribute(partition, *attribute)
        async for item in log.book.read(tag):
            if isinstance(item, boki.Gap):
                continue
            for event in PICKER.of(item.seqnum, await log.open(item)):
                if not isinstance(event, Started) or event.group != group or tags.partition_of(event.id) != partition:
                    continue
                if attribute is None or event.attributes.get(attribute[0]) == attribute[1]:
                    found.append((item.seqnum, event.id))
    return [id for _, id in dict.fromkeys(sorted(found))]
