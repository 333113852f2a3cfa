"""The state of a partition, folded from its records. Pure.

    state = PartitionState("words", 3)              # or `restored` from a checkpoint
    for record in records_of_p: state.apply(…)      # above `covers`, up to the claim

- A record is a record of several partitions. Each applies its *share*: its messages, what is said of its machines, and a part of the
  bytes, so that a record costs as much as it has events, whatever the number of its partitions (`shares_of`).
- *Pending* messages are those of the checkpoint and of the records above it, without those that commits took, in the order of the log.
- A machine's state is its newest snapshot and the commits above it (`machine_of`).
- A message with the deduplication id of a message before it to the same machine, by less than the window, is dropped.
- Applying records again that a checkpoint contains changes nothing: it is as of `covers`, and may know more.
- Records up to `covers` are trimmed, so a checkpoint carries what is pending there. To carry little, `covers` stays below the first message
  or output that is pending, unless it is old, or what is carried is little beside what is trimmed (`next_covers`).
- A fault is open until a commit of its machine, or a decision to resume it. A decision names the fault: a later fault stays open. A commit
  that only takes messages ends the fault whose message it takes: that of a creation that was skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from bokilib.errors import UnknownEvent
from bokilib.records.dedup import DedupWindow
from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    AnyEvent,
    Commit,
    Done,
    Emission,
    Faulted,
    Message,
    MessageId,
    Resumed,
    Skipped,
    Undelivered,
    messages_of,
    outputs_of,
    partition_of_ref,
)
from bokirsm.model.machine_state import MachineState
from bokirsm.model.outputs import PartitionOutputs
from bokirsm.model.parts import KeptParts, Row, compose, rows_of, whole

AROUND_BYTES: Final = 24
"""Bytes around the fields of a message, about."""
DEDUP_MS: Final = 300_000
"""The window of deduplication ids, by the times of records."""


class OpenFault(msgspec.Struct, array_like=True, frozen=True):
    """A fault of a machine that is not resumed.

    Attributes:
        seqnum: of the record of the fault.
        message: whose handler failed; its seqnum is -1 if a timer fired.
        timer: the timer that fired, or "".
        event: the name of the event.
        error: type and text of the error.
        skip: whether a person decided to drop the event.
    """

    seqnum: int
    message: MessageId
    timer: str
    event: str
    error: str
    skip: bool = False


class TimerTimes(NamedTuple):
    """The times of a timer, and the number of the commit that set it."""

    set_ms: int
    due_ms: int
    k: int


Decided: TypeAlias = Commit | Faulted | Resumed | Skipped
"""An event about one machine."""


class Share:
    """The share of a partition in a record.

    Attributes:
        messages: those to its machines, with their numbers in the record, in order.
        events: those about its machines, in order.
        outputs: those of its machines, with their numbers in the record, in order.
        reports: what became of outputs before.
        size: its part of the bytes of the record. The shares of all partitions are as large as the record.
        whole: the bytes of the record.
    """

    __slots__ = ("events", "messages", "outputs", "size", "reports", "whole")

    def __init__(self, size: int = 0) -> None:
        self.messages: Final[list[tuple[int, Message]]] = []
        self.events: Final[list[Decided]] = []
        self.outputs: Final[list[Emission]] = []
        self.reports: Final[list[Done | Undelivered]] = []
        self.size = self.whole = size


Shares: TypeAlias = dict[tuple[str, int], Share]
"""By group and partition."""


def shares_of(events: Iterable[AnyEvent], size: int) -> Shares:
    """Return the shares of all partitions in a record of so many bytes."""
    events = list(events)
    shares: Shares = {}
    for number, message in messages_of(events):
        _share_of(shares, message.to, size_of(message)).messages.append((number, message))
    for event in events:
        if isinstance(event, Decided):
            _share_of(shares, event.id, weight_of(event)).events.append(event)
        elif isinstance(event, (Done, Undelivered)):
            _share_of(shares, f"{event.id}/", weight_of(event)).reports.append(event)
    for emission in outputs_of(events):
        weight = len(emission.output.body) + AROUND_BYTES
        _share_of(shares, emission.machine, weight).outputs.append(emission)
    total = sum(share.size for share in shares.values())
    for share in shares.values():
        share.size, share.whole = size * share.size // total, size
    return shares


def _share_of(shares: Shares, ref: str, weight: int) -> Share:
    """Return the share of a machine's partition, after adding to its size the weight of an item that the caller adds to it."""
    share = shares.setdefault(_place_of(ref), Share())
    share.size += weight
    return share


def _place_of(ref: str) -> tuple[str, int]:
    """Return the group and partition of a machine; a text that is no machine is in no partition."""
    try:
        return partition_of_ref(ref)
    except ValueError:
        return ref, -1


def weight_of(event: Decided | Done | Undelivered) -> int:
    """Return the bytes of an event without the messages that it sends, about."""
    if isinstance(event, Done):
        return AROUND_BYTES * (1 + len(event.outputs))
    if not isinstance(event, Commit):
        return AROUND_BYTES
    size = AROUND_BYTES + len(event.id)
    size += sum(len(value) for value in event.registers.values())
    for changes in event.keys.values():
        size += sum(len(key) + len(value or b"") for key, value in changes.items())
    size += sum(len(timer.body) + AROUND_BYTES for timer in event.timers)
    return size + sum(len(reply.body) + AROUND_BYTES for reply in event.replies)


class Fresh(NamedTuple):
    """The records since a checkpoint: their number, the partition's shares of their bytes, and their bytes."""

    records: int = 0
    size: int = 0
    whole: int = 0


class PlacedRecord(NamedTuple):
    """A record of the partition: its seqnum, the partition's share of its bytes, and its time by the clock of the log."""

    seqnum: int
    size: int
    time_ms: int


class FirstOf(NamedTuple):
    """The first message to a machine with a deduplication id: the seqnum and the time of its record."""

    to: str
    dedup: str
    seqnum: int
    time_ms: int


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """The first row of a checkpoint: the group and the partition."""

    group: str
    partition: int


CARRY_SHARE: Final = 4
"""The records that a checkpoint lets be trimmed are so many times as large as the messages that it carries for that."""
_HEADER: Final = "h"
_PENDING: Final = "p"
_TIMERS: Final = "t"
"""All timers of a machine in one row, as older programs wrote them."""
_TIMER: Final = "o"
_FAULT: Final = "f"
_DEDUP: Final = "d"
_encoder: Final = msgspec.msgpack.Encoder()
_messages: Final = msgspec.msgpack.Decoder(Message)
_ids: Final = msgspec.msgpack.Decoder(MessageId)
_times: Final = msgspec.msgpack.Decoder(dict[str, TimerTimes])
_one_time: Final = msgspec.msgpack.Decoder(TimerTimes)
_faults: Final = msgspec.msgpack.Decoder(OpenFault)
_numbers: Final = msgspec.msgpack.Decoder(int)


class PartitionState:
    """The state of a partition as of the records that were applied.

    Attributes:
        group: of the machines.
        partition: its number.
        covers: the position of the checkpoint that it began with; 0 for none.
        pending: messages that no commit took, in order.
        waiting: their bytes, about.
        kept_to: the seqnum above which messages are not kept while the partition is read; None while all are.
        passed: messages of records that are read again, and are not to be kept then: they were taken, are copies, or are kept.
        read_to: the seqnum of the newest record that was read. Later records of its owner may be applied.
        outputs: the outputs that no plugin has delivered.
        timers: the times of open timers, by machine and name.
        faults: open faults, by machine.
        touched: machines with commits since the last checkpoint (when read, above `covers`), each with the number of its newest one.
        newest: the seqnum of the newest commit of each of these machines.
        commits: these commits by machine, while they are needed to load machines.
        records: the records above `covers`, in order of their application.
        fresh: the records that were applied since the last checkpoint.
        kept: the parts of the last checkpoint.
        head: the seqnum of its head; 0 without one.
        checkpoint_ms: the time of the oldest record that has a part of it; 0 without one.
    """

    def __init__(self, group: str, partition: int) -> None:
        self.group: Final = group
        self.partition: Final = partition
        self.covers = 0
        self.pending: Final[dict[MessageId, Message]] = {}
        self.waiting = 0
        self.kept_to: int | None = None
        self.passed: Final[set[MessageId]] = set()
        self.read_to = 0
        self.outputs: Final = PartitionOutputs()
        self.timers: Final[dict[str, dict[str, TimerTimes]]] = {}
        self.faults: Final[dict[str, OpenFault]] = {}
        self.touched: Final[dict[str, int]] = {}
        self.commits: Final[dict[str, list[Commit]]] = {}
        self.newest: Final[dict[str, int]] = {}
        self.records: list[PlacedRecord] = []
        self.fresh = Fresh()
        self.kept = KeptParts()
        self.head = 0
        self.checkpoint_ms = 0
        self.keeps_commits = True
        self._prefix: Final = f"{group}/{partition}/"
        self._dedup = DedupWindow(DEDUP_MS)
        self._firsts: list[FirstOf] = []
        """In order, with those that only records above `covers` are compared with."""
        self._covered_ms = 0

    @classmethod
    def restored(cls, group: str, partition: int, covers: int, data: bytes) -> PartitionState:
        """Return the state that a checkpoint has. `data`: of its head, followed by that of its parts.

        Raises:
            UnknownEvent: a newer program wrote it, with what this one does not know.
        """
        state = cls(group, partition)
        state.covers = covers
        for row in rows_of(data)[1:]:
            if row.kind == _PENDING:
                message = state.pending[_ids.decode(row.key)] = _messages.decode(row.value)
                state.waiting += size_of(message)
            elif row.kind == _TIMERS:
                state.timers[row.name] = _times.decode(row.value)
            elif row.kind == _TIMER:
                state.timers.setdefault(row.name, {})[row.key.decode()] = _one_time.decode(row.value)
            elif row.kind == _FAULT:
                state.faults[row.name] = _faults.decode(row.value)
            elif row.kind == _DEDUP:
                state._firsts.append(FirstOf(row.name, row.key.decode(), 0, _numbers.decode(row.value)))
            elif not state.outputs.restore(row):
                raise UnknownEvent(
                    f"the checkpoint of partition {group}/{partition} has rows of kind {row.kind!r}, which this version does not know: "
                    "upgrade it",
                    found=row.kind,
                )
        state._dedup = DedupWindow(DEDUP_MS, [(_copy_key(one.to, one.dedup), one.time_ms) for one in state._firsts])
        return state

    def has(self, ref: str) -> bool:
        """Return whether a machine is in this partition."""
        return ref.startswith(self._prefix)

    def apply(
        self, seqnum: int, time_ms: int, size: int, events: Iterable[AnyEvent]
    ) -> list[tuple[MessageId, Message]]:
        """Apply a record of the partition's stream. Return the messages that are new, in order.

        Args:
            seqnum: of the record.
            time_ms: its time.
            size: its bytes.
            events: of machines, in the record.
        """
        return self.apply_shares(seqnum, time_ms, shares_of(events, size))

    def apply_shares(
        self, seqnum: int, time_ms: int, shares: Shares, *, keeps: bool = True
    ) -> list[tuple[MessageId, Message]]:
        """Apply the partition's share of a record, as `apply` does. `keeps`: without it, its messages are read again (`again`)."""
        share = shares.get((self.group, self.partition)) or Share()
        self.records.append(PlacedRecord(seqnum, share.size, time_ms))
        records, size, whole = self.fresh
        self.fresh = Fresh(records + 1, size + share.size, whole + share.whole)
        new = []
        for number, message in share.messages:
            id = MessageId(seqnum, number)
            if id in self.pending:
                continue
            if self._is_copy(message, seqnum, time_ms):
                if not keeps:
                    self.passed.add(id)
            elif keeps:
                self.keep(id, message)
                new.append((id, message))
        for event in share.events:
            if isinstance(event, Commit):
                self._commit(event, seqnum)
            else:
                self.decide(event, seqnum)
        self.outputs.apply(seqnum, time_ms, share.outputs, share.reports)
        return [one for one in new if one[0] in self.pending]

    def again(self, seqnum: int, share: Share) -> list[tuple[MessageId, Message]]:
        """Return the messages of a record, applied before, that wait and are not kept."""
        found = [(MessageId(seqnum, number), message) for number, message in share.messages]
        return [one for one in found if one[0] not in self.passed]

    def keep(self, id: MessageId, message: Message) -> None:
        """Keep a message that waits."""
        self.pending[id] = message
        self.waiting += size_of(message)

    def keep_again(self, seqnum: int, share: Share) -> list[tuple[MessageId, Message]]:
        """Keep the messages of a record, applied before, that wait and are not kept; return them. The record is not read again."""
        found = self.again(seqnum, share)
        for id, message in found:
            self.keep(id, message)
        self.passed.difference_update(MessageId(seqnum, number) for number, _ in share.messages)
        return found

    def _is_copy(self, message: Message, seqnum: int, time_ms: int) -> bool:
        if not message.dedup:
            return False
        if self._dedup.twice(_copy_key(message.to, message.dedup), time_ms):
            return True
        self._firsts.append(FirstOf(message.to, message.dedup, seqnum, time_ms))
        return False

    def _commit(self, commit: Commit, seqnum: int) -> None:
        machine = commit.id
        taken = [MessageId(seqnum, one.number) if one.seqnum == SAME_RECORD else one for one in commit.took]
        for took in taken:
            if (message := self.pending.pop(took, None)) is not None:
                self.waiting -= size_of(message)
            elif self.kept_to is not None and took.seqnum > self.kept_to:
                self.passed.add(took)
        if commit.k == DROPPED:
            if machine in self.faults and self.faults[machine].message in taken:
                del self.faults[machine]
            return
        self.touched[machine] = max(commit.k, self.touched.get(machine, 0))
        self.newest[machine] = seqnum
        if self.keeps_commits:
            self.commits.setdefault(machine, []).append(commit)
        times = self.timers.setdefault(machine, {})
        for timer in commit.timers:
            if timer.is_removal:
                times.pop(timer.name, None)
            else:
                times[timer.name] = TimerTimes(timer.set_ms, timer.due_ms, timer.k)
        if commit.halted or not times:
            del self.timers[machine]
        self.faults.pop(machine, None)

    def decide(self, event: Faulted | Resumed | Skipped, seqnum: int) -> None:
        """Apply a fault, or a decision about one. A decision that is applied again changes nothing."""
        if isinstance(event, Faulted):
            message = event.message
            if message.seqnum == SAME_RECORD:
                message = MessageId(seqnum, message.number)
            self.faults[event.id] = OpenFault(seqnum, message, event.timer, event.event, event.error)
            return
        fault = self.faults.get(event.id)
        if fault is None or fault.seqnum != event.fault:
            return
        if isinstance(event, Resumed):
            del self.faults[event.id]
        else:
            self.faults[event.id] = msgspec.structs.replace(fault, skip=True)

    # -- checkpoints

    def next_covers(self, upto: int, old_ms: int) -> int:
        """Return what the next checkpoint covers.

        Args:
            upto: the seqnum up to which all records were applied.
            old_ms: records of this time or older ones are covered, so that their terms can be reclaimed.
        """
        records = sorted(one for one in self.records if self.covers < one.seqnum <= upto)
        best = max((one.seqnum for one in records if one.time_ms <= old_ms), default=self.covers)
        sizes = [*((id.seqnum, size_of(one)) for id, one in self.pending.items()), *self.outputs.sizes()]
        waiting = sorted(one for one in sizes if best < one[0] <= upto)
        ends = [*dict.fromkeys(seqnum - 1 for seqnum, _ in waiting), upto]
        freed = carried = 0
        record, item = iter(records), iter(waiting)
        next_record, next_item = next(record, None), next(item, None)
        for end in ends:
            while next_record is not None and next_record.seqnum <= end:
                freed, next_record = freed + next_record.size, next(record, None)
            while next_item is not None and next_item[0] <= end:
                carried, next_item = carried + next_item[1], next(item, None)
            if end > best and carried * CARRY_SHARE <= freed:
                best = end
        return best

    def rows(self, covers: int) -> tuple[Row, list[Row]]:
        """Return the header and the other rows of a checkpoint as of a position up to which all records were applied."""
        encode = _encoder.encode
        rows = [
            Row(_PENDING, "", encode(id), encode(message))
            for id, message in self.pending.items()
            if id.seqnum <= covers
        ]
        rows += self.outputs.rows(covers)
        rows += [
            Row(_TIMER, machine, name.encode(), encode(one))
            for machine, times in self.timers.items()
            for name, one in times.items()
        ]
        rows += [Row(_FAULT, machine, b"", encode(fault)) for machine, fault in self.faults.items()]
        first_ms: dict[tuple[str, str], int] = {}
        for one in self._firsts:
            if one.seqnum <= covers:
                first_ms.pop((one.to, one.dedup), None)  # ids are compared oldest first
                first_ms[one.to, one.dedup] = one.time_ms
        oldest_ms = self._time_of(covers) - DEDUP_MS
        rows += [Row(_DEDUP, to, id.encode(), encode(ms)) for (to, id), ms in first_ms.items() if ms >= oldest_ms]
        return Row(_HEADER, value=encode(_Header(self.group, self.partition))), rows

    def checkpoint(self, covers: int) -> bytes:
        """Return the bytes of a checkpoint as of a position up to which all records were applied."""
        header, rows = self.rows(covers)
        return whole(compose(header, rows, KeptParts(), 0, 1))

    def _time_of(self, covers: int) -> int:
        return max((one.time_ms for one in self.records if one.seqnum <= covers), default=self._covered_ms)

    def checkpointed(self, covers: int) -> None:
        """Note that a checkpoint is in the log, with snapshots of all machines that were touched."""
        self._covered_ms = self._time_of(covers)
        self.covers = covers
        self.records = [one for one in self.records if one.seqnum > covers]
        self.touched.clear()
        self.newest.clear()
        self._firsts = [
            one for one in self._firsts if one.seqnum > covers or one.time_ms >= self._covered_ms - DEDUP_MS
        ]


def _copy_key(to: str, dedup: str) -> str:
    """Return a text for a machine and a deduplication id; those of two others differ from it."""
    return f"{len(to)}/{to}/{dedup}"


def size_of(message: Message) -> int:
    """Return the bytes of a message, about."""
    return len(message.body) + len(message.to) + len(message.event) + AROUND_BYTES


def machine_of(snapshot: MachineState | None, commits: Sequence[Commit]) -> MachineState | None:
    """Return the state of a machine from its newest snapshot and the retained commits of its partition; None if it never had a commit.

    Raises:
        LookupError: commits between the two are missing: the reader lost the partition, and another owner trimmed them.
    """
    state = snapshot
    for commit in commits:
        if state is None:
            if commit.k != 1:
                raise LookupError(f"{commit.id}: expected commit 1 or a snapshot, found commit {commit.k}")
            state = MachineState(commit.kind)
        if commit.k > state.k:
            if commit.k != state.k + 1:
                raise LookupError(f"{commit.id}: expected commit {state.k + 1}, found {commit.k}")
            state.apply(commit)
    return state
