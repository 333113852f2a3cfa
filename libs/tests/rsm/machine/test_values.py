"""Values as bytes: events, references, types that cannot be stored."""

from __future__ import annotations

import pytest

from boki_common.errors import InvalidArgument
from bokilib.errors import NotEncodable
from bokirsm import Ask, DeclarationError, Event, Ref
from bokirsm.machine.values import Codec, answer_type, codec_of, digest_of, encode, is_scalar
from libs.tests.rsm.words import Best, Freq, Init, Word


def test_events_are_frozen_and_come_back_as_they_were() -> None:
    event = Init(Ref("g", 3, "top"))
    assert Codec(Init).decode(encode(event)) == event
    with pytest.raises(AttributeError):
        event.target = Ref("g", 4, "x")  # type: ignore[misc]
    assert Word("a").asker == "" and Codec(Word).decode(encode(Word("a", asker="p/1"))).asker == "p/1"
    assert Codec(dict[str, Ref[Freq]]).decode(encode({"a": event.target})) == {"a": event.target}


def test_a_question_knows_its_machine_and_the_type_of_its_answer() -> None:
    question = Word("a").to(Ref("g", 3, "c"))
    assert (question.event, str(question.to)) == (Word("a"), "g/3/c")
    assert answer_type(Word) is int and answer_type(Best) is str
    with pytest.raises(InvalidArgument, match="expected a question"):
        answer_type(Freq)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(NotEncodable, match="A new field needs a default"):
        Codec(Freq).decode(encode(Best()))
    with pytest.raises(NotEncodable, match="expected a machine as group"):
        Codec(Ref[Freq]).decode(encode("nowhere"))
    for value in (object(), 1 << 70, "\ud800"):
        with pytest.raises(NotEncodable, match="cannot be stored"):
            encode(value)
    with pytest.raises(DeclarationError, match="in a test"):
        codec_of(Exception, "a test")
    assert codec_of(list[Freq], "a test").decode(encode([Freq("a", 1)])) == [Freq("a", 1)]


def test_scalars_cannot_change_in_place() -> None:
    assert is_scalar("a") and is_scalar(Ref("g", 1, "x")) and not is_scalar([]) and not is_scalar(Freq("a", 1))


def test_digests_differ_by_class_and_event() -> None:
    assert digest_of("A", "E", b"x") == digest_of("A", "E", b"x") != digest_of("A", "E", b"y")
    assert digest_of("A", "E", b"x") != digest_of("B", "E", b"x")


def test_a_generic_question_is_one() -> None:
    class Same(Ask[list[int]]):
        pass

    class More(Same):
        pass

    assert answer_type(More) == list[int] and issubclass(More, Event)


def test_a_question_declares_no_name_that_each_question_has() -> None:
    with pytest.raises(DeclarationError, match=r"'to' or 'asker'.*found to: give the field another name"):

        class Pay(Ask[int]):
            to: str  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="found asker"):

        class Tell(Ask[int]):
            asker: str = "me"

    class Sent(Event):
        to: str

    assert Sent("x").to == "x", "an event that is no question has no such method"
