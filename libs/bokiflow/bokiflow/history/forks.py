"""Starting a fork: its history is a checkpoint, whose last part is in the record that starts it (`fork_rules`, `history_fold`).

- A history that does not fit one record is appended in several. Readers ignore the parts until the last one starts the fork.
- Each part expects the one before to be the newest record of the history, so a slow process conflicts with other forks and the collector.
- The parts of a fork that never started are deleted like messages to a workflow that never existed: they join the stream of messages to
  workers.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from boki_common.errors import Conflict
from boki_common.limits import RECORD_TAGS
from bokiflow.errors import IdReused
from bokiflow.history import history_checkpoint, inspection
from bokiflow.model import history_fold, records
from bokiflow.model.flow_events import Checkpointed, Started
from bokiflow.model.history_fold import History
from bokiflow.model.record_batcher import RECORD_BYTES, size_of
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge
from bokilib.pauses import pauses
from bokilib.records.contribution import Contribution, joined

ATTEMPTS: Final = 8
"""Attempts to start a fork while other processes fork under the same id."""
OWN_TAGS: Final = 24
"""Streams that the record of a start joins beside those of emitted topics."""


async def begin(log: Log, history: History) -> int:
    """Start a fork with this history, or find it started already. Returns the seqnum of its start.

    Raises:
        IdReused: another workflow has the id.
        AtomicTooLarge: the history emits under too many topics.
        AppendUnknown: an append has an unknown outcome.
        Conflict: other processes fork under this id all the time.
    """
    streams = records.InstanceStreams(history.started.id, history.started.group)
    pause = pauses()
    for left in reversed(range(ATTEMPTS)):
        covers = await log.book.now()
        *before, last = _parts(history, covers)
        expect: dict[str, int | None] = {}
        try:
            for event in before:
                part = Contribution((streams.history, streams.to_workers), expect, (event,))
                expect = {streams.history: await log.append(part, seen=covers)}
            begins = Contribution((streams.history, *_outputs(history)), expect, (last,))
            return await log.append(joined([records.start(history.started, 0), begins]), seen=covers)
        except Conflict as conflict:
            if streams.fence in log.moved({streams.fence: None}, conflict):
                return await _begun(log, history.started, conflict)
            if not left:
                raise
        await asyncio.sleep(pause.next())
    raise AssertionError("expected at least one attempt")


async def _begun(log: Log, started: Started, conflict: Conflict) -> int:
    """Return the seqnum at which the same fork began. Raises IdReused."""
    began = await inspection.first(log, started.id)
    if began is None or (began[1].origin, began[1].digest) != (started.origin, started.digest):
        raise IdReused(
            f"expected a new id, found {started.id!r}, which another workflow has or had: choose a different id",
            id=started.id,
        ) from conflict
    return began[0]


def _parts(history: History, covers: int) -> list[Checkpointed]:
    data = history_fold.split_data(history)
    if len(data) > 1 or len(data[0]) + size_of(history.started) > RECORD_BYTES:
        data.append(b"")  # the arguments fill the record of the start
    return [Checkpointed(history.started.id, covers, at, len(data), part) for at, part in enumerate(data)]


def _outputs(history: History) -> list[str]:
    """Return the streams of the topics of the origin, whose emitted values count as the fork's too. Raises AtomicTooLarge."""
    limit = RECORD_TAGS - OWN_TAGS
    if len(history.topics) > limit:
        raise AtomicTooLarge(
            f"expected a fork's history with up to {limit} topics, found {len(history.topics)}: fork before an earlier step",
            expected=limit,
            found=len(history.topics),
        )
    return history_checkpoint.output_tags(history.started.id, history.topics)


def without_family(started: Started, id: str) -> Started:
    """Return the start of a fork: no child, under its own id, at the time of its record (`delivery_order.begun`)."""
    return msgspec.structs.replace(
        started, id=id, owner="", parent="", parent_key="", traceparent="", age=0, within=None, forked_ms=0
    )
