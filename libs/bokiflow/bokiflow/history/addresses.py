"""Addresses of messages to workflows: the record joins the stream that the workers of the workflow's own app follow.

An id is one of the book, and tells nothing about the app that the workflow is of, so that is read right before the record is sent. An id
that no workflow has is expected to be free still, so a workflow that is started in between gets the message, or was started after it.
"""

from __future__ import annotations

import msgspec

from bokiflow.history import inspection
from bokiflow.model import records
from bokiflow.model.flow_events import Signalled
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution


def signal(log: Log, event: Signalled, group: str) -> Contribution:
    """Return the record of a signal to a workflow of any app of the book. `group`: the app of the sender."""

    async def address(again: bool) -> Contribution:
        found = await inspection.group_of(log, event.id, consistency="linearizable" if again else "session")
        if found is None and await _is_free(log, event.id):
            return Contribution((), {tags.flow_own(event.id): None})
        if found in (None, "", group):
            return Contribution()
        return Contribution((records.InstanceStreams(event.id, found).to_workers,))

    return msgspec.structs.replace(records.send(records.InstanceStreams(event.id, group), event), addresses=(address,))


async def _is_free(log: Log, id: str) -> bool:
    """Return whether a workflow can be started with an id that no workflow has: the log has forgotten its stream, or never had it."""
    async for _ in log.book.read(tags.flow_own(id), start=1):
        return False
    return True
