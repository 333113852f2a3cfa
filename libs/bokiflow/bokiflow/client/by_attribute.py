"""The newest workflow that has an attribute, for programs that begin one after the other under ids that follow from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bokiflow.model.flow_events import PICKER, AnyFlowEvent, Claimed, Started, Tombed
from bokilib.append.log import Log
from bokilib.records import tags


async def newest_start(log: Log, group: str, attribute: str, value: str) -> tuple[int, str] | None:
    """Return where a workflow of a group that has an attribute began, and its id; None: there is none.

    It is the newest one, or an older one whose end was repeated since: then the ids of those after it follow from it.
    """
    position = await log.book.now(consistency="linearizable")
    wanted = [tags.flow_attribute(partition, attribute, value) for partition in range(tags.PARTITIONS)]
    found: tuple[int, str] | None = None
    for record in await log.book.read_prev_many([(tag, position) for tag in wanted]):
        if record is None:
            continue
        for event in PICKER.of(record.seqnum, await log.open(record)):
            began = _began(record.seqnum, event)
            if began is None or (began.group, began.attributes.get(attribute)) != (group, value):
                continue
            if found is None or began.start > found[0]:
                found = began.start, began.id
    return found


class _Began(NamedTuple):
    """The beginning of a workflow, as one of its events has it."""

    id: str
    start: int
    group: str
    attributes: Mapping[str, str]


def _began(seqnum: int, event: AnyFlowEvent) -> _Began | None:
    """Return the beginning that an event of a stream of attributes names: a start, a rewritten history, a repeated end."""
    if isinstance(event, Started):
        return _Began(event.id, seqnum, event.group, event.attributes)
    if isinstance(event, Claimed):
        return _Began(event.id, event.start, event.group, event.attributes)
    if isinstance(event, Tombed):
        return _Began(event.id, event.ended.start, event.ended.group, event.ended.attributes)
    return None
