"""What a queue writes: the events of its records. Pure.

| event | in the stream | is |
|---|---|---|
| queue.config | cfg | all that is so of the queue since then: settings, groups, whether it is paused |
| queue.push | p | messages, in order |
| queue.deliver | c | what the owner of a shard hands out |
| queue.ack | c | messages that are done |
| queue.nack | c | messages that come again, when they are due |
| queue.dead | c | messages that are given up; the same record pushes them to the queue of dead letters, if there is one |
| queue.ck | c, of a popped queue ck | a part of a checkpoint: the state as of `covers` |
| queue.pop | c | takes the next message, if there is one |
| queue.old | old | a part of a set: messages up to `covers` that wait still, carried forward under their ids |

A message's id is where it was pushed: (seqnum of the record, number in it). Ids of streams are `queue/shard` and
`queue/shard/group`; a group's name has no slash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from bokilib.events import Event, Picker

LIBRARY: Final = "queue"
Mode: TypeAlias = Literal["consume", "pop"]


class Id(NamedTuple):
    """A message: the record that pushed it, and which of it."""

    seqnum: int
    number: int

    def __str__(self) -> str:
        """Return the id as `boki queue peek` and log lines print it."""
        return f"{self.seqnum}-{self.number}"


START: Final = Id(0, 0)


class Source(msgspec.Struct, array_like=True, frozen=True):
    """Where a dead letter comes from.

    Attributes:
        attempts: those that failed. reason: why it was given up.
        error, stack: of the last attempt, type and text, bounded (`failures`); "" where it raised none. Older versions pass them.
    """

    queue: str
    shard: int
    seqnum: int
    number: int
    attempts: int
    reason: str
    error: str = ""
    stack: str = ""


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A message as it is pushed.

    Attributes:
        body: JSON, as msgpack. key: messages of one key are handled in order, one at a time.
        dedup: of several with the same within the queue's window the first counts.
        delay_ms: after its record's time it may be handed out.
        source: of a dead letter. priority: 0 to 9, the higher first (`priority_rules`).
    """

    body: msgspec.Raw
    key: str | None = None
    dedup: str | None = None
    delay_ms: int = 0
    source: Source | None = None
    priority: int = 0


class Limits(msgspec.Struct, array_like=True, frozen=True):
    """How much of a queue may be handled at once; 0: no limit.

    Attributes:
        in_flight: messages of a group that are handed out and not decided. per_second: messages handed out.
        key_per_second: messages of one key handed out; of a key one is in flight anyhow.
    """

    in_flight: int = 0
    per_second: float = 0.0
    key_per_second: float = 0.0


class Config(Event, tag="queue.config", frozen=True):
    """All that is so of a queue.

    Attributes:
        groups: of consumers, each with the seqnum from which it gets messages.
        max_deliveries: failed attempts until a message becomes a dead letter, 0: any number; of a queue without dead letters it means
            nothing (`attempts_most`). key_rates: messages a second of single keys, 0 for any, where not as of `limits`.
        dropped: records of messages that could not be opened, and that nobody gets. deleted: there is no such queue since then.
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

    @property
    def attempts_most(self) -> int:
        """Failed attempts until a message becomes a dead letter; 0: it comes again, as often as it takes."""
        return self.max_deliveries if self.dead_letter is not None else 0


class Pushed(Event, tag="queue.push", frozen=True):
    """Messages of one shard."""

    id: str
    items: tuple[Item, ...]


class Delivered(Event, tag="queue.deliver", frozen=True):
    """All up to `upto` was handed out once, but for `held`.

    Attributes:
        held: of those that `upto` passes with this record. again: (seqnum, number, attempt): what was held, or comes again.
        unopened: records of messages that `upto` passes with this record, and that the owner could not open.
        guarded: (seqnum, number, guard): of messages whose handler's process died, or that nothing else is beside, with what beside them
            they are handed out now (`shard_state.SINGLY`, `ALONE`, `BY_ITSELF`). Older versions pass it.
    """

    id: str
    upto: Id
    held: tuple[Id, ...] = ()
    again: tuple[tuple[int, int, int], ...] = ()
    unopened: tuple[int, ...] = ()
    guarded: tuple[tuple[int, int, int], ...] = ()


class Acked(Event, tag="queue.ack", frozen=True):
    """Messages that are done."""

    id: str
    ids: tuple[Id, ...]


class Nacked(Event, tag="queue.nack", frozen=True):
    """Messages that come again: (seqnum, number, attempts that failed, when by the clock of the log)."""

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
    """A part of a set of messages that were carried forward (`old_rules`).

    Attributes:
        first: seqnum of the set's first part; 0: this is it. last: whether it is the last.
        items: (seqnum, number, time of its record, message), in order.
    """

    id: str
    covers: int
    first: int
    last: bool
    items: tuple[tuple[int, int, int, Item], ...] = ()


class Popped(Event, tag="queue.pop", frozen=True):
    """Takes the next message of those before it. `token`: who pops, of those under one incarnation."""

    id: str
    token: str = ""


ConsumerEvent: TypeAlias = Delivered | Acked | Nacked | Dead | Checkpoint
AnyEvent: TypeAlias = Config | Pushed | ConsumerEvent | Popped | Old
PICKER: Final[Picker[AnyEvent]] = Picker(
    LIBRARY, (Config, Pushed, Delivered, Acked, Nacked, Dead, Checkpoint, Popped, Old)
)


def shard_id(queue: str, shard: int) -> str:
    """The id in events of a shard's messages."""
    return f"{queue}/{shard}"


def consumer_id(queue: str, shard: int, group: str) -> str:
    """The id in events of a shard's consumer."""
    return f"{queue}/{shard}/{group}"


def items_of(events: Sequence[AnyEvent]) -> tuple[Item, ...]:
    """Messages that a record pushes, of events about one shard."""
    return tuple(one for event in events if isinstance(event, Pushed) for one in event.items)
