"""Addresses of messages to workflows: the record joins the stream that the workers of the workflow's own app follow.

An id is one of the book, and tells nothing about the app that the workflow is of, so that is read right before the record is sent. An id
that no workflow has is expected to be free still, so a workflow that is started in between gets the message, or was started after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from bokiflow.history import inspection
from bokiflow.model import records
from bokiflow.model.flow_events import Signalled
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Address, Contribution


def signal(log: Log, event: Signalled, group: str) -> Contribution:
    """Return the record of a signal to a workflow of any app of the book. `group`: the app of the sender."""

    async def read(again: bool) -> tuple[str, Mapping[str, int | None]]:
        found = await inspection.group_of(log, event.id, consistency="linearizable" if again else "session")
        is_free = found is None and await _is_free(log, event.id)
        place = records.InstanceStreams(event.id, found or group)
        return place.to_workers, {place.fence: None} if is_free else {}

    place = records.InstanceStreams(event.id, group)
    stands_in = f"{place.history}/to"
    return Contribution((place.history, stands_in), {}, (event,), addresses=(Address(stands_in, read),))


async def _is_free(log: Log, id: str) -> bool:
    """Return whether a workflow can be started with an id that no workflow has: the log has forgotten its stream, or never had it."""
    async for _ in log.book.read(tags.flow_own(id), start=1):
        return False
    return True
