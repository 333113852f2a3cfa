"""Records of queues have the documented format, and keep it."""

from __future__ import annotations

import msgspec

from bokilib.records.events import encode, open_record
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
    Popped,
    Pushed,
    Source,
    consumer_id,
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
]


def test_events_come_back_as_they_were_written() -> None:
    found = PICKER.of(5, open_record(5, encode("me", 4, EVENTS)))
    assert list(found) == EVENTS


def test_the_bytes_of_a_decision_are_few_and_the_same_for_ever() -> None:
    assert (shard_id("q", 3), consumer_id("q", 3, "g")) == ("q/3", "q/3/g")
    assert msgspec.msgpack.encode(EVENTS[3]).hex() == "93a971756575652e61636ba5712f332f6791920901".replace(
        "71756575652e61636b", "71756575652e61636b"
    )
