"""Records with events of several libraries: which events each library reads, and which records are refused."""

from __future__ import annotations

import msgspec
import pytest

import boki
from bokilib.errors import ForeignRecord, UnknownEvent
from bokilib.records.events import Event, Hooked, Picker, encode, encode_events, encode_hooked, open_record, with_events


class Mine(Event, tag="mine.did", frozen=True):
    id: str
    amount: int


class Also(Event, tag="mine.also", frozen=True):
    id: str


class Theirs(Event, tag="theirs.did", frozen=True):
    id: str


MINE = Picker[Mine | Also]("mine", (Mine, Also))


def test_each_library_reads_its_events_in_order_and_passes_those_of_others() -> None:
    data = encode("me", 7, (Mine("x", 1), Theirs("y"), Also("z"), Mine("w", 2)))
    envelope = open_record(9, data)
    assert (envelope.by, envelope.seen) == ("me", 7)
    assert MINE.of(9, envelope) == [Mine("x", 1), Also("z"), Mine("w", 2)]
    assert Picker[Theirs]("theirs", (Theirs,)).of(9, envelope) == [Theirs("y")]
    assert Picker[Theirs]("third", ()).of(9, envelope) == []


def test_of_a_record_of_many_those_about_one_are_picked() -> None:
    envelope = open_record(9, encode("me", 7, (Mine("x", 1), Theirs("x"), Also("z"), Also("x"))))
    assert MINE.of(9, envelope, "x") == [Mine("x", 1), Also("x")]
    assert MINE.of(9, envelope, "nobody") == []


def test_a_record_is_an_array_as_it_is_described() -> None:
    assert msgspec.msgpack.decode(encode("me", 7, (Mine("x", 1),))) == [1, "me", 7, [["mine.did", "x", 1]]]


def test_an_event_of_a_later_version_of_the_library_is_refused() -> None:
    envelope = open_record(9, msgspec.msgpack.encode([1, "me", 0, [["mine.new", "x"]]]))
    with pytest.raises(UnknownEvent, match="upgrade") as raised:
        MINE.of(9, envelope)
    assert (raised.value.seqnum, raised.value.found) == (9, "mine.new")


def test_an_event_that_no_state_depends_on_is_passed() -> None:
    envelope = open_record(9, msgspec.msgpack.encode([1, "me", 0, [["mine.note?", "x"], ["mine.also", "x"]]]))
    assert MINE.of(9, envelope) == [Also("x")]


def test_fields_added_at_the_end_are_passed() -> None:
    envelope = open_record(9, msgspec.msgpack.encode([1, "me", 0, [["mine.did", "x", 1, "more"]], "and more"]))
    assert MINE.of(9, envelope) == [Mine("x", 1)]


def test_a_later_version_of_records_is_refused() -> None:
    with pytest.raises(UnknownEvent, match="version 3") as raised:
        open_record(9, msgspec.msgpack.encode([3, "me", 0, []]))
    assert raised.value.found == 3


@pytest.mark.parametrize(
    "data", [b"", b"text", msgspec.msgpack.encode({"a": 1}), msgspec.msgpack.encode([1, 2, 3, 4]), b"\xc1"]
)
def test_a_record_that_no_library_wrote_is_named(data: bytes) -> None:
    with pytest.raises(ForeignRecord, match="record 9") as raised:
        open_record(9, data)
    assert isinstance(raised.value, boki.BokiError) and raised.value.definite


@pytest.mark.parametrize("event", [["mine.did"], ["mine.did", "x", "text"], 5, []])
def test_a_damaged_event_is_named(event: object) -> None:
    with pytest.raises(ForeignRecord, match="record 9"):
        MINE.of(9, open_record(9, msgspec.msgpack.encode([1, "me", 0, [event]])))


def test_what_a_hook_has_is_opened_with_what_it_gives_back() -> None:
    events = encode_events((Mine("x", 1),))
    envelope = open_record(9, encode_hooked("me", 7, "zip", b"sealed"))
    assert envelope.hooked == Hooked("zip", b"sealed") and not envelope.events
    assert MINE.of(9, with_events(9, envelope, events)) == [Mine("x", 1)]
    with pytest.raises(ForeignRecord, match="hook"):
        with_events(9, envelope, b"\xc1")
