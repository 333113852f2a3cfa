"""The events in the records of machines. Pure.

| event | in the stream | is |
|---|---|---|
| rsm.claim | own | a claim of a partition, or its release |
| rsm.input | p | messages from outside, in order |
| rsm.create | p, with a key also m | a machine created from outside, and its first event |
| rsm.commit | p of its machine and of those that it writes to, r of those that it answers | all that one handler took, changed and sent |
| rsm.out | p | the outputs of a commit of this record, for plugins |
| rsm.done | p, and p of the machines that get answers | outputs that a plugin has delivered, and what it answered |
| rsm.undelivered | p | a plugin failed repeatedly: its output waits |
| rsm.fault | p, r | a handler that failed: its machine waits |
| rsm.resume, rsm.skip | p | what a person decided about a fault |
| rsm.snap | m | a snapshot, or a part of one: the state of a machine as of its commit `k` |
| rsm.ck | ck | a checkpoint, or a part of one: the state of a partition as of `covers` |

A *message* is an event for a machine, or a machine to create. Its id is (seqnum of its record, number): the messages of a record are
numbered through all its events, in order, those of a commit beginning with the machines that it creates. A commit names the messages that
it took; 0 stands for the seqnum of its own record, which is not known when it is written.

An *output* is an event for a plugin, a part of the commit that emitted it. Its id is (seqnum of its record, number), numbered apart from
messages. The outputs of a commit are an event of their own, so that programs which know no plugins stop at them, and lose none.

Machines are written as `group/partition/name` (`bokirsm.machine.refs`). Values are bytes, encoded by the classes that declare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from bokilib.records.events import Event, Picker

LIBRARY: Final = "rsm"
SAME_RECORD: Final = 0
"""The seqnum, in a list of taken messages, of the record that the list is in."""

UNRECORDED: Final = -2
"""The seqnum, in a list of taken messages, of a message that was sent at most once within a host, and is in no record."""

DROPPED: Final = 0
"""The number of a commit that only takes messages: their machine does not exist, or has halted."""

Outcome: TypeAlias = Literal["answer", "refused", "faulted", "missing"]


class MessageId(NamedTuple):
    """The id of a message: the record that has it, and its number in that record."""

    seqnum: int
    number: int

    def __str__(self) -> str:
        return f"{self.seqnum}-{self.number}"


class PartRef(NamedTuple):
    """The place of a part of a large state: the record that has it, and its number (`part`) there."""

    seqnum: int
    part: int


class Message(msgspec.Struct, array_like=True, frozen=True):
    """An event for a machine, or a machine to create with its first event.

    Attributes:
        to: the machine.
        event: the stored name of the event; "" if a machine is created without one.
        body: the encoded event.
        kind: the stored name of the class to create; "" if the machine exists.
        dedup: an id of the sender: of two messages to a machine with one id the second is dropped.
        digest: of a creation with a key: a hash of its class and first event.
    """

    to: str
    event: str = ""
    body: bytes = b""
    kind: str = ""
    dedup: str = ""
    digest: str = ""


class TimerSet(msgspec.Struct, array_like=True, frozen=True):
    """A timer of a machine that was set, or removed.

    Attributes:
        name: of the timer; a later one of the name replaces it.
        k: the number of the commit that set it.
        set_ms: the machine's time then.
        due_ms: when it fires.
        every_ms: the time from one firing to the next; 0 for one that fires once.
        event: the stored name of the event that it delivers; "" removes the timer.
        body: the encoded event.
    """

    name: str
    k: int
    set_ms: int = 0
    due_ms: int = 0
    every_ms: int = 0
    event: str = ""
    body: bytes = b""

    @property
    def is_removal(self) -> bool:
        """True if this ends the timer of its name."""
        return not self.event


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """An answer to a question.

    Attributes:
        asker: the process that asked, and its number of the question: `process/number`.
        outcome: answer, refused, faulted, or missing: the machine does not exist or has halted, and the question was dropped.
        body: the encoded answer, the text of the error, or the machine.
    """

    asker: str
    outcome: Outcome
    body: bytes


class Output(msgspec.Struct, array_like=True, frozen=True):
    """An event for a plugin.

    Attributes:
        plugin: the stored name of the plugin.
        event: the stored name of the event.
        body: the encoded event.
    """

    plugin: str
    event: str
    body: bytes = b""


class Claimed(Event, tag="rsm.claim", frozen=True):
    """A claim of a partition.

    Attributes:
        group: of machines.
        partition: its number.
        host: the host that owns it from now on; "" for a release.
        left: the host that releases it; "" in claims.
        leaving: a release in which the host says that it ends.
    """

    group: str
    partition: int
    host: str
    left: str = ""
    leaving: bool = False


class Inputs(Event, tag="rsm.input", frozen=True):
    """Messages from outside, in order.

    Attributes:
        group: of machines.
        messages: to machines of any partitions of the group.
    """

    group: str
    messages: tuple[Message, ...]


class Created(Event, tag="rsm.create", frozen=True):
    """A machine that a program outside created.

    Attributes:
        id: the machine, by its name in the group: `group/name`.
        message: its creation.
    """

    id: str
    message: Message


class Commit(Event, tag="rsm.commit", frozen=True):
    """All effects of one handler, or of a skipped event.

    Attributes:
        id: the machine.
        k: the number of this commit of the machine, from 1; `DROPPED` if it only takes messages.
        at_ms: the machine's time.
        took: the messages that it consumed; empty if a timer was handled.
        kind: the stored name of the machine's class in its first commit; else "".
        state: its new state, or None.
        registers: changed registers.
        keys: changed keys of tables; None removes a key.
        creates: machines that it created.
        sends: events that it sent.
        timers: timers that it set, removed, or that fired.
        replies: answers.
        halted: the machine ends.
        life: in the first commit of a machine with a key: the seqnum of its creation. Names of machines that it creates contain it.
    """

    id: str
    k: int
    at_ms: int = 0
    took: tuple[MessageId, ...] = ()
    kind: str = ""
    state: str | None = None
    registers: Mapping[str, bytes] = {}
    keys: Mapping[str, dict[bytes, bytes | None]] = {}
    creates: tuple[Message, ...] = ()
    sends: tuple[Message, ...] = ()
    timers: tuple[TimerSet, ...] = ()
    replies: tuple[Reply, ...] = ()
    halted: bool = False
    life: int = 0


class Emitted(Event, tag="rsm.out", frozen=True):
    """The outputs of a commit, which is in the same record.

    Attributes:
        id: the machine.
        k: the number of the commit.
        outputs: in the order in which its handler emitted them.
    """

    id: str
    k: int
    outputs: tuple[Output, ...]


class Done(Event, tag="rsm.done", frozen=True):
    """Outputs of a partition that a plugin has delivered, and the events that it answered. They are one event: it is answered once.

    Attributes:
        id: the partition: `group/partition`.
        plugin: the stored name of the plugin.
        outputs: the outputs.
        messages: to machines of any partitions of the group.
    """

    id: str
    plugin: str
    outputs: tuple[MessageId, ...]
    messages: tuple[Message, ...] = ()


class Undelivered(Event, tag="rsm.undelivered", frozen=True):
    """A plugin that failed repeatedly to deliver an output. Attempts continue; this is for people.

    Attributes:
        id: the partition: `group/partition`.
        plugin: the stored name of the plugin.
        output: the first output that was not delivered.
        attempts: the number of attempts so far.
        at_ms: the time of the newest one.
        error: type and text of its error.
    """

    id: str
    plugin: str
    output: MessageId
    attempts: int
    at_ms: int
    error: str


class Faulted(Event, tag="rsm.fault", frozen=True):
    """A handler that failed repeatedly: its machine handles nothing until it is resumed or the event is skipped.

    Attributes:
        id: the machine.
        message: the message whose handler failed; its seqnum may be `SAME_RECORD`, and is -1 if a timer fired.
        timer: the name of the timer that fired, or "".
        event: the name of the event.
        error: type and text of the error.
        stack: the stack of the error, bounded.
        replies: to the askers that wait for this machine.
    """

    id: str
    message: MessageId
    timer: str
    event: str
    error: str
    stack: str = ""
    replies: tuple[Reply, ...] = ()


class Resumed(Event, tag="rsm.resume", frozen=True):
    """A person's decision to handle the event of a fault again.

    Attributes:
        id: the machine.
        fault: the seqnum of the fault's record: an older decision does not end a newer fault.
    """

    id: str
    fault: int


class Skipped(Event, tag="rsm.skip", frozen=True):
    """A person's decision to drop the event of a fault. Attributes as of `Resumed`."""

    id: str
    fault: int


class Snapshot(Event, tag="rsm.snap", frozen=True):
    """The state of a machine, or a part of it (`bokirsm.model.parts`).

    Attributes:
        id: the machine, by its name in the group: `group/name`.
        k: the number of the newest commit that it contains.
        part: index of this event among those of the snapshot; the last one is the head, without which the others mean nothing.
        parts: number of the events.
        data: of the head, its rows; of a part, more rows.
        halted: the machine ended; its id is not used again while this is retained.
        partition: of the machine.
        digest: of the head, if the machine was created with a key: that of its creation.
        kind: of the head: the stored name of the class.
        refs: of the head: the parts whose rows follow, in order, also parts of older snapshots.
    """

    id: str
    k: int
    part: int
    parts: int
    data: bytes
    halted: bool = False
    partition: int = 0
    digest: str = ""
    kind: str = ""
    refs: tuple[PartRef, ...] = ()


class Checkpoint(Event, tag="rsm.ck", frozen=True):
    """The state of a partition, or a part of it.

    Attributes:
        id: the partition: `group/partition`.
        covers: the seqnum as of which it is the state.
        part: as of `Snapshot`.
        parts: as of `Snapshot`.
        data: as of `Snapshot`.
        refs: as of `Snapshot`.
    """

    id: str
    covers: int
    part: int
    parts: int
    data: bytes
    refs: tuple[PartRef, ...] = ()


def is_head(event: Snapshot | Checkpoint) -> bool:
    """Return whether an event is the head of a snapshot or checkpoint, with which the others are complete."""
    return event.part == event.parts - 1


OfLane: TypeAlias = Commit | Faulted | Emitted | Done | Undelivered
"""The events that only the owner of a partition appends to its stream."""
AnyEvent: TypeAlias = OfLane | Claimed | Inputs | Created | Resumed | Skipped | Snapshot | Checkpoint
PICKER: Final[Picker[AnyEvent]] = Picker(
    LIBRARY,
    (Claimed, Inputs, Created, Commit, Emitted, Done, Undelivered, Faulted, Resumed, Skipped, Snapshot, Checkpoint),
)


def partition_of_ref(ref: str) -> tuple[str, int]:
    """Return the group and the partition of a machine that is written as text."""
    group, partition, _ = ref.split("/", 2)
    return group, int(partition)


def partition_of_event(event: OfLane) -> int:
    """Return the partition whose owner appended an event."""
    return int(event.id.split("/", 2)[1])


def messages_of(events: Iterable[AnyEvent]) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a record with their numbers."""
    number = 0
    for event in events:
        if isinstance(event, Commit):
            several: tuple[Message, ...] = (*event.creates, *event.sends)
        elif isinstance(event, (Inputs, Done)):
            several = event.messages
        else:
            several = (event.message,) if isinstance(event, Created) else ()
        for message in several:
            yield number, message
            number += 1


class Emission(NamedTuple):
    """An output of a record: its number there, and the machine that emitted it."""

    number: int
    machine: str
    output: Output


def outputs_of(events: Iterable[AnyEvent]) -> Iterator[Emission]:
    """Yield the outputs of a record."""
    number = 0
    for event in events:
        if isinstance(event, Emitted):
            for output in event.outputs:
                yield Emission(number, event.id, output)
                number += 1
