"""Values of users: JSON is restored unchanged, other values are refused before they are sent."""

from __future__ import annotations

import datetime
import enum
import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boki_common.errors import InvalidArgument
from bokilib.errors import NotEncodable
from bokilib.records.codec import check_equal, check_json, check_type, copy_json, from_json, stored_json, to_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Colour(enum.Enum):
    RED = "red"


class Address(msgspec.Struct):
    street: str


@dataclass
class Person:
    name: str
    born: datetime.date
    likes: Colour | None = None
    homes: list[Address] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)


@given(JSON)
def test_what_is_json_comes_back_as_it_was(value: Any) -> None:
    try:
        checked = check_json(value)
    except NotEncodable:
        assert "\\ud" in ascii(value), "only lone surrogates are refused"
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(checked)) == value
    copied = copy_json(checked)
    assert copied == value and (not isinstance(value, (dict, list)) or copied is not value)


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [{1: 2}, 2**63, -(2**63) - 1, math.nan, -math.inf, "\ud800", (1,), b"x", {"a": {1}}, object(), deep(65)]
)
def test_what_is_none_is_refused(value: object) -> None:
    with pytest.raises(NotEncodable):
        check_json(value)
    with pytest.raises(TypeError):
        check_json({"in": [value]})


def test_the_deepest() -> None:
    assert check_json(deep(64)) == deep(64)


def test_types_of_users() -> None:
    ann = Person("ann", datetime.date(2000, 2, 29), Colour.RED, [Address("x")], {7: 0.5})
    stored = to_json(ann)
    assert stored == {
        "name": "ann", "born": "2000-02-29", "likes": "red", "homes": [{"street": "x"}], "scores": {"7": 0.5},
    }  # fmt: skip
    assert from_json(Person, stored) == ann


def test_what_does_not_fit_its_type_says_where() -> None:
    with pytest.raises(NotEncodable, match=r"no Person.*born"):
        from_json(Person, {"name": "ann", "born": "yesterday"})
    with pytest.raises(NotEncodable):
        to_json(object())


class Model:
    """The methods of a pydantic model, so that pydantic need not be installed."""

    def __init__(self, n: int) -> None:
        self.n = n

    def model_dump(self, *, mode: str) -> Any:
        assert mode == "json"
        return {"n": self.n}

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if not isinstance(value["n"], int):
            raise ValueError("n is no number")
        return cls(value["n"])


class Odd:
    """A value whose own code raises an error wherever it is looked at."""

    def __init__(self, error: BaseException) -> None:
        vars(self)["error"] = error

    def __getattr__(self, name: str) -> Any:
        raise vars(self)["error"]


class OddModel:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def model_dump(self, *, mode: str) -> Any:
        raise self.error

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        raise {one.__name__: one for one in ERRORS}[value["error"]]


ERRORS: list[type[BaseException]] = [RuntimeError, KeyError, SystemExit, KeyboardInterrupt]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_value_whose_own_code_raises_is_refused(kind: type[BaseException]) -> None:
    """A proxy without its session, a lazy row, a serializer with a mistake: errors of any class."""
    for odd in (Odd(kind("no session")), OddModel(kind("no session"))):
        for value in (odd, [odd], {"a": odd}):
            with pytest.raises(NotEncodable, match="cannot be stored as JSON"):
                to_json(value)
    with pytest.raises(NotEncodable, match=f"no OddModel: {kind.__name__}"):
        from_json(OddModel, {"error": kind.__name__})


def test_models_of_pydantic_by_their_methods() -> None:
    assert to_json(Model(3)) == {"n": 3}
    assert from_json(Model, {"n": 3}).n == 3
    with pytest.raises(NotEncodable, match="no Model"):
        from_json(Model, {"n": "x"})


def test_pydantic_itself_where_it_is_installed() -> None:
    pydantic = pytest.importorskip("pydantic")
    made = pydantic.create_model("Made", n=(int, ...), at=(datetime.datetime, ...))
    value = made(n=3, at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    assert from_json(made, to_json(value)) == value


class Point(pydantic.BaseModel):
    """A model of a user."""

    a: int


class Other(pydantic.BaseModel):
    b: int


@dataclass
class Holder:
    model: Point
    many: list[Point] = field(default_factory=list)


class Holding(pydantic.BaseModel):
    holder: Holder


NESTED: list[tuple[Any, Any]] = [
    (list[Point], [Point(a=1)]),
    (dict[str, Point], {"k": Point(a=1)}),
    (Point | None, Point(a=1)),
    (Point | None, None),
    (Holder, Holder(Point(a=1), [Point(a=2)])),
    (Holding, Holding(holder=Holder(Point(a=1)))),
    (Literal["fast", "slow"], "slow"),
    (list[Literal["fast", "slow"]], ["slow"]),
    (int | str, "3"),
]


@pytest.mark.parametrize(("kind", "value"), NESTED, ids=[str(kind) for kind, _ in NESTED])
def test_models_and_dataclasses_nest_either_way(kind: Any, value: Any) -> None:
    check_type(kind, "a test")
    assert from_json(kind, check_json(to_json(value))) == value


@pytest.mark.parametrize("kind", [Point | Other, Point | int, list[Point | Other], Holder | Person])
def test_a_type_that_json_cannot_come_back_as_is_refused_with_its_place(kind: Any) -> None:
    with pytest.raises(InvalidArgument, match="the result of f"):
        check_type(kind, "the result of f")


def test_object_is_any_json_alone_and_in_other_types() -> None:
    assert from_json(object, {"a": [1]}) == {"a": [1]}
    assert from_json(list[object], [1, "b"]) == [1, "b"]
    check_type(object, "a queue")


COUNT: Iterator[float] = itertools.count(0.5)


class Aliased(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")
    coupon: str | None = pydantic.Field(None, alias="couponCode")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    at: datetime.datetime
    pair: tuple[int, int]
    _cached: float = pydantic.PrivateAttr(default_factory=lambda: next(COUNT))

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def year(self) -> int:
        return self.at.year


class Named(pydantic.BaseModel):
    by: dict[int, str] = {}
    price: Decimal = Decimal("1.10")


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr


class Excluding(pydantic.BaseModel):
    a: int
    b: int = pydantic.Field(5, exclude=True)


class Base(pydantic.BaseModel):
    a: int


class Sub(Base):
    b: int


class Lines(pydantic.BaseModel):
    lines: list[Base]


@dataclass
class Spot:
    x: int
    seen: list[int] = field(default_factory=list, compare=False)


@dataclass
class Spot3(Spot):
    z: int = 0


class Pair(NamedTuple):
    x: int
    y: str


@dataclass
class Tupled:
    t: tuple[int, ...] = ()
    many: list[tuple[int, str]] = field(default_factory=list)
    by: dict[str, tuple[int, str]] = field(default_factory=dict)
    pair: Pair | None = None
    fixed: tuple[Colour, datetime.datetime] | None = None
    deep: dict[int, tuple[tuple[int, ...], tuple[()]]] = field(default_factory=dict)


class TupledStruct(msgspec.Struct):
    t: tuple[int, ...] = ()
    others: list[Tupled] = []


class Sequential(pydantic.BaseModel):
    names: Sequence[str] = ()
    spot: tuple[int, int] = (0, 0)


class Loose(pydantic.BaseModel):
    extra: dict[str, Any] = {}


@dataclass
class AnyJson:
    meta: dict = field(default_factory=dict)  # type: ignore[type-arg]
    items: list = field(default_factory=list)  # type: ignore[type-arg]
    a: Any = None


MIDNIGHT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Aliased, Aliased(userId=7, couponCode="SAVE10")),
        (Computed, Computed(at=MIDNIGHT, pair=(1, 2))),
        (Named, Named(by={1: "a"})),
        (dict[str, Aliased], {"a": Aliased(userId=7, couponCode=None)}),
        (dict[int, str], {1: "a"}),
        (dict[str, Any], {"at": {"day": [1, 2.5, None, True, "x"]}}),
        (dict[Colour, Any], {Colour.RED: 1}),
        (object, {1: "a"}),
        (object, {"at": MIDNIGHT, "pair": (1, Tupled((2,)))}),
        (Any, {1, 2}),
        (Tupled, Tupled()),
        (Tupled, Tupled((1, 2), [(1, "a")], {"k": (2, "b")}, Pair(3, "c"), (Colour.RED, MIDNIGHT), {1: ((1,), ())})),
        (TupledStruct, TupledStruct((1, 2), [Tupled((3,))])),
        (tuple[int, ...], (1, 2)),
        (list[tuple[int, Tupled]], [(1, Tupled((2,)))]),
        (set[tuple[int, int]], {(1, 2), (3, 4)}),
        (Sequential, Sequential()),
        (Sequential, Sequential(names=("a", "b"), spot=(1, 2))),
        (AnyJson, AnyJson({"a": [1]}, [{"b": None}], "x")),
        (AnyJson, AnyJson(defaultdict(int, {"a": 1}), [], HTTPStatus.OK)),
        (Spot, Spot(1)),
        (float, 1),
        (Model, Model(3)),
        (frozenset[bytes], frozenset([b"a"])),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_what_is_stored_comes_back(kind: Any, value: Any) -> None:
    made = stored_json(kind, value)
    back = from_json(kind, made)
    assert to_json(back) == made
    assert isinstance(value, (Model, Computed, Sequential)) or kind in (object, Any) or back == value
    assert not isinstance(value, Tupled) or repr(back) == repr(value)


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        (Secret, Secret(password=pydantic.SecretStr("hunter2")), "password of this Secret"),
        (Excluding, Excluding(a=1, b=9), "b of this Excluding"),
        (Base, Sub(a=1, b=2), "all of this Sub"),
        (Lines, Lines(lines=[Base(a=1), Sub(a=1, b=2)]), r"lines\[1\] of this Lines"),
        (dict[str, list[Spot]], {"a": [Spot3(1)]}, r"\['a'\]\[0\] of this dict"),
        (Spot, Spot3(1), "all of this Spot3"),
        (int, "text", "expected a int, found a str"),
        (object, {1: "a", "1": "b"}, "'1' twice"),
        (dict[int, str], {"a": {1: "a", "1": "b"}}, "'1' twice"),
        (object, {True: 1}, "keys that can be text"),
        (AnyJson, AnyJson(a={"at": MIDNIGHT}), r"a\['at'\] of this AnyJson"),
        (AnyJson, AnyJson(items=[Decimal("1.10")]), r"items\[0\] of this AnyJson"),
        (AnyJson, AnyJson(meta={1: "a"}), "meta of this AnyJson"),
        (AnyJson, AnyJson(meta={"k": {1: "a"}}), r"meta\['k'\] of this AnyJson"),
        (AnyJson, AnyJson(items=[(1, 2)]), r"items\[0\] of this AnyJson"),
        (AnyJson, AnyJson(items=[b"x"]), r"items\[0\] of this AnyJson"),
        (AnyJson, AnyJson(a={1, 2}), "a of this AnyJson"),
        (AnyJson, AnyJson(a=Spot(1)), "a of this AnyJson"),
        (AnyJson, AnyJson(a=Colour.RED), "a of this AnyJson"),
        (dict[str, Any], {"at": MIDNIGHT}, r"\['at'\] of this dict"),
        (list[object], [uuid.UUID(int=1)], r"\[0\] of this list"),
        (Loose, Loose(extra={"at": MIDNIGHT}), r"extra\['at'\] of this Loose"),
        (list[int], (1, 2), "all of this tuple"),
        (tuple[int, str], Pair(1, "a"), "all of this Pair"),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_what_would_come_back_as_another_value_is_refused(kind: Any, value: Any, where: str) -> None:
    with pytest.raises(NotEncodable, match=where) as caught:
        stored_json(kind, value)
    assert "hunter2" not in str(caught.value)


def test_what_was_stored_by_the_names_of_fields_is_read() -> None:
    """As before aliases were known here."""
    assert from_json(Aliased, {"user_id": 7, "coupon": "SAVE10"}) == Aliased(userId=7, couponCode="SAVE10")
    assert from_json(Aliased, {"userId": 7, "couponCode": "SAVE10"}) == Aliased(userId=7, couponCode="SAVE10")


def test_values_that_equal_nothing_are_what_they_were() -> None:
    check_equal(list[float], [1.0, math.nan, Decimal("NaN")], [1.0, math.nan, Decimal("NaN")])
    with pytest.raises(NotEncodable, match="all of this float"):
        check_equal(float, math.nan, 1.0)
