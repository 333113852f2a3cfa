"""The declaration of a machine, read and checked when its class is created. Pure.

A class that cannot work raises `DeclarationError` where it is written: no start state or two, a handler of an event that the machine does
not accept, a type that cannot be stored, a field that hides a method of `Machine`, a list that all machines of a process would share.
"""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Iterator
from datetime import tzinfo
from enum import Enum
from typing import Any, Final

from bokilib.errors import NotEncodable
from bokirsm.errors import DeclarationError, WrongCall
from bokirsm.machine.fields import Register, Table, Volatile
from bokirsm.machine.states import State
from bokirsm.machine.values import Ask, Codec, Event, answer_type, codec_of, name_of, resolved

_OF_PYTHON: Final = frozenset({"_abc_impl", "_is_protocol", "_is_runtime_protocol"})
"""Attributes that the interpreter gives to classes, beside those with two underscores."""


class Reaction(Enum):
    """The reaction of a state to an event."""

    HANDLE = "handle"
    DEFER = "defer"
    IGNORE = "ignore"
    UNHANDLED = "unhandled"


class Declaration:
    """The declaration of one class of machines.

    Attributes:
        kind: the stored name of the class.
        cls: the class.
        accepts: the event classes that it accepts, by stored name.
        events: their encodings, likewise.
        answers: the encodings of the answers to questions, by class.
        states: its states, by stored name.
        start: the state in which a machine begins.
        registers, tables, volatiles: its fields, by stored name.
    """

    def __init__(self, cls: type, kind: str, accepted: Any, names: dict[str, Any]) -> None:
        """Read a class.

        Args:
            cls: the class.
            kind: its stored name.
            accepted: the event class, or union of event classes, that it accepts.
            names: names that annotations may use beside those of the module.

        Raises:
            DeclarationError: the class cannot work.
        """
        self.kind: Final = kind
        self.cls: Final = cls
        self.accepts: Final = dict(accepted_events(cls, accepted))
        self.events: Final[dict[str, Codec]] = {
            name: codec_of(event, f"{cls.__name__}: {event.__name__}") for name, event in self.accepts.items()
        }
        self.answers: Final[dict[type, Codec]] = {
            event: codec_of(answer_type(event), f"the answer of {event.__name__}")
            for event in self.accepts.values()
            if issubclass(event, Ask)
        }
        found = {name: value for one in reversed(cls.__mro__) for name, value in vars(one).items()}
        self.states: Final[dict[str, State]] = {}
        self.registers: Final[dict[str, Register[Any]]] = {}
        self.tables: Final[dict[str, Table[Any, Any]]] = {}
        self.volatiles: Final[dict[str, Volatile[Any]]] = {}
        for name, value in found.items():
            if isinstance(value, State):
                self._add(self.states, value.stored, value)
            elif isinstance(value, Register):
                self._add(self.registers, value.stored, value)
                (of,) = self._types(name, names, Register, 1)
                _declare(value, codec_of(of, f"{cls.__name__}.{name}"))
            elif isinstance(value, Table):
                self._add(self.tables, value.stored, value)
                key, of = self._types(name, names, Table, 2)
                value.keys = codec_of(key, f"keys of {cls.__name__}.{name}")
                value.values = codec_of(of, f"{cls.__name__}.{name}")
            elif isinstance(value, Volatile):
                self._add(self.volatiles, value.stored, value)
            elif not name.startswith("__") and name not in _OF_PYTHON:
                self._check_constant(name, value)
        for state in self.states.values():
            self._check_state(state)
        self.start: Final = self._start()

    def _add(self, known: dict[str, Any], stored: str, value: Any) -> None:
        if stored in known and known[stored].name != value.name:
            raise DeclarationError(
                f"expected stored names of {self.cls.__name__} to differ, found {stored!r} for {known[stored].name!r} and {value.name!r}"
            )
        known[stored] = value

    def _types(self, name: str, names: dict[str, Any], kind: Any, count: int) -> tuple[Any, ...]:
        """Return the type arguments of the annotation of a field."""
        for one in self.cls.__mro__:
            annotation = inspect.get_annotations(one).get(name)
            if annotation is None:
                continue
            try:
                annotation = resolved(annotation, one, names)
            except NameError as fault:
                raise DeclarationError(
                    f"expected the type of {self.cls.__name__}.{name} to be defined before the machine, found: {fault}"
                ) from fault
            args = typing.get_args(annotation)
            if typing.get_origin(annotation) is kind and len(args) == count:
                return args
            break
        wanted = "int" if count == 1 else "str, int"
        raise DeclarationError(
            f"expected an annotation of {self.cls.__name__}.{name}, as in {name}: {kind.__name__}[{wanted}], found none that fits"
        )

    def _check_constant(self, name: str, value: object) -> None:
        if not _is_constant(value):
            raise DeclarationError(
                f"expected {self.cls.__name__}.{name} to be a field or a constant, found a {type(value).__name__}, which the machines of a "
                f"process would share and which is not stored: declare {name}: Register[…] = Register(…), or a Table[…] or Volatile[…]; "
                "a constant is a tuple, a frozenset, a MappingProxyType or another value that cannot change"
            )

    def _check_state(self, state: State) -> None:
        known = {Event, *self.accepts.values()}
        named: dict[type, str] = {}
        for what, events in (("on", tuple(state.handlers)), ("defer", state.defer), ("ignore", state.ignore)):
            for event in events:
                if event not in known:
                    raise DeclarationError(
                        f"expected {what} of state {state.name!r} to name events that {self.cls.__name__} accepts "
                        f"({', '.join(self.accepts)}), found {getattr(event, '__name__', event)}"
                    )
                if event in named:
                    raise DeclarationError(
                        f"expected state {state.name!r} of {self.cls.__name__} to name {event.__name__} once, "
                        f"found it in {named[event]} and in {what}"
                    )
                named[event] = what
        for method in (*state.handlers.values(), state.entry_method, state.exit_method):
            if method and not callable(getattr(self.cls, method, None)):
                raise DeclarationError(f"expected {self.cls.__name__}.{method} to be a method, found none of this name")

    def _start(self) -> State:
        starts = [state for state in self.states.values() if state.start]
        if len(starts) != 1:
            found = ", ".join(state.name for state in starts) or "none"
            raise DeclarationError(
                f"expected one start state of {self.cls.__name__}, as in waiting = State(start=True), found {found}"
            )
        return starts[0]

    def reaction(self, state: str, event: str) -> Reaction:
        """Return how a state reacts to an event, both by stored name."""
        at, kind = self.states[state], self.accepts.get(event)
        for one in (kind, Event):
            if one is None:
                continue
            if one in at.handlers:
                return Reaction.HANDLE if kind is not None else Reaction.UNHANDLED
            if one in at.defer:
                return Reaction.DEFER
            if one in at.ignore:
                return Reaction.IGNORE
        return Reaction.UNHANDLED

    def handler(self, state: str, event: type[Event]) -> str:
        """Return the name of the method that handles an event in a state."""
        handlers = self.states[state].handlers
        return handlers[event] if event in handlers else handlers[Event]


_CONSTANTS: Final = (
    type(None),
    types.MappingProxyType,
    types.ModuleType,
    typing.TypeVar,
    tzinfo,
    logging.Logger,
    logging.LoggerAdapter,
    Declaration,
)


def accepted_events(cls: type, accepted: Any) -> Iterator[tuple[str, type[Event]]]:
    """Yield the event classes that a machine or plugin accepts, by stored name."""
    members = typing.get_args(accepted) if isinstance(accepted, types.UnionType) else (accepted,)
    if typing.get_origin(accepted) is typing.Union:
        members = typing.get_args(accepted)
    seen: dict[str, type[Event]] = {}
    for event in members:
        if not isinstance(event, type) or not issubclass(event, Event) or event in (Event, Ask):
            raise DeclarationError(
                f"expected {cls.__name__} to accept event classes, as in Machine[Init | Word], found {event!r:.80}"
            )
        name = name_of(event)
        if name in seen:
            raise DeclarationError(
                f"expected stored names of events to differ, found {name!r} for {seen[name].__qualname__} and {event.__qualname__}"
            )
        seen[name] = event
        yield name, event


def _declare(register: Register[Any], codec: Codec) -> None:
    try:
        register.declare(codec)
    except NotEncodable as fault:
        raise DeclarationError(f"expected a default of the declared type: {fault}") from fault


def _is_constant(value: object) -> bool:
    """Return whether an attribute of a class is no state: code, or a value that cannot change.

    As for defaults of dataclasses, values without a hash can change. So can objects that are equal to themselves alone.
    """
    kind = type(value)
    if callable(value) or hasattr(kind, "__get__") or isinstance(value, _CONSTANTS) or kind is object:
        return True
    settings = getattr(kind, "__struct_config__", None) or getattr(kind, "__dataclass_params__", None)
    if kind.__hash__ is object.__hash__:
        return settings is not None and settings.frozen
    try:
        hash(value)
    except TypeError:
        return False
    return True


def declaration_of(cls: object) -> Declaration:
    """Return the declaration of a class of machines.

    Raises:
        WrongCall: it is no class of machines, or one that accepts a type variable.
    """
    declared = getattr(cls, "declaration", None)
    if not isinstance(cls, type) or not isinstance(declared, Declaration):
        raise WrongCall(f"expected a class of machines, found {cls!r:.80}")
    return declared
