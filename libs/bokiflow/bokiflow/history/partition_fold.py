"""What of a partition may not be over, from its stream. Pure.

Starts, and checkpoints of the partition in parts, which count when all are there. What was started at or below a checkpoint's `covers`
and is not in it has ended, and stays so for ever, whoever appended it, and however late it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bokiflow.model.flow_events import PICKER, PartitionCheckpoint, Started
from bokiflow.model.record_batcher import RECORD_BYTES
from bokilib.records.events import Envelope
from bokilib.records.tags import partition_of

IDS_BYTES: Final = RECORD_BYTES - 4_096
_START_BYTES: Final = 16
"""Of a place and what surrounds an id."""


class PartitionFold:
    """One partition's stream, read up to somewhere.

    Attributes:
        ids: what may not be over, and where it began. position: up to where the stream was read.
        starts: how many began since the newest checkpoint. oldest_ms: when its oldest record was written, 0 if there is none.
        sent_ms: the same of what was sent to its workflows.
        collected: of what ended up to there, the history is trimmed.
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
        """When its oldest record of either kind was written, 0 if there is none."""
        return min([one for one in (self.oldest_ms, self.sent_ms) if one], default=0)

    def sent(self, time_ms: int) -> None:
        """Something was sent to one of its workflows."""
        self.sent_ms = self.sent_ms or time_ms

    def started(self, seqnum: int, time_ms: int, id: str) -> None:
        """A workflow began."""
        self.ids[id] = seqnum
        self.starts += 1
        self.oldest_ms = self.oldest_ms or time_ms

    def checkpointed(self, time_ms: int, by: str, event: PartitionCheckpoint) -> None:
        """A part of a checkpoint."""
        before = self._parts
        follows = before and (by, event.covers, event.parts) == (self._by, before[0].covers, before[0].parts)
        if not follows or event.part != len(before):
            before = []
        self._parts, self._by = [*before, event] if event.part == len(before) else [], by
        if len(self._parts) != event.parts:
            return
        kept = {
            id: start
            for part in self._parts
            for id, start in zip(part.ids, part.starts or [0] * len(part.ids), strict=True)
        }
        above = {id: start for id, start in self.ids.items() if start > event.covers}
        self.ids = kept | above
        self.starts = len(above)
        self.oldest_ms = time_ms
        self.collected = max(self.collected, event.collected)
        self._parts = []

    def drop(self) -> None:
        """All that began is over, and its records are trimmed."""
        self.ids = {}
        self.starts = self.oldest_ms = 0


def apply(folds: Mapping[int, PartitionFold], group: str, seqnum: int, time_ms: int, envelope: Envelope) -> None:
    """Applies a record of a group to those of its partitions that are folded, unless they were read beyond it."""
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
    """A checkpoint of a partition, in as many parts as it needs."""
    parts = list(_parts(ids, limit)) or [[]]
    return [
        PartitionCheckpoint(
            group, partition, tuple(part), covers, tuple(ids[id] for id in part), at, len(parts), collected
        )
        for at, part in enumerate(parts)
    ]


def _parts(ids: Mapping[str, int], limit: int) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for id in ids:
        size += len(id.encode()) + _START_BYTES
        if part and size > limit:
            yield part
            part, size = [], len(id.encode()) + _START_BYTES
        part.append(id)
    if part:
        yield part
