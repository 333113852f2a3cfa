"""The open record of a lane: what its handlers did since the record before was appended. Pure.

A *lane* is a process's partitions of a group. It has one record in flight, and handles meanwhile what becomes the next one.

- A message that a handler of the lane sends to a machine of the lane is handled before it is durable: a chain of handlers is one record.
  If a record of the lane does not happen, all that depends on it is in this record and the open one, and is dropped with them.
- The record expects the claim of each partition in which it commits, so that it fails as a whole if one of them has another owner.
- The ids of messages of the lane's own records are not known before the record is in the log: those of the open record are written as
  `SAME_RECORD`, and those of the record before are known when the next one is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from boki_common.limits import RECORD_TAGS
from bokilib.records import tags
from bokilib.records.contribution import Contribution, counts_fit
from bokilib.records.events import Event
from bokirsm.model.events import (
    SAME_RECORD,
    AnyEvent,
    Commit,
    Done,
    Emitted,
    Faulted,
    Message,
    MessageId,
    OfLane,
    Output,
    Reply,
    Undelivered,
    partition_of_event,
    partition_of_ref,
)

AROUND_BYTES: Final = 24
"""Bytes of an event around its fields, and of the id of a message that it took."""
ENVELOPE_BYTES: Final = 2_048
TIMER: Final = -1
"""The seqnum of the id that stands for a timer's firing."""

_encoder: Final = msgspec.msgpack.Encoder()


class InboxMessage:
    """A message in the memory of a lane.

    Attributes:
        message: its event or creation.
        seqnum: of its record; 0 while that is not known, `UNRECORDED` if there is none.
        number: in its record.
        record: the lane's own record that has it, as long as that is not in the log; else None.
    """

    __slots__ = ("message", "number", "record", "seqnum")

    def __init__(self, message: Message, seqnum: int, number: int, record: LaneRecord | None = None) -> None:
        self.message: Final = message
        self.seqnum = seqnum
        self.number: Final = number
        self.record = record

    def id_in(self, record: LaneRecord) -> MessageId:
        """Return its id as the record that takes it names it."""
        if self.record is record:
            return MessageId(SAME_RECORD, self.number)
        assert self.seqnum, "the record before is in the log when the next one is sealed"
        return MessageId(self.seqnum, self.number)


class Beside(NamedTuple):
    """The effects of a handler that are in the record of its commit, beside the commit.

    Attributes:
        outputs: for plugins, in order.
        parts: of other libraries; they expect nothing.
    """

    outputs: tuple[Output, ...] = ()
    parts: tuple[Contribution, ...] = ()

    @property
    def tags(self) -> dict[str, None]:
        """The streams of the parts."""
        return dict.fromkeys(tag for part in self.parts for tag in part.tags)

    def size(self, event: OfLane) -> int:
        """Return the bytes of these effects of a commit in a record, about."""
        if self is ALONE:
            return 0
        emitted = size_of(Emitted(event.id, event.k, self.outputs)) if self.outputs and isinstance(event, Commit) else 0
        return emitted + sum(len(_encoder.encode(part.events)) + AROUND_BYTES for part in self.parts)


ALONE: Final = Beside()


class _Taken(NamedTuple):
    """An event with the message that it is about, None for a timer or a plugin, and with what is beside it."""

    event: OfLane
    took: InboxMessage | None
    outputs: tuple[Output, ...]


class LaneRecord:
    """The open record of a lane; see the module.

    Attributes:
        sent: the messages that it has, by number.
        by_log: partitions of the lane whose machines get these messages once they are read from the log.
    """

    def __init__(self, group: str, by_log: Iterable[int] = ()) -> None:
        self.sent: Final[list[InboxMessage]] = []
        self.by_log: Final = set(by_log)
        self._group: Final = group
        self._events: Final[list[_Taken]] = []
        self._bytes = ENVELOPE_BYTES
        self._partitions: Final[dict[int, None]] = {}
        """Partitions in which it commits."""
        self._targets: Final[dict[int, None]] = {}
        """Partitions of the machines that it writes to."""
        self._processes: Final[dict[str, None]] = {}
        self._parts: Final[list[Contribution]] = []
        """Of other libraries."""
        self._tags: Final[dict[str, None]] = {}
        """The streams of these parts."""

    def __bool__(self) -> bool:
        return bool(self._events)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def size(self) -> int:
        """The bytes of the record, about."""
        return self._bytes

    @property
    def partitions(self) -> list[int]:
        """The partitions in which it commits, in the order of their first commits."""
        return list(self._partitions)

    def fits(self, event: OfLane, beside: Beside = ALONE) -> bool:
        """Return whether an event fits into this record. Any one event fits into an empty record: its maker keeps the bounds of one."""
        if not self._events:
            return True
        targets, processes = _targets(event), _processes(event)
        count = len(self._targets | dict.fromkeys(targets)) + len(self._processes | dict.fromkeys(processes))
        count += len(self._tags | beside.tags) if beside.parts else len(self._tags)
        size = self._bytes + size_of(event) + beside.size(event)
        return counts_fit(count, len(self._partitions) + 1, size) and count <= RECORD_TAGS

    def add(self, event: OfLane, took: InboxMessage | None, beside: Beside = ALONE) -> list[InboxMessage]:
        """Add an event: the commit of a handler, a fault, or what became of outputs. Return the messages that it sends, in order.

        Args:
            event: a commit without the ids of taken messages, or another event.
            took: the message that was handled; None for any other cause.
            beside: what else the handler did.
        """
        assert self.fits(event, beside), "the caller begins the next record"
        self._events.append(_Taken(event, took, beside.outputs))
        self._bytes += size_of(event) + beside.size(event)
        self._partitions[partition_of_event(event)] = None
        self._targets.update(dict.fromkeys(_targets(event)))
        self._processes.update(dict.fromkeys(_processes(event)))
        if beside.parts:
            self._parts.extend(beside.parts)
            self._tags.update(beside.tags)
        new = [
            InboxMessage(message, 0, len(self.sent) + number, self) for number, message in enumerate(_messages(event))
        ]
        self.sent.extend(new)
        return new

    def events(self) -> tuple[OfLane, ...]:
        """Return the events with the ids of the messages that they took. The record before has to be in the log."""
        found: list[OfLane] = []
        for event, took, outputs in self._events:
            if took is not None and isinstance(event, Commit):
                found.append(msgspec.structs.replace(event, took=(took.id_in(self),)))
            elif took is not None and isinstance(event, Faulted):
                found.append(msgspec.structs.replace(event, message=took.id_in(self)))
            else:
                found.append(event)
            if outputs:
                assert isinstance(event, Commit), "handlers emit outputs"
                found.append(Emitted(event.id, event.k, outputs))
        return tuple(found)

    def contribution(self, claims: Mapping[int, int]) -> Contribution:
        """Return the record.

        Args:
            claims: the lane's claim of each partition.
        """
        events: tuple[Event, ...] = (*self.events(), *(event for part in self._parts for event in part.events))
        streams = [tags.rsm_partition(self._group, one) for one in self._targets]
        streams += [tags.rsm_replies(process) for process in self._processes]
        streams += self._tags
        addresses = tuple(address for part in self._parts for address in part.addresses)
        expected = expectations(self._group, claims, self._partitions)
        return Contribution(tuple(streams), expected, events, addresses=addresses)

    def appended(self, seqnum: int) -> None:
        """Note the seqnum of this record: it is in the log."""
        for message in self.sent:
            message.seqnum, message.record = seqnum, None


def expectations(group: str, claims: Mapping[int, int], partitions: Iterable[int]) -> dict[str, int | None]:
    """Return what a record of a lane expects: its own claim of each partition that the record writes for."""
    return {tags.rsm_owner(group, one): claims[one] for one in partitions}


Span: TypeAlias = tuple[int, int | None]
"""Seqnums between which a lane owned a partition, without the first one; None if it still does."""


def is_own(seqnum: int, events: Iterable[AnyEvent], spans: Mapping[int, Sequence[Span]]) -> bool:
    """Return whether a record was appended by the lane that owns some partitions.

    Only the owner of a partition commits in it. So a record with a commit of one of the lane's partitions, from when the lane owned it, is
    the lane's own, even if it is read before its append returns.

    Args:
        seqnum: of the record.
        events: in the record.
        spans: when the lane owned partitions, by partition.
    """
    for event in events:
        if isinstance(event, (Commit, Faulted, Done, Undelivered)):
            partition = partition_of_event(event)
            if any(first < seqnum and (last is None or seqnum < last) for first, last in spans.get(partition, ())):
                return True
    return False


def streams_of(event: OfLane, beside: Beside = ALONE) -> int:
    """Return the number of streams that an event joins: of partitions, of processes that get answers, and of parts of other libraries."""
    return len({*_targets(event)}) + len({*_processes(event)}) + (len(beside.tags) if beside.parts else 0)


def size_of(event: OfLane) -> int:
    """Return the bytes of an event in a record, about."""
    return len(_encoder.encode(event)) + AROUND_BYTES


def _messages(event: OfLane) -> tuple[Message, ...]:
    """Return the messages that an event sends."""
    if isinstance(event, Commit):
        return (*event.creates, *event.sends)
    return event.messages if isinstance(event, Done) else ()


def _targets(event: OfLane) -> list[int]:
    """Return the partitions whose streams an event joins: its own, and those of the machines that it writes to."""
    return [partition_of_event(event), *(partition_of_ref(message.to)[1] for message in _messages(event))]


def _processes(event: OfLane) -> list[str]:
    """Return the processes that get answers."""
    replies: Iterable[Reply] = event.replies if isinstance(event, (Commit, Faulted)) else ()
    return [reply.asker.rpartition("/")[0] for reply in replies]
