"""Values as bytes: events, references, types that cannot be stored."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from boki_common.errors import InvalidArgument
from bokilib.errors import NotEncodable
from bokirsm import Ask, DeclarationError, Event, Ref
from bokirsm.machine.values import (
    Codec,
    answer_type,
    canonical,
    codec_of,
    digest_of,
    digest_of_first,
    earlier_digests,
    encode,
    is_scalar,
)
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


class Names(Event):
    names: frozenset[str]
    more: dict[str, set[int]] = {}  # noqa: RUF012 - msgspec copies it


def test_sets_have_the_same_bytes_in_all_processes() -> None:
    """The members of a set of texts have another order in each process."""
    program = (
        "from bokirsm.machine.values import *\n"
        "from libs.tests.rsm.machine.test_values import Names\n"
        "event = Names(frozenset('ann bob cy dora eve'.split()), {'b': {3, 1}, 'a': set()})\n"
        "keys = Codec(frozenset[str])\n"
        "print(encode(event).hex(), keys.key(event.names).hex(), digest_of('M', 'Names', canonical(event)))\n"
    )
    found = set()
    for seed in "1234":
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_only_sets_are_stored_in_another_order() -> None:
    @dataclass
    class Plain:
        texts: list[str]
        numbers: dict[int, str]

    class Sparse(Event, omit_defaults=True):
        names: list[str] = []  # noqa: RUF012 - msgspec copies it
        sets: dict[str, set[str]] = {}  # noqa: RUF012
        more: int = 0

    event = Names(frozenset(), {"b": {1}, "a": set()})
    assert encode(Sparse(more=1)) == msgspec.msgpack.encode(Sparse(more=1)) == b"\x81\xa4more\x01"
    for value in (Freq("a", 1), {"b": [1, (2,)], "a": 1.5}, Plain(["b", "a"], {2: "x", 1: "y"}), event, None):
        assert encode(value) == msgspec.msgpack.encode(value)
    found = Codec(Names).decode(encode(Names(frozenset({"b", "a"}), {"b": {3, 1}, "a": set()})))
    assert found == Names(frozenset({"a", "b"}), {"b": {1, 3}, "a": set()}) and list(found.more) == ["b", "a"]
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1}) and canonical(Freq("a", 1)) == encode(
        Freq("a", 1)
    )


def test_a_value_that_cannot_be_stored_is_found_by_its_place() -> None:
    with pytest.raises(NotEncodable, match=r"^Names\.more\['a'\] cannot be stored: .*object"):
        encode(Names(frozenset(), {"a": object()}))  # type: ignore[dict-item]
    with pytest.raises(NotEncodable, match=r"^Shelf\.high cannot be stored: .*surrogates"):
        Codec(str, "Shelf.high").encode("\ud800")
    with pytest.raises(NotEncodable, match=r"expected Shelf\.high to be of type int, found 'a': Expected `int`"):
        Codec(int, "Shelf.high").check(encode("a"), "a")


@dataclass
class Item:
    sku: str


@dataclass
class Gift(Item):
    card: str


class Point(msgspec.Struct):
    x: float


class Point3(Point):
    z: float = 0.0


class Named(Point):
    """A point that is equal to all points of its place."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class NamedGift(Named):
    card: str = ""


class Line(Event):
    items: list[Item]
    points: dict[str, Point] = {}  # noqa: RUF012 - msgspec copies it
    named: list[Named] = []  # noqa: RUF012
    more: Any = None


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Line([Item("a"), Gift("apple", "happy birthday")]), r"items\[1\]"),
        (Line([], {"a": Point(1), "b": Point3(2, 3)}), r"points\['b'\]"),
        (Line([], named=[Named(1), NamedGift(2, "happy birthday")]), r"named\[1\]"),
    ],
)
def test_a_value_that_its_type_would_cut_is_refused(value: Line, place: str) -> None:
    codec = Codec(Line, "Line")
    with pytest.raises(NotEncodable, match=f"^Line cannot be stored: {place} of this Line would be read back") as error:
        codec.check(codec.encode(value), value)
    assert error.value.facts["where"] == "Line"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Line, Line([Item("a")], {"a": Point(1)}, [Named(1)], more=[{"a": {1, 2}}, Decimal("1.5"), ("a",)])),
        (Line, Line([], {"a": Point(math.nan)}, [Named(math.nan)])),
        (list[float], [1, True.real, math.inf]),
        (list[int], (1, 2)),
        (dict[int, set[str]], {1: {"a", "b"}}),
        (datetime, datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))),
        (Any, Ref("g", 1, "x")),
        (frozenset[tuple[int, str]], frozenset({(1, "a"), (2, "b")})),
    ],
)
def test_a_value_that_comes_back_equal_is_stored(kind: Any, value: Any) -> None:
    codec = Codec(kind)
    codec.check(codec.encode(value), value)


class Pair(msgspec.Struct):
    a: int
    b: int = 2


class Later(msgspec.Struct):
    a: int
    b: int = 2
    c: list[int] = []


class First(Event):
    to: str
    tries: int = 3


class FirstLater(Event, name="First"):
    to: str
    rate: float = 0
    tries: int = 3
    more: dict[str, set[int]] = {}  # noqa: RUF012
    one: Item = msgspec.field(default_factory=lambda: Item("x"))


class OfPair(Event):
    pair: Pair


class OfLater(Event, name="OfPair"):
    pair: Later


def test_a_field_that_is_added_with_a_default_leaves_digests_as_they_were() -> None:
    digest = digest_of_first("M", First("a"))
    assert digest == digest_of_first("M", First("a", 3)) == digest_of_first("M", FirstLater("a"))
    assert digest == digest_of_first("M", FirstLater("a", 0.0, more={}, one=Item("x")))
    assert digest_of_first("M", OfPair(Pair(1))) == digest_of_first("M", OfLater(Later(1, 2, [])))
    others = [First("b"), First("a", 4), FirstLater("a", 0.5), FirstLater("a", one=Item("y"))]
    others += [FirstLater("a", more={"a": {1}}), FirstLater("a", tries=0)]
    assert len({digest, *(digest_of_first("M", one) for one in others)}) == 7
    assert digest_of_first("M", None) == digest_of("M", "", b"") != digest_of_first("N", None)


@pytest.mark.parametrize("tries", [3, 4])
def test_a_digest_of_all_fields_that_an_earlier_class_had_is_known(tries: int) -> None:
    old = digest_of("M", "First", canonical(First("a", tries)))
    assert old in earlier_digests("M", FirstLater("a", tries=tries)) and old in earlier_digests("M", First("a", tries))
    for other in (First("b", tries), First("a", 5), FirstLater("a", 0.5, tries), FirstLater("a", one=Item("y"))):
        assert old not in earlier_digests("M", other)
