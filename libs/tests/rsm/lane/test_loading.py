"""Partitions and machines from the log: from checkpoints, above trims, and when records are missing."""

from __future__ import annotations

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Trimmed
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.retention.checkpoint_rules import split
from bokirsm.lane.loading import load_partitions, load_snapshot, read_on
from bokirsm.model.events import Checkpoint, Commit, Inputs, Message, MessageId, Snapshot
from bokirsm.model.machine_state import MachineState, encode_state
from bokirsm.model.partition_state import PartitionState

P3, P4 = tags.rsm_partition("g", 3), tags.rsm_partition("g", 4)


async def log_of(cluster: MemoryCluster) -> Log:
    return Log((await cluster.connect()).book("b"))


async def send(log: Log, partition: int, event: str) -> int:
    one = Inputs("g", (Message(f"g/{partition}/m", event),))
    return await log.append(Contribution((tags.rsm_partition("g", partition),), {}, (one,)))


def pending(states: dict[int, PartitionState], partition: int) -> list[str]:
    return [message.event for message in states[partition].pending.values()]


async def test_several_partitions_are_read_at_once_and_on(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    first = await send(log, 3, "a")
    await send(log, 4, "b")
    took = Commit("g/3/m", 1, took=(MessageId(first, 0),), kind="M", sends=(Message("g/4/m", "c"),))
    position = await log.append(Contribution((P3, P4), {}, (took,)))
    states = await load_partitions(log, "g", [3, 4, 5], position)
    assert [pending(states, one) for one in (3, 4, 5)] == [[], ["b", "c"], []] and states[3].touched == {"g/3/m": 1}
    last = await send(log, 3, "d")
    await read_on(log, states, dict.fromkeys(states, position), last)
    assert pending(states, 3) == ["d"] and await load_partitions(log, "g", [], last) == {}


async def test_a_partition_begins_at_its_newest_whole_checkpoint(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    covers = await send(log, 3, "a")
    state = (await load_partitions(log, "g", [3], covers))[3]
    parts = split(state.checkpoint(covers), 10)
    for number, data in enumerate(parts):
        part = Checkpoint("g/3", covers, number, len(parts), data)
        await log.append(Contribution((tags.rsm_checkpoint("g", 3),), {}, (part,)))
    await log.book.trim([(P3, covers + 1)])
    last = await send(log, 3, "b")
    await log.append(Contribution((tags.rsm_checkpoint("g", 3),), {}, (Checkpoint("g/3", last, 1, 2, b""),)))
    states = await load_partitions(log, "g", [3, 4], await log.book.now())
    assert pending(states, 3) == ["a", "b"] and states[3].covers == covers
    await log.book.trim([(P3, last + 1)])
    with pytest.raises(Trimmed):
        await load_partitions(log, "g", [3], await log.book.now())


async def test_the_newest_whole_snapshot_counts(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    tag = tags.rsm_machine("g", "m")
    assert await load_snapshot(log, "g", "m") is None
    old, new = MachineState("M", 1), MachineState("M", 2, registers={"a": b"x" * 30})
    await log.append(Contribution((tag,), {}, (Snapshot("g/m", 1, 0, 1, encode_state(old)),)))
    parts = split(encode_state(new), 20)
    for number, data in enumerate(parts):
        assert await load_snapshot(log, "g", "m") == old
        await log.append(Contribution((tag,), {}, (Snapshot("g/m", 2, number, len(parts), data),)))
    assert await load_snapshot(log, "g", "m") == new
