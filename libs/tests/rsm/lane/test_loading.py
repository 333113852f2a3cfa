"""Partitions and machines from the log: from checkpoints, above trims, and when records are missing."""

from __future__ import annotations

import pytest
from msgspec.msgpack import encode

from boki import Record
from boki.testing import MemoryCluster
from boki_common.errors import Trimmed
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokilib.records.events import Envelope
from bokirsm.lane.loading import load_partitions, load_snapshot, read_machine, read_on
from bokirsm.model.events import Checkpoint, Commit, Created, Inputs, Message, MessageId, PartRef, Snapshot
from bokirsm.model.machine_state import MachineState, encode_state
from bokirsm.model.partition_state import PartitionState
from bokirsm.model.parts import rows_of

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


def cut(data: bytes) -> list[bytes]:
    """Return the bytes of a head, which has the header, and of two parts."""
    begins = 5 + len(encode(rows_of(data)[0]))
    return [data[:begins], data[begins : begins + 4], data[begins + 4 :]]


async def test_a_partition_begins_at_its_newest_head(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    covers = await send(log, 3, "a")
    state = (await load_partitions(log, "g", [3], covers))[3]
    head, *parts = cut(state.checkpoint(covers))
    tag, refs = tags.rsm_checkpoint("g", 3), []
    for number, data in enumerate(parts):
        part = Checkpoint("g/3", covers, number, 3, data)
        refs.append(PartRef(await log.append(Contribution((tag,), {}, (part,))), number))
    whole = Checkpoint("g/3", covers, 2, 3, head, tuple(refs))
    place = await log.append(Contribution((tag,), {}, (whole,)))
    await log.book.trim([(P3, covers + 1)])
    last = await send(log, 3, "b")
    await log.append(Contribution((tag,), {}, (Checkpoint("g/3", last, 0, 2, b""),)))
    states = await load_partitions(log, "g", [3, 4], await log.book.now())
    assert pending(states, 3) == ["a", "b"] and states[3].covers == covers and states[3].head == place
    assert {one.ref for one in states[3].kept.parts.values()} == set(refs) and states[3].kept.first == refs[0].seqnum
    await log.book.trim([(P3, last + 1)])
    with pytest.raises(Trimmed):
        await load_partitions(log, "g", [3], await log.book.now())


async def test_the_newest_head_of_a_machine_counts(cluster: MemoryCluster) -> None:
    log = await log_of(cluster)
    tag = tags.rsm_machine("g", "m")
    assert (await read_machine(log, "g", "m")).state is None
    made = Created("g/m", Message("g/3/m", kind="M", digest="d"))
    await log.append(Contribution((tag,), {}, (made,)))
    assert (await read_machine(log, "g", "m")).digest == "d" and (await read_machine(log, "g", "n")).digest == ""
    old, new = MachineState("M", 1), MachineState("M", 2, registers={"a": b"x" * 30})
    first = await log.append(Contribution((tag,), {}, (Snapshot("g/m", 1, 0, 1, encode_state(old), digest="d"),)))
    head, *parts = cut(encode_state(new))
    refs = []
    for number, data in enumerate(parts):
        assert (await read_machine(log, "g", "m")).state == old
        part = Snapshot("g/m", 2, number, 3, data)
        refs.append(PartRef(await log.append(Contribution((tag,), {}, (part,))), number))
    whole = Snapshot("g/m", 2, 2, 3, head, digest="d", refs=tuple(refs))
    await log.append(Contribution((tag,), {}, (whole,)))
    found = await read_machine(log, "g", "m")
    assert found.state == new and found.digest == "d" and found.head is not None and found.head.first == refs[0].seqnum
    assert await load_snapshot(log, "g", "m") == new
    assert (await read_machine(log, "g", "m", at_most=first)).state == old


async def test_a_snapshot_that_is_replaced_and_trimmed_during_a_read_is_read_again(cluster: MemoryCluster) -> None:
    log, other = await log_of(cluster), await log_of(cluster)
    tag = tags.rsm_machine("g", "m")
    head, *parts = cut(encode_state(MachineState("M", 1)))
    refs = [
        PartRef(await log.append(Contribution((tag,), {}, (Snapshot("g/m", 1, n, 3, parts[n]),))), n) for n in (0, 1)
    ]
    await log.append(Contribution((tag,), {}, (Snapshot("g/m", 1, 2, 3, head, refs=tuple(refs)),)))
    copied: list[int] = []

    async def copy(record: Record) -> Envelope:
        """A carrier copies the snapshot between the read of the head and that of its parts."""
        if not copied:
            again = Snapshot("g/m", 1, 0, 1, encode_state(MachineState("M", 1)))
            copied.append(await other.append(Contribution((tag,), {}, (again,))))
            await other.book.trim([(tag, copied[0])])
        return await Log.open(log, record)

    log.open = copy  # type: ignore[method-assign]
    found = await read_machine(log, "g", "m")
    assert found.state == MachineState("M", 1) and found.head is not None and found.head.seqnum == copied[0]
