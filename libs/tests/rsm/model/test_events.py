"""The format of records: bytes that older programs wrote are read as they were meant."""

from __future__ import annotations

import pytest

from bokilib.records.events import encode, open_record
from bokirsm.model.events import (
    PICKER,
    SAME_RECORD,
    AnyEvent,
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
    PartRef,
    Reply,
    Resumed,
    Skipped,
    Snapshot,
    TimerSet,
    Undelivered,
    messages_of,
    outputs_of,
)

GO = Message("g/3/m", "Go", b"\x01", dedup="d")
BORN = Message("g/4/m#1", "Init", b"\x02", "Max", digest="e")
EVENTS: dict[str, AnyEvent] = {
    "claim": Claimed("g", 3, "host-1"),
    "release": Claimed("g", 3, "", "host-1", True),
    "input": Inputs("g", (GO,)),
    "create": Created("g/m", BORN),
    "commit": Commit(
        "g/3/m",
        2,
        1_000,
        (MessageId(77, 1), MessageId(SAME_RECORD, 0)),
        "Max",
        "run",
        {"a": b"\x05"},
        {"t": {b"k": b"v", b"l": None}},
        (BORN,),
        (GO,),
        (TimerSet("x", 2, 1_000, 3_000, 0, "Go", b""), TimerSet("y", 2)),
        (Reply("p/1", "answer", b"\x07"),),
        True,
        77,
    ),
    "outputs": Emitted("g/3/m", 2, (Output("mails", "Mail", b"\x01"), Output("sms", "Sms"))),
    "done": Done("g/3", "mails", (MessageId(77, 0), MessageId(78, 2)), (GO,)),
    "undelivered": Undelivered("g/3", "mails", MessageId(77, 0), 6, 1_000, "OSError: no"),
    "fault": Faulted("g/3/m", MessageId(77, 1), "", "Go", "ValueError: x", "at", (Reply("p/1", "faulted", b"x"),)),
    "resume": Resumed("g/3/m", 99),
    "skip": Skipped("g/3/m", 99),
    "snapshot": Snapshot("g/m", 7, 0, 1, b"state", True, 3, "e", "Max"),
    "part": Snapshot("g/m", 7, 0, 2, b"rows", partition=3),
    "head": Snapshot("g/m", 7, 1, 2, b"state", partition=3, kind="Max", refs=(PartRef(77, 0), PartRef(70, 3))),
    "checkpoint": Checkpoint("g/3", 90, 1, 2, b"state", (PartRef(88, 0),)),
}
GOLDEN = {
    "claim": "9401a26279059196a972736d2e636c61696da16703a6686f73742d31a0c2",
    "release": "9401a26279059196a972736d2e636c61696da16703a0a6686f73742d31c3",
    "input": "9401a26279059193a972736d2e696e707574a1679196a5672f332f6da2476fc40101a0a164a0",
    "create": "9401a26279059193aa72736d2e637265617465a3672f6d96a7672f342f6d2331a4496e6974c40102a34d6178a0a165",
    "commit": (
        "9401a2627905919faa72736d2e636f6d6d6974a5672f332f6d02cd03e892924d01920000a34d6178a372756e81a161c40105"
        "81a17482c4016bc40176c4016cc09196a7672f342f6d2331a4496e6974c40102a34d6178a0a1659196a5672f332f6da2476f"
        "c40101a0a164a09297a17802cd03e8cd0bb800a2476fc40097a17902000000a0c4009193a3702f31a6616e73776572c40107"
        "c34d"
    ),
    "outputs": "9401a26279059194a772736d2e6f7574a5672f332f6d029293a56d61696c73a44d61696cc4010193a3736d73a3536d73c400",
    "done": "9401a26279059195a872736d2e646f6e65a3672f33a56d61696c7392924d00924e029196a5672f332f6da2476fc40101a0a164a0",
    "undelivered": "9401a26279059197af72736d2e756e64656c697665726564a3672f33a56d61696c73924d0006cd03e8ab4f534572726f723a206e6f",
    "fault": (
        "9401a26279059198a972736d2e6661756c74a5672f332f6d924d01a0a2476fad56616c75654572726f723a2078a261749193"
        "a3702f31a76661756c746564c40178"
    ),
    "resume": "9401a26279059193aa72736d2e726573756d65a5672f332f6d63",
    "skip": "9401a26279059193a872736d2e736b6970a5672f332f6d63",
    "snapshot": "9401a2627905919ba872736d2e736e6170a3672f6d070001c4057374617465c303a165a34d617890",
    "part": "9401a2627905919ba872736d2e736e6170a3672f6d070002c404726f7773c203a0a090",
    "head": "9401a2627905919ba872736d2e736e6170a3672f6d070102c4057374617465c203a0a34d617892924d00924603",
    "checkpoint": "9401a26279059197a672736d2e636ba3672f335a0102c405737461746591925800",
}


@pytest.mark.parametrize("name", EVENTS)
def test_the_format_stays(name: str) -> None:
    data = encode("by", 5, [EVENTS[name]])
    assert data.hex() == GOLDEN[name]
    assert PICKER.of(1, open_record(1, data)) == [EVENTS[name]]


def test_the_messages_of_a_record_are_numbered_through_its_events() -> None:
    several = [EVENTS[name] for name in ("create", "commit", "outputs", "fault", "input", "done")]
    assert list(messages_of(several)) == [(0, BORN), (1, BORN), (2, GO), (3, GO), (4, GO)]
    assert str(MessageId(77, 1)) == "77-1"


def test_the_outputs_of_a_record_are_numbered_apart_from_its_messages() -> None:
    found = outputs_of([EVENTS["outputs"], EVENTS["commit"], Emitted("g/4/n", 1, (Output("sms", "Sms"),))])
    assert [(number, machine, one.plugin) for number, machine, one in found] == [
        (0, "g/3/m", "mails"),
        (1, "g/3/m", "sms"),
        (2, "g/4/n", "sms"),
    ]


def test_events_without_the_newer_fields_are_read() -> None:
    """The fields that are missing at the end of an event have their defaults."""
    commit = "9401a2627905919eaa72736d2e636f6d6d6974a5672f332f6d010291924d00a34d6178a372756e808090909090c2"
    snapshot = "9401a26279059198a872736d2e736e6170a3672f6d070001c4057374617465c303"
    checkpoint = "9401a26279059196a672736d2e636ba3672f335a0102c4057374617465"
    found = [PICKER.of(1, open_record(1, bytes.fromhex(one))) for one in (commit, snapshot, checkpoint)]
    assert found == [
        [Commit("g/3/m", 1, 2, (MessageId(77, 0),), "Max", "run")],
        [Snapshot("g/m", 7, 0, 1, b"state", True, 3)],
        [Checkpoint("g/3", 90, 1, 2, b"state")],
    ]
