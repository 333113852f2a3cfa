"""Mock machines: they play the plugins and programs of a test, in the language of machines.

    class Client(Mock[Begin | Answer]):
        run = State(start=True)

        @run.on(Begin)
        def begin(self, e: Begin) -> None:
            self.ask(e.account, Balance())

        @run.on(Answer)
        def see(self, e: Answer) -> None:
            assert e.value == self.choose([0, 1])

A mock machine whose key is the stored name of a plugin gets what machines emit to that plugin, and sends what the plugin would answer.
A mock machine may ask, gets the answers as events, and chooses by `choose`. It never crashes, and is not checked for leaks: it stands for
something outside of the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from bokirsm.errors import WrongCall
from bokirsm.machine.machine import Machine
from bokirsm.machine.refs import Ref
from bokirsm.machine.values import Ask, Event
from bokirsm.model.events import Outcome

E = TypeVar("E")
T = TypeVar("T")


class Answer(Event):
    """The answer to a question of a mock machine.

    Attributes:
        number: the one that `Mock.ask` was called with.
        outcome: answer, refused, or missing: the machine does not exist.
        value: the answer, of the types of msgpack; the text of a refusal; the machine that is missing.
    """

    number: int
    outcome: Outcome
    value: Any = None


class Mock(Machine[E]):
    """Base class of mock machines; see the module."""

    __slots__ = ()

    def choose(self, items: Sequence[T]) -> T:
        """Return one of the items: the tester tries all of them."""
        return self.random.choice(items)

    def ask(self, to: Ref[Any], question: Ask[Any], number: int = 0) -> None:
        """Ask a machine. The answer comes as an `Answer` with the number."""
        if not isinstance(question, Ask):
            raise WrongCall(f"expected a question, found {question!r:.80}")
        self.send(to, msgspec.structs.replace(question, asker=f"{self.me}/{number}"))
