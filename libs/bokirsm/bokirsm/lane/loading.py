"""Partitions and machines, read from the log.

A partition is its newest checkpoint and the records above it. A machine is its newest snapshot and the commits above it. Both are right
for the owner of the partition only: another process may read records of which some were trimmed meanwhile, and none of its appends can
succeed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import boki
from boki_common.errors import Trimmed
from bokilib.append.log import Log, Read
from bokilib.records import tags
from bokirsm.model.events import PICKER, Checkpoint, Snapshot
from bokirsm.model.machine_state import MachineState
from bokirsm.model.partition_state import PartitionState, newest_checkpoint, newest_snapshot

E = TypeVar("E", Checkpoint, Snapshot)
R = TypeVar("R")


async def _newest_first(log: Log, tag: str) -> AsyncIterator[Read]:
    """Yield the live records of a stream, newest first."""
    at_most: int | None = None
    while True:
        try:
            record = await log.book.read_prev(tag, at_most=at_most)
        except Trimmed:
            return
        if record is None:
            return
        yield Read(record, await log.open(record))
        at_most = record.seqnum - 1


async def _newest_whole(
    log: Log, tag: str, about: str, kind: type[E], newest: Callable[[Sequence[tuple[int, str, E]]], R | None]
) -> R | None:
    """Return what the newest parts in a stream are together, or None.

    Args:
        log: of the book.
        tag: of the stream.
        about: the machine or partition that the parts are of.
        kind: of the parts.
        newest: returns what (seqnum, writer, part) of the newest parts are together, or None while some are missing.
    """
    parts: list[tuple[int, str, E]] = []
    async for read in _newest_first(log, tag):
        for event in PICKER.of(read.record.seqnum, read.envelope, about=about):
            if isinstance(event, kind):
                parts.append((read.record.seqnum, read.envelope.by, event))
        if (found := newest(parts)) is not None:
            return found
    return None


async def load_partitions(log: Log, group: str, partitions: Sequence[int], position: int) -> dict[int, PartitionState]:
    """Return the states of partitions as of a position, with the commits that machines need to be loaded.

    Raises:
        Trimmed: another owner trimmed records that are needed.
        Lost: the log lost records that are needed.
    """
    states = {one: PartitionState(group, one) for one in partitions}
    wanted = [(tags.rsm_checkpoint(group, one), position) for one in partitions]
    newest = await log.book.read_prev_many(wanted) if wanted else []
    for one, record in zip(partitions, newest, strict=True):
        found = await _checkpoint(log, group, one) if record is not None else None
        if found is not None:
            states[one] = PartitionState.restored(group, one, *found)
    await read_on(log, states, {one: state.covers for one, state in states.items()}, position)
    return states


async def _checkpoint(log: Log, group: str, partition: int) -> tuple[int, bytes] | None:
    """Return (covers, data) of the newest whole checkpoint of a partition."""
    tag = tags.rsm_checkpoint(group, partition)
    return await _newest_whole(log, tag, f"{group}/{partition}", Checkpoint, newest_checkpoint)


async def read_on(log: Log, states: Mapping[int, PartitionState], after: Mapping[int, int], position: int) -> None:
    """Apply the records of partitions up to a position, by one read of all.

    Args:
        log: of the book.
        states: the partitions.
        after: the seqnum up to which each partition was read.
        position: the last seqnum to apply.

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
        read = Read(item, await log.open(item))
        for tag in item.tags:
            one = by_tag.get(tag)
            if one is not None and item.seqnum > after[one]:
                events = PICKER.of(item.seqnum, read.envelope)
                states[one].apply(item.seqnum, item.time_ms, len(item.data), events)


async def load_snapshot(log: Log, group: str, name: str) -> MachineState | None:
    """Return the state of a machine in its newest snapshot, or None."""
    return await _newest_whole(log, tags.rsm_machine(group, name), f"{group}/{name}", Snapshot, newest_snapshot)
