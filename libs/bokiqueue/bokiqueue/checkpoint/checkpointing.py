"""Checkpoints of one consumer stream: read at a takeover, made when they pay, and trimmed by.

- `load` reads the stream up to the claim, and further as far as the session has seen. No record of an earlier owner can
  come later, since each expects its own claim. It reads the settings after the claim: those that a member knows may be of
  a former registration of its group.
- `make` appends the state. A checkpoint covers only what is certain: it stays below every record that may still be in
  flight. It expects the claim and the settings, so that a group that registers meanwhile is not overlooked.
- A state that is larger than a record is split into parts.

What may be trimmed:

- Each group needs the messages from its floor on, below which all are finished, and those that it did not compare with
  its deduplication window (`Progress.needs`). That counts once a checkpoint is committed under the owner's claim and the
  expected settings.
- Messages are trimmed below what any registered group needs. A group without a checkpoint needs those from its
  registration on, also after a purge. A dropped group holds nothing back; one without consumers does until it is dropped,
  or is purged and a carrier makes its checkpoint.
- A consumer stream is trimmed below `covers + 1` of a committed checkpoint, never below the checkpoint itself: records
  above `covers` apply on top of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import boki
from bokilib.append.fence import Fence
from bokilib.append.log import Log
from bokilib.errors import Fenced
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention import checkpoint_rules
from bokiqueue import settings
from bokiqueue.model.events import PICKER, Acked, Checkpoint, Config, Dead, Delivered, Id, Nacked, consumer_id
from bokiqueue.model.receipts import Receipt
from bokiqueue.model.shard_state import Progress, StreamRecord, consumer_from, fold_group, messages_from
from bokiqueue.settings import VersionedConfig, no_such_group

RECORDS_BETWEEN: Final = 1_000
BYTES_BETWEEN: Final = checkpoint_rules.BYTES_BETWEEN


class ConsumerStream(NamedTuple):
    """The records of a consumer stream that are not trimmed.

    Attributes:
        trimmed: the seqnum up to which records are trimmed.
    """

    rows: list[StreamRecord]
    trimmed: int


async def stream(log: Log, id: str, tag: str, last: int, start: int = 1) -> ConsumerStream:
    """Read a consumer stream from `start` to `last`.

    Raises:
        Lost: records are lost.
    """
    found: list[StreamRecord] = []
    trimmed = 0
    if start > last:
        return ConsumerStream([], 0)
    async for item in log.book.read(tag, start=start, stop=last + 1):
        if isinstance(item, boki.Gap):
            if item.kind is not boki.GapKind.TRIMMED:
                raise item.error()
            trimmed = item.last
            found.clear()  # a checkpoint above it has that state
            continue
        envelope = await log.open(item)
        events = [
            event
            for event in PICKER.of(item.seqnum, envelope, about=id)
            if isinstance(event, Delivered | Acked | Nacked | Dead | Checkpoint)
        ]
        found.append(StreamRecord(item.seqnum, item.time_ms, envelope.by, events))
    return ConsumerStream(found, trimmed)


class Checkpointing:
    """The checkpoints of one consumer stream. See the module.

    Attributes:
        high: the newest known seqnum of the stream.
        first: True if a checkpoint has to be in the log before another message is delivered.
    """

    def __init__(self, log: Log, queue: str, shard: int, group: str) -> None:
        self.high = 0
        self.first = False
        self._start = 0
        self._log = log
        self._queue = queue
        self._shard = shard
        self._group = group
        self._id = consumer_id(queue, shard, group)
        self._tag = tags.queue_consumer(queue, shard, group)
        self._records = 0
        self._bytes = 0
        self._flying: dict[Receipt, int] = {}
        self._marks: list[tuple[str, int]] = []

    # -- reading

    async def load(self, claim: int) -> tuple[Progress, int]:
        """Return the state as of the claim or later, by the newest settings, and the log's time of the claim.

        The state includes everything that was acknowledged to this process, even above the claim.

        Raises:
            Fenced: another owner claimed the shard since and trimmed, or the group was dropped and registered again.
            NoSuchGroup: the group is not registered.
            NoSuchQueue: the queue was deleted.
        """
        owner = tags.queue_owner(self._queue, self._shard, self._group)
        try:
            return await self._load(owner, claim, await self._config())
        except boki.Trimmed:
            config = await self._config()
            newest = await self._newest(owner)
            if (newest is None or newest.seqnum <= claim) and config.groups[self._group] <= claim:
                raise
            raise Fenced(
                f"{self._id!r} was claimed by another owner while its state was read", tag=owner, claim=claim
            ) from None

    async def _config(self) -> Config:
        config = (await settings.existing(self._log, self._queue)).config
        if self._group not in config.groups:
            raise no_such_group(config, self._group)
        return config

    async def _newest(self, owner: str) -> boki.Record | None:
        try:
            return await self._log.book.read_prev(owner)
        except boki.Trimmed:
            return None

    async def _load(self, owner: str, claim: int, config: Config) -> tuple[Progress, int]:
        record = await self._log.book.read_prev(owner, at_most=claim)
        last = max(claim, self._log.book.position or 0)
        found = await stream(self._log, self._id, self._tag, last)
        start = config.groups[self._group]
        folded = fold_group(found.rows, config, self._group)
        if max(folded.covers, start) < found.trimmed:
            raise boki.Trimmed(f"what {self._id!r} did up to {found.trimmed} is trimmed, and no checkpoint has it")
        self.high = last
        self._start = start
        self._records = len(found.rows)
        return folded.progress, record.time_ms if record is not None else 0

    # -- when a checkpoint is due

    def read(self, size: int) -> None:
        """Count a record of messages of `size` bytes."""
        self._records += 1
        self._bytes += size

    def appended(self, seqnum: int) -> None:
        """Count a record of the owner."""
        self.high = max(self.high, seqnum)
        self._records += 1

    @property
    def due(self) -> bool:
        """True if a checkpoint pays, or has to be made."""
        return self.first or checkpoint_rules.due(self._records, self._bytes, RECORDS_BETWEEN, BYTES_BETWEEN)

    def begins(self, start: int, progress: Progress) -> None:
        """Note where the group begins now.

        After a purge a checkpoint has to contain the deduplication window: owners of older versions do not read the
        messages that it comes from, and the purged ones are trimmed.
        """
        if start > self._start:
            self._start = start
            self.first = self.first or len(progress.window) > 0

    # -- ACKs in records of others, which may be in flight

    def flies(self, receipt: Receipt) -> None:
        """Note that a record with this ACK may be appended from now on."""
        self._flying[receipt] = self.high

    def is_flying(self, receipt: Receipt) -> bool:
        """Return True if a record with this ACK may be in flight."""
        return receipt in self._flying

    def flying_since(self, receipt: Receipt) -> int:
        """Return the newest seqnum that was known when a record with this ACK could first be appended."""
        return self._flying.get(receipt, 0)

    def landed(self, receipt: Receipt) -> None:
        """Note that the outcome of the record with this ACK is known."""
        self._flying.pop(receipt, None)

    # -- making checkpoints

    async def make(self, progress: Progress, fence: Fence, found: VersionedConfig) -> None:
        """Append a checkpoint; `trim` trims by it.

        Raises:
            Conflict: the shard was claimed, or the settings were changed.
        """
        covers = min(self._flying.values(), default=self.high)
        needs = progress.needs
        parts = checkpoint_rules.split(progress.encode())
        others = await self._needs_of_others(found.config)
        starts = {group: found.config.window_from(group) for group in found.config.groups}
        expect = {**fence.expect, tags.queue_config(self._queue): found.seqnum}
        for number, data in enumerate(parts):
            event = Checkpoint(self._id, covers, number, len(parts), data)
            self.high = max(
                self.high,
                await self._log.append(Contribution((self._tag,), expect, (event,)), seen=covers, settle=True),
            )
        self._records = self._bytes = 0
        self.first = False
        messages = tags.queue_messages(self._queue, self._shard)
        self._marks = [
            (messages, messages_from(needs, others, starts)),
            (self._tag, consumer_from(covers)),
        ]

    async def trim(self) -> None:
        """Trim by the checkpoint made last, in one command."""
        marks, self._marks = [(tag, before) for tag, before in self._marks if before > 1], []
        if marks:
            await self._log.book.trim(marks)

    async def _needs_of_others(self, config: Config) -> dict[str, Id | None]:
        """Return what the other groups need, as committed. A stream begins shortly below its newest checkpoint, so little is read."""
        needs: dict[str, Id | None] = {}
        for group in sorted(config.groups):
            if group != self._group:
                needs[group] = await self._needs_of(group, config)
        return needs

    async def _needs_of(self, group: str, config: Config) -> Id | None:
        id = consumer_id(self._queue, self._shard, group)
        last = await self._log.book.now()
        found = await stream(self._log, id, tags.queue_consumer(self._queue, self._shard, group), last)
        folded = fold_group(found.rows, config, group)
        return folded.progress.needs if folded.covers else None
