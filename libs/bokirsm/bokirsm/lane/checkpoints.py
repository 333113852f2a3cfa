"""Checkpoints of partitions and snapshots of their machines: composed at one moment, then written, then trimmed by.

    shots = Shots(…)                      # of a moment in which the lane's memory is the state of the log
    written = await writer.write(shots)   # snapshots, then checkpoints; each record expects the lane's claims
    await writer.trim()                   # only then

- Parts of large states come first, each in the log before the head that refers to it. Heads of machines come before those of partitions:
  what a checkpoint covers is trimmed, so its machines have to be in snapshots.
- A head that refers to older parts expects that its machine's stream has no other record: a carrier that copied the machine has trimmed
  these parts. If it did, the next attempt writes all parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution, counts_fit
from bokilib.retention.trimmer import Trimmer
from bokirsm.lane.inboxes import LaneMachine
from bokirsm.model.events import Checkpoint, PartRef, Snapshot
from bokirsm.model.machine_state import rows_of_state
from bokirsm.model.partition_state import PartitionState
from bokirsm.model.parts import Composed, KeptParts, compose

AROUND_BYTES: Final = 64
"""Bytes of an event around its data and names, about."""
ENVELOPE_BYTES: Final = 2_048

Append: TypeAlias = Callable[[Contribution], Awaitable[int]]
"""Appends what expects claims of the lane. Returns the seqnum, or 0 if it is not in the log, or may be."""


class MachineShot(NamedTuple):
    """A machine at a moment, to be written as a snapshot."""

    machine: LaneMachine
    k: int
    halted: bool
    kind: str
    composed: Composed

    @property
    def size(self) -> int:
        """The bytes of the state."""
        return len(self.composed.data) + sum(len(part.data) for part in self.composed.parts)

    @property
    def alone(self) -> LaneMachine | None:
        """The machine, if its head refers to parts of older snapshots, which a copy by a carrier would have trimmed."""
        return self.machine if len(self.composed.new) < len(self.composed.parts) else None


class PartitionShot(NamedTuple):
    """A partition at a moment, to be written as a checkpoint; `touched` are the machines that changed since the one before."""

    state: PartitionState
    covers: int
    composed: Composed
    touched: list[str]


class Shots(NamedTuple):
    """Snapshots and checkpoints that are written together.

    Attributes:
        machines: those of the partitions that changed.
        partitions: the partitions.
        now_ms: the time by the clock of the log.
    """

    machines: list[MachineShot]
    partitions: list[PartitionShot]
    now_ms: int


def shot_of_machine(machine: LaneMachine, now_ms: int, rewrite_ms: int) -> MachineShot:
    """Return a machine as it is."""
    assert machine.state is not None, "a machine that was touched has a state"
    header, rows = rows_of_state(machine.state)
    composed = compose(header, rows, machine.kept, now_ms, rewrite_ms)
    return MachineShot(machine, machine.state.k, machine.state.halted, machine.state.kind, composed)


def shot_of_partition(
    state: PartitionState, touched: list[str], covers: int, now_ms: int, rewrite_ms: int
) -> PartitionShot:
    """Return a partition as it is, as of `covers`, with the machines that changed since its last checkpoint."""
    header, rows = state.rows(covers)
    return PartitionShot(state, covers, compose(header, rows, state.kept, now_ms, rewrite_ms), touched)


class _Item(NamedTuple):
    """An event to append.

    Attributes:
        tag: its stream.
        partition: whose claim it expects.
        alone: the machine, if the stream is expected to have no record since its newest one that this lane knows. So is that of each part
            after the first: a copy by a carrier, which trims what is below it, may come between two records of a snapshot.
        appended: called with the seqnum of its record.
    """

    tag: str
    partition: int
    event: Snapshot | Checkpoint
    alone: LaneMachine | None
    appended: Callable[[int], None]


@dataclass
class _Record:
    """Items that share a record."""

    items: list[_Item] = field(default_factory=list)
    tags: dict[str, None] = field(default_factory=dict)
    expect: dict[str, int | None] = field(default_factory=dict)
    size: int = ENVELOPE_BYTES

    def fits(self, item: _Item, fence: str) -> bool:
        """Return whether an item fits too. An item fits into an empty record."""
        expected = {fence: 0, **({item.tag: 0} if self._expects(item) else {})}
        counts = len({**self.tags, item.tag: None}), len({**self.expect, **expected})
        return not self.items or counts_fit(*counts, self.size + _size(item.event))

    def _expects(self, item: _Item) -> bool:
        """Return whether an item brings an expectation: nothing comes between two items of one record."""
        return item.alone is not None and item.tag not in self.tags

    def add(self, item: _Item, fence: str, claim: int) -> None:
        self.items.append(item)
        if item.alone is not None and self._expects(item):
            self.expect[item.tag] = item.alone.newest
        self.tags[item.tag] = None
        self.expect[fence] = claim
        self.size += _size(item.event)


def _size(event: Snapshot | Checkpoint) -> int:
    return len(event.data) + len(event.id) + 16 * len(event.refs) + AROUND_BYTES


class CheckpointWriter:
    """Writes checkpoints and snapshots of a lane; see the module. The caller has the lane's turn."""

    def __init__(self, log: Log, group: str, append: Append) -> None:
        self._group: Final = group
        self._append: Final = append
        self._trimmer: Final = Trimmer(log.book)

    async def write(self, shots: Shots, claims: Mapping[int, int]) -> bool:
        """Write shots. Return False if some are not in the log: nothing is trimmed then.

        Args:
            shots: of partitions that the lane owns.
            claims: the lane's claim of each partition.
        """
        refs: dict[str, list[PartRef]] = {}
        written = await self._write([*self._machine_parts(shots, refs), *self._partition_parts(shots, refs)], claims)
        if written:
            heads = [*self._machine_heads(shots, refs), *self._partition_heads(shots, refs)]
            written = await self._write(heads, claims)
        if not written:
            for one in shots.machines:
                if one.alone is not None:
                    one.machine.kept = KeptParts()
            return False
        for shot in shots.partitions:
            self._trim_partition(shot, claims)
        for one in shots.machines:
            machine = one.machine
            first = min(machine.kept.first or machine.newest, machine.newest)
            self._trimmer.add(tags.rsm_machine(self._group, machine.ref.name), first)
        return True

    async def trim(self) -> None:
        """Trim what the checkpoints in the log replace."""
        await self._trimmer.flush()

    def _trim_partition(self, shot: PartitionShot, claims: Mapping[int, int]) -> None:
        state, group = shot.state, self._group
        one = state.partition
        marks = {
            tags.rsm_checkpoint(group, one): min(state.kept.first or state.head, state.head),
            tags.rsm_owner(group, one): claims[one],
        }
        if shot.covers:
            marks[tags.rsm_partition(group, one)] = shot.covers + 1
        self._trimmer.add_together(marks)

    # -- events

    def _machine_parts(self, shots: Shots, refs: dict[str, list[PartRef]]) -> Iterator[_Item]:
        for shot in shots.machines:
            machine, new = shot.machine, shot.composed.new
            places = refs[machine.text] = []
            tag, id = tags.rsm_machine(self._group, machine.ref.name), f"{self._group}/{machine.ref.name}"
            for number, part in enumerate(new):
                event = Snapshot(id, shot.k, number, len(new) + 1, part.data, partition=machine.ref.partition)
                written = partial(_machine_part_written, machine, places, number)
                yield _Item(tag, machine.ref.partition, event, machine if number else shot.alone, written)

    def _partition_parts(self, shots: Shots, refs: dict[str, list[PartRef]]) -> Iterator[_Item]:
        for shot in shots.partitions:
            new, id = shot.composed.new, f"{self._group}/{shot.state.partition}"
            places = refs[id] = []
            tag = tags.rsm_checkpoint(self._group, shot.state.partition)
            for number, part in enumerate(new):
                event = Checkpoint(id, shot.covers, number, len(new) + 1, part.data)
                yield _Item(tag, shot.state.partition, event, None, partial(_part_written, places, number))

    def _machine_heads(self, shots: Shots, refs: Mapping[str, list[PartRef]]) -> Iterator[_Item]:
        for shot in shots.machines:
            machine, count = shot.machine, len(shot.composed.new)
            found, kept = shot.composed.written(refs[machine.text], shots.now_ms)
            id = f"{self._group}/{machine.ref.name}"
            event = Snapshot(
                id,
                shot.k,
                count,
                count + 1,
                shot.composed.data,
                shot.halted,
                machine.ref.partition,
                machine.digest,
                shot.kind,
                found,
            )
            tag = tags.rsm_machine(self._group, machine.ref.name)
            written = partial(_machine_written, machine, shot.k, kept)
            yield _Item(tag, machine.ref.partition, event, machine if count else shot.alone, written)

    def _partition_heads(self, shots: Shots, refs: Mapping[str, list[PartRef]]) -> Iterator[_Item]:
        for shot in shots.partitions:
            id, count = f"{self._group}/{shot.state.partition}", len(shot.composed.new)
            found, kept = shot.composed.written(refs[id], shots.now_ms)
            event = Checkpoint(id, shot.covers, count, count + 1, shot.composed.data, found)
            tag = tags.rsm_checkpoint(self._group, shot.state.partition)
            yield _Item(tag, shot.state.partition, event, None, partial(_partition_written, shot, kept, shots.now_ms))

    async def _write(self, items: Iterable[_Item], claims: Mapping[int, int]) -> bool:
        """Append items in order, as many a record as fit. Return False if a record is not in the log."""
        record = _Record()
        for item in items:
            fence = tags.rsm_owner(self._group, item.partition)
            if not record.fits(item, fence):
                if not await self._write_record(record):
                    return False
                record = _Record()
            record.add(item, fence, claims[item.partition])
        return not record.items or await self._write_record(record)

    async def _write_record(self, record: _Record) -> bool:
        events = tuple(item.event for item in record.items)
        seqnum = await self._append(Contribution(tuple(record.tags), record.expect, events))
        if seqnum:
            for item in record.items:
                item.appended(seqnum)
        return seqnum > 0


def _part_written(places: list[PartRef], number: int, seqnum: int) -> None:
    places.append(PartRef(seqnum, number))


def _machine_part_written(machine: LaneMachine, places: list[PartRef], number: int, seqnum: int) -> None:
    places.append(PartRef(seqnum, number))
    machine.newest = seqnum


def _machine_written(machine: LaneMachine, k: int, kept: KeptParts, seqnum: int) -> None:
    machine.snapped, machine.kept, machine.newest = k, kept, seqnum


def _partition_written(shot: PartitionShot, kept: KeptParts, now_ms: int, seqnum: int) -> None:
    state = shot.state
    state.kept, state.head = kept, seqnum
    state.checkpoint_ms = min((one.time_ms for one in kept.parts.values()), default=now_ms)
    state.checkpointed(shot.covers)
