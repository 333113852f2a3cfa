"""Rewriting the records of queues out of old terms, so that their storage can be reclaimed: settings, claims, checkpoints, messages.

    async with Carrier(log, [store.carried(), bokiqueue.carried(log)], who="host-7"): ...

A round looks at each queue that has a record a day old. Records of that queue that are half a day old and still needed
are appended again and trimmed at their old place. The owner of a shard rewrites its own records (`ShardOwner.tend`), so
a claim that is a day old rarely has a living owner. For such a shard the carrier claims on behalf of no member, names
the member that had it, and makes a checkpoint. That member takes the shard again if it is alive, and others do once it
is dead, as careful as after its own claim (`rebalance_rules`). It does so too for a shard without any claim whose group
was purged: the checkpoint has the deduplication ids of the purged messages, which are not needed then.

Messages are rewritten as sets, for all groups (`old_rules`). A record that cannot be opened keeps its term, and so do
the records behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from boki_common.errors import BokiError, Conflict
from boki_common.logs import get_logger
from bokilib.append.batches import Batches
from bokilib.append.fence import Fence
from bokilib.append.log import Log, Read
from bokilib.errors import Fenced, UnknownEvent
from bokilib.records import tags
from bokilib.records.conflict_rules import Expected
from bokilib.records.contribution import Contribution
from bokiqueue import settings
from bokiqueue.checkpoint import old_messages
from bokiqueue.checkpoint.checkpointing import Checkpointing, stream
from bokiqueue.model.events import (
    LIBRARY,
    PICKER,
    START,
    AnyEvent,
    Config,
    GroupItem,
    Id,
    Moved,
    Old,
    OldToGroup,
    Pushed,
    consumer_id,
    for_group,
    is_for,
    shard_id,
)
from bokiqueue.model.items import GROUP
from bokiqueue.model.old_rules import PART_BYTES, WaitingMessage, is_finished, is_old, size_of
from bokiqueue.model.rebalance_rules import NOBODY, carried_scope, fence_name
from bokiqueue.model.shard_state import Progress, fold, fold_group
from bokiqueue.popper import ShardPopper
from bokiqueue.push import strays
from bokiqueue.settings import VersionedConfig

log = get_logger(__name__)


def parts_of(event: AnyEvent) -> list[str]:
    """Return the queue of an event, followed by its shard and group as far as it names them."""
    if isinstance(event, Config):
        return [event.queue]
    if isinstance(event, Moved):
        return [event.id]
    return event.id.rsplit("/", 1 if isinstance(event, Old | Pushed) else 2)


def dropped_marks(found: VersionedConfig, groups: Sequence[tuple[int, str]]) -> list[tuple[str, int]]:
    """Return the trim marks of the consumer streams of groups that were dropped.

    Streams are trimmed only below the settings that were read, which lack these groups: a group that is registered
    again begins above them.

    Args:
        groups: (shard, group) of streams that may belong to dropped groups.
    """
    config = found.config
    dropped = [(shard, group) for shard, group in groups if config.mode != "pop" and group not in config.groups]
    makes = (tags.queue_consumer, tags.queue_owner)
    return [(make(config.queue, *one), found.seqnum) for one in dropped for make in makes]


def deleted_marks(config: Config, place: int) -> list[tuple[str, int]]:
    """Return the trim marks of a deleted queue: all its streams below its deletion, and the claims in the record of the deletion.

    Args:
        config: the settings before the deletion; streams of groups that it lacks were trimmed before.
    """
    queue, groups = config.queue, dict.fromkeys([*config.groups, GROUP, ""])
    others = [(tags.queue_messages(queue, shard), place) for shard in range(config.shards, config.streams)]
    return [(tags.queue_moved(queue), place), *others] + [
        mark
        for shard in range(config.shards)
        for mark in (
            (tags.queue_messages(queue, shard), place),
            (tags.queue_old(queue, shard), place),
            *((tags.queue_consumer(queue, shard, group), place) for group in groups),
            *((tags.queue_owner(queue, shard, group), place + 1) for group in groups),
        )
    ]


class RewriteTurn(NamedTuple):
    """A queue in a round of rewriting.

    Attributes:
        fence: expectations of the carrier's records.
    """

    found: VersionedConfig
    now_ms: int
    carry_ms: int
    fence: Expected

    def is_old(self, time_ms: int) -> bool:
        return is_old(time_ms, self.now_ms, self.carry_ms)


class QueueCarried:
    """The queues of one book, for a `bokilib.Carrier`. Implements `bokilib.retention.carrier.Carries`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._queues: dict[str, dict[tuple[int, str], None]] = {}
        """Queues with an old record, each with the (shard, group) of streams that had one; some of these groups may be dropped."""

    @property
    def library(self) -> str:
        return LIBRARY

    def collect(self, read: Read) -> int:
        try:
            events = PICKER.of(read.record.seqnum, read.envelope)
        except UnknownEvent as error:
            log.warning("queue record not rewritten: a later version wrote it, its term is kept", error=str(error))
            return len(self._queues)
        for event in events:
            queue, *rest = parts_of(event)
            groups = self._queues.setdefault(queue, {})
            if len(rest) > 1:
                groups[int(rest[0]), rest[1]] = None
        return len(self._queues)

    async def carry(self, now_ms: int, fence: Expected, *, carry_ms: int) -> tuple[int, int]:
        queues, self._queues = self._queues, {}
        carried = unreadable = 0
        for queue, groups in queues.items():
            try:
                carried += await self._rewrite_queue(queue, list(groups), now_ms, fence, carry_ms)
            except Conflict as conflict:
                if self._log.moved(fence, conflict):
                    raise
                log.info("queue not rewritten: it changed meanwhile, the next round resumes", queue=queue)
            except Fenced:
                log.info("shard not rewritten: it has an owner again, which rewrites it", queue=queue)
            except BokiError as error:
                if error.retryable:
                    raise
                unreadable += 1
                log.warning("queue not rewritten: its terms are kept", queue=queue, error=str(error))
        return carried, unreadable

    async def tend(self) -> None:
        """Do nothing: queues need no work between rounds."""

    async def _rewrite_queue(
        self, queue: str, groups: Sequence[tuple[int, str]], now_ms: int, fence: Expected, carry_ms: int
    ) -> int:
        found = await settings.newest(self._log, queue)
        if found is None:
            return 0
        if found.config.deleted:
            before = msgspec.structs.replace(found.config, groups=dict.fromkeys((group for _, group in groups), 0))
            await settings.trim_all(self._log, deleted_marks(before, found.seqnum))
            await self._log.book.trim([(tags.queue_config(queue), found.seqnum + 1)])
            return 0
        turn, carried = RewriteTurn(found, now_ms, carry_ms, fence), 0
        record = await self._log.book.read_prev(tags.queue_config(queue), at_most=found.seqnum)
        if record is not None and turn.is_old(record.time_ms):
            turn = turn._replace(found=await settings.again(self._log, found))
            carried += 1
        await settings.trim_all(self._log, dropped_marks(turn.found, groups))
        for shard in range(found.config.shards):
            carried += await self._rewrite_shard(turn, shard)
        return carried + await strays.move(self._log, queue)

    async def _rewrite_shard(self, turn: RewriteTurn, shard: int) -> int:
        config = turn.found.config
        if config.mode == "pop":
            carried, come = await self._rewrite_pops(turn, shard)
        else:
            carried, come = 0, dict[str, Progress]()
            for group in sorted(config.groups):
                carried += await self._rewrite_group(turn, shard, group)
                come[group] = await self._progress_of(config, shard, group)
        return carried + await self._rewrite_messages(turn, shard, come)

    # -- progress of groups

    async def _rewrite_group(self, turn: RewriteTurn, shard: int, group: str) -> int:
        """Replace an old claim of a dead owner by a claim for no member, with a checkpoint under it. Return the number of new records.

        A shard that no member ever had is claimed if messages were purged that no owner compared with the window.
        """
        config = turn.found.config
        tag = tags.queue_owner(config.queue, shard, group)
        record = await self._log.book.read_prev(tag)
        if record is None:
            progress = await self._progress_of(config, shard, group)
            if progress.needs == progress.floor:
                return 0
        elif turn.now_ms - record.time_ms < turn.carry_ms:
            return 0
        name = fence_name(config.queue, shard, group)
        last = await Fence(self._log, tag, name, who="").current()
        if (last is None) != (record is None):
            return 0
        fence = Fence(self._log, tag, name, who=NOBODY, scope="" if last is None else carried_scope(last))
        claim = await fence.take(last)
        checkpoints = Checkpointing(self._log, config.queue, shard, group)
        progress, _ = await checkpoints.load(claim)
        await self._mark_duplicates(progress, config, group, shard, claim)
        await checkpoints.make(progress, fence, turn.found)
        await checkpoints.trim()
        await self._log.book.trim([(tag, claim)])
        return 2

    async def _mark_duplicates(self, progress: Progress, config: Config, group: str, shard: int, last: int) -> None:
        """Tell duplicates from first messages as an owner would: otherwise a duplicate would keep waiting for its first."""
        queue, dropped = config.queue, config.dropped
        found = await old_messages.newest(self._log, queue, shard, await self._log.book.now())
        covers = await old_messages.openable(self._log, queue, shard, found.covers, last, lambda _: True, dropped)
        lowest, read = Id(covers + 1, 0), progress.read
        async for one in old_messages.all_of(self._log, queue, shard, found, covers, dropped):
            dedup = one.item.dedup
            if not is_for(one.item, group):
                continue
            if one.id.seqnum > read and dedup is not None and progress.window.twice(dedup, one.pushed_ms):
                progress.ends(one.id)
            if not progress.is_finished(one.id):
                lowest = min(lowest, one.id)
        progress.read = max(read, covers)
        progress.raise_floor(lowest)

    async def _progress_of(self, config: Config, shard: int, group: str) -> Progress:
        """Return the progress of a group that the log shows."""
        last = await self._log.book.now(consistency="linearizable")
        id = consumer_id(config.queue, shard, group)
        found = await stream(self._log, id, tags.queue_consumer(config.queue, shard, group), last)
        return fold_group(found.rows, config, group).progress

    async def _rewrite_pops(self, turn: RewriteTurn, shard: int) -> tuple[int, dict[str, Progress]]:
        """Rewrite the checkpoint of a popped shard. Return the number of records appended, and the progress as of the oldest checkpoint.

        The oldest checkpoint counts, since a process that popped may still fold from it.
        """
        popper = ShardPopper(self._log, turn.found.config.queue, shard)
        carried = int(await popper.checkpoint_old(turn.is_old))
        head, gone = await popper.oldest()
        come = fold([], head.seqnum if head > START else 1, 0).progress
        come.floor, come.read, come.over = head, max(come.read, max(gone, default=head).seqnum), set(gone)
        return carried, {"": come}

    # -- messages

    async def _rewrite_messages(self, turn: RewriteTurn, shard: int, come: Mapping[str, Progress]) -> int:
        """Append a new set of messages if an old message waits, then trim the records that the set replaces."""
        queue = turn.found.config.queue
        snapshot = await self._log.book.now(consistency="linearizable")
        before = await old_messages.newest(self._log, queue, shard, snapshot)
        carrying = _SetRewrite(self._log, turn, shard, before, snapshot)
        await carrying.run(come)
        if carrying.covers <= before.covers and not (before.covers and turn.is_old(before.time_ms)):
            return 0
        marks = [
            (tags.queue_messages(queue, shard), carrying.covers + 1),
            (tags.queue_old(queue, shard), carrying.first or before.end + 1),
        ]
        await self._log.book.trim([(tag, mark) for tag, mark in marks if mark > 1])
        return carrying.parts


class _SetRewrite:
    """A set of messages while it is appended.

    Attributes:
        covers: messages up to this seqnum are finished or in the set.
        first: seqnum of the set's first part, 0 before it is appended.
        parts: the number of parts appended.
    """

    def __init__(self, log: Log, turn: RewriteTurn, shard: int, before: old_messages.MessageSet, snapshot: int) -> None:
        self.covers = before.covers
        self.first = 0
        self.parts = 0
        self._log = log
        self._turn = turn
        self._shard = shard
        self._before = before
        self._tag = tags.queue_old(turn.found.config.queue, shard)
        self._newest = before.end or snapshot
        self._snapshot = snapshot

    async def run(self, come: Mapping[str, Progress]) -> None:
        """Append the set, part by part. `come`: the progress of each group."""
        queue, dropped = self._turn.found.config.queue, self._turn.found.config.dropped
        self.covers = await old_messages.openable(
            self._log, queue, self._shard, self._before.covers, self._snapshot, self._turn.is_old, dropped
        )
        if self.covers <= self._before.covers and not (self._before.covers and self._turn.is_old(self._before.time_ms)):
            return
        parts: Batches[WaitingMessage, None] = Batches(PART_BYTES)
        async for one in old_messages.all_of(self._log, queue, self._shard, self._before, self.covers, dropped):
            if come and all(
                is_finished(one.id, progress) for group, progress in come.items() if is_for(one.item, group)
            ):
                continue
            parts.add(one, size_of(one))
            if parts.closed:
                await self._append(parts.take().items, last=False)
        if parts:
            await self._append(parts.take().items, last=True)

    async def _append(self, items: Sequence[WaitingMessage], *, last: bool) -> None:
        """Append one part, which expects the part before it."""
        queue = self._turn.found.config.queue
        event = _part(shard_id(queue, self._shard), self.covers, self.first, last, items)
        expect = {**self._turn.fence, self._tag: self._newest}
        self._newest = await self._log.append(Contribution((self._tag,), expect, (event,)), settle=True)
        self.first = self.first or self._newest
        self.parts += 1


def _part(id: str, covers: int, first: int, last: bool, items: Sequence[WaitingMessage]) -> Old:
    """Return the event of a part: of the kind that older versions know, if all of its messages are for all groups."""
    if not any(isinstance(one.item, GroupItem) for one in items):
        return Old(id, covers, first, last, tuple((one.id[0], one.id[1], one.pushed_ms, one.item) for one in items))
    return OldToGroup(
        id, covers, first, last, tuple((one.id[0], one.id[1], one.pushed_ms, for_group(one.item, "")) for one in items)
    )


def carried(log: Log) -> QueueCarried:
    """Return the queues of a book for a `bokilib.Carrier`, which rewrites their old records."""
    return QueueCarried(log)
