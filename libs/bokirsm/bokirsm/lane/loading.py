"""Partitions and machines, read from the log.

A partition is its newest checkpoint and the records above it. A machine is its newest snapshot and the commits above it. Both are right
for the owner of the partition only: another process may read records of which some were trimmed meanwhile, and none of its appends can
succeed.

What a head refers to may be trimmed between two reads, once a newer one is in the log: then the newer one is read.

What waits in partitions may be more than fits the memory of a process. Beyond a bound messages are not kept, but all else of their records
is applied, also which of these messages were taken (`PartitionState.kept_to`): the lane reads the messages again when there is room.

A record that no library wrote has nothing of machines, and every reader passes it over. One that a library wrote and that cannot be opened
here (another payload hook, a newer version) may have messages or commits: a partition ends before it until it can be read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import boki
from boki_common.errors import BokiError, Trimmed
from bokilib.append.log import Log, Read
from bokilib.errors import ForeignRecord
from bokilib.records import tags
from bokirsm.model.events import PICKER, Checkpoint, Created, PartRef, Snapshot, is_head, partition_of_ref
from bokirsm.model.machine_state import MachineState, decode_state
from bokirsm.model.partition_state import PartitionState, Shares, shares_of
from bokirsm.model.parts import KeptParts, kept_of

E = TypeVar("E", Checkpoint, Snapshot)

ATTEMPTS: Final = 16
"""Reads of a state that is replaced and trimmed meanwhile."""


class Head(NamedTuple, Generic[E]):
    """The newest head of a stream.

    Attributes:
        seqnum: of its record.
        time_ms: of the oldest record that has a part of the state.
        event: the head.
        data: the bytes of the whole state.
        kept: the parts that it refers to.
    """

    seqnum: int
    time_ms: int
    event: E
    data: bytes
    kept: KeptParts

    @property
    def first(self) -> int:
        """The lowest seqnum of a record that the state needs."""
        return min(self.seqnum, self.kept.first or self.seqnum)


class MachineStream(NamedTuple):
    """The stream of a machine.

    Attributes:
        head: its newest snapshot, or None.
        created: the record and event of its creation by key, if that is not trimmed and there is no snapshot; else None.
    """

    head: Head[Snapshot] | None = None
    created: tuple[int, int, Created] | None = None

    @property
    def partition(self) -> int | None:
        """The partition of the machine, None without one."""
        if self.head is not None:
            return self.head.event.partition
        return partition_of_ref(self.created[2].message.to)[1] if self.created is not None else None

    @property
    def digest(self) -> str:
        """The digest of the creation, if the machine has a key."""
        if self.head is not None:
            return self.head.event.digest
        return self.created[2].message.digest if self.created is not None else ""

    @property
    def state(self) -> MachineState | None:
        """The state in the newest snapshot."""
        return decode_state(self.head.data) if self.head is not None else None


def is_foreign(error: BokiError) -> bool:
    """Return whether the error of a record says that no library wrote it."""
    return isinstance(error, ForeignRecord) and "damaged" not in error.facts


async def opened(log: Log, record: boki.Record) -> Read | None:
    """Return a record; None if no library wrote it.

    Raises:
        BokiError: a library wrote it, and it cannot be opened here.
    """
    try:
        return Read(record, await log.open(record))
    except ForeignRecord as error:
        if is_foreign(error):
            return None
        raise


async def _newest_first(log: Log, tag: str, at_most: int | None = None) -> AsyncIterator[Read]:
    """Yield the live records of a stream, newest first."""
    while True:
        try:
            record = await log.book.read_prev(tag, at_most=at_most)
        except Trimmed:
            return
        if record is None:
            return
        read = await opened(log, record)
        if read is not None:
            yield read
        at_most = record.seqnum - 1


async def _whole(log: Log, tag: str, about: str, read: Read, event: E) -> Head[E]:
    """Return a head with its parts.

    Raises:
        Trimmed: a part was trimmed: there is a newer head.
    """
    parts: list[tuple[PartRef, bytes, int]] = []
    records = {read.record.seqnum: read}
    for ref in event.refs:
        if ref.seqnum not in records:
            record = await log.book.read_prev(tag, at_most=ref.seqnum)
            if record is None or record.seqnum != ref.seqnum:
                raise Trimmed(f"a part of {about!r}, in record {ref.seqnum}, is trimmed")
            records[ref.seqnum] = Read(record, await log.open(record))
        found = records[ref.seqnum]
        data = next(
            one.data
            for one in PICKER.of(ref.seqnum, found.envelope, about=about)
            if isinstance(one, type(event)) and one.part == ref.part
        )
        parts.append((ref, data, found.record.time_ms))
    oldest_ms = min((found.record.time_ms for found in records.values()), default=read.record.time_ms)
    whole = event.data + b"".join(data for _, data, _ in parts)
    return Head(read.record.seqnum, oldest_ms, event, whole, kept_of(parts, event.data))


async def read_machine(log: Log, group: str, name: str, *, at_most: int | None = None) -> MachineStream:
    """Return the newest snapshot of a machine, or its creation by key. `at_most`: as of this position.

    Raises:
        Trimmed: the stream was replaced and trimmed during each of many attempts.
    """
    tag, about = tags.rsm_machine(group, name), f"{group}/{name}"
    for left in reversed(range(ATTEMPTS)):
        newest, created = 0, None
        try:
            async for read in _newest_first(log, tag, at_most):
                newest = newest or read.record.seqnum
                for event in PICKER.of(read.record.seqnum, read.envelope, about=about):
                    if isinstance(event, Snapshot) and is_head(event):
                        return MachineStream(await _whole(log, tag, about, read, event))
                    if isinstance(event, Created):
                        created = read.record.seqnum, read.record.time_ms, event
        except Trimmed:
            if not left:
                raise
            continue
        if not newest or await _is_newest(log, tag, newest, at_most):
            return MachineStream(None, created)
    raise Trimmed(f"the snapshots of {about!r} were replaced during each of {ATTEMPTS} reads")


async def load_snapshot(log: Log, group: str, name: str) -> MachineState | None:
    """Return the state of a machine in its newest snapshot, or None."""
    return (await read_machine(log, group, name)).state


async def _is_newest(log: Log, tag: str, seqnum: int, at_most: int | None) -> bool:
    """Return whether a record is still the newest one of a stream."""
    async for read in _newest_first(log, tag, at_most):
        return read.record.seqnum == seqnum
    return False


class Room:
    """The room for messages that wait, while partitions are read: where it ends, a partition with more than its share keeps no more."""

    def __init__(self, limit: int, share: int) -> None:
        """Begin with bytes for all partitions, and those that each may keep whatever the others have."""
        self._limit: Final = limit
        self._share: Final = share

    def look(self, states: Iterable[PartitionState], one: PartitionState) -> None:
        """Have a partition, of which a record was applied, keep no more if there is no room."""
        if one.kept_to is None and one.waiting > self._share and sum(each.waiting for each in states) > self._limit:
            one.kept_to = max(one.read_to, one.covers)


async def load_partitions(
    log: Log, group: str, partitions: Sequence[int], position: int, room: Room | None = None
) -> dict[int, PartitionState]:
    """Return the states of partitions as of a position or later, with the commits that machines need to be loaded.

    Args:
        log: of the book.
        group: of the machines.
        partitions: their numbers.
        position: the last seqnum to apply.
        room: for messages; None for all that wait.

    Raises:
        Trimmed: another owner trimmed records that are needed, during each of many attempts.
        Lost: the log lost records that are needed.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            states = await _restored(log, group, partitions)
            for state in states.values():
                if room is not None:
                    room.look(states.values(), state)
            await read_on(log, states, {one: state.covers for one, state in states.items()}, position, room)
            return states
        except Trimmed:
            if not left:
                raise
    raise AssertionError("ATTEMPTS is at least 1")


async def _restored(log: Log, group: str, partitions: Sequence[int]) -> dict[int, PartitionState]:
    """Return the states of the newest checkpoints of partitions."""
    states = {one: PartitionState(group, one) for one in partitions}
    wanted: list[tuple[str | int | None, int | None]] = [(tags.rsm_checkpoint(group, one), None) for one in partitions]
    newest = await log.book.read_prev_many(wanted) if wanted else []
    for one, record in zip(partitions, newest, strict=True):
        head = await read_checkpoint(log, group, one) if record is not None else None
        if head is not None:
            states[one] = PartitionState.restored(group, one, head.event.covers, head.data)
            states[one].kept, states[one].head, states[one].checkpoint_ms = head.kept, head.seqnum, head.time_ms
    return states


async def read_checkpoint(log: Log, group: str, partition: int) -> Head[Checkpoint] | None:
    """Return the newest checkpoint of a partition.

    Raises:
        Trimmed: a part was trimmed meanwhile, so that there is a newer one.
    """
    tag, about = tags.rsm_checkpoint(group, partition), f"{group}/{partition}"
    async for read in _newest_first(log, tag):
        for event in PICKER.of(read.record.seqnum, read.envelope, about=about):
            if isinstance(event, Checkpoint) and is_head(event):
                return await _whole(log, tag, about, read, event)
    return None


async def read_on(
    log: Log, states: Mapping[int, PartitionState], after: Mapping[int, int], position: int, room: Room | None = None
) -> None:
    """Apply the records of partitions up to a position, by one read of all.

    Args:
        log: of the book.
        states: the partitions.
        after: the seqnum up to which each partition was read.
        position: the last seqnum to apply.
        room: for messages; None for all that wait.

    Raises:
        Trimmed, Lost: some of the records are not there.
    """
    start = min(after.values(), default=position) + 1
    if start > position:
        return
    by_tag: dict[str | int, int] = {tags.rsm_partition(states[one].group, one): one for one in states}
    async for item in log.book.read(tags=list(by_tag), start=start, stop=position + 1):
        if isinstance(item, boki.Gap):
            concerned = by_tag.values() if item.tag is None else [by_tag[item.tag]]
            if any(item.last > after[one] for one in concerned):
                raise item.error()
            continue
        read = await opened(log, item)
        shares: Shares = {}
        if read is not None:
            shares = shares_of(PICKER.of(item.seqnum, read.envelope), len(item.data))
        for tag in item.tags:
            one = by_tag.get(tag)
            if one is not None and item.seqnum > after[one]:
                state = states[one]
                state.apply_shares(item.seqnum, item.time_ms, shares, keeps=state.kept_to is None)
                state.read_to = item.seqnum
                if room is not None:
                    room.look(states.values(), state)
