"""The state of a workflow, and the workflows of a partition that may still run. Pure.

The state is folded from the fence of the workflow (`flow/own/<id>`). A fence has Started, then claims, then Ended, then repeated Tombed
until the id is forgotten. A worker that repeats its claim keeps `since`.

The stream of a partition has starts, and checkpoints in parts, which count once all parts are read. A workflow that started at or below a
checkpoint's `covers` and is not in the checkpoint has ended for good, whichever process appended the checkpoint and however late it is
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from bokiflow.model.flow_events import PICKER, AnyFlowEvent, Claimed, Ended, PartitionCheckpoint, Started, Tombed
from bokiflow.model.record_batcher import RECORD_BYTES
from bokilib.append.batches import Batches
from bokilib.records.events import Envelope
from bokilib.records.tags import partition_of

IDS_BYTES: Final = RECORD_BYTES - 4_096
_START_BYTES: Final = 16
"""Bytes of a seqnum and of the encoding around an id."""


def starts_of(checkpoint: PartitionCheckpoint) -> dict[str, int]:
    """Return the seqnum of each listed workflow's start, by id; 0 where an older program did not write it."""
    return dict(zip(checkpoint.ids, checkpoint.starts or [0] * len(checkpoint.ids), strict=True))


class PartitionFold:
    """The stream of a partition up to a position.

    Attributes:
        ids: the workflows that may still run, with the seqnums of their starts.
        position: the seqnum up to which the stream was read.
        starts: the number of starts since the newest checkpoint.
        oldest_ms: the time of the oldest needed record; 0 if there is none.
        sent_ms: the time of the oldest message to workflows of the partition; 0 if there is none.
        collected: the seqnum up to which histories of ended workflows are trimmed.
    """

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.position = 0
        self.starts = 0
        self.oldest_ms = 0
        self.sent_ms = 0
        self.collected = 0
        self._parts: list[PartitionCheckpoint] = []
        self._by = ""

    @property
    def since_ms(self) -> int:
        """The time of the oldest record of either kind; 0 if there is none."""
        return min([one for one in (self.oldest_ms, self.sent_ms) if one], default=0)

    def sent(self, time_ms: int) -> None:
        """Note a message to a workflow of the partition."""
        self.sent_ms = self.sent_ms or time_ms

    def started(self, seqnum: int, time_ms: int, id: str) -> None:
        """Add a workflow that started."""
        self.ids[id] = seqnum
        self.starts += 1
        self.oldest_ms = self.oldest_ms or time_ms

    def checkpointed(self, time_ms: int, by: str, event: PartitionCheckpoint) -> None:
        """Add a part of a checkpoint; the last one replaces the state that the checkpoint covers."""
        before = self._parts
        follows = before and (by, event.covers, event.parts) == (self._by, before[0].covers, before[0].parts)
        if not follows or event.part != len(before):
            before = []
        self._parts, self._by = [*before, event] if event.part == len(before) else [], by
        if len(self._parts) != event.parts:
            return
        kept = {id: start for part in self._parts for id, start in starts_of(part).items()}
        above = {id: start for id, start in self.ids.items() if start > event.covers}
        self.ids = kept | above
        self.starts = len(above)
        self.oldest_ms = time_ms
        self.collected = max(self.collected, event.collected)
        self._parts = []

    def drop(self) -> None:
        """Forget all starts: the workflows have ended, and the records are trimmed."""
        self.ids = {}
        self.starts = self.oldest_ms = 0


def apply(folds: Mapping[int, PartitionFold], group: str, seqnum: int, time_ms: int, envelope: Envelope) -> None:
    """Apply a record of a group to the folds of its partitions that have not read it yet."""
    for event in PICKER.of(seqnum, envelope):
        if isinstance(event, Started) and event.group == group:
            fold = folds.get(partition_of(event.id))
            if fold is not None and seqnum > fold.position:
                fold.started(seqnum, time_ms, event.id)
        elif isinstance(event, PartitionCheckpoint) and event.group == group:
            fold = folds.get(event.partition)
            if fold is not None and seqnum > fold.position:
                fold.checkpointed(time_ms, envelope.by, event)


def checkpoint(
    group: str, partition: int, ids: Mapping[str, int], covers: int, collected: int, limit: int = IDS_BYTES
) -> list[PartitionCheckpoint]:
    """Return the parts of a checkpoint of a partition."""
    batches: Batches[str, None] = Batches(limit)
    for id in ids:
        batches.add(id, len(id.encode()) + _START_BYTES)
    parts = [batch.items for batch in batches]
    return [
        PartitionCheckpoint(
            group, partition, tuple(part), covers, tuple(ids[id] for id in part), at, len(parts), collected
        )
        for at, part in enumerate(parts)
    ]


Status: TypeAlias = Literal["running", "blocked", "completed", "failed", "cancelled"]


class InstanceState(NamedTuple):
    """The state of a workflow after the newest record of its fence.

    Attributes:
        claim: the seqnum of that record, which records of the workflow's worker expect.
        owner: the worker that runs the workflow; "" before the first claim.
        large: the seqnum of the record with the outcome, if it is too large for `ended`.
        time_ms: the time of the newest record by the clock of the log; 0 if it was not read.
    """

    claim: int
    owner: str = ""
    ended: Ended | None = None
    large: int = 0
    newest: Started | Claimed | Ended | Tombed | None = None
    time_ms: int = 0

    @property
    def blocked(self) -> str:
        """The reason why the workflow is blocked; "" if it is not."""
        return self.newest.blocked if isinstance(self.newest, Claimed) else ""

    @property
    def vain(self) -> int:
        """The most runs in a row before the newest claim whose worker was lost before it recorded progress (`held_back`)."""
        return self.newest.vain if isinstance(self.newest, Claimed) else 0

    @property
    def pause_ms(self) -> int:
        """The time after the newest claim for which the workflow is held back if that run is lost, too."""
        return self.newest.pause_ms if isinstance(self.newest, Claimed) else 0

    @property
    def own_uniques(self) -> bool:
        """True if no program ran the workflow that counts calls of `unique` together with others."""
        return isinstance(self.newest, Started | Claimed) and self.newest.own_uniques

    @property
    def start(self) -> int:
        """Seqnum of the Started; 0 if the newest event is of an older program, which does not name it."""
        if isinstance(self.newest, Started):
            return self.claim
        if isinstance(self.newest, Claimed):
            return self.newest.start
        return 0 if self.ended is None else self.ended.start


class LockWait(NamedTuple):
    """A lock that a workflow waits for.

    Attributes:
        name: the lock's name.
        since_ms: when it joined the lock's queue, in milliseconds since 1970 UTC, by the clock of the log.
        holder: the id of the workflow that holds the lock, the first if several share it; "" if the lock is this workflow's now.
        holder_blocked: why the holder is blocked; "" if it is not.
    """

    name: str
    since_ms: int
    holder: str
    holder_blocked: str = ""


def state_after(seqnum: int, events: Iterable[AnyFlowEvent]) -> InstanceState | None:
    """Return the state after the newest record of a fence; None if the record has no event of this workflow's fence."""
    found: InstanceState | None = None
    for event in events:
        if isinstance(event, Started | Claimed):
            found = InstanceState(seqnum, event.owner, newest=event)
        elif isinstance(event, Ended):
            return InstanceState(seqnum, "", event, newest=event)
        elif isinstance(event, Tombed):
            return InstanceState(seqnum, "", event.ended, event.large, event)
    return found


def dated(state: InstanceState, time_ms: int) -> InstanceState:
    """Return a state with the time of its record, and an end with the time of the record that ended the workflow.

    A program that ends a workflow without its code may have read only records that are much older than that record.
    """
    ended = state.ended
    if ended is not None:
        done_ms = state.newest.done_ms if isinstance(state.newest, Tombed) else time_ms
        ended = msgspec.structs.replace(ended, at_ms=max(ended.at_ms, done_ms))
    return state._replace(time_ms=time_ms, ended=ended)


def status_of(ended: Ended | None, blocked: str = "") -> Status:
    if ended is None:
        return "blocked" if blocked else "running"
    if ended.outcome.cancelled:
        return "cancelled"
    return "completed" if ended.outcome.error is None else "failed"
