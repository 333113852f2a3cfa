"""The laws of records of machines: each one that is broken is told, and records that keep them break none."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from bokilib.records.events import Event, encode
from bokirsm.model.events import (
    Checkpoint,
    Claimed,
    Commit,
    Created,
    Done,
    Emitted,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Output,
    Reply,
    Resumed,
    Skipped,
    TimerSet,
    Undelivered,
)
from bokirsm_tools.record_laws import RecordLaws, covered

A, B = "g/1/a", "g/2/b"
OWNED = (Claimed("g", 1, "host-1"), Claimed("g", 2, "host-1"))
BORN = Inputs("g", (Message(A, kind="K"), Message(A, "E"), Message(A, "E"), Message(B, kind="K")))


Events: TypeAlias = tuple[Event, ...]


def broken(*records: Events | tuple[str, Events]) -> list[str]:
    """Return what is wrong with records 3, 4 and so on, after two machines were sent events in record 2, by process `p`."""
    laws = RecordLaws("g")
    several: list[Any] = [OWNED, (BORN,), *records]
    for seqnum, record in enumerate(several, start=1):
        by, events = record if isinstance(record[0], str) else ("p", record)
        laws.read(seqnum, 0, encode(by, 0, events))
    return laws.broken


def commit(k: int, *took: int, machine: str = A, **fields: Any) -> Commit:
    kind = "K" if took[:1] in ((0,), (3,)) else ""
    return Commit(machine, k, 1, tuple(MessageId(2, one) for one in took), kind=kind, **fields)


BEGUN = (commit(1, 0), commit(2, 1))


def test_records_that_keep_the_laws_break_none() -> None:
    timer = TimerSet("t", 3, 1, 2, 0, "E")
    fired = Commit(A, 4, 1, timers=(TimerSet("t", 4),), sends=(Message(B, "E"),))
    taken = Commit(B, 2, 1, (MessageId(0, 0),))
    answer = Reply("r/1", "answer", b"")
    assert broken(BEGUN, (commit(3, 2, timers=(timer,)), commit(1, 3, machine=B)), (fired, taken)) == []
    assert broken((commit(1, 0, replies=(answer,)), Commit(A, 0, replies=(Reply("r/1", "faulted", b""),)))) == []
    moved = ("q", (Claimed("g", 1, "host-2"),))
    assert broken((commit(1, 0),), moved, ("q", (commit(2, 1),))) == []


MAIL = Emitted(A, 1, (Output("mails", "Mail"),))
DONE = Done("g/1", "mails", (MessageId(3, 0),), (Message(A, "E"),))


def test_outputs_are_delivered_once_by_their_owner() -> None:
    emitted = (commit(1, 0), MAIL)
    late = Undelivered("g/1", "mails", MessageId(3, 0), 3, 1, "x")
    assert broken(emitted, (late,), (DONE,), (Commit(A, 2, 1, (MessageId(5, 0),)),)) == []
    for text, records in (
        ("which is not there", [(commit(1, 0), Emitted(A, 2, ()))]),
        ("answered twice", [emitted, (DONE,), (DONE,)]),
        ("was not emitted so", [(commit(1, 0),), (DONE,)]),
        ("was not emitted so", [emitted, (Done("g/1", "sms", (MessageId(3, 0),)),)]),
        ("is of p", [emitted, ("q", (DONE,))]),
        ("is of p", [emitted, ("q", (late,))]),
    ):
        found = broken(*records)
        assert any(text in one for one in found), (text, found)
    laws = RecordLaws("g")
    for seqnum, events in enumerate((OWNED, (BORN,), emitted), start=1):
        laws.read(seqnum, 0, encode("p", 0, events))
    assert laws.undelivered() == ["output 3-0 for mails"]


def test_each_broken_law_is_told() -> None:
    answer = Reply("r/1", "answer", b"")
    for text, records in (
        ("is of p", [("q", (commit(1, 0),))]),
        ("is of nobody", [(Claimed("g", 1, "", "host-1"),), (commit(1, 0),)]),
        ("twice", [BEGUN, (commit(3, 1),)]),
        ("not sent", [(commit(1, 0, 9),)]),
        ("which is to g/1/a", [(commit(1, 3, 1, machine=B),)]),
        ("after its commit 0", [(commit(2, 0),)]),
        ("has halted", [(commit(1, 0, halted=True), commit(2, 1))]),
        ("goes back", [(commit(1, 0), Commit(A, 2, 0, (MessageId(2, 1),)))]),
        ("no timer is set", [(commit(1, 0), commit(2))]),
        ("has class", [(commit(1, 1),)]),
        ("answered twice", [(commit(1, 0, replies=(answer,)),), (commit(2, 1, replies=(answer,)),)]),
    ):
        found = broken(*records)
        assert any(text in one for one in found), (text, found)


def test_events_of_one_machine_to_another_are_taken_in_order() -> None:
    sends = (commit(1, 0, sends=(Message(B, "E"), Message(B, "E"))), commit(1, 3, machine=B))
    right = (Commit(B, 2, 1, (MessageId(3, 0),)), Commit(B, 3, 1, (MessageId(3, 1),)))
    wrong = (Commit(B, 2, 1, (MessageId(3, 1),)), Commit(B, 3, 1, (MessageId(3, 0),)))
    assert broken(sends, right) == []
    assert "after its later one" in broken(sends, wrong)[0]


def test_a_copy_is_not_taken_while_its_window_lasts() -> None:
    for time_ms, copies in ((300_000, 1), (300_001, 0)):
        laws = RecordLaws("g")
        laws.read(1, 0, encode("p", 0, OWNED))
        laws.read(
            2, 0, encode("p", 0, (Created("g/a", Message(A, kind="K")), Inputs("g", (Message(A, "E", dedup="d"),))))
        )
        laws.read(3, time_ms, encode("p", 0, (Inputs("g", (Message(A, "E", dedup="d"),)),)))
        ids = (MessageId(2, 0), MessageId(2, 1), MessageId(3, 0))
        events = tuple(Commit(A, k, 1, (id,), kind="K" * (k == 1)) for k, id in enumerate(ids, start=1))
        assert len(laws.waiting()) == 3 - copies
        laws.read(4, time_ms, encode("p", 0, events))
        assert len(laws.broken) == copies and laws.waiting() == []


def test_a_machine_with_a_fault_waits_for_a_decision() -> None:
    fault = Faulted(A, MessageId(2, 1), "", "E", "ValueError: x")
    begun = (commit(1, 0), fault)  # record 3
    assert "waits since its fault" in broken(begun, (commit(2, 1),))[0]
    assert "waits since its fault" in broken(begun, (Resumed(A, 2),), (commit(2, 1),))[0]
    assert broken(begun, (Resumed(A, 3),), (commit(2, 1),)) == []
    assert broken(begun, (Skipped(A, 3),), (commit(2, 1),), (commit(3, 2),)) == []
    assert "was to skip" in broken(begun, (Skipped(A, 3),), (commit(2, 2),))[0]
    assert "was to skip" in broken(begun, (Skipped(A, 3),), (commit(2, 1, registers={"r": b""}),))[0]


def test_a_creation_that_failed_and_is_skipped_ends_its_fault() -> None:
    laws = RecordLaws("g")
    records: list[tuple[Event, ...]] = [OWNED, (BORN,), (Faulted(A, MessageId(2, 0), "", "", "ValueError: x"),)]
    for seqnum, events in enumerate(records, start=1):
        laws.read(seqnum, 0, encode("p", 0, events))
    assert laws.faulted() == laws.waiting_for_decision() == [A]
    laws.read(4, 0, encode("p", 0, (Skipped(A, 3),)))
    assert laws.faulted() == [A] and laws.waiting_for_decision() == []
    laws.read(5, 0, encode("p", 0, (commit(0, 0, 1, 2),)))
    assert laws.faulted() == [] and laws.broken == [] and len(laws.waiting()) == 1


def test_records_of_others_and_damaged_ones() -> None:
    laws = RecordLaws("g")
    laws.read(1, 0, msgspec.msgpack.encode((1, "p", 0, [["queue.push", "q"]])))
    assert laws.records == 0 and laws.broken == []
    laws.read(2, 0, b"\xc1")
    assert "expected a record of version 1" in laws.broken[0]


def test_what_checkpoints_cover_is_the_newest_that_they_name() -> None:
    first, second = Checkpoint("g/1", 7, 0, 1, b""), Checkpoint("g/2", 9, 0, 1, b"")
    assert covered(encode("p", 0, (second, first))) == 9
    assert covered(encode("p", 0, BEGUN)) == 0
