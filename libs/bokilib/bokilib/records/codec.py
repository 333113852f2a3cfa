"""Conversion of users' values to JSON and back to their types. Pure. No pickle.

JSON is dict, list, str, int, float, bool and None. Supported types are those of msgspec (its Structs, dataclasses, TypedDict, Literal,
enums, dates, unions of these) and pydantic's models, recognised by their methods so that pydantic need not be installed. Both nest
either way: `list[Model]`, `dict[str, Model]`, `Model | None`, a dataclass with a model in it. `check_type` refuses unions that stored
JSON could not tell apart (two models, two dataclasses) where a function or a collection names them.

A value that could not be restored is refused before anything is sent: keys that are not text, integers beyond 64 bits, NaN and
infinities, text with lone surrogates, values nested deeper than 64. So is one whose own code (a property, a serializer, a validator) raises
any error meanwhile, SystemExit too: the error becomes the cause of the refusal.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from boki_common.errors import InvalidArgument
from boki_common.runtime.bodies import interrupted
from bokilib.errors import NotEncodable
from bokilib.stacks import described, text_of

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
JsonObject: TypeAlias = dict[str, Json]

DEPTH: Final = 64
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

J = TypeVar("J", bound=Json)
T = TypeVar("T")
_NO_VALUE: Final = object()
_JSON_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})


class _Model(Protocol):
    """A model of pydantic, version 2."""

    def model_dump(self, *, mode: str) -> Any: ...

    @classmethod
    def model_validate(cls, value: Any) -> Any: ...


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
            raise NotEncodable(f"expected text that UTF-8 can encode, found {value!r:.80}") from fault
        return cast(str, value)
    if kind is int:
        if not INT_MIN <= cast(int, value) <= INT_MAX:
            raise NotEncodable(f"expected integers of 64 bits, found {value}; store it as text")
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
                raise NotEncodable(f"expected keys that are text, found {key!r:.80}")
            check_json(key)
            check_json(item, depth - 1)
        return cast(Json, value)
    raise NotEncodable(
        f"expected JSON (dict, list, str, int, float, bool, None), found {kind.__name__}; "
        "objects of classes go through a typed collection"
    )


def to_json(value: object) -> Json:
    """Convert a value of a user's type to JSON.

    Raises:
        NotEncodable: the value cannot be represented in JSON.
    """
    return check_json(plain_of(value))


def plain_of(value: object) -> Any:
    """Convert a value of a user's type to builtins, which may still be no JSON: tuples, NaN, keys that are numbers.

    Raises:
        NotEncodable: the value, or a value inside it, is of a type without a conversion, or its own code raised an error.
    """
    try:
        if type(value) not in _JSON_TYPES and _is_model(type(value)):
            return cast(_Model, value).model_dump(mode="json")
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_model)
    except BaseException as fault:
        if interrupted(fault):
            raise
        raise NotEncodable(f"cannot be stored as JSON: {_text_of(fault)}") from fault


def from_json(kind: type[T], value: Json) -> T:
    """Convert JSON to a user's type. The result shares no list or dict with the JSON.

    Raises:
        NotEncodable: the JSON does not fit the type, or the type's own code raised an error; the message says where.
    """
    value = copy_json(value)
    try:
        if isinstance(kind, type) and _is_model(kind):
            return cast(T, cast(type[_Model], kind).model_validate(value))
        return msgspec.convert(value, kind, str_keys=True, dec_hook=_load_model)
    except BaseException as fault:
        if interrupted(fault):
            raise
        name, text = getattr(kind, "__name__", str(kind)), _text_of(fault)
        raise NotEncodable(f"what is stored is no {name}: {text}; was the type changed?", found=text) from fault


def _text_of(fault: BaseException) -> str:
    """Return the text of an error of a conversion: with its class, unless the library for conversions raised it."""
    return text_of(fault) if isinstance(fault, (TypeError, ValueError, RecursionError)) else described(fault)


def _dump_model(value: object) -> object:
    """Convert a pydantic model to JSON, as a hook of msgspec's encoder.

    Raises:
        TypeError: the value is not a model.
    """
    if _is_model(type(value)):
        return cast(_Model, value).model_dump(mode="json")
    raise TypeError(f"objects of type {type(value).__qualname__} are not supported")


def _load_model(kind: type[Any], value: object) -> object:
    if kind is object:  # any JSON, as it is
        return value
    if _is_model(kind):
        return cast(type[_Model], kind).model_validate(value)
    raise TypeError(f"{kind.__qualname__} is not supported")


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
