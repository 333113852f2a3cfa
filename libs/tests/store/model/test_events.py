"""Events of the store, as they are stored."""

from __future__ import annotations

import msgspec

from bokilib.records.events import encode, open_record
from bokistore import Inc, Push, Set
from bokistore.model.events import PICKER, Claim, Commit, Ops, needed_ms, size_of


def test_the_form_of_operations() -> None:
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(Ops("x", (Set("a.b", [1]), Push("l", 1, 24), Inc("n", 2)))))
    assert stored == ["store.ops", "x", [["set", "a.b", [1]], ["push", "l", 1, 24], ["inc", "n", 2]]]


def test_its_size_is_what_it_takes_in_a_record() -> None:
    event = Commit("x", (Set("a", "x" * 100),), 7)
    assert size_of(event) == len(msgspec.msgpack.encode(event))


def test_a_claim_is_a_commit_that_says_for_how_long_and_earlier_programs_pass_that() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Claim("x", (), 7, 250))) == ["store.commit", "x", [], 7, 250]
    envelope = open_record(9, encode("me", 0, (Claim("x", (), 7, 250), Claim("y", (), 7, 300))))
    events = PICKER.of(9, envelope, "x")
    assert events == [Commit("x", (), 7)] and needed_ms(events, envelope) == 300


def test_a_record_that_is_no_claim_or_is_of_another_program_needs_nothing() -> None:
    claims = [
        (Commit("x", (Set("a", 1),), 7), Ops("y", ())),
        (Commit("x", (), 7),),
        (Ops("x", ()), Commit("x", (), 7)),
    ]
    for events in claims:
        envelope = open_record(9, encode("me", 0, events))
        assert needed_ms(PICKER.of(9, envelope), envelope) == 0
    later = msgspec.msgpack.encode([1, "me", 0, [["store.commit", "x", [], 7, "soon"], ["store.later?", 1]]])
    envelope = open_record(9, later)
    assert needed_ms(PICKER.of(9, envelope, "x"), envelope) == 0, "a field of a later program is passed"
