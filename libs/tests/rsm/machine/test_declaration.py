"""Classes that cannot work are refused where they are written; each error says what to write."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import pytest

from bokirsm import Ask, DeclarationError, Event, Machine, Ref, Register, State, Table, Volatile
from bokirsm.machine.declaration import Reaction, declaration_of
from bokirsm.machine.values import name_of
from libs.tests.rsm.words import Counter, Freq, Word


class Go(Event):
    pass


class Stop(Event):
    pass


def test_what_a_class_declares() -> None:
    found = Counter.declaration
    assert list(found.accepts) == ["Init", "Word"] and found.start.name == "waiting"
    assert list(found.states) == ["waiting", "counting"] and list(found.tables) == ["freq"]
    assert list(found.registers) == ["high", "target"] and list(found.volatiles) == ["since_crash"]
    assert declaration_of(Counter) is found and found.answers[Word].decode(b"\x05") == 5


def no_start() -> None:
    class Wrong(Machine[Go]):
        run = State()


def two_starts() -> None:
    class Wrong(Machine[Go]):
        one, two = State(start=True), State(start=True)


def foreign_handler() -> None:
    class Wrong(Machine[Go]):
        run = State(start=True)

        @run.on(Stop)
        def stop(self, e: Stop) -> None: ...


def foreign_defer() -> None:
    class Wrong(Machine[Go]):
        run = State(start=True, defer=(Stop,))


def handled_and_deferred() -> None:
    class Wrong(Machine[Go]):
        run = State(start=True, defer=(Go,))

        @run.on(Go)
        def go(self, e: Go) -> None: ...


def two_handlers() -> None:
    class Wrong(Machine[Go]):
        run = State(start=True)

        @run.on(Go)
        def go(self, e: Go) -> None: ...

        @run.on(Go)
        def again(self, e: Go) -> None: ...


def two_entries() -> None:
    class Wrong(Machine[Go]):
        run = State(start=True)

        @run.entry
        def enter(self) -> None: ...

        @run.entry
        def again(self) -> None: ...


def no_event() -> None:
    class Wrong(Machine[int]):
        run = State(start=True)


def any_event() -> None:
    class Wrong(Machine[Event]):
        run = State(start=True)


def no_annotation() -> None:
    class Wrong(Machine[Go]):
        count = Register(0)
        run = State(start=True)


def unknown_type() -> None:
    class Wrong(Machine[Go]):
        count: Register[Later] = Register()  # type: ignore[name-defined]  # noqa: F821
        run = State(start=True)


def no_stored_type() -> None:
    class Wrong(Machine[Go]):
        count: Table[str, Any] = Table()
        more: Register[Exception] = Register()
        run = State(start=True)


def hidden_method() -> None:
    class Wrong(Machine[Go]):
        first: Register[int] = Register(0)  # type: ignore[assignment]
        run = State(start=True)


def one_stored_name() -> None:
    class Wrong(Machine[Go]):
        count: Register[int] = Register(0)
        more: Register[int] = Register(0, name="count")
        run = State(start=True)


def shared_dict() -> None:
    class Wrong(Machine[Go]):
        seen: dict[str, int] = {}  # noqa: RUF012 - what the test is about
        run = State(start=True)


def shared_in_a_tuple() -> None:
    class Wrong(Machine[Go]):
        seen: ClassVar[tuple[list[int], ...]] = ([],)
        run = State(start=True)


def shared_object() -> None:
    class Wrong(Machine[Go]):
        numbers = count()
        run = State(start=True)


def shared_by_a_mixin() -> None:
    class Mixin:
        seen: set[str] = set()  # noqa: RUF012 - what the test is about

    class Wrong(Mixin, Machine[Go]):
        run = State(start=True)


def one_event_name() -> None:
    class Gone(Event, name="Go"):
        pass

    class Wrong(Machine[Go | Gone]):
        run = State(start=True)


def default_of_another_type() -> None:
    class Wrong(Machine[Go]):
        count: Register[int] = Register("x")  # type: ignore[arg-type]
        run = State(start=True)


def default_that_is_cut() -> None:
    class Renamed(Freq):
        more: int = 0

    class Wrong(Machine[Go]):
        freqs: Register[list[Freq]] = Register([Renamed("a", 1, 2)])
        run = State(start=True)


def no_answer() -> None:
    class Question(Ask[Exception]):
        pass

    class Wrong(Machine[Question]):
        run = State(start=True)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (no_start, "one start state of Wrong, as in waiting = State"),
        (two_starts, "found one, two"),
        (foreign_handler, "to name events that Wrong accepts .Go., found Stop"),
        (foreign_defer, "expected defer of state 'run'"),
        (handled_and_deferred, "found it in on and in defer"),
        (two_handlers, "found 'go' and 'again'"),
        (two_entries, "found 'enter' and 'again'"),
        (no_event, "as in Machine.Init"),
        (any_event, "as in Machine.Init"),
        (no_annotation, "an annotation of Wrong.count, as in count: Register.int"),
        (unknown_type, "to be defined before the machine"),
        (no_stored_type, "found .* in Wrong.more"),
        (hidden_method, "to hide no method of Machine, found first"),
        (one_stored_name, "found 'count' for 'count' and 'more'"),
        (shared_dict, "expected Wrong.seen to be a field or a constant, found a dict.*Register.*Table.*Volatile"),
        (shared_in_a_tuple, "found a tuple"),
        (shared_object, "expected Wrong.numbers to be a field or a constant, found a count"),
        (shared_by_a_mixin, "found a set"),
        (one_event_name, "stored names of events to differ"),
        (default_of_another_type, "a default of the declared type: .*Wrong.count to be of type int, found 'x'"),
        (default_that_is_cut, r"Wrong.freqs cannot be stored: \[0\] of this list would be read back as another"),
        (no_answer, "the answer of Question"),
    ],
)
def test_a_class_that_cannot_work_is_refused(write: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        write()


def test_a_class_may_have_constants_and_code() -> None:
    @dataclass(frozen=True)
    class Limits:
        most: int = 3

    class Kind(Enum):
        A = "a"

    class Fine(Machine[Go]):
        LIMIT: ClassVar[int] = 5
        names = ("a", frozenset({"b"}))
        table = MappingProxyType({"a": 1})
        pattern, kind, limits, nothing, mark = re.compile("a"), Kind.A, Limits(), None, object()
        later, log = timedelta(seconds=1), logging.getLogger("x")
        point: Ref[Go] = Ref("g", 1, "m")
        twice = partial(max, 2)
        run = State(start=True)

        class Inner:
            pass

        @property
        def shown(self) -> str:
            return "x"

        @staticmethod
        def helper() -> int:
            return 1

        @classmethod
        def other(cls) -> int:
            return 1

        @run.on(Go)
        def go(self, e: Go) -> None: ...

    class More(Fine):
        """Also a class that extends one."""

    assert More.declaration.start.name == "run" and Fine.LIMIT == 5


def test_names_are_stored_and_may_be_kept() -> None:
    class Renamed(Event, name="Freq"):
        text: str
        count: int
        more: int = 0

    class Kept(Machine[Renamed], name="Max"):
        highest: Register[int] = Register(0, name="high")
        begun = State(start=True, name="run")

        @begun.on(Renamed)
        def check(self, e: Renamed) -> None: ...

    found = Kept.declaration
    assert (found.kind, list(found.registers), list(found.states)) == ("Max", ["high"], ["run"])
    assert name_of(Renamed) == name_of(Freq) == "Freq"


E = TypeVar("E")


def test_classes_extend_one_another() -> None:
    class Common(Machine[E]):
        count: Register[int] = Register(0)

    class Base(Common[Go | Stop]):
        seen: Volatile[int] = Volatile(int)
        run = State(start=True, ignore=(Event,))

        @run.on(Go)
        def go(self, e: Go) -> None:
            self.count = 1

    class Other(Base):
        def go(self, e: Go) -> None:
            self.count = 2

    found = Other.declaration
    assert list(found.registers) == ["count"] and list(found.accepts) == ["Go", "Stop"]
    assert found.reaction("run", "Stop") is Reaction.IGNORE and found.handler("run", Go) == "go"
    assert found.reaction("run", "Unknown") is Reaction.IGNORE and found.cls is Other
