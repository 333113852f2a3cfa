"""Machines: the base class, and what a handler can call. Pure.

    class Counter(Machine[Init | Word]):
        high: Register[int] = Register(0)
        waiting = State(start=True)

        @waiting.on(Word)
        def count(self, e: Word) -> None: ...

- Handlers of a machine run one at a time, each on the state that the one before left. What a handler changes and sends takes effect as a
  whole, when its commit is in the log.
- A handler has no time, randomness or identity but `self.now`, `self.random` and `self.uuid()`, and waits for nothing.
- A handler does not ask another machine: it sends an event, and handles the answer as another event.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from bokilib.records.contribution import Contribution
from bokirsm.errors import DeclarationError, UndeclaredField, WrongCall
from bokirsm.machine.declaration import Declaration
from bokirsm.machine.fields import Register, Table, Volatile
from bokirsm.machine.handling import Choices, Handling
from bokirsm.machine.plugins import Plugin
from bokirsm.machine.refs import Ref
from bokirsm.machine.states import State
from bokirsm.machine.values import Ask, Event

E = TypeVar("E")
F = TypeVar("F")
O = TypeVar("O")  # noqa: E741 - an output
R = TypeVar("R")


class Machine(Generic[E]):
    """Base class of machines; `Machine[Init | Word]` is one that accepts two kinds of events.

    A class that is renamed keeps its stored name by `class Counter(Machine[Word], name="WordCounter")`.
    """

    declaration: ClassVar[Declaration]
    """What the class declares; absent in classes that accept a type variable."""
    _handling: Handling | None
    __slots__ = ("_handling",)

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        accepted = _accepted_by(cls)
        if accepted is None:
            return
        hidden = [one for one in vars(cls) if one in _METHODS and not one.startswith("__")]
        if hidden:
            raise DeclarationError(f"expected {cls.__name__} to hide no method of Machine, found {', '.join(hidden)}")
        cls.declaration = Declaration(cls, name or cls.__name__, accepted, dict(sys._getframe(1).f_locals))

    def __init__(self) -> None:
        raise WrongCall(
            f"expected {type(self).__name__} to be created by a host, an Rsm or another machine, "
            f"as in await host.create({type(self).__name__}, …), found a call of the class"
        )

    if not TYPE_CHECKING:  # type checkers know the fields, and would accept any attribute

        def __setattr__(self, name: str, value: object) -> None:
            field = getattr(type(self), name, None)
            if not isinstance(field, (Register, Table, Volatile)):
                raise UndeclaredField(
                    f"expected fields that {type(self).__name__} declares, found self.{name} = …: the value would be lost after the "
                    f"handler; declare {name}: Register[…] = Register(…), or Volatile[…] for a value that a crash may lose",
                    machine=type(self).__name__,
                    field=name,
                )
            field.__set__(self, value)

    def _now_handling(self) -> Handling:
        if self._handling is None:
            raise WrongCall("expected a handler of this machine to run: a machine acts in its handlers only")
        return self._handling

    # -- what a handler can call

    @property
    def me(self) -> Ref[E]:
        """This machine."""
        return self._now_handling().me

    @property
    def now(self) -> datetime:
        """The time of this handler, in UTC, by the clock of the log. It never goes back."""
        return self._now_handling().now

    @property
    def random(self) -> Choices:
        """Random choices."""
        return self._now_handling().choices

    def uuid(self) -> str:
        """Return a new unique id, a UUID of version 4."""
        return self._now_handling().uuid()

    def send(self, to: Ref[F], event: F, *, at_most_once: bool = False) -> None:
        """Send an event to a machine. It is encoded now.

        Events from one machine to another arrive in the order in which they were sent, each once.

        Args:
            to: the machine.
            event: what it accepts.
            at_most_once: the event may be lost, and costs no bytes in the log if one host runs both machines: for values of which a newer
                one follows. It is lost if that host ends, or the partition of `to` moves, before the event is handled. It is not in order
                with events that are sent without this.
        """
        self._now_handling().send(to, event, at_most_once=at_most_once)

    def create(self, cls: type[Machine[F]], init: F | None = None, *, near: Ref[Any] | None = None) -> Ref[F]:
        """Create a machine.

        Args:
            cls: its class.
            init: its first event, which it handles in its start state.
            near: a machine in whose partition it should be, so that one host runs both.
        """
        return self._now_handling().create(cls, init, near)

    def jump(self, state: State) -> None:
        """Go to a state when this handler ends: the exit of the old state is called, then the entry of the new one."""
        self._now_handling().jump(state)

    def first(self, event: E) -> None:
        """Handle an event right after this handler, before the inbox, in the same commit."""
        self._now_handling().first(event)

    def reply(self, to: Ask[R], value: R) -> None:
        """Answer a question. The first answer counts; a question that was sent like any event has no asker, and is not answered."""
        self._now_handling().reply(to, value)

    def emit(self, plugin: type[Plugin[O]], event: O) -> None:
        """Give an event to a plugin, which delivers it outside of the log. It is encoded now, and is a part of this handler's commit.

        The plugin delivers it once the commit is in the log, at least once, and in the order of this machine's outputs. Its answers are
        events, each of which arrives once.

        Args:
            plugin: the class of the plugin, which is one of the app.
            event: what it delivers.
        """
        self._now_handling().emit(plugin, event)

    def also(self, part: Contribution) -> None:
        """Add a part of another library to the record of this handler: both happen, or neither does.

            self.also(shipments.pushed({"order": e.order}))             # bokiqueue
            self.also(store.object(e.order).sending(Set("paid", True)))  # bokistore
            self.also(signalling(flow, e.order, "paid"))                # bokiflow

        Args:
            part: of a library on the book of this app. It expects nothing of the log, since what the handler did cannot fail: a message
                that is acked, a workflow that is started and a transaction that reads are for programs and plugins.
        """
        self._now_handling().also(part)

    def after(self, seconds: float, event: E, *, name: str = "", every: float | None = None) -> None:
        """Set a timer, which delivers an event to this machine. It replaces one of the same name.

        Args:
            seconds: the time until it fires.
            event: what it delivers.
            name: of the timer; by default the name of the event.
            every: seconds from one firing to the next, until the timer is cancelled; by default it fires once.
        """
        self._now_handling().set_timer(seconds, event, name, every)

    def cancel(self, name: str) -> None:
        """Cancel the timer of a name, also if it has fired and its event waits in the inbox."""
        self._now_handling().cancel_timer(name)

    def announce(self, event: Event) -> None:
        """Tell the monitors of a tester (`bokirsm.testing`) about an event. In a host it does nothing."""
        self._now_handling().announce(event)

    def halt(self) -> None:
        """End this machine when this handler ends. Its fields are deleted, and later events to it are dropped."""
        self._now_handling().halt()


_METHODS: Final = frozenset(vars(Machine))


def _accepted_by(cls: type) -> Any:
    """Return the events that a class names, or that the class it extends names; None if it names a type variable."""
    for base in vars(cls).get("__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Machine):
            (accepted,) = typing.get_args(base)
            return None if isinstance(accepted, TypeVar) else accepted
    for base in cls.__bases__:
        declared = getattr(base, "declaration", None)
        if isinstance(declared, Declaration):
            return _union(list(declared.accepts.values()))
    return None


def _union(events: Sequence[type[Event]]) -> Any:
    joined: Any = events[0]
    for event in events[1:]:
        joined = joined | event
    return joined
