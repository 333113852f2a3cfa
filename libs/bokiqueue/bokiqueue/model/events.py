"""The events in the records of queues. Pure.

| event | in the stream | is |
|---|---|---|
| queue.config | cfg | the settings of the queue from then on: groups, limits, whether it is paused |
| queue.push | p | messages, in order |
| queue.push.group | p | messages of which each is for one group alone |
| queue.deliver | c | messages that the owner of a shard delivers |
| queue.ack | c | finished messages |
| queue.nack | c | messages to redeliver when they are due |
| queue.dead | c | messages that are given up; the same record pushes them to the queue of dead letters, if there is one |
| queue.ck | c, of a popped queue ck | a part of a checkpoint: the state as of `covers` |
| queue.pop | c | takes the next message, if there is one |
| queue.old | old | a part of a set: unfinished messages up to `covers`, rewritten under their ids |
| queue.moved? | moved | how far messages in streams of shards that the queue does not have were moved to its shards |
| queue.old.group | old | such a part, if one of its messages is for one group alone |

A message's id is (seqnum of the record that pushed it, number in that record). Streams have the ids `queue/shard` and
`queue/shard/group`; a group's name has no slash.

Versions that do not know messages for one group would deliver them to all. So these have kinds of their own, which such a version
refuses: its owners keep the record for one that can open it, as any record of a later version. The bytes of all other messages are
as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from bokilib.records.events import Event, Picker

LIBRARY: Final = "queue"
Mode: TypeAlias = Literal["consume", "pop"]


class Id(NamedTuple):
    """The id of a message: the record that pushed it, and its number in that record."""

    seqnum: int
    number: int

    def __str__(self) -> str:
        """Return the id as `boki queue peek` and log lines print it."""
        return f"{self.seqnum}-{self.number}"


START: Final = Id(0, 0)


class Source(msgspec.Struct, array_like=True, frozen=True):
    """The origin of a dead letter.

    A letter that becomes a letter of another queue keeps its first queue and id, and has the newest failure.

    Attributes:
        attempts: the number of failed attempts.
        reason: why the message was given up.
        error: type and text of the last attempt's error, bounded (`failures`); "" if it raised none. Older versions
            ignore it.
        stack: the stack of that error, likewise.
        group: the group that gave the message up; "" in letters of older versions, which ignore it.
    """

    queue: str
    shard: int
    seqnum: int
    number: int
    attempts: int
    reason: str
    error: str = ""
    stack: str = ""
    group: str = ""


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A message as it is pushed.

    Attributes:
        body: JSON, encoded as msgpack.
        key: messages of one key are handled in order, one at a time.
        dedup: the deduplication id; the first message of an id within the queue's window counts.
        delay_ms: the time after its record's time before it may be delivered.
        source: the origin of a dead letter.
        priority: 0 to 9, the highest first (`priority_rules`).
    """

    body: msgspec.Raw
    key: str | None = None
    dedup: str | None = None
    delay_ms: int = 0
    source: Source | None = None
    priority: int = 0


class GroupItem(Item, array_like=True, frozen=True):
    """A message for one group alone, in events whose kinds say so.

    Attributes:
        group: the name of the group; "" for all.
    """

    group: str = ""


def is_for(item: Item, group: str) -> bool:
    """Return True if a group gets a message."""
    return not isinstance(item, GroupItem) or item.group in ("", group)


def group_of(item: Item) -> str:
    """Return the only group that gets a message; "" for all."""
    return item.group if isinstance(item, GroupItem) else ""


def for_all(item: Item) -> Item:
    """Return a message, without the empty name if it is for all groups."""
    if isinstance(item, GroupItem) and not item.group:
        return Item(item.body, item.key, item.dedup, item.delay_ms, item.source, item.priority)
    return item


def for_group(item: Item, group: str) -> GroupItem:
    """Return a message as one for a group alone; a message that is for one already stays so."""
    if isinstance(item, GroupItem):
        return item
    return GroupItem(item.body, item.key, item.dedup, item.delay_ms, item.source, item.priority, group)


class Limits(msgspec.Struct, array_like=True, frozen=True):
    """How many messages of a queue may be handled at once and per second; 0 means no limit.

    Attributes:
        in_flight: messages of a group that are delivered and undecided.
        per_second: messages delivered per second.
        key_per_second: messages of one key delivered per second; at most one of a key is in flight anyway.
    """

    in_flight: int = 0
    per_second: float = 0.0
    key_per_second: float = 0.0


class Config(Event, tag="queue.config", frozen=True):
    """The settings of a queue.

    Attributes:
        groups: groups of consumers, each with the seqnum from which it gets messages: that of its registration, or of
            its last purge.
        max_deliveries: failed attempts before a message becomes a dead letter, 0 for any number; without effect in a
            queue without dead letters (`attempts_most`).
        key_rates: messages per second of single keys that differ from `limits`, 0 for any number.
        dropped: records of messages that could not be opened and that no group gets.
        deleted: True if the queue is deleted from then on.
        registered: groups that a former registration may have left records of, or that were purged, each with the
            seqnum of its registration: records below it belong to a former one. Older versions ignore it, and leave it
            out of settings that they write.
        made: the seqnum from which messages are those of this queue, if one of its name was deleted before; else 0. Older versions
            ignore it and `streams`, and leave them out likewise.
        streams: the most shards that queues of this name had before it, to which programs that have one of these open may push still.
    """

    queue: str
    mode: Mode
    shards: int
    max_deliveries: int
    dead_letter: str | None
    dedup_ms: int
    limits: Limits
    groups: dict[str, int]
    paused: bool = False
    key_rates: dict[str, float] = msgspec.field(default_factory=dict)
    dropped: tuple[int, ...] = ()
    deleted: bool = False
    registered: dict[str, int] = msgspec.field(default_factory=dict)
    made: int = 0
    streams: int = 0

    @property
    def attempts_most(self) -> int:
        """Failed attempts before a message becomes a dead letter; 0 if it is redelivered without limit."""
        return self.max_deliveries if self.dead_letter is not None else 0

    def window_from(self, group: str) -> int:
        """Return the first record of messages that a group compares: that of its registration, also after a purge."""
        return self.registered.get(group, self.groups[group])


class Pushed(Event, tag="queue.push", frozen=True):
    """Messages pushed to one shard."""

    id: str
    items: tuple[Item, ...]


class PushedToGroup(Pushed, tag="queue.push.group", frozen=True):
    """Messages pushed to one shard, of which each is for one group alone. The other groups pass them."""

    items: tuple[GroupItem, ...]


class Delivered(Event, tag="queue.deliver", frozen=True):
    """A delivery of all messages up to `upto` that are not in `held`.

    Attributes:
        held: messages that `upto` passes with this record without delivering them.
        again: (seqnum, number, attempt) of messages below the former `upto` that are delivered: held ones and
            redelivered ones.
        unopened: records of messages that `upto` passes with this record and that the owner could not open.
        guarded: (seqnum, number, guard) of messages that are delivered with restrictions, as one whose process died
            (`shard_state.SINGLY`, `ALONE`, `BY_ITSELF`). Older versions ignore it.
    """

    id: str
    upto: Id
    held: tuple[Id, ...] = ()
    again: tuple[tuple[int, int, int], ...] = ()
    unopened: tuple[int, ...] = ()
    guarded: tuple[tuple[int, int, int], ...] = ()


class Acked(Event, tag="queue.ack", frozen=True):
    """Finished messages."""

    id: str
    ids: tuple[Id, ...]


class Nacked(Event, tag="queue.nack", frozen=True):
    """Messages to redeliver: (seqnum, number, failed attempts, due time by the clock of the log)."""

    id: str
    items: tuple[tuple[int, int, int, int], ...]


class Dead(Event, tag="queue.dead", frozen=True):
    """Messages that are given up."""

    id: str
    ids: tuple[Id, ...]


class Checkpoint(Event, tag="queue.ck", frozen=True):
    """A part of the state as of `covers`."""

    id: str
    covers: int
    part: int
    parts: int
    data: bytes


class Old(Event, tag="queue.old", frozen=True):
    """A part of a set of rewritten messages (`old_rules`).

    Attributes:
        first: the seqnum of the set's first part; 0 in that part itself.
        last: True in the last part.
        items: (seqnum, number, time of the original record, message), in order.
    """

    id: str
    covers: int
    first: int
    last: bool
    items: tuple[tuple[int, int, int, Item], ...] = ()


class OldToGroup(Old, tag="queue.old.group", frozen=True):
    """Such a part with messages of which one is for one group alone."""

    items: tuple[tuple[int, int, int, GroupItem], ...] = ()


class Popped(Event, tag="queue.pop", frozen=True):
    """A pop, which takes the next of the messages before it.

    Attributes:
        token: tells poppers under one incarnation apart.
    """

    id: str
    token: str = ""


class Moved(Event, tag="queue.moved?", frozen=True):
    """Messages in streams of shards that the queue does not have were pushed to its shards, by the same record (`strays`).

    Attributes:
        id: the name of the queue.
        upto: the last message of each stream that was moved, and (shard, id) of those before that are not trimmed yet.
    """

    id: str
    upto: tuple[tuple[int, Id], ...]


ConsumerEvent: TypeAlias = Delivered | Acked | Nacked | Dead | Checkpoint
AnyEvent: TypeAlias = Config | Pushed | ConsumerEvent | Popped | Old | Moved
PICKER: Final[Picker[AnyEvent]] = Picker(
    LIBRARY, (Config, Pushed, PushedToGroup, Delivered, Acked, Nacked, Dead, Checkpoint, Popped, Old, OldToGroup, Moved)
)


def shard_id(queue: str, shard: int) -> str:
    """Return the id of a shard's messages in events."""
    return f"{queue}/{shard}"


def consumer_id(queue: str, shard: int, group: str) -> str:
    """Return the id of a consumer stream in events."""
    return f"{queue}/{shard}/{group}"


def items_of(events: Sequence[AnyEvent]) -> tuple[Item, ...]:
    """Return the messages that events about one shard push."""
    return tuple(one for event in events if isinstance(event, Pushed) for one in event.items)
