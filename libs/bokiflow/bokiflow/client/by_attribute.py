"""The newest workflow with an attribute, for chains of workflows in which each id follows from the workflow before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bokiflow.model.flow_events import PICKER, AnyFlowEvent, Claimed, Started, Tombed
from bokilib.append.log import Log
from bokilib.records import tags


async def newest_start(log: Log, group: str, attribute: str, value: str) -> tuple[int, str] | None:
    """Read the start and the id of the newest workflow of a group with an attribute; None if there is none.

    It may be an older workflow whose end was repeated since; the ids of the workflows after it follow from it.
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
    """The start of a workflow, as one of its events has it."""

    id: str
    start: int
    group: str
    attributes: Mapping[str, str]


def _began(seqnum: int, event: AnyFlowEvent) -> _Began | None:
    """Return the start of the workflow of an event in an attribute's stream: a start, a rewritten history or a repeated end."""
    if isinstance(event, Started):
        return _Began(event.id, seqnum, event.group, event.attributes)
    if isinstance(event, Claimed):
        return _Began(event.id, event.start, event.group, event.attributes)
    if isinstance(event, Tombed):
        return _Began(event.id, event.ended.start, event.ended.group, event.ended.attributes)
    return None
