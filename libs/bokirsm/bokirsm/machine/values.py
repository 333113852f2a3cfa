"""Events and questions, and the encoding of typed values. Pure.

    class Freq(Event): text: str; count: int
    class Word(Ask[int]): text: str            # a question that is answered by an int

- Events are frozen. They are encoded when they are sent, so a list in one can be changed afterwards without effect on it.
- The name of an event class is stored. A class that is renamed keeps its name by `class Freq(Event, name="WordFreq")`; a new field
  needs a default.
- Types are those of msgspec, and `Ref`. Values are msgpack; no pickle.
"""

from __future__ import annotations

import sys
import typing
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, dataclass_transform

import msgspec
import xxhash

from boki_common.errors import InvalidArgument
from bokilib.errors import NotEncodable
from bokirsm.errors import DeclarationError
from bokirsm.machine.refs import Ref

R = TypeVar("R")

_OF_QUESTIONS: Final = ("to", "asker")
"""The names that `Ask` declares."""
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None), Ref})


class EventType(msgspec.StructMeta):
    """The class of event classes, which takes the option `name=`."""

    def __new__(
        mcls, name_: str, bases: tuple[type, ...], namespace: dict[str, Any], *, name: str | None = None, **options: Any
    ) -> Any:
        """Create an event class. `name`: the stored name, by default that of the class.

        Raises:
            DeclarationError: a question hides what each question has.
        """
        hidden = [one for one in _OF_QUESTIONS if one in namespace or one in namespace.get("__annotations__", {})]
        if hidden and any(isinstance(base, EventType) and "asker" in base.__struct_fields__ for base in bases):
            raise DeclarationError(
                f"expected {name_} to declare no field {' or '.join(map(repr, _OF_QUESTIONS))}, which each question has, found "
                f"{', '.join(hidden)}: give the field another name"
            )
        namespace["_stored_name"] = name or name_
        return super().__new__(mcls, name_, bases, namespace, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, frozen=True, metaclass=EventType):
    """Base class of events. Subclasses declare fields with types, like a dataclass."""

    _stored_name: ClassVar[str]


class Question(Generic[R]):
    """A question with the machine that it is for: the argument of `ask`."""

    __slots__ = ("event", "to")

    def __init__(self, event: Ask[R], to: Ref[Any]) -> None:
        self.event: Final = event
        self.to: Final = to

    def _answer(self, answer: R) -> R:
        """Make the type of the answer known to type checkers."""
        return answer


class Ask(Event, Generic[R], kw_only=True):
    """Base class of questions: events that are answered by a value of type `R`.

    Attributes:
        asker: the process that waits for the answer, set by `ask`; "" in a question that was sent like any event.
    """

    asker: str = ""

    def to(self, ref: Ref[Self]) -> Question[R]:
        """Return the question with the machine that it is for."""
        return Question(self, ref)


def name_of(kind: type[Event]) -> str:
    """Return the stored name of an event class."""
    return kind._stored_name


def answer_type(kind: type[Event]) -> Any:
    """Return the type that answers a question.

    Raises:
        InvalidArgument: the class is no question.
    """
    for one in kind.__mro__:
        for base in vars(one).get("__orig_bases__", ()):
            if typing.get_origin(base) is Ask:
                (found,) = typing.get_args(base)
                return resolved(found, kind, {})
    raise InvalidArgument(f"expected a question, a class like `class {kind.__name__}(Ask[int])`, found {kind.__name__}")


def resolved(kind: Any, owner: type, names: dict[str, Any]) -> Any:
    """Return a type that an annotation may name as text.

    Raises:
        NameError: the text names what does not exist.
    """
    if isinstance(kind, str):
        module = sys.modules.get(owner.__module__)
        return eval(kind, vars(module) if module is not None else {}, names)
    return kind


# -- encoding


def _dump(value: object) -> object:
    if isinstance(value, Ref):
        return str(value)
    raise TypeError(
        f"objects of type {type(value).__qualname__} are not supported: use a msgspec.Struct or a dataclass"
    )


def _load(kind: Any, value: Any) -> Any:
    if kind is Ref or typing.get_origin(kind) is Ref:
        return Ref.parse(value)
    raise TypeError(f"values of type {kind} are not supported: use a msgspec.Struct or a dataclass")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_dump)


def encode(value: object) -> bytes:
    """Return a value as bytes.

    Raises:
        NotEncodable: msgspec cannot encode it.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise NotEncodable(f"cannot be stored: {fault}") from fault


def is_scalar(value: object) -> bool:
    """Return whether a value cannot be changed in place."""
    return type(value) in _SCALARS


class Codec:
    """The encoding of the values of one type."""

    __slots__ = ("_decoder", "_kind")

    def __init__(self, kind: Any) -> None:
        self._kind: Final = kind
        self._decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(kind, dec_hook=_load)

    def decode(self, data: bytes) -> Any:
        """Return a new value.

        Raises:
            NotEncodable: the bytes are no value of the type.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError) as fault:
            name = getattr(self._kind, "__name__", str(self._kind))
            raise NotEncodable(
                f"what is stored is no {name}: {fault}; was the type changed? A new field needs a default",
                found=str(fault),
            ) from fault


def codec_of(kind: Any, where: str) -> Codec:
    """Return the encoding of a type.

    Args:
        kind: the type.
        where: the place that names the type, for the error.

    Raises:
        DeclarationError: values of the type cannot be restored from bytes.
    """
    try:
        codec, unknown = Codec(kind), _unknown_types(msgspec.inspect.type_info(kind))
    except (TypeError, NameError) as fault:
        codec, unknown = None, [str(fault)]
    if codec is None or unknown:
        raise DeclarationError(
            f"expected a type that can be stored, found {kind} in {where}: {unknown[0]}; use a msgspec.Struct or a dataclass"
        )
    return codec


def _unknown_types(info: object) -> list[str]:
    """Return the types within a type that msgspec does not know, without `Ref`."""
    found: list[str] = []
    todo, seen = [info], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.inspect.CustomType):
            found += [] if (typing.get_origin(one.cls) or one.cls) is Ref else [f"{one.cls} is not supported"]
        elif isinstance(one, tuple):
            todo.extend(one)
        elif isinstance(one, (msgspec.inspect.Type, msgspec.inspect.Field)):
            todo.extend(getattr(one, name) for name in one.__struct_fields__)
    return found


class _OfQuestion(msgspec.Struct):
    """The part of a question that any program can read."""

    asker: str = ""


_of_questions: Final = msgspec.msgpack.Decoder(_OfQuestion)


def asker_of(body: bytes) -> str:
    """Return the asker of an encoded question; "" if it has none or is no question."""
    try:
        return _of_questions.decode(body).asker
    except msgspec.DecodeError:
        return ""


def digest_of(kind: str, event: str, body: bytes) -> str:
    """Return a digest of a class and a first event, by which two creations with one key are compared."""
    return xxhash.xxh3_128_hexdigest(b"\0".join((kind.encode(), event.encode(), body)))
