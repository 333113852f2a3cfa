"""States of machines. Pure.

    waiting, counting = State(start=True, defer=(Word,)), State()

    @waiting.on(Init)
    def setup(self, e: Init) -> None: ...

For each event that a machine accepts, a state has a handler, or defers it (it waits in the inbox until the state changes), or ignores it
(it is dropped). The class `Event` stands for all events that a state does not name. Any other event is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, overload

from bokirsm.errors import DeclarationError
from bokirsm.machine.values import Event

E = TypeVar("E")
E2 = TypeVar("E2")
E3 = TypeVar("E3")
M = TypeVar("M")
R = TypeVar("R", bound="Coroutine[Any, Any, None] | None")


class State:
    """A state of a machine: an attribute of its class.

    Attributes:
        name: the attribute.
        stored: the name in the log.
        start: a machine begins in this state.
        defer: events that wait until the machine is in another state.
        ignore: events that are dropped.
        handlers: the name of the method that handles an event, by class.
        entry_method: the name of the method that is called when the machine enters this state, or "".
        exit_method: likewise when it leaves.
    """

    def __init__(
        self,
        *,
        start: bool = False,
        defer: tuple[type[Any], ...] = (),
        ignore: tuple[type[Any], ...] = (),
        name: str = "",
    ) -> None:
        """Declare a state. `name`: the stored name, by default that of the attribute."""
        self.name = ""
        self.stored = name
        self.start: Final = start
        self.defer: Final = defer
        self.ignore: Final = ignore
        self.handlers: Final[dict[type[Event], str]] = {}
        self.entry_method = ""
        self.exit_method = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.stored = self.stored or name

    def __repr__(self) -> str:
        return f"State({self.name!r})"

    @overload
    def on(self, event: type[E], /) -> Callable[[Callable[[M, E], R]], Callable[[M, E], R]]: ...

    @overload
    def on(
        self, event: type[E], second: type[E2], /
    ) -> Callable[[Callable[[M, E | E2], R]], Callable[[M, E | E2], R]]: ...

    @overload
    def on(
        self, event: type[E], second: type[E2], third: type[E3], /
    ) -> Callable[[Callable[[M, E | E2 | E3], R]], Callable[[M, E | E2 | E3], R]]: ...

    def on(self, *events: type[Any]) -> Callable[[Callable[[M, Any], R]], Callable[[M, Any], R]]:
        """Declare the method that handles up to three events in this state: a plain function, or an `async` one that waits for nothing.

        Raises:
            DeclarationError: the state has a handler for one of the events.
        """
        if not events:
            raise DeclarationError("expected an event class, as in @counting.on(Word), found none")

        def declare(method: Callable[[M, Any], R]) -> Callable[[M, Any], R]:
            for event in events:
                if not isinstance(event, type) or not issubclass(event, Event):
                    raise DeclarationError(f"expected an event class in on(…), found {event!r:.80}")
                if event in self.handlers:
                    raise DeclarationError(
                        f"expected one handler of {event.__name__} in a state, found {self.handlers[event]!r} and {_name(method)!r}"
                    )
                self.handlers[event] = _name(method)
            return method

        return declare

    def entry(self, method: Callable[[M], R]) -> Callable[[M], R]:
        """Declare the method that is called when a machine enters this state, also as its start."""
        if self.entry_method:
            raise DeclarationError(f"expected one entry of a state, found {self.entry_method!r} and {_name(method)!r}")
        self.entry_method = _name(method)
        return method

    def exit(self, method: Callable[[M], R]) -> Callable[[M], R]:
        """Declare the method that is called when a machine leaves this state."""
        if self.exit_method:
            raise DeclarationError(f"expected one exit of a state, found {self.exit_method!r} and {_name(method)!r}")
        self.exit_method = _name(method)
        return method


def _name(method: Callable[..., Any]) -> str:
    return method.__name__
