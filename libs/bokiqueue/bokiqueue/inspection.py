"""What is in a queue: how much waits, since when, with whom; without being a consumer of it, and without an append.

The streams are folded as an owner folds them, as of one place. Large backlogs take as long as it takes to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError, InvalidArgument, Trimmed
from bokilib import tags
from bokilib.codec import Json
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.fence import PICKER as CLAIMS
from bokilib.lease_rules import LEASE_S
from bokilib.log import Log
from bokilib.members import PICKER as BEATS
from bokiqueue.checkpointing import stream
from bokiqueue.delivery_rules import Deliveries, Entry
from bokiqueue.events import (
    PICKER,
    START,
    Acked,
    Checkpoint,
    Config,
    Dead,
    Id,
    Popped,
    Pushed,
    Source,
    consumer_id,
    items_of,
    shard_id,
)
from bokiqueue.items import json_of
from bokiqueue.old_messages import Set, messages, newest
from bokiqueue.pop_state import PopState
from bokiqueue.pop_state import decode as pop_decode
from bokiqueue.settings import no_such_group
from bokiqueue.shard_member import members_of
from bokiqueue.shard_state import fold

MANY: Final = 255
ALIVE_MS: Final = round(LEASE_S * 1_000)
"""A member that was seen so lately is alive."""
WINDOW_MS: Final = 60_000
"""Rates are of so long."""


class ShardStats(NamedTuple):
    """One shard for one group.

    Attributes:
        owner: who claimed it last, "" nobody. depth: messages that are not done. in_flight: of these, handed out.
        delayed: of these, to come later. oldest_ms: when the oldest was pushed, by the log's clock; None: there is none.
        unopened: records of messages that this program cannot open, each one of `depth`: they are kept, until a consumer can.
    """

    shard: int
    owner: str
    depth: int
    in_flight: int
    delayed: int
    oldest_ms: int | None
    unopened: int = 0


class Seen(NamedTuple):
    """A member of a group, and the time of its newest heartbeat, by the log's clock.

    Attributes:
        leaves: that heartbeat says that the member takes nothing any more: it is being drained, or has left.
    """

    member: str
    seen_ms: int
    leaves: bool = False


class Stats(NamedTuple):
    """A queue for one group.

    Attributes:
        now_ms: the newest time of the log that was seen, 0 for none; `age_ms` is as of then.
        members: of the group, by name: those of which a heartbeat is kept. at_ms: `alive` is as of then.
    """

    queue: str
    group: str
    mode: str
    paused: bool
    shards: list[ShardStats]
    now_ms: int
    members: Sequence[Seen] = ()
    at_ms: int = 0

    @property
    def alive(self) -> list[str]:
        """Members that were seen within a lease, and do not leave."""
        return [one.member for one in self.members if self.at_ms - one.seen_ms <= ALIVE_MS and not one.leaves]

    @property
    def consumed(self) -> bool:
        """Whether a member is alive; a queue that is popped has none."""
        return bool(self.alive)

    @property
    def seen_ms(self) -> int | None:
        """When a member was seen last; None: none is known."""
        return max((one.seen_ms for one in self.members), default=None)

    @property
    def depth(self) -> int:
        """Messages that are not done."""
        return sum(one.depth for one in self.shards)

    @property
    def in_flight(self) -> int:
        """Of these, handed out."""
        return sum(one.in_flight for one in self.shards)

    @property
    def delayed(self) -> int:
        """Of these, to come later."""
        return sum(one.delayed for one in self.shards)

    @property
    def unopened(self) -> int:
        """Of these, records that this program cannot open."""
        return sum(one.unopened for one in self.shards)

    @property
    def age_ms(self) -> int:
        """How long the oldest has waited."""
        oldest = min((one.oldest_ms for one in self.shards if one.oldest_ms is not None), default=None)
        return 0 if oldest is None else max(0, self.now_ms - oldest)


class Peeked(NamedTuple):
    """A message that is not done.

    Attributes:
        attempts: those that failed, and the one that a handler has. state: "waits", "in flight" or "delayed"; "unopened": a whole
            record, which this program cannot open, and `body` is the reason.
    """

    shard: int
    seqnum: int
    number: int
    pushed_ms: int
    state: str
    attempts: int
    key: str | None
    source: Source | None
    body: Json
    priority: int = 0


class Rates(NamedTuple):
    """How fast messages come and go, by what the log keeps of the last minute: `span_ms` of it.

    Attributes:
        pushed_per_s, done_per_s: None where nothing is kept of that minute.
    """

    pushed_per_s: float | None
    done_per_s: float | None
    span_ms: int


class _Shard(NamedTuple):
    stats: ShardStats
    entries: list[Peeked]
    now_ms: int


async def look(log: Log, config: Config, group: str, most: int = 0, *, at_ms: int = 0) -> tuple[Stats, list[Peeked]]:
    """What is in a queue, and its oldest messages, `most` at most.

    Args:
        at_ms: what time it is, for who knows it: the log's time stands still while nobody writes.

    Raises:
        NoSuchGroup.
    """
    if config.mode == "consume" and group not in config.groups:
        raise no_such_group(config, group)
    if config.mode == "pop":
        group = ""
    while True:
        snapshot = await log.book.now(consistency="linearizable")
        last = await log.book.read_prev(at_most=snapshot)
        try:
            shards = [await _look(log, config, group, shard, snapshot, most) for shard in range(config.shards)]
        except boki.Trimmed:  # carried forward, while it was looked
            continue
        break
    now_ms = max([last.time_ms if last is not None else 0, *(shard.now_ms for shard in shards)])
    peeked = sorted((one for shard in shards for one in shard.entries), key=lambda one: (one.seqnum, one.number))
    seen = await _members(log, config, group, snapshot)
    whole = [shard.stats for shard in shards]
    stats = Stats(config.queue, group, config.mode, config.paused, whole, now_ms, seen, max(at_ms, now_ms))
    return stats, peeked[:most]


async def rates(log: Log, config: Config, group: str) -> Rates:
    """How fast a group's messages come and go. Where a shard was trimmed meanwhile, that is a part of the last minute."""
    snapshot = await log.book.now(consistency="linearizable")
    last = await log.book.read_prev(at_most=snapshot)
    if last is None:
        return Rates(None, None, 0)
    if config.mode == "pop":
        group = ""
    now_ms = last.time_ms
    since_ms = now_ms - WINDOW_MS
    counted: list[tuple[int, int]] = []  # (when, how many) of pushes; of what is done it is negative
    for shard in range(config.shards):
        ids = shard_id(config.queue, shard), consumer_id(config.queue, shard, group)
        for tag in (tags.queue_messages(config.queue, shard), tags.queue_consumer(config.queue, shard, group)):
            found, kept_ms = await _counts(log, tag, ids, since_ms, snapshot)
            counted += found
            since_ms = max(since_ms, now_ms if kept_ms is None else kept_ms)
    span_ms = now_ms - since_ms
    if span_ms <= 0:
        return Rates(None, None, 0)
    pushed = sum(count for at_ms, count in counted if count > 0 and at_ms > since_ms)
    done = -sum(count for at_ms, count in counted if count < 0 and at_ms > since_ms)
    return Rates(pushed * 1000 / span_ms, done * 1000 / span_ms, span_ms)


async def _counts(
    log: Log, tag: str, ids: tuple[str, str], since_ms: int, snapshot: int
) -> tuple[list[tuple[int, int]], int | None]:
    """(When, how many) of a stream's pushes, and of what is done as negative numbers; and since when it is kept: None, nothing is."""
    found: list[tuple[int, int]] = []
    trimmed, kept_ms = False, None
    async for item in log.book.read(tag, start=1, stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            trimmed = True
            continue
        kept_ms = item.time_ms if kept_ms is None else kept_ms
        if item.time_ms <= since_ms:
            continue
        try:
            events = PICKER.of(item.seqnum, await log.open(item))
        except BokiError as error:
            if error.retryable:
                raise
            continue
        for event in events:
            if isinstance(event, Pushed) and event.id == ids[0]:
                found.append((item.time_ms, len(event.items)))
            elif isinstance(event, Acked | Dead) and event.id == ids[1]:
                found.append((item.time_ms, -len(event.ids)))
            elif isinstance(event, Popped) and event.id == ids[1]:
                found.append((item.time_ms, -1))
    return found, kept_ms if trimmed else since_ms


async def _look(log: Log, config: Config, group: str, shard: int, snapshot: int, most: int) -> _Shard:
    if config.mode == "pop":
        entries = await _popped(log, config, shard, snapshot)
        peeked = [_peeked(shard, entry, "waits", 0) for entry in entries]
    else:
        peeked = await _consumed(log, config, group, shard, snapshot)
    owner = await _owner(log, config, group, shard, snapshot)
    states = [one.state for one in peeked]
    oldest = min((one.pushed_ms for one in peeked), default=None)
    counts = (len(peeked), states.count("in flight"), states.count("delayed"))
    stats = ShardStats(shard, owner, *counts, oldest, states.count("unopened"))
    return _Shard(stats, peeked[:most], max((one.pushed_ms for one in peeked), default=0))


def _peeked(shard: int, entry: Entry, state: str, attempts: int) -> Peeked:
    item = entry.item
    return Peeked(
        shard,
        entry.id.seqnum,
        entry.id.number,
        entry.pushed_ms,
        state,
        attempts,
        item.key,
        item.source,
        json_of(item),
        item.priority,
    )


async def _consumed(log: Log, config: Config, group: str, shard: int, snapshot: int) -> list[Peeked]:
    """A shard as its next owner would have it."""
    id = consumer_id(config.queue, shard, group)
    found = await stream(log, id, tags.queue_consumer(config.queue, shard, group), snapshot)
    progress = fold(found.rows, config.groups[group], config.dedup_ms).progress
    deliveries = Deliveries(id, progress, attempts_most=0, careful=False, dropped=config.dropped)
    closed: list[Peeked] = []
    tag = tags.queue_messages(config.queue, shard)
    old = await newest(log, config.queue, shard, snapshot)
    async for one in messages(log, config.queue, shard, old, Id(progress.floor.seqnum, -1)):
        deliveries.offer_some(one.id.seqnum, one.pushed_ms, [(one.id.number, one.item)])
    async for item in log.book.read(tag, start=max(progress.floor.seqnum, old.covers + 1, 1), stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            await _check_still(log, config.queue, shard, old, item)
            continue
        try:
            events = PICKER.of(item.seqnum, await log.open(item), about=shard_id(config.queue, shard))
        except BokiError as error:
            if error.retryable:
                raise
            deliveries.passes(item.seqnum)
            if item.seqnum in config.dropped:
                continue
            closed.append(Peeked(shard, item.seqnum, 0, item.time_ms, "unopened", 0, None, None, str(error)))
            continue
        deliveries.offer(item.seqnum, item.time_ms, items_of(events))
    peeked = []
    for entry in deliveries.entries.values():
        state = "in flight" if progress.is_delivered(entry.id) else "delayed" if entry.due_ms else "waits"
        peeked.append(_peeked(shard, entry, state, progress.attempt(entry.id)))
    return sorted([*peeked, *closed], key=lambda one: (one.seqnum, one.number))


async def check_unopened(log: Log, config: Config, seqnum: int) -> None:
    """Raises InvalidArgument: there is no record of the queue's messages, or this program can open it."""
    await log.book.now(consistency="linearizable")
    places = [(tags.queue_messages(config.queue, shard), seqnum) for shard in range(config.shards)]
    for first in range(0, len(places), MANY):
        for record in await log.book.read_prev_many(places[first : first + MANY]):
            if record is None or record.seqnum != seqnum:
                continue
            try:
                PICKER.of(seqnum, await log.open(record))
            except BokiError as error:
                if error.retryable:
                    raise
                return
            raise InvalidArgument(f"record {seqnum} can be opened: its messages are consumed, or purged", found=seqnum)
    raise InvalidArgument(
        f"expected a record of messages of queue {config.queue!r}, found none at {seqnum}: `peek` names them",
        found=seqnum,
    )


async def _check_still(log: Log, queue: str, shard: int, old: Set, gap: boki.Gap) -> None:
    """Raises Trimmed: messages were carried forward since it was looked."""
    if gap.kind is not boki.GapKind.TRIMMED or gap.last <= old.covers:
        return
    if (await newest(log, queue, shard, await log.book.now())).covers > old.covers:
        raise gap.error()


async def _popped(log: Log, config: Config, shard: int, snapshot: int) -> list[Entry]:
    """What waits in a shard that is popped."""
    ids = shard_id(config.queue, shard), consumer_id(config.queue, shard, "")
    state = PopState(START, 0)
    async for item in log.book.read(tags.queue_owner(config.queue, shard, "")):
        if isinstance(item, boki.Record):
            for event in PICKER.of(item.seqnum, await log.open(item), about=ids[1]):
                if isinstance(event, Checkpoint):
                    state = pop_decode(event.data, event.covers)
    covers = state.position
    times: dict[int, int] = {}
    old = await newest(log, config.queue, shard, snapshot)
    after = Id(state.head.seqnum, state.head.number - 1)
    carried = [one async for one in messages(log, config.queue, shard, old, after)]
    times |= {one.id.seqnum: one.pushed_ms for one in carried}
    state.carried((one.id, one.item) for one in carried)
    for chosen, start, last in (
        ([tags.queue_messages(config.queue, shard)], max(state.head.seqnum, old.covers + 1, 1), covers),
        (
            [tags.queue_messages(config.queue, shard), tags.queue_consumer(config.queue, shard, "")],
            covers + 1,
            snapshot,
        ),
    ):
        if start > last:
            continue
        async for item in log.book.read(tags=chosen, start=start, stop=last + 1):
            if isinstance(item, boki.Gap):
                if item.tag == tags.queue_messages(config.queue, shard):
                    await _check_still(log, config.queue, shard, old, item)
                continue
            times[item.seqnum] = item.time_ms
            events = PICKER.of(item.seqnum, await log.open(item))
            items = tuple(
                one for event in events if isinstance(event, Pushed) and event.id == ids[0] for one in event.items
            )
            if items:
                state.pushed(item.seqnum, items)
            if any(isinstance(event, Popped) and event.id == ids[1] for event in events):
                state.popped(item.seqnum, mine=False)
    state.reaches(snapshot)
    return [Entry(id, item, times[id.seqnum]) for id, item in state.waiting()]


async def _members(log: Log, config: Config, group: str, snapshot: int) -> list[Seen]:
    """Members whose heartbeats are kept. What a later version or somebody else wrote there is passed."""
    about = members_of(config.queue, group)
    seen: dict[str, Seen] = {}
    async for item in log.book.read(tags.member(about), start=1, stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            continue
        try:
            beats = BEATS.of(item.seqnum, await log.open(item), about=about)
        except BokiError as error:
            if error.retryable:
                raise
            continue
        seen.update((beat.member, Seen(beat.member, item.time_ms, beat.leaving)) for beat in beats)
    return [seen[name] for name in sorted(seen)]


async def _owner(log: Log, config: Config, group: str, shard: int, snapshot: int) -> str:
    record = await log.book.read_prev(tags.queue_owner(config.queue, shard, group), at_most=snapshot)
    if record is None or config.mode == "pop":
        return ""
    return next((event.who for event in CLAIMS.of(record.seqnum, await log.open(record))), "")


async def newest_source(log: Log, config: Config) -> str:
    """Return the queue that the newest message of a queue is a dead letter of; "" if it is none, or is not kept."""
    asked = [(tags.queue_messages(config.queue, shard), None) for shard in range(config.shards)]
    try:
        records = [one for one in await log.book.read_prev_many(asked) if one is not None]
    except Trimmed:
        return ""
    if not records:
        return ""
    record = max(records, key=lambda one: one.seqnum)
    try:
        events = PICKER.of(record.seqnum, await log.open(record))
    except (ForeignRecord, UnknownEvent):
        return ""
    pushed = [item for one in events if isinstance(one, Pushed) for item in one.items]
    return next((item.source.queue for item in reversed(pushed) if item.source is not None), "")


async def queues(log: Log) -> list[Config]:
    """All queues of a book, by name. It reads the whole book: for tools; programs know theirs."""
    found: dict[str, Config] = {}
    async for item in log.book.read():
        if isinstance(item, boki.Gap):
            continue
        try:
            events = PICKER.of(item.seqnum, await log.open(item))
        except (ForeignRecord, UnknownEvent):
            continue
        found |= {event.queue: event for event in events if isinstance(event, Config)}
    return [found[name] for name in sorted(found) if not found[name].deleted]
