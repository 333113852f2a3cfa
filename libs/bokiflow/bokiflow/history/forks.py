"""Begins a fork: its history is a checkpoint, whose last part is in the record that starts it (`fork_rules`, `history_fold`).

A history that does not fit one record is written in several, and nobody sees anything of it before the last one. Each expects that nothing
was written since the one before: so who was away for long, while others forked or collected, finds out. What is left of a fork that never
began goes as what is sent to a workflow that never was: its parts join what workers get.
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
"""Of beginning a fork while others begin one of the same id."""
OWN_TAGS: Final = 24
"""Streams that the record of a start joins beside those of what was emitted."""


async def begin(log: Log, made: History) -> int:
    """Begins a fork; where.

    Args:
        made: its history.

    Raises:
        IdReused: the id is another's. AtomicTooLarge: it emits under too many topics. AppendUnknown. Conflict: others begin it
        all the time.
    """
    place = records.InstanceStreams(made.started.id, made.started.group)
    pause = pauses()
    for left in reversed(range(ATTEMPTS)):
        covers = await log.book.now()
        *before, last = _parts(made, covers)
        expect: dict[str, int | None] = {}
        try:
            for event in before:
                part = Contribution((place.history, place.to), expect, (event,))
                expect = {place.history: await log.append(part, seen=covers)}
            begins = Contribution((place.history, *_outputs(made)), expect, (last,))
            return await log.append(joined([records.start(made.started, 0), begins]), seen=covers)
        except Conflict as conflict:
            if place.own in log.moved({place.own: None}, conflict):
                return await _begun(log, made.started, conflict)
            if not left:
                raise
        await asyncio.sleep(pause.next())
    raise AssertionError("it tries at least once")


async def _begun(log: Log, mine: Started, conflict: Conflict) -> int:
    """Where the same fork began. Raises IdReused."""
    began = await inspection.first(log, mine.id)
    if began is None or (began[1].origin, began[1].digest) != (mine.origin, mine.digest):
        raise IdReused(
            f"the id {mine.id!r} is another's, or was used before: take another one", id=mine.id
        ) from conflict
    return began[0]


def _parts(made: History, covers: int) -> list[Checkpointed]:
    data = history_fold.split_data(made)
    if len(data) > 1 or len(data[0]) + size_of(made.started) > RECORD_BYTES:
        data.append(b"")  # the record of the start has all of the arguments
    return [Checkpointed(made.started.id, covers, at, len(data), part) for at, part in enumerate(data)]


def _outputs(made: History) -> list[str]:
    """Streams of what its origin emitted, which counts as emitted by it too. Raises AtomicTooLarge."""
    limit = RECORD_TAGS - OWN_TAGS
    if len(made.topics) > limit:
        raise AtomicTooLarge(
            f"expected what is forked to have emitted under up to {limit} topics, found {len(made.topics)}: fork before an earlier step",
            expected=limit,
            found=len(made.topics),
        )
    return history_checkpoint.output_tags(made.started.id, made.topics)


def without_family(started: Started, id: str) -> Started:
    """Return how a fork begins: no workflow's child, under its own id, when its record is ordered (`history.begun`)."""
    return msgspec.structs.replace(
        started, id=id, owner="", parent="", parent_key="", traceparent="", age=0, within=None, forked_ms=0
    )
