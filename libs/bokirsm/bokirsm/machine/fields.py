"""Fields of machines: registers, tables and volatile values. Pure.

    freq: Table[str, int] = Table()            # one stored value a key; a handler stores the keys that it changed
    high: Register[int] = Register(0)          # one stored value
    seen: Volatile[int] = Volatile(int)        # in the memory of the host: made again after a crash or a failed handler

Values are decoded for each handler and encoded again at its end, so a change in place is stored too. A field that is renamed keeps its
stored name by `Register(0, name="highest")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast, overload

from bokirsm.errors import UndeclaredField, WrongCall
from bokirsm.machine.values import Codec, encode, is_scalar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

NO_DEFAULT: Final[Any] = object()
_ABSENT: Final[Any] = object()


class FieldValues(Protocol):
    """The values of a machine's fields during one handler."""

    def register(self, field: Register[Any]) -> Any: ...

    def set_register(self, field: Register[Any], value: Any) -> None: ...

    def table(self, field: Table[Any, Any]) -> TableView[Any, Any]: ...

    def volatile(self, field: Volatile[Any]) -> Any: ...

    def set_volatile(self, field: Volatile[Any], value: Any) -> None: ...


def values_of(machine: object) -> FieldValues:
    """Return the values of a machine's fields.

    Raises:
        WrongCall: no handler of the machine runs.
    """
    found: FieldValues | None = getattr(machine, "_handling", None)
    if found is None:
        raise WrongCall("expected a handler of this machine to run: the fields of a machine exist in its handlers only")
    return found


class _Field:
    """A field of a machine's class.

    Attributes:
        name: the attribute.
        stored: the name in the log.
    """

    name = ""
    stored = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.stored = self.stored or name


class Register(_Field, Generic[T]):
    """A field with one stored value.

    Attributes:
        default: the encoded value before the first assignment, or None.
    """

    codec: Codec

    @overload
    def __init__(self, *, name: str = "") -> None: ...

    @overload
    def __init__(self, default: T, *, name: str = "") -> None: ...

    def __init__(self, default: Any = NO_DEFAULT, *, name: str = "") -> None:
        """Declare a register. Without a default it has no value before the first assignment.

        Args:
            default: its value before the first assignment.
            name: the stored name, by default that of the attribute.
        """
        self.stored = name
        self._given: Final[Any] = default
        self.default: Final[bytes | None] = None if default is NO_DEFAULT else encode(default)

    def declare(self, codec: Codec) -> None:
        """Take the encoding of the declared type.

        Raises:
            NotEncodable: the default is no value of this type.
        """
        if self.default is not None:
            codec.check(self.default, self._given)
        self.codec = codec

    @overload
    def __get__(self, obj: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, obj: object, owner: Any) -> T: ...

    def __get__(self, obj: object | None, owner: Any) -> Self | T:
        if obj is None:
            return self
        found: T = values_of(obj).register(self)
        return found

    def __set__(self, obj: object, value: T) -> None:
        values_of(obj).set_register(self, value)


class Table(_Field, Generic[K, V]):
    """A field with one stored value for each key."""

    keys: Codec
    values: Codec

    def __init__(self, *, name: str = "") -> None:
        """Declare a table. `name`: the stored name, by default that of the attribute."""
        self.stored = name

    @overload
    def __get__(self, obj: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, obj: object, owner: Any) -> TableView[K, V]: ...

    def __get__(self, obj: object | None, owner: Any) -> Self | TableView[K, V]:
        return self if obj is None else values_of(obj).table(self)

    def __set__(self, obj: object, value: object) -> None:
        raise UndeclaredField(
            f"expected keys of the table {self.name!r} to be assigned, as in self.{self.name}[key] = value, found the table itself",
            machine=type(obj).__name__,
            field=self.name,
        )


class Volatile(_Field, Generic[T]):
    """A field in the memory of the host. It is made again when the machine is loaded, and after a handler that failed or refused."""

    def __init__(self, factory: Callable[[], T]) -> None:
        """Declare a volatile field. `factory`: returns its first value."""
        self.factory: Final = factory

    @overload
    def __get__(self, obj: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, obj: object, owner: Any) -> T: ...

    def __get__(self, obj: object | None, owner: Any) -> Self | T:
        if obj is None:
            return self
        found: T = values_of(obj).volatile(self)
        return found

    def __set__(self, obj: object, value: T) -> None:
        values_of(obj).set_volatile(self, value)


class TableView(MutableMapping[K, V], Generic[K, V]):
    """A table in a handler: a mapping from keys to values, of which only what the handler uses is decoded."""

    __slots__ = ("_keys", "_seen", "_stored", "_values")

    def __init__(self, field: Table[K, V], stored: dict[bytes, bytes]) -> None:
        """Begin with no decoded value. `stored`: the encoded table, which is not changed."""
        self._keys: Final = field.keys
        self._values: Final = field.values
        self._stored: Final = stored
        self._seen: Final[dict[bytes, Any]] = {}
        """Values that the handler read or wrote, by encoded key; `_ABSENT` for removed ones."""

    def __getitem__(self, key: K) -> V:
        encoded = self._keys.key(key)
        value = self._value(encoded)
        if value is _ABSENT:
            raise KeyError(key)
        return cast(V, value)

    def _value(self, key: bytes) -> Any:
        if key in self._seen:
            return self._seen[key]
        data = self._stored.get(key)
        if data is None:
            return _ABSENT
        value = self._seen[key] = self._values.decode(data)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._seen[self._keys.key(key)] = value

    def __delitem__(self, key: K) -> None:
        encoded = self._keys.key(key)
        if not self._has(encoded):
            raise KeyError(key)
        self._seen[encoded] = _ABSENT

    def __contains__(self, key: object) -> bool:
        return self._has(self._keys.key(key))

    def _has(self, key: bytes) -> bool:
        return self._seen[key] is not _ABSENT if key in self._seen else key in self._stored

    def __iter__(self) -> Iterator[K]:
        for key in [*self._stored, *(new for new in self._seen if new not in self._stored)]:
            if self._has(key):
                yield self._keys.decode(key)

    def __len__(self) -> int:
        added = sum((value is not _ABSENT) - (key in self._stored) for key, value in self._seen.items())
        return len(self._stored) + added

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the encoded values of the keys that changed; None for removed ones.

        Raises:
            NotEncodable: a value cannot be stored.
        """
        found: dict[bytes, bytes | None] = {}
        for key, value in self._seen.items():
            before = self._stored.get(key)
            after = None if value is _ABSENT else self._values.encode(value)
            if after != before:
                found[key] = after
                if after is not None:
                    self._values.check(after, value)
        return found


def changed(value: object, before: bytes | None, assigned: bool, codec: Codec) -> bytes | None:
    """Return a register's encoded value if it changed, else None.

    Args:
        value: of the register at the end of the handler.
        before: its encoded value at the beginning.
        assigned: whether the handler assigned it.
        codec: of the register.

    Raises:
        NotEncodable: the value cannot be stored, or not be restored as the register's type.
    """
    if not assigned and is_scalar(value):
        return None
    after = codec.encode(value)
    if after == before:
        return None
    codec.check(after, value)
    return after
