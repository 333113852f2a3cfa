"""The state of a partition: the same from every checkpoint, and what is pending in it."""

from __future__ import annotations

import pytest
from msgspec.msgpack import encode

from bokirsm.model.events import (
    DROPPED,
    SAME_RECORD,
    AnyEvent,
    Commit,
    Created,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Resumed,
    Skipped,
    TimerSet,
)
from bokirsm.model.partition_state import (
    DEDUP_MS,
    PartitionState,
    TimerTimes,
    machine_of,
)
from bokirsm.model.parts import PART_BYTES, KeptParts, Row, compose, whole

M = "g/3/m"
GOLDEN_DEDUP = (
    "dd0000000594a168a0c400c40492a1670394a170a0c403920100c41296a5672f332f6da470616964c400a0a178a094a170a0"
    "c403920101c41296a5672f332f6ea470616964c400a0a178a094a164a5672f332f6dc40178c4010a94a164a5672f332f6ec4"
    "0178c4010a"
)
"""A checkpoint with two pending messages and their deduplication ids."""


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


def test_a_creation_that_was_dropped_ends_its_fault() -> None:
    """So older programs skipped a creation."""
    born = Message("g/3/m", "Init", kind="M")
    fault = Faulted("g/3/m", MessageId(1, 0), "", "Init", "ValueError")
    story: list[list[AnyEvent]] = [[Created("g/m", born)], [fault], [Skipped("g/3/m", 2)]]
    state = told(story, PartitionState("g", 3))
    assert state.faults["g/3/m"].skip
    state.apply(4, 40, 100, [Commit("g/3/m", DROPPED, took=(MessageId(1, 0),))])
    assert not state.faults and not state.pending and not state.touched


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


def test_a_checkpoint_has_timers_one_by_one_and_those_of_older_programs_are_read() -> None:
    header, rows = told(STORY[:4], PartitionState("g", 3)).rows(4)
    assert [(row.kind, row.name, row.key) for row in rows if row.kind in "to"] == [("o", M, b"t")]
    older = [Row("t", M, b"", encode({"t": TimerTimes(5, 9, 1), "u": TimerTimes(6, 7, 2)}))]
    data = whole(compose(header, older, KeptParts(), 0, 1))
    assert PartitionState.restored("g", 3, 4, data).timers == {M: {"t": TimerTimes(5, 9, 1), "u": TimerTimes(6, 7, 2)}}


def test_many_timers_of_a_machine_fit_parts() -> None:
    state = PartitionState("g", 3)
    timers = tuple(TimerSet(f"session-{number}", 1, 5, 9, 0, "Go") for number in range(20_000))
    state.apply(1, 10, 100, [Commit(M, 1, kind="M", timers=timers)])
    composed = compose(*state.rows(1), KeptParts(), 0, 1)
    assert len(composed.parts) > 1 and max(len(part.data) for part in composed.parts) <= PART_BYTES
    assert PartitionState.restored("g", 3, 1, whole(composed)).timers == state.timers


def test_a_checkpoint_keeps_timers_and_deduplication_ids() -> None:
    known = told(STORY[:3], PartitionState("g", 3))
    state = PartitionState.restored("g", 3, 3, known.checkpoint(3))
    assert state.timers == {M: {"t": TimerTimes(5, 9, 1)}}
    assert state.apply(4, DEDUP_MS, 1, [Inputs("g", (to("copy", dedup="x"),))]) == []
    assert state.apply(5, DEDUP_MS + 21, 1, [Inputs("g", (to("later", dedup="x"),))]) != []
    known.checkpointed(2)
    assert known.records == [(3, 100, 30)] and not known.touched and known.covers == 2


def test_a_deduplication_id_is_one_of_its_machine() -> None:
    """Two machines of a partition get an event with one id each; a checkpoint keeps them apart."""
    events: list[AnyEvent] = [Inputs("g", (to("paid", dedup="x"), to("paid", dedup="x", ref="g/3/n")))]
    known = PartitionState("g", 3)
    assert [message.to for _, message in known.apply(1, 10, 1, events)] == [M, "g/3/n"]
    assert known.apply(2, 20, 1, events) == []
    data = known.checkpoint(2)
    assert data.hex() == GOLDEN_DEDUP, "checkpoints of other releases are read"
    restored = PartitionState.restored("g", 3, 2, data)
    assert restored.apply(3, 30, 1, events) == [] and restored.checkpoint(2) == data
    others: list[AnyEvent] = [Inputs("g", (to("paid", dedup="x", ref="g/3/o"),))]
    assert len(restored.apply(4, 40, 1, others)) == 1


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


def test_a_checkpoint_has_the_ids_that_records_above_it_are_compared_with() -> None:
    """An id that has expired by the newest record still counts for a copy above what the checkpoint covers."""
    times_ms = [0, DEDUP_MS - 1, DEDUP_MS, 2 * DEDUP_MS + 5, 2 * DEDUP_MS + 6]
    story: list[list[AnyEvent]] = [[Inputs("g", (to(f"e{n}", dedup=id),))] for n, id in enumerate("xxyxx")]
    known = PartitionState("g", 3)
    for place, events in enumerate(story, 1):
        known.apply(place, times_ms[place - 1], 100, events)
    whole = [one.event for one in known.pending.values()]
    assert whole == ["e0", "e2", "e3"]
    for covers in range(len(story) + 1):
        state = PartitionState.restored("g", 3, covers, known.checkpoint(covers))
        for place in range(covers + 1, len(story) + 1):
            state.apply(place, times_ms[place - 1], 100, story[place - 1])
        assert [one.event for one in state.pending.values()] == whole
        known.checkpointed(covers)


SIZE = 1_000


def waiting(*sizes: int, taken: int = 0) -> PartitionState:
    """Return a partition with a message in each record, of which the first ones were taken."""
    state = PartitionState("g", 3)
    for place, size in enumerate(sizes, 1):
        state.apply(place, place * 10, SIZE, [Inputs("g", (Message(M, "a", b"x" * size),))])
    for place in range(1, taken + 1):
        took = Commit(M, place, took=(MessageId(place, 0),))
        state.apply(len(sizes) + place, (len(sizes) + place) * 10, SIZE, [took])
    return state


def test_a_checkpoint_stays_below_the_first_message_that_waits() -> None:
    assert waiting(900, 900, taken=2).next_covers(4, 0) == 4, "nothing waits"
    assert waiting(900, 900, taken=1).next_covers(3, 0) == 1
    assert waiting(900, 900, 900).next_covers(3, 0) == 0
    assert waiting(900, 900, 900).next_covers(2, 0) == 0


def test_a_checkpoint_carries_what_is_old_or_little() -> None:
    assert waiting(900, 900, 900).next_covers(3, 20) == 2, "the terms of old messages can be reclaimed"
    little = waiting(900, 900, 100, 1_900, taken=2)
    assert little.next_covers(6, 0) == 3 and little.next_covers(2, 0) == 2
    pending = PartitionState.restored("g", 3, 3, little.checkpoint(3)).pending
    assert [id.seqnum for id in pending] == [3]
