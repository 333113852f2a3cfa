"""The open record of a lane: the ids of what it took, its streams, expectations and bounds."""

from __future__ import annotations

from bokilib.records import tags
from bokirsm.model.events import (
    SAME_RECORD,
    Claimed,
    Commit,
    Faulted,
    Inputs,
    Message,
    MessageId,
    Reply,
    messages_of,
)
from bokirsm.model.lane_record import InboxMessage, LaneRecord, Span, expectations, is_own

A, B, C = "g/1/a", "g/2/b", "g/3/c"


def test_a_chain_of_handlers_is_one_record() -> None:
    record = LaneRecord("g")
    outside = InboxMessage(Message(A, "Go"), 40, 2)
    made, sent = record.add(Commit(A, 1, creates=(Message(B, kind="B"),), sends=(Message(B, "x"),)), outside)
    (more,) = record.add(Commit(B, 1, sends=(Message(C, "y"),), replies=(Reply("p/7", "answer", b""),)), made)
    record.add(Commit(B, 2), sent)
    record.add(Commit(A, 2), None)
    found = record.contribution({1: 11, 2: 12, 3: 13})
    took = [event.took for event in found.events if isinstance(event, Commit)]
    assert took == [(MessageId(40, 2),), (MessageId(SAME_RECORD, 0),), (MessageId(SAME_RECORD, 1),), ()]
    assert found.tags == (*(tags.rsm_partition("g", one) for one in (1, 2, 3)), tags.rsm_replies("p"))
    assert found.expect == expectations("g", {1: 11, 2: 12}, [1, 2]), "it does not commit in partition 3"
    numbers = [number for number, _ in messages_of(event for event in found.events if isinstance(event, Commit))]
    assert numbers == [one.number for one in record.sent]
    following = LaneRecord("g")
    record.appended(50)
    following.add(Faulted(C, MessageId(0, 0), "", "y", "error"), more)
    (fault,) = following.events()
    assert isinstance(fault, Faulted) and fault.message == MessageId(50, 2)


def test_a_record_is_full_by_bytes_and_by_streams() -> None:
    record = LaneRecord("g")
    large = Commit(A, 1, registers={"a": b"x" * 300_000})
    assert not record and record.fits(large)
    record.add(large, None)
    assert record and len(record) == 1 and not record.fits(large) and record.fits(Commit(A, 2))
    for number in range(200):
        record.add(Commit(A, 2, replies=(Reply(f"p{number}/1", "answer", b""),)), None)
    many = Commit(A, 3, sends=tuple(Message(f"g/{one}/m", "x") for one in range(64)))
    assert not record.fits(many) and LaneRecord("g").fits(many)


def test_a_lane_knows_its_own_records_by_its_partitions() -> None:
    since: dict[int, list[Span]] = {1: [(2, 4), (10, None)], 2: [(30, 60)]}
    commit = Commit(A, 1, sends=(Message(B, "x"),))
    assert is_own(11, [commit], since) and is_own(40, [Inputs("g", ()), Faulted(A, MessageId(1, 0), "", "", "")], since)
    assert not is_own(10, [commit], since), "another lane owned the partition then"
    assert is_own(3, [commit], since) and not is_own(4, [commit], since)
    assert is_own(59, [Commit(B, 1)], since) and not is_own(61, [Commit(B, 1)], since), "it was released there"
    assert not is_own(40, [Commit(C, 1, sends=(Message(B, "x"),))], since)
    assert not is_own(40, [Claimed("g", 1, "host"), Inputs("g", (Message(A, "x"),))], since)
