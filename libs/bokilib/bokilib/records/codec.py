"""Conversion of users' values to JSON and back to their types. Pure. No pickle.

JSON is dict, list, str, int, float, bool and None. Supported types are those of msgspec (its Structs, dataclasses, TypedDict, Literal,
enums, dates, unions of these) and pydantic's models, recognised by their methods so that pydantic need not be installed. Both nest
either way: `list[Model]`, `dict[str, Model]`, `Model | None`, a dataclass with a model in it. `check_type` refuses unions that stored
JSON could not tell apart (two models, two dataclasses) where a function or a collection names them.

A value that could not be restored is refused before anything is sent: keys that become one as text, integers beyond 64 bits, NaN and
infinities, text with lone surrogates, values nested deeper than 64. So is one whose own code (a property, a serializer, a validator) raises
any error meanwhile, SystemExit too: the error becomes the cause of the refusal.

JSON has no tuples: they are stored as lists, and restored as tuples where the type declares them (`tuple[int, ...]`, a NamedTuple). In
parts that are declared as `dict`, `list` or Any, `stored_json` refuses values that are not JSON: their types are not stored.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.interruption import interrupted
from bokilib.errors import NotEncodable
from bokilib.stacks import described, shown, text_of

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
JsonObject: TypeAlias = dict[str, Json]

DEPTH: Final = 64
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

J = TypeVar("J", bound=Json)
T = TypeVar("T")
_NO_VALUE: Final = object()
_OF_VALUES: Final = (Exception, SystemExit, GeneratorExit, KeyboardInterrupt)
"""Errors that the own code of values may raise. CancelledError is that of the task which converts them."""
_JSON_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})


class _Model(Protocol):
    """A model of pydantic, version 2."""

    def model_dump(self, *, mode: str, **options: Any) -> Any: ...

    @classmethod
    def model_validate(cls, value: Any, **options: Any) -> Any: ...


def _is_model(kind: type) -> bool:
    """Return whether a class is one of pydantic's models, by its methods: a runtime protocol check takes 40 µs."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate")


def check_json(value: object, depth: int = DEPTH) -> Json:
    """Check that a value is JSON, and return it unchanged.

    Args:
        value: the value.
        depth: how deep lists and dicts may nest.

    Raises:
        NotEncodable: the value, or a value inside it, is not JSON.
    """
    kind = type(value)
    if value is None or kind is bool:
        return cast(Json, value)
    if kind is str:
        try:
            cast(str, value).encode()
        except UnicodeEncodeError as fault:
            raise NotEncodable(f"expected text that UTF-8 can encode, found {shown(value)}") from fault
        return cast(str, value)
    if kind is int:
        if not INT_MIN <= cast(int, value) <= INT_MAX:
            raise NotEncodable(f"expected integers of 64 bits, found {shown(value)}; store it as text")
        return cast(int, value)
    if kind is float:
        if not math.isfinite(cast(float, value)):
            raise NotEncodable(f"expected finite numbers, found {value}; JSON cannot represent it")
        return cast(float, value)
    if depth <= 0:
        raise NotEncodable(f"expected values nested up to {DEPTH} deep, found one that is deeper")
    if kind is list:
        for item in cast(list[object], value):
            check_json(item, depth - 1)
        return cast(Json, value)
    if kind is dict:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str:
                raise _Convertible(f"expected keys that are text, found {shown(key)}")
            check_json(key)
            check_json(item, depth - 1)
        return cast(Json, value)
    if isinstance(value, tuple):
        raise _Convertible("expected JSON (dict, list, str, int, float, bool, None), found a tuple; give a list")
    raise NotEncodable(
        f"expected JSON (dict, list, str, int, float, bool, None), found {kind.__name__}; "
        "objects of classes go through a typed collection"
    )


def to_json(value: object) -> Json:
    """Convert a value of a user's type to JSON.

    Raises:
        NotEncodable: the value cannot be represented in JSON.
    """
    return checked_json(plain_of(value))


def stored_json(kind: Any, value: object) -> Json:
    """Convert a value to JSON that `from_json` converts to the same value again.

    Args:
        kind: the type as which the value is read; `object` and Any for any JSON, as which any other value is read then.

    Raises:
        NotEncodable: the value cannot be represented in JSON, or would come back changed; the message says where they differ.
    """
    made = to_json(value)
    if kind is not object and kind is not Any:
        check_same(kind, value, made)
    return made


def check_same(kind: Any, value: object, made: Json) -> None:
    """Check that JSON of a value is converted to the same value again, also in parts that are declared as any JSON.

    Raises:
        NotEncodable: see `stored_json`.
    """
    try:
        back = from_json(kind, made)
    except NotEncodable as fault:
        name = _name_of(kind)
        raise NotEncodable(
            f"expected a {name}, found a {type(value).__name__} that could not be read back as one: {fault.facts['found']}",
            expected=name,
        ) from fault
    check_equal(kind, value, back, exact=True)


def check_equal(kind: Any, value: object, back: object, *, exact: bool = False) -> None:
    """Check that a value and what it is read back as, by the type `kind`, are the same.

    Args:
        kind: the declared type.
        value: the value that was given.
        back: what it is read back as.
        exact: refuse what comes back as JSON because it is declared as any JSON: a date, a tuple, keys that are numbers.

    Raises:
        NotEncodable: see `stored_json`.
    """
    try:
        where = _difference(value, back, "", exact, exact)
    except _OF_VALUES as fault:
        if interrupted(fault):
            raise
        raise NotEncodable(f"cannot be stored as JSON: {_text_of(fault)}") from fault
    if where is not None:
        raise NotEncodable(
            f"cannot be stored: {where.lstrip('.') or 'all'} of this {type(value).__name__} would be read back as another value, since its "
            f"class, or the declared type {_name_of(kind)}, does not store all of it; declare what is stored, and give secrets as text"
        )


def plain_of(value: object) -> Any:
    """Convert a value of a user's type to builtins, which may still be no JSON: tuples, NaN, keys that are numbers.

    Raises:
        NotEncodable: the value, or a value inside it, is of a type without a conversion, or its own code raised an error.
    """
    try:
        return msgspec.to_builtins(value, enc_hook=_dump_model)
    except _OF_VALUES as fault:
        if interrupted(fault):
            raise
        raise NotEncodable(f"cannot be stored as JSON: {_text_of(fault)}") from fault


def checked_json(plain: Any) -> Json:
    """Return the result of `plain_of` as JSON: tuples become lists, and keys that are no text, such as those of a `dict[int, str]`, text.

    Raises:
        NotEncodable: it is no JSON, or two keys of a dict become one.
    """
    try:
        return check_json(plain)
    except _Convertible:
        return check_json(_converted(plain, DEPTH))


class _Convertible(NotEncodable):
    """A value has a tuple, or a key that is no text: `checked_json` converts it."""


def _converted(plain: Any, depth: int) -> Any:
    if depth <= 0:
        return plain  # `check_json` refuses it
    if isinstance(plain, (list, tuple)):
        return [_converted(item, depth - 1) for item in plain]
    if type(plain) is not dict:
        return plain
    made: dict[str, Any] = {}
    for key, item in plain.items():
        try:
            (text,) = msgspec.to_builtins({key: None}, str_keys=True)
        except (TypeError, ValueError) as fault:
            raise NotEncodable(f"expected keys that can be text, found {shown(key)}") from fault
        if text in made:
            raise NotEncodable(f"expected keys that differ as text, found {shown(text)} twice, once as another type")
        made[text] = _converted(item, depth - 1)
    return made


def from_json(kind: type[T], value: Json) -> T:
    """Convert JSON to a user's type. The result shares no list or dict with the JSON.

    Raises:
        NotEncodable: the JSON does not fit the type, or the type's own code raised an error; the message says where.
    """
    value = copy_json(value)
    try:
        if isinstance(kind, type) and _is_model(kind):
            return cast(T, _load_model(kind, value))
        return msgspec.convert(value, kind, str_keys=True, dec_hook=_load_model)
    except _OF_VALUES as fault:
        if interrupted(fault):
            raise
        name, text = _name_of(kind), _text_of(fault)
        raise NotEncodable(f"what is stored is no {name}: {text}; was the type changed?", found=text) from fault


def _name_of(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _text_of(fault: BaseException) -> str:
    """Return the text of an error of a conversion: with its class, unless the library for conversions raised it."""
    return text_of(fault) if isinstance(fault, (TypeError, ValueError, RecursionError)) else described(fault)


def _dump_model(value: object) -> object:
    """Convert a pydantic model to JSON by the names of its fields, as a hook of msgspec's encoder.

    Raises:
        TypeError: the value is not a model.
    """
    kind: Any = type(value)
    if not _is_model(kind):
        raise TypeError(f"objects of type {kind.__qualname__} are not supported")
    whole = {"round_trip": True} if _takes(kind.model_dump, "round_trip") else {}  # without what is computed
    return cast(_Model, value).model_dump(mode="json", **whole)


def _load_model(kind: type[Any], value: object) -> object:
    if kind is object:  # any JSON, as it is
        return value
    if not _is_model(kind):
        raise TypeError(f"{kind.__qualname__} is not supported")
    by_name = {"by_name": True} if _takes(kind.model_validate, "by_name") else {}
    # A strict model takes a date from the text of JSON, and from no other text.
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(msgspec.json.encode(value), **by_name)
    return cast(type[_Model], kind).model_validate(value, **by_name)


@lru_cache(maxsize=1024)
def _takes(method: Callable[..., Any], name: str) -> bool:
    """Return whether a method of a model has a parameter: versions of pydantic differ."""
    return name in inspect.signature(method).parameters


def _difference(given: Any, back: Any, where: str, exact: bool, tuples: bool) -> str | None:
    """Return where a value differs from what it is read back as, such as ".lines[3].price"; None: nowhere.

    Objects of a class without `==` are taken for equal, and so are attributes that are no fields, which models do not store.

    Args:
        given: the value.
        back: what it is read back as.
        where: the place of both.
        exact: what comes back as JSON, because it is declared as any JSON, differs from what is not JSON.
        tuples: a tuple differs from a list. Not so in pydantic's models, which take tuples for fields that they read as lists (`Sequence`).
    """
    kind: Any = type(given)
    if isinstance(given, dict) and isinstance(back, dict):
        if given.keys() != back.keys():
            as_text = len(given) == len(back) and not all(isinstance(key, str) for key in given)
            return None if as_text and not exact else where
        pairs = [(f"{where}[{shown(key, 40)}]", item, back[key]) for key, item in given.items()]
    elif isinstance(given, (list, tuple)) and isinstance(back, (list, tuple)):
        if len(given) != len(back) or (tuples and isinstance(given, tuple) and type(back) is not kind):
            return where
        pairs = [(f"{where}[{number}]", *both) for number, both in enumerate(zip(given, back, strict=True))]
    elif type(back) in _JSON_TYPES and kind not in _JSON_TYPES:
        return where if exact and not (isinstance(given, type(back)) and _equal(given, back)) else None
    elif (names := _fields_of(kind)) is not None:
        if type(back) is not kind:
            return where
        tuples = tuples and not _is_model(kind)
        pairs = [(f"{where}.{name}", getattr(given, name), getattr(back, name)) for name in names]
    else:
        return None if kind.__eq__ is object.__eq__ or _equal(given, back) else where
    found = (_difference(one, other, at, exact, tuples) for at, one, other in pairs)
    return next((one for one in found if one is not None), None)


def _fields_of(kind: type[Any]) -> Iterable[str] | None:
    """Return the fields of a class that are stored; None if it is no class with fields."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.compare]
    return cast(Iterable[str] | None, getattr(kind, "model_fields", None)) if _is_model(kind) else None


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) or bool(one != one and other != other)  # such as NaN, which equals nothing
    except Exception:  # noqa: BLE001 - a comparison of a user's class, which does not say that they differ
        return True


def check_type(kind: Any, where: str) -> None:
    """Check that values of a type can be restored from JSON.

    Args:
        kind: the type.
        where: the place that names the type, for the error.

    Raises:
        InvalidArgument: they cannot; the message says what to do.
    """
    if kind is Any or (isinstance(kind, type) and _is_model(kind)):
        return
    try:
        msgspec.convert(_NO_VALUE, kind, str_keys=True, dec_hook=_load_model)
    except (msgspec.ValidationError, ValueError):
        return  # the type is supported: only the probe is not a value of it
    except (TypeError, NotImplementedError) as fault:
        raise InvalidArgument(
            f"expected a type that can be restored from JSON, found {kind} in {where}: {fault}; "
            "name Any or a dict there and convert it yourself, or use a msgspec.Struct with a tag"
        ) from fault


def copy_json(value: J) -> J:
    """Return a deep copy of a JSON value, which callers may change."""
    if type(value) is dict or type(value) is list:
        return cast(J, msgspec.to_builtins(value))
    return value
