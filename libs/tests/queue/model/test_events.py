"""Records of queues have the documented format, and keep it."""

from __future__ import annotations

import msgspec
import pytest

from bokilib.errors import UnknownEvent
from bokilib.records.events import Picker, encode, open_record
from bokiqueue.model.events import (
    PICKER,
    Acked,
    Checkpoint,
    Config,
    Dead,
    Delivered,
    Id,
    Item,
    Limits,
    Nacked,
    Old,
    OldToGroup,
    Popped,
    Pushed,
    PushedToGroup,
    Source,
    consumer_id,
    for_all,
    for_group,
    is_for,
    shard_id,
)

EVENTS = [
    Config("q", "consume", 8, 5, "q.dead", 300_000, Limits(10, 2.5), {"default": 1}),
    Pushed("q/3", (Item(msgspec.Raw(b"\xa1x"), "k", "d", 5, Source("o", 1, 9, 0, 5, "why")),)),
    Delivered("q/3/g", Id(9, 1), (Id(8, 0),), ((7, 0, 2),)),
    Acked("q/3/g", (Id(9, 1),)),
    Nacked("q/3/g", ((9, 1, 2, 77),)),
    Dead("q/3/g", (Id(9, 1),)),
    Checkpoint("q/3/g", 40, 0, 1, b"state"),
    Popped("q/3/"),
    Old("q/3", 8, 0, True, ((7, 0, 55, Item(msgspec.Raw(b"\xa1x"))),)),
]
JOB = Item(msgspec.Raw(b"\xa1x"), "k")
FOR_A_GROUP = [
    PushedToGroup("q/3", (for_group(JOB, "g"),)),
    OldToGroup("q/3", 8, 0, True, ((7, 0, 55, for_group(JOB, "g")), (7, 1, 55, for_group(JOB, "")))),
]


def test_events_come_back_as_they_were_written() -> None:
    written = [*EVENTS, *FOR_A_GROUP]
    found = PICKER.of(5, open_record(5, encode("me", 4, written)))
    assert list(found) == written


def test_messages_for_all_groups_have_the_bytes_of_older_versions() -> None:
    assert msgspec.msgpack.encode(Pushed("q/3", (JOB,))).hex() == "93aa71756575652e70757368a3712f339196a178a16bc000c000"
    assert msgspec.msgpack.encode(EVENTS[-1]).hex() == "96a971756575652e6f6c64a3712f330800c3919407003796a178c0c000c000"


def test_an_older_version_refuses_messages_for_one_group() -> None:
    older = Picker("queue", (Config, Pushed, Delivered, Acked, Nacked, Dead, Checkpoint, Popped, Old))
    for event in FOR_A_GROUP:
        with pytest.raises(UnknownEvent, match="upgrade it"):
            older.of(5, open_record(5, encode("me", 4, [event])))


def test_a_message_is_for_one_group_or_for_all() -> None:
    alone, both = for_group(JOB, "g"), for_group(JOB, "")
    assert (is_for(alone, "g"), is_for(alone, "h"), is_for(both, "h"), is_for(JOB, "h")) == (True, False, True, True)
    assert for_group(alone, "") is alone, "it stays for its group"
    assert (for_all(both), for_all(alone), type(for_all(both))) == (JOB, alone, Item)


def test_the_bytes_of_a_decision_are_few_and_the_same_for_ever() -> None:
    assert (shard_id("q", 3), consumer_id("q", 3, "g")) == ("q/3", "q/3/g")
    assert msgspec.msgpack.encode(EVENTS[3]).hex() == "93a971756575652e61636ba5712f332f6791920901".replace(
        "71756575652e61636b", "71756575652e61636b"
    )
