"""Events and questions, and the encoding of typed values. Pure.

    class Freq(Event): text: str; count: int
    class Word(Ask[int]): text: str            # a question that is answered by an int

- Events are frozen. They are encoded when they are sent, so a list in one can be changed afterwards without effect on it.
- The name of an event class is stored. A class that is renamed keeps its name by `class Freq(Event, name="WordFreq")`; a new field
  needs a default.
- Types are those of msgspec, and `Ref`. Values are msgpack; no pickle.
- A value that its declared type would change is refused where it is given, not where it is read: so is one of a subclass,
  whose further fields would be lost. What is declared as Any, or as a list or dict of it, comes back as lists, dicts and scalars.
- Sets are stored in the order of the bytes of their members, so that a value has the same bytes in all processes. Dicts keep their order,
  which is a part of their value; only in keys of tables, and where first events are compared, equal dicts have the same bytes.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import sys
import typing
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, dataclass_transform

import msgspec
import xxhash

from boki_common.errors import InvalidArgument
from bokilib.errors import NotEncodable
from bokilib.records.codec import check_equal
from bokirsm.errors import DeclarationError
from bokirsm.machine.refs import Ref

R = TypeVar("R")

_OF_QUESTIONS: Final = ("to", "asker")
"""The names that `Ask` declares."""
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None), Ref})
_EXACT: Final = frozenset({str, int, bool, bytes, Ref})
"""Types of which equal values have the same bytes."""
_UNORDERED: Final = (msgspec.inspect.SetType, msgspec.inspect.FrozenSetType, msgspec.inspect.AnyType)
_ADDED: Final = 6
"""Fields that have their defaults, of which an earlier class of an event may have lacked any."""
_DEPTH: Final = 16
"""The depth to which a value is searched for the part that cannot be stored."""


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


_EMPTY: Final = ("", b"")
"""The name and the bytes of no first event."""
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_dump)


def encode(value: object, where: str = "") -> bytes:
    """Return a value as bytes.

    Args:
        value: the value.
        where: the field that has it, for the error; by default the class of the value.

    Raises:
        NotEncodable: msgspec cannot encode it.
    """
    kind: Any = type(value)
    return _encode(value, where, ordered=_may_have_sets(kind))


def canonical(value: object, *, short: bool = False) -> bytes:
    """Return bytes that equal values of one type have in common: sets and dicts are in the order of their bytes.

    Args:
        value: the value.
        short: without fields that have their defaults, so that a field that is added later with a default changes nothing.

    Raises:
        NotEncodable: as `encode`.
    """
    return _encode(value, "", ordered=True, dicts=True, short=short)


def _encode(value: object, where: str, *, ordered: bool, dicts: bool = False, short: bool = False) -> bytes:
    try:
        return _encoder.encode(_ordered(value, dicts=dicts, short=short) if ordered else value)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        place = (where or type(value).__name__) + _place_of_fault(value)
        raise NotEncodable(f"{place} cannot be stored: {fault}", where=place) from fault


def _ordered(value: Any, *, dicts: bool, short: bool = False) -> Any:
    """Return what is encoded as a value is, with the members of its sets in order.

    Args:
        value: the value.
        dicts: with the keys of its dicts in order too.
        short: without fields that have their defaults, except in keys.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (set, frozenset)):
        members = [_ordered(one, dicts=dicts, short=short) for one in value]
        return tuple(sorted(members, key=_encoder.encode)) if members else value
    if isinstance(value, list):
        return [_ordered(one, dicts=dicts, short=short) for one in value]
    if isinstance(value, tuple):
        return tuple(_ordered(one, dicts=dicts, short=short) for one in value)
    if isinstance(value, dict):
        pairs = [(_ordered(key, dicts=dicts), _ordered(one, dicts=dicts, short=short)) for key, one in value.items()]
        return dict(sorted(pairs, key=lambda pair: _encoder.encode(pair[0])) if dicts else pairs)
    kind: Any = type(value)
    if short and (defaults := _defaults_of(kind)) is not None:
        return _without(
            value, [name for name, one in defaults.items() if canonical(getattr(value, name)) in one], short=True
        )
    if isinstance(value, msgspec.Struct):
        struct = copy.copy(value)
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(struct, name, _ordered(getattr(value, name), dicts=dicts))
        return struct
    fields = _fields_of(value)
    if fields:
        made = copy.copy(value)
        for name in fields:
            object.__setattr__(made, name, _ordered(getattr(value, name), dicts=dicts))
        return made
    return value


def _without(value: Any, left: Collection[str], *, short: bool) -> dict[str, Any]:
    """Return what is encoded as a value with fields is, without some of them."""
    made: dict[str, Any] = {}
    names = stored = _fields_of(value)
    if isinstance(value, msgspec.Struct):
        names, stored = value.__struct_fields__, value.__struct_encode_fields__
        config = value.__struct_config__
        if config.tag is not None:
            made[str(config.tag_field)] = config.tag
    for name, key in zip(names, stored, strict=True):
        if name not in left:
            made[key] = _ordered(getattr(value, name), dicts=True, short=short)
    return made


@functools.lru_cache(4_096)
def _defaults_of(kind: type[Any]) -> dict[str, tuple[bytes, bytes]] | None:
    """Return the defaults of the fields of a class, encoded, and so as their types read them; None if the class has no fields."""
    found: list[tuple[str, Any, Any]] = []
    if issubclass(kind, msgspec.Struct):
        for one in msgspec.structs.fields(kind):
            if not one.required:
                default = one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory()
                found.append((one.name, one.type, default))
    elif dataclasses.is_dataclass(kind):
        types = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                found.append((field.name, types[field.name], field.default))
            elif field.default_factory is not dataclasses.MISSING:
                found.append((field.name, types[field.name], field.default_factory()))
    else:
        return None
    made: dict[str, tuple[bytes, bytes]] = {}
    for name, of, default in found:
        try:
            codec = Codec(of)
            made[name] = (canonical(default), canonical(codec.decode(codec.encode(default))))
        except NotEncodable:
            continue  # a default that is not of its type: no value is equal to it
    return made


def _fields_of(value: object) -> Sequence[str]:
    """Return the fields of a value whose class is made by dataclasses or attrs; none of any other."""
    kind = type(value)
    found = getattr(kind, "__attrs_attrs__", None) or (
        dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    )
    return [field.name for field in found if hasattr(value, field.name)]


@functools.lru_cache(4_096)
def _may_have_sets(kind: Hashable) -> bool:
    """Return whether values of a class may have sets in them, whose members have an order of their own in each process."""
    if kind in _SCALARS:
        return False
    try:
        return _has(msgspec.inspect.type_info(kind), _UNORDERED)
    except (TypeError, NameError):
        return True


def _place_of_fault(value: Any) -> str:
    """Return where in a value the first part is that cannot be stored, as text; "" if it is the value itself."""
    found = ""
    for _ in range(_DEPTH):
        for name, part in _parts_of(value):
            try:
                _encoder.encode(part)
            except (TypeError, ValueError, OverflowError, RecursionError):
                found, value = found + name, part
                break
        else:
            return found
    return found


def _parts_of(value: Any) -> list[tuple[str, object]]:
    """Return the parts of a value, each with its place."""
    if isinstance(value, msgspec.Struct):
        return [(f".{name}", getattr(value, name)) for name in value.__struct_fields__]
    if fields := _fields_of(value):
        return [(f".{name}", getattr(value, name)) for name in fields]
    if isinstance(value, dict):
        return [(f"[{key!r:.40}]", one) for key, one in value.items()]
    return [(f"[{number}]", one) for number, one in enumerate(value)] if isinstance(value, (list, tuple)) else []


def is_scalar(value: object) -> bool:
    """Return whether a value cannot be changed in place."""
    return type(value) in _SCALARS


class Codec:
    """The encoding of the values of one type."""

    __slots__ = ("_by_equality", "_decoder", "_exact", "_kind", "_ordered", "_where")

    def __init__(self, kind: Any, where: str = "") -> None:
        """Return the encoding of a type. `where`: the field or event that names it, for errors."""
        self._kind: Final = kind
        self._where: Final = where
        self._decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(kind, dec_hook=_load)
        self._ordered: Final = _has(msgspec.inspect.type_info(kind), _UNORDERED)
        self._by_equality: Final = not any(_may_equal_others(one) for one in _types_in(msgspec.inspect.type_info(kind)))
        self._exact: Final = Ref if typing.get_origin(kind) is Ref else kind if kind in _EXACT else None

    def encode(self, value: object) -> bytes:
        """Return a value of the type as bytes.

        Raises:
            NotEncodable: msgspec cannot encode it.
        """
        return _encode(value, self._where, ordered=self._ordered)

    def key(self, value: object) -> bytes:
        """Return a key of a table as bytes, which all keys that are equal to it have: of the type, as it was declared.

        Raises:
            NotEncodable: the value is no key of the type.
        """
        if type(value) is self._exact:
            return self.encode(value)
        data = self.encode(value)
        self.check(data, value)
        return canonical(self.decode(data))

    @property
    def _name(self) -> str:
        return (
            str(self._kind)
            if typing.get_origin(self._kind) is not None
            else getattr(self._kind, "__name__", str(self._kind))
        )

    def check(self, data: bytes, value: object) -> None:
        """Check that an encoded value is restored as the same value, by the type.

        Raises:
            NotEncodable: it is not.
        """
        where = self._where or "a value"
        try:
            back = self._decoder.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError) as fault:
            raise NotEncodable(
                f"expected {where} to be of type {self._name}, found {value!r:.80}: {fault}",
                where=where,
                found=str(fault),
            ) from fault
        if self._by_equality and _is_equal(back, value):
            return
        try:
            check_equal(self._kind, value, back)
        except NotEncodable as fault:
            raise NotEncodable(f"{where} {fault}", where=where) from fault

    def decode(self, data: bytes) -> Any:
        """Return a new value.

        Raises:
            NotEncodable: the bytes are no value of the type.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError) as fault:
            raise NotEncodable(
                f"what is stored is no {self._name}: {fault}; was the type changed? A new field needs a default",
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
        codec, unknown = Codec(kind, where), _unknown_types(msgspec.inspect.type_info(kind))
    except (TypeError, NameError) as fault:
        codec, unknown = None, [str(fault)]
    if codec is None or unknown:
        raise DeclarationError(
            f"expected a type that can be stored, found {kind} in {where}: {unknown[0]}; use a msgspec.Struct or a dataclass"
        )
    return codec


@functools.lru_cache(4_096)
def codec_of_event(kind: type[Event]) -> Codec:
    """Return the encoding of events of a class, by which the sender of an event checks it.

    Raises:
        DeclarationError: events of the class cannot be restored from bytes.
    """
    return codec_of(kind, kind.__name__)


def _may_equal_others(info: object) -> bool:
    """Return whether values of a type in another may be equal though a field of them differs: `==` is their own."""
    if isinstance(info, msgspec.inspect.StructType):
        return info.cls.__eq__ is not msgspec.Struct.__eq__
    return isinstance(info, msgspec.inspect.DataclassType)


def _is_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - a comparison of a user's class, which does not say that they are equal
        return False


def _unknown_types(info: object) -> list[str]:
    """Return the types within a type that msgspec does not know, without `Ref`."""
    customs = [one.cls for one in _types_in(info) if isinstance(one, msgspec.inspect.CustomType)]
    return [f"{one} is not supported" for one in customs if (typing.get_origin(one) or one) is not Ref]


def _has(info: object, kinds: tuple[type, ...]) -> bool:
    """Return whether a type is of some kinds, or has such a type in it."""
    return any(isinstance(one, kinds) for one in _types_in(info))


def _types_in(info: object) -> Iterator[object]:
    """Yield a type and all types in it, each once."""
    todo, seen = [info], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, tuple):
            todo.extend(one)
        elif isinstance(one, (msgspec.inspect.Type, msgspec.inspect.Field)):
            todo.extend(getattr(one, name) for name in one.__struct_fields__)


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


def digest_of_first(kind: str, first: Event | None) -> str:
    """Return a digest of a creation, by which two with one key are compared: without fields that have their defaults.

    Args:
        kind: the stored name of the machine's class.
        first: the first event, as its class reads it.
    """
    return (
        digest_of(kind, *_EMPTY)
        if first is None
        else digest_of(kind, name_of(type(first)), canonical(first, short=True))
    )


def earlier_digests(kind: str, first: Event) -> Iterator[str]:
    """Yield the digests that earlier releases noted for the same creation: of all fields that the class of the event had then."""
    name = name_of(type(first))
    yield digest_of(kind, name, canonical(first))
    defaults = _defaults_of(type(first)) or {}
    added = [one for one in reversed(defaults) if canonical(getattr(first, one)) in defaults[one]][:_ADDED]
    for number in range(1, len(added) + 1):
        for left in itertools.combinations(added, number):
            yield digest_of(kind, name, _encoder.encode(_without(first, left, short=False)))


def digest_of(kind: str, event: str, body: bytes) -> str:
    """Return a digest of a class and a first event (`canonical`)."""
    return xxhash.xxh3_128_hexdigest(b"\0".join((kind.encode(), event.encode(), body)))
