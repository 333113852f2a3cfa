"""The contents of a queue: how many messages wait, for how long, and which members consume. No member is needed and nothing is appended.

Streams are folded as an owner folds them, as of one place. Reading a large backlog takes time in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError, InvalidArgument, Trimmed
from bokilib.append.fence import PICKER as CLAIMS
from bokilib.append.log import Log
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.follow.lease_rules import LEASE_S
from bokilib.follow.members import PICKER as BEATS
from bokilib.records import tags
from bokilib.records.codec import Json
from bokiqueue.checkpoint.checkpointing import stream
from bokiqueue.checkpoint.old_messages import MessageSet, messages, newest
from bokiqueue.model.delivery_rules import BufferedMessage, DeliverySchedule
from bokiqueue.model.events import (
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
    is_for,
    items_of,
    shard_id,
)
from bokiqueue.model.items import json_of
from bokiqueue.model.pop_state import PopState
from bokiqueue.model.pop_state import decode as pop_decode
from bokiqueue.model.shard_state import fold_group
from bokiqueue.push import strays
from bokiqueue.settings import no_such_group
from bokiqueue.shard.shard_owner import members_of

FOR_ALL: Final = 1 << 40
"""More messages than a stream has."""
MANY: Final = 255
"""The most places in one call of `read_prev_many`."""
ALIVE_MS: Final = round(LEASE_S * 1_000)
"""The time since its last heartbeat within which a member is alive."""
WINDOW_MS: Final = 60_000
"""The time span of rates."""


class ShardStats(NamedTuple):
    """A shard, for one group.

    Attributes:
        owner: the member that claimed it last, "" if it was released.
        depth: the number of unfinished messages.
        in_flight: the number of these that are delivered.
        delayed: the number of these that wait for their time.
        oldest_ms: the time at which the oldest was pushed, by the log's clock; None if there is none.
        unopened: records of messages that this program cannot open, counted once each in `depth`. They are kept until a
            consumer can.
    """

    shard: int
    owner: str
    depth: int
    in_flight: int
    delayed: int
    oldest_ms: int | None
    unopened: int = 0


class SeenMember(NamedTuple):
    """A member of a group, and the time of its newest heartbeat by the log's clock.

    Attributes:
        leaves: True if that heartbeat says that the member takes no more messages: it is being drained, or has left.
    """

    member: str
    seen_ms: int
    leaves: bool = False


class Stats(NamedTuple):
    """A queue, for one group.

    Attributes:
        now_ms: the newest time of the log, 0 for none; `age_ms` is as of then.
        members: members of the group of which a heartbeat is kept, by name.
        at_ms: the time as of which members are alive.
    """

    queue: str
    group: str
    mode: str
    paused: bool
    shards: list[ShardStats]
    now_ms: int
    members: Sequence[SeenMember] = ()
    at_ms: int = 0

    @property
    def alive(self) -> list[str]:
        """Members that were seen within a lease and do not leave."""
        return [one.member for one in self.members if self.at_ms - one.seen_ms <= ALIVE_MS and not one.leaves]

    @property
    def consumed(self) -> bool:
        """True if a member is alive; a popped queue has none."""
        return bool(self.alive)

    @property
    def seen_ms(self) -> int | None:
        """The time of the newest heartbeat; None if no member is known."""
        return max((one.seen_ms for one in self.members), default=None)

    @property
    def depth(self) -> int:
        """The number of unfinished messages."""
        return sum(one.depth for one in self.shards)

    @property
    def in_flight(self) -> int:
        """The number of delivered messages."""
        return sum(one.in_flight for one in self.shards)

    @property
    def delayed(self) -> int:
        """The number of messages that wait for their time."""
        return sum(one.delayed for one in self.shards)

    @property
    def unopened(self) -> int:
        """The number of records that this program cannot open."""
        return sum(one.unopened for one in self.shards)

    @property
    def age_ms(self) -> int:
        """The time since the oldest message was pushed."""
        oldest = min((one.oldest_ms for one in self.shards if one.oldest_ms is not None), default=None)
        return 0 if oldest is None else max(0, self.now_ms - oldest)


class Peeked(NamedTuple):
    """An unfinished message.

    Attributes:
        attempts: the number of failed attempts, plus one while a handler has the message.
        state: "waits", "in flight" or "delayed"; "unopened" for a whole record that this program cannot open, with the
            reason as `body`.
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
    """Messages per second, from what the log keeps of the last minute.

    Attributes:
        pushed_per_s: None if nothing of that minute is kept.
        done_per_s: likewise, of finished messages.
        span_ms: the part of the minute that is kept.
    """

    pushed_per_s: float | None
    done_per_s: float | None
    span_ms: int


class _Shard(NamedTuple):
    stats: ShardStats
    entries: list[Peeked]
    now_ms: int


async def look(log: Log, config: Config, group: str, most: int = 0, *, at_ms: int = 0) -> tuple[Stats, list[Peeked]]:
    """Return the statistics of a queue for one group, with its oldest messages.

    Args:
        most: the most messages to return.
        at_ms: the current time, if the caller knows it: the log's time stands still while no writer appends.

    Raises:
        NoSuchGroup: the group is not registered.
    """
    if config.mode == "consume" and group not in config.groups:
        raise no_such_group(config, group)
    if config.mode == "pop":
        group = ""
    snapshot = await log.book.now(consistency="linearizable")
    last = await log.book.read_prev(at_most=snapshot)
    shards: list[_Shard] = []
    while len(shards) < config.shards:
        try:
            shards.append(await _look(log, config, group, len(shards), snapshot, most))
        except boki.Trimmed:  # rewritten while it was read: this shard and those behind it are read as of a later place
            snapshot = await log.book.now()
    now_ms = max([last.time_ms if last is not None else 0, *(shard.now_ms for shard in shards)])
    shards += await _strays(log, config, snapshot, most)
    peeked = sorted((one for shard in shards for one in shard.entries), key=lambda one: (one.seqnum, one.number))
    seen = await _members(log, config, group, snapshot)
    whole = [shard.stats for shard in shards]
    stats = Stats(config.queue, group, config.mode, config.paused, whole, now_ms, seen, max(at_ms, now_ms))
    return stats, peeked[:most]


async def rates(log: Log, config: Config, group: str) -> Rates:
    """Return how fast a group's messages come and go. If a shard was trimmed meanwhile the span is a part of the last minute."""
    snapshot = await log.book.now(consistency="linearizable")
    last = await log.book.read_prev(at_most=snapshot)
    if last is None:
        return Rates(None, None, 0)
    if config.mode == "pop":
        group = ""
    now_ms = last.time_ms
    since_ms = now_ms - WINDOW_MS
    counted: list[tuple[int, int]] = []  # (time, number) of pushed messages; negative numbers are of finished ones
    for shard in range(config.shards):
        ids = shard_id(config.queue, shard), consumer_id(config.queue, shard, group)
        for tag in (tags.queue_messages(config.queue, shard), tags.queue_consumer(config.queue, shard, group)):
            found, kept_ms = await _counts(log, tag, ids, group, since_ms, snapshot)
            counted += found
            since_ms = max(since_ms, now_ms if kept_ms is None else kept_ms)
    span_ms = now_ms - since_ms
    if span_ms <= 0:
        return Rates(None, None, 0)
    pushed = sum(count for at_ms, count in counted if count > 0 and at_ms > since_ms)
    done = -sum(count for at_ms, count in counted if count < 0 and at_ms > since_ms)
    return Rates(pushed * 1000 / span_ms, done * 1000 / span_ms, span_ms)


async def _counts(
    log: Log, tag: str, ids: tuple[str, str], group: str, since_ms: int, snapshot: int
) -> tuple[list[tuple[int, int]], int | None]:
    """Return (time, number) of a stream's pushed and finished messages, and the time since which the stream is kept.

    Numbers of finished messages are negative. The time is None if nothing is kept.
    """
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
                found.append((item.time_ms, sum(is_for(one, group) for one in event.items)))
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


async def _strays(log: Log, config: Config, snapshot: int, most: int) -> list[_Shard]:
    """Return the shards that the queue does not have, as far as messages in their streams wait to be moved."""
    by_shard: dict[int, list[Peeked]] = {}
    for one in await strays.find(log, config, snapshot, FOR_ALL):
        if one.message is None:
            peeked = Peeked(one.shard, one.seqnum, 0, 0, "unopened", 0, None, None, "it cannot be opened")
        else:
            entry = BufferedMessage(one.message.id, one.message.item, one.message.pushed_ms)
            peeked = _peeked(one.shard, entry, "waits", 0)
        by_shard.setdefault(one.shard, []).append(peeked)
    found = []
    for shard, several in by_shard.items():
        unopened = sum(one.state == "unopened" for one in several)
        oldest = min((one.pushed_ms for one in several if one.state != "unopened"), default=None)
        found.append(_Shard(ShardStats(shard, "", len(several), 0, 0, oldest, unopened), several[:most], oldest or 0))
    return found


def _peeked(shard: int, entry: BufferedMessage, state: str, attempts: int) -> Peeked:
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
    """Return the messages of a shard as its next owner would have them."""
    id = consumer_id(config.queue, shard, group)
    found = await stream(log, id, tags.queue_consumer(config.queue, shard, group), snapshot)
    progress = fold_group(found.rows, config, group).progress
    schedule = DeliverySchedule(id, progress, attempts_most=0, careful=False, group=group, dropped=config.dropped)
    closed: list[Peeked] = []
    tag = tags.queue_messages(config.queue, shard)
    old = await newest(log, config.queue, shard, snapshot)
    async for one in messages(log, config.queue, shard, old, Id(progress.needs.seqnum, -1)):
        schedule.offer_some(one.id.seqnum, one.pushed_ms, [(one.id.number, one.item)])
    async for item in log.book.read(tag, start=max(progress.needs.seqnum, old.covers + 1, 1), stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            await _check_still(log, config.queue, shard, old, item)
            continue
        try:
            events = PICKER.of(item.seqnum, await log.open(item), about=shard_id(config.queue, shard))
        except BokiError as error:
            if error.retryable:
                raise
            if schedule.passes(item.seqnum):
                closed.append(Peeked(shard, item.seqnum, 0, item.time_ms, "unopened", 0, None, None, str(error)))
            continue
        schedule.offer(item.seqnum, item.time_ms, items_of(events))
    peeked = []
    for entry in schedule.entries.values():
        state = "in flight" if progress.is_delivered(entry.id) else "delayed" if entry.due_ms else "waits"
        peeked.append(_peeked(shard, entry, state, progress.attempt(entry.id)))
    return sorted([*peeked, *closed], key=lambda one: (one.seqnum, one.number))


async def check_unopened(log: Log, config: Config, seqnum: int) -> None:
    """Check that `seqnum` is a record of the queue's messages that this program cannot open.

    Raises:
        InvalidArgument: it is no such record, or can be opened.
    """
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


async def _check_still(log: Log, queue: str, shard: int, old: MessageSet, gap: boki.Gap) -> None:
    """Raise Trimmed if the gap is due to messages that were rewritten since `old` was read."""
    if gap.kind is not boki.GapKind.TRIMMED or gap.last <= old.covers:
        return
    if (await newest(log, queue, shard, await log.book.now())).covers > old.covers:
        raise gap.error()


async def _popped(log: Log, config: Config, shard: int, snapshot: int) -> list[BufferedMessage]:
    """Return the waiting messages of a shard that is popped."""
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
    return [BufferedMessage(id, item, times[id.seqnum]) for id, item in state.waiting()]


async def _members(log: Log, config: Config, group: str, snapshot: int) -> list[SeenMember]:
    """Return members whose heartbeats are kept. Records of later versions or of other writers in the stream are skipped."""
    about = members_of(config.queue, group)
    seen: dict[str, SeenMember] = {}
    async for item in log.book.read(tags.member(about), start=1, stop=snapshot + 1):
        if isinstance(item, boki.Gap):
            continue
        try:
            beats = BEATS.of(item.seqnum, await log.open(item), about=about)
        except BokiError as error:
            if error.retryable:
                raise
            continue
        seen.update((beat.member, SeenMember(beat.member, item.time_ms, beat.leaving)) for beat in beats)
    return [seen[name] for name in sorted(seen)]


async def _owner(log: Log, config: Config, group: str, shard: int, snapshot: int) -> str:
    record = await log.book.read_prev(tags.queue_owner(config.queue, shard, group), at_most=snapshot)
    if record is None or config.mode == "pop":
        return ""
    return next((event.who for event in CLAIMS.of(record.seqnum, await log.open(record))), "")


async def newest_source(log: Log, config: Config) -> str:
    """Return the queue that the newest message of this queue is a dead letter of; "" if it is none, or not kept."""
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
    """Return all queues of a book, by name. It reads the whole book, which is for tools: programs know their queues."""
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
