"""The state of a partition, folded from its records. Pure.

    state = PartitionState("words", 3)              # or `restored` from a checkpoint
    for record in records_of_p: state.apply(…)      # above `covers`, up to the claim

- *Pending* messages are those of the checkpoint and of the records above it, without those that commits took, in the order of the log.
- A machine's state is its newest snapshot and the commits above it (`machine_of`).
- A message with a deduplication id of a message before it, by less than the window, is dropped.
- Applying records again that a checkpoint contains changes nothing: it is as of `covers`, and may know more.
- A fault is open until a commit of its machine, or a decision to resume it. A decision names the fault: a later fault stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from bokilib.records.dedup import DedupWindow
from bokilib.retention.checkpoint_rules import CheckpointPart, newest_first
from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    AnyEvent,
    Checkpoint,
    Commit,
    Faulted,
    Message,
    MessageId,
    Resumed,
    Skipped,
    Snapshot,
    messages_of,
)
from bokirsm.model.machine_state import MachineState, decode_state

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


class PartitionCheckpoint(msgspec.Struct, array_like=True, frozen=True):
    """The data of a checkpoint: see the attributes of `PartitionState`."""

    pending: tuple[tuple[MessageId, Message], ...]
    timers: Mapping[str, dict[str, TimerTimes]]
    faults: Mapping[str, OpenFault]
    dedup: tuple[tuple[str, int], ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(PartitionCheckpoint)


class PartitionState:
    """The state of a partition as of the records that were applied.

    Attributes:
        group: of the machines.
        partition: its number.
        covers: the position of the checkpoint that it began with; 0 for none.
        pending: messages that no commit took, in order.
        timers: the times of open timers, by machine and name.
        faults: open faults, by machine.
        touched: machines with commits above `covers`, each with the number of its newest one.
        commits: these commits by machine, while they are needed to load machines.
        sizes: (seqnum, bytes) of the records above `covers`, in order of their application.
    """

    def __init__(self, group: str, partition: int) -> None:
        self.group: Final = group
        self.partition: Final = partition
        self.covers = 0
        self.pending: Final[dict[MessageId, Message]] = {}
        self.timers: Final[dict[str, dict[str, TimerTimes]]] = {}
        self.faults: Final[dict[str, OpenFault]] = {}
        self.touched: Final[dict[str, int]] = {}
        self.commits: Final[dict[str, list[Commit]]] = {}
        self.sizes: list[tuple[int, int]] = []
        self.keeps_commits = True
        self._prefix: Final = f"{group}/{partition}/"
        self._dedup = DedupWindow(DEDUP_MS)
        self._dedup_places: dict[str, int] = {}

    @classmethod
    def restored(cls, group: str, partition: int, covers: int, data: bytes) -> PartitionState:
        """Return the state that a checkpoint has."""
        state, found = cls(group, partition), _decoder.decode(data)
        state.covers = covers
        state.pending.update(found.pending)
        state.timers.update({machine: dict(times) for machine, times in found.timers.items()})
        state.faults.update(found.faults)
        state._dedup = DedupWindow(DEDUP_MS, found.dedup)
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
        self.sizes.append((seqnum, size))
        events = list(events)
        new = []
        for number, message in messages_of(events):
            id = MessageId(seqnum, number)
            if self.has(message.to) and id not in self.pending and not self._is_copy(message, seqnum, time_ms):
                self.pending[id] = message
                new.append((id, message))
        for event in events:
            if isinstance(event, Commit):
                if self.has(event.id):
                    self._commit(event, seqnum)
            elif isinstance(event, (Faulted, Resumed, Skipped)) and self.has(event.id):
                self._decide(event, seqnum)
        return [one for one in new if one[0] in self.pending]

    def _is_copy(self, message: Message, seqnum: int, time_ms: int) -> bool:
        if not message.dedup:
            return False
        if self._dedup.twice(message.dedup, time_ms):
            return True
        self._dedup_places[message.dedup] = seqnum
        return False

    def _commit(self, commit: Commit, seqnum: int) -> None:
        machine = commit.id
        for took in commit.took:
            self.pending.pop(MessageId(seqnum, took.number) if took.seqnum == SAME_RECORD else took, None)
        if commit.k == DROPPED:
            return
        self.touched[machine] = max(commit.k, self.touched.get(machine, 0))
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

    def _decide(self, event: Faulted | Resumed | Skipped, seqnum: int) -> None:
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

    def checkpoint(self, covers: int) -> bytes:
        """Return the data of a checkpoint as of a position up to which all records were applied."""
        return _encoder.encode(
            PartitionCheckpoint(
                tuple((id, message) for id, message in self.pending.items() if id.seqnum <= covers),
                self.timers,
                self.faults,
                tuple((id, ms) for id, ms in self._dedup.items() if self._dedup_places.get(id, 0) <= covers),
            )
        )

    def checkpointed(self, covers: int) -> None:
        """Note that a checkpoint is in the log, with snapshots of all machines that were touched."""
        self.covers = covers
        self.sizes = [one for one in self.sizes if one[0] > covers]
        self.touched.clear()
        live = dict(self._dedup.items())
        self._dedup_places = {id: place for id, place in self._dedup_places.items() if id in live}


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


def newest_snapshot(parts: Iterable[tuple[int, str, Snapshot]]) -> MachineState | None:
    """Return the state in the newest whole snapshot. `parts`: (seqnum, incarnation of the writer, part), newest first."""
    wholes = newest_first(
        CheckpointPart(seqnum, 0, one.k, one.part, one.parts, by, one.data) for seqnum, by, one in parts
    )
    return decode_state(wholes[0].data) if wholes else None


def newest_checkpoint(parts: Iterable[tuple[int, str, Checkpoint]]) -> tuple[int, bytes] | None:
    """Return (covers, data) of the newest whole checkpoint. `parts` as of `newest_snapshot`."""
    wholes = newest_first(
        CheckpointPart(seqnum, 0, one.covers, one.part, one.parts, by, one.data) for seqnum, by, one in parts
    )
    return (wholes[0].covers, wholes[0].data) if wholes else None
