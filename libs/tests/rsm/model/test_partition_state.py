"""The state of a partition: the same from every checkpoint, and what is pending in it."""

from __future__ import annotations

import pytest

from bokilib.retention.checkpoint_rules import split
from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    AnyEvent,
    Checkpoint,
    Commit,
    Created,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Resumed,
    Skipped,
    Snapshot,
    TimerSet,
)
from bokirsm.model.machine_state import MachineState, encode_state
from bokirsm.model.partition_state import (
    DEDUP_MS,
    PartitionState,
    TimerTimes,
    machine_of,
    newest_checkpoint,
    newest_snapshot,
)

M = "g/3/m"


def to(event: str, *, dedup: str = "", ref: str = M) -> Message:
    return Message(ref, event, dedup=dedup)


STORY: list[list[AnyEvent]] = [
    [Created("g/m", Message(M, "Init", kind="M"))],
    [Inputs("g", (to("a", dedup="x"), to("other", ref="g/4/n"), to("b")))],
    [Commit(M, 1, took=(MessageId(1, 0),), kind="M", state="run", timers=(TimerSet("t", 1, 5, 9, 0, "Go"),))],
    [Inputs("g", (to("copy", dedup="x"),))],
    [
        Commit("g/4/n", 1, kind="N", sends=(to("c"),)),
        Commit(M, 2, took=(MessageId(SAME_RECORD, 0),), sends=(to("d"),)),
        Commit(M, 3, took=(MessageId(SAME_RECORD, 1),)),
    ],
    [Faulted(M, MessageId(2, 0), "", "a", "ValueError: x")],
    [Skipped(M, 5)],
    [Skipped(M, 6)],
    [Commit(M, 4, took=(MessageId(2, 0),), timers=(TimerSet("t", 4),))],
    [Faulted(M, MessageId(SAME_RECORD, 0), "", "b", "ValueError: y")],
    [Resumed(M, 10)],
    [Commit("g/3/gone", DROPPED, took=(MessageId(12, 0),)), Inputs("g", (to("x", ref="g/3/gone"),))],
]


def told(story: list[list[AnyEvent]], state: PartitionState, first: int = 1) -> PartitionState:
    for place, events in enumerate(story, first):
        state.apply(place, place * 10, 100, events)
    return state


def facts(state: PartitionState) -> tuple[object, ...]:
    return state.pending, state.timers, state.faults


def test_what_is_pending_and_open_at_each_place() -> None:
    state = PartitionState("g", 3)
    seen = []
    for place, events in enumerate(STORY, 1):
        new = state.apply(place, place * 10, 100, events)
        seen.append(([message.event for _, message in new], [one.event for one in state.pending.values()]))
    assert seen[:5] == [
        (["Init"], ["Init"]),
        (["a", "b"], ["Init", "a", "b"]),
        ([], ["a", "b"]),
        ([], ["a", "b"]),
        ([], ["a", "b"]),
    ], "a copy is dropped, and what the same record takes is not pending"
    assert seen[8][1] == ["b"] and not state.timers and not state.faults
    assert state.touched == {M: 4} and [one.k for one in state.commits[M]] == [1, 2, 3, 4]


def test_faults_are_ended_by_the_decision_that_names_them() -> None:
    fault = told(STORY[:7], PartitionState("g", 3)).faults[M]
    assert (fault.seqnum, fault.message, fault.skip) == (6, MessageId(2, 0), False), "fault 5 is none"
    assert told(STORY[:8], PartitionState("g", 3)).faults[M].skip
    assert not told(STORY[:9], PartitionState("g", 3)).faults, "a commit of the machine ends its fault"
    assert told(STORY[:10], PartitionState("g", 3)).faults[M].message == MessageId(10, 0)


@pytest.mark.parametrize("covers", range(len(STORY) + 1))
@pytest.mark.parametrize("read", range(len(STORY) + 1))
def test_a_fold_from_a_checkpoint_is_the_fold_of_all(covers: int, read: int) -> None:
    """The checkpoint is composed as of `read`, which may be above what it covers."""
    if read < covers:
        return
    known = told(STORY[:read], PartitionState("g", 3))
    state = PartitionState.restored("g", 3, covers, known.checkpoint(covers))
    told(STORY[covers:], state, covers + 1)
    assert facts(state) == facts(told(STORY, PartitionState("g", 3)))


def test_a_checkpoint_keeps_timers_and_deduplication_ids() -> None:
    known = told(STORY[:3], PartitionState("g", 3))
    state = PartitionState.restored("g", 3, 3, known.checkpoint(3))
    assert state.timers == {M: {"t": TimerTimes(5, 9, 1)}}
    assert state.apply(4, DEDUP_MS, 1, [Inputs("g", (to("copy", dedup="x"),))]) == []
    assert state.apply(5, DEDUP_MS + 21, 1, [Inputs("g", (to("later", dedup="x"),))]) != []
    known.checkpointed(2)
    assert known.sizes == [(3, 100)] and not known.touched and known.covers == 2


def test_a_machine_is_its_snapshot_and_the_commits_above_it() -> None:
    commits = told(STORY, PartitionState("g", 3)).commits[M]
    whole = machine_of(None, commits)
    assert whole is not None and whole.k == 4 and machine_of(None, []) is None
    for k in range(1, 5):
        snapshot = machine_of(None, commits[:k])
        assert machine_of(snapshot, commits) == whole
    with pytest.raises(LookupError, match="expected commit 1 or a snapshot"):
        machine_of(None, commits[1:])
    with pytest.raises(LookupError, match="expected commit 2"):
        machine_of(machine_of(None, commits[:1]), commits[2:])


def test_snapshots_and_checkpoints_count_if_they_are_whole() -> None:
    old, new = MachineState("M", 1), MachineState("M", 2, registers={"a": b"x" * 50})
    parts = split(encode_state(new), 20)
    records = [(1, "by", Snapshot("g/m", 1, 0, 1, encode_state(old)))]
    assert newest_snapshot([]) is None
    for number, data in enumerate(parts):
        assert newest_snapshot(records[::-1]) == old
        records.append((number + 2, "by", Snapshot("g/m", 2, number, len(parts), data)))
    assert newest_snapshot(records[::-1]) == new
    assert newest_checkpoint([(5, "by", Checkpoint("g/3", 4, 0, 1, b"data"))]) == (4, b"data")
    assert newest_checkpoint([(5, "by", Checkpoint("g/3", 4, 1, 2, b"data"))]) is None
