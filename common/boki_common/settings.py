"""Settings of a process: one frozen dataclass, filled from a TOML file, then the environment, then flags.

    class BookieSettings:                              # @dataclass(frozen=True, slots=True, kw_only=True)
        journal_segment_bytes: int = setting(64 * MIB, unit="bytes", help="Size of one journal segment.", minimum=1 * MIB)

    class ProcessSettings:                             # a process with several roles nests their tables
        bookie: BookieSettings = table(BookieSettings)

| source (later ones win) | the same setting |
|---|---|
| TOML file   | `[bookie]` then `journal_segment_bytes = 1048576` |
| environment | `BOKI_BOOKIE_JOURNAL_SEGMENT_BYTES=1048576` |
| flags       | `{"bookie.journal_segment_bytes": 1048576}`; a value of None means *not given* |

Rules:
- A key nobody declared is an error that names the nearest one, in all three sources. `BOKI_*` names that are no settings
  are in `NOT_SETTINGS`; those that Kubernetes makes for services are passed over (`injected_variables`).
- All faults are collected and raised as one `SettingsError` (`error.faults`), each with the source it came from.
- A class adds rules between its fields by a method `faults(self) -> Iterable[str]`.
- Types: bool, int, float, str, Path, Literal of strings, `tuple[str, ...]` (a list; with commas in the environment),
  and each of them `| None` (empty in the environment).

Runs once, before the event loop starts; it knows nothing about any particular role.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from boki_common.errors import SettingsError
from boki_common.injected_variables import injected

S = TypeVar("S")
V = TypeVar("V")

ENVIRONMENT_PREFIX: Final = "BOKI_"
NOT_SETTINGS: Final = frozenset(
    {
        "BOKI_BOOKKEEPER_JARS",
        "BOKI_CASSANDRA_JARS",
        "BOKI_LOOP",
        "BOKI_MAVEN_REPOSITORY",
        "BOKI_REQUIRE",
        "BOKI_STALLS",
        "BOKI_URL",
        "BOKI_ZOOKEEPER_JARS",
    }
)
"""Names that share the prefix: the kind of event loop, where an SDK finds its engines, what tests need and must not skip,
how the clock jumps under them."""

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


UNITS: Final = frozenset(
    ("s", "ms", "bytes", "records", "entries", "segments", "files", "requests", "connections", "bookies", "shards")
    + ("streams", "days", "slots", "logs")
)
"""Last words of names that are units."""


class _About(NamedTuple):
    unit: str | None
    help: str
    minimum: float | None
    maximum: float | None


def setting(
    default: V, *, help: str, unit: str | None = None, minimum: float | None = None, maximum: float | None = None
) -> V:
    """Declares one field of a settings class.

    Args:
        default: what holds when no source names the field.
        help: one sentence that says what it does.
        unit: where the last word of its name is none (`UNITS`).
        minimum: the lowest value accepted; `maximum` the highest.
    """
    return dataclasses.field(default=default, metadata={"boki": _About(unit, help, minimum, maximum)})


def table(kind: type[V]) -> V:
    """Declares a nested table: a field that is a settings class itself."""
    return dataclasses.field(default_factory=kind)


class Row(NamedTuple):
    """What there is to know about one setting, for documentation and error messages."""

    key: str
    """Dotted, as in the file and in flags."""
    variable: str
    kind: Any
    default: object
    unit: str
    help: str
    minimum: float | None
    maximum: float | None


def rows(cls: type[Any]) -> list[Row]:
    """All settings of a class and of its tables, in order of declaration."""
    found = list(_rows(cls, ()))
    variables = [row.variable for row in found]
    assert len(set(variables)) == len(variables), f"two settings of {cls.__name__} share one environment variable"
    return found


def load_settings(
    cls: type[S], *, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> S:
    """Builds the settings of a process.

    Args:
        cls: a frozen dataclass made of `setting` and `table` fields.
        file: a TOML file, or None.
        environ: usually `os.environ`; other names than `BOKI_*` are not looked at.
        flags: dotted key → value from the command line; None values are skipped.

    Raises:
        SettingsError: the file cannot be read or parsed, or any setting is wrong; lists every fault.
    """
    declared = {row.key: row for row in rows(cls)}
    collector = _Collector(declared)
    if file is not None:
        collector.take_file(file)
    collector.take_environment(environ)
    collector.take_flags(flags or {})
    if collector.faults:
        raise _error(collector.faults)
    made = _build(cls, (), collector.values)
    faults = list(_faults(made, declared, collector.sources))
    if faults:
        raise _error(faults)
    return made


def validate(settings: object) -> None:
    """Checks ranges and the rules between fields, of the tables too. Raises SettingsError with every fault."""
    faults = list(_faults(settings, {row.key: row for row in rows(type(settings))}, {}))
    if faults:
        raise _error(faults)


def document(cls: type[Any]) -> str:
    """A Markdown table of all settings of a class."""
    lines = ["| key | environment | default | unit | meaning |", "|---|---|---|---|---|"]
    for row in rows(cls):
        lines.append(f"| `{row.key}` | `{row.variable}` | `{row.default}` | {row.unit} | {row.help} |")
    return "\n".join(lines) + "\n"


def _rows(cls: type[Any], path: tuple[str, ...]) -> Iterator[Row]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        here = (*path, field.name)
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _rows(typing.cast("type[Any]", kind), here)
            continue
        about = field.metadata.get("boki")
        assert about is not None, f"{cls.__name__}.{field.name} is not declared with setting() or table()"
        variable = ENVIRONMENT_PREFIX + "_".join(here).upper()
        last_word = field.name.rpartition("_")[2]
        unit = (last_word if last_word in UNITS else "") if about.unit is None else about.unit
        yield Row(".".join(here), variable, kind, field.default, unit, about.help, about.minimum, about.maximum)


class _Collector:
    """Values and faults met so far; a later source replaces the value of an earlier one."""

    def __init__(self, declared: Mapping[str, Row]) -> None:
        self._declared = declared
        self._variables = {row.variable: row for row in declared.values()}
        self._tables = {key.rpartition(".")[0] for key in declared} - {""}
        self.values: dict[str, object] = {}
        self.sources: dict[str, str] = {}
        self.faults: list[str] = []

    def take_file(self, file: Path) -> None:
        try:
            content = tomllib.loads(file.read_bytes().decode())
        except OSError as fault:
            self.faults.append(f"expected a readable settings file, found {file}: {fault.strerror}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
            self.faults.append(f"expected TOML in {file}, found: {fault}")
        else:
            self._take_table(content, "", str(file))

    def _take_table(self, content: Mapping[str, object], prefix: str, source: str) -> None:
        for name, value in content.items():
            key = prefix + name
            if key in self._tables and isinstance(value, dict):
                self._take_table(value, key + ".", source)
            elif key in self._tables:
                self.faults.append(f"{source}: {key}: expected a table, found {value!r}")
            else:
                self._take(key, value, source, from_typed)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        passed_over = NOT_SETTINGS | injected(environ)
        for name in sorted(environ):
            if not name.startswith(ENVIRONMENT_PREFIX) or name in passed_over:
                continue
            row = self._variables.get(name)
            if row is None:
                self.faults.append(f"environment: unknown variable {name}{_nearest(name, self._variables)}")
            else:
                self._take(row.key, environ[name], f"environment {name}", from_text)

    def take_flags(self, flags: Mapping[str, object]) -> None:
        for key, value in flags.items():
            if value is not None:
                self._take(key, value, "flag", from_text if isinstance(value, str) else from_typed)

    def _take(self, key: str, value: object, source: str, convert: Callable[[Any, Any], object]) -> None:
        row = self._declared.get(key)
        if row is None:
            known = [*self._declared, *self._tables]
            self.faults.append(f"{source}: unknown setting {key}{_nearest(key, known)}")
            return
        try:
            self.values[key] = convert(row.kind, value)
            self.sources[key] = source
        except ValueError as fault:
            self.faults.append(f"{source}: {key}: {fault}")


def from_text(kind: Any, text: str) -> object:
    """The value that a text from the environment or a flag means. Raises ValueError: expected, found."""
    inner, optional = _without_none(kind)
    if optional and text == "":
        return None
    if inner is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"expected true or false, found {text!r}")
    if inner in (int, float):
        try:
            return inner(text)
        except ValueError:
            raise ValueError(f"expected {_describe(inner)}, found {text!r}") from None
    if typing.get_origin(inner) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return from_typed(inner, text)


def from_typed(kind: Any, value: object) -> object:
    """The value that a TOML value or a typed flag means. Raises ValueError: expected, found."""
    inner, optional = _without_none(kind)
    if optional and value is None:
        return None
    if typing.get_origin(inner) is tuple:
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif typing.get_origin(inner) is typing.Literal:
        if value in typing.get_args(inner):
            return value
    elif inner is Path:
        if isinstance(value, (str, Path)) and str(value):
            return Path(value)
    elif inner is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif type(value) is inner:
        return value
    raise ValueError(f"expected {_describe(inner)}, found {value!r}")


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        others = [part for part in typing.get_args(kind) if part is not type(None)]
        assert len(others) == 1, f"settings have one type, or one type and None, not {kind}"
        return others[0], True
    return kind, False


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return "a list of strings"
    names: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "a string",
        bool: "true or false",
        Path: "a path",
    }
    assert kind in names, f"settings cannot have the type {kind}"
    return names[kind]


def _build(cls: type[S], path: tuple[str, ...], values: Mapping[str, object]) -> S:
    hints = typing.get_type_hints(cls)
    given: dict[str, object] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        here = (*path, field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            given[field.name] = _build(hints[field.name], here, values)
        elif ".".join(here) in values:
            given[field.name] = values[".".join(here)]
    return cls(**given)


def _faults(
    settings: Any, declared: Mapping[str, Row], sources: Mapping[str, str], path: tuple[str, ...] = ()
) -> Iterator[str]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        here = (*path, field.name)
        if dataclasses.is_dataclass(value):
            yield from _faults(value, declared, sources, here)
            continue
        key = ".".join(here)
        row = declared[key]
        unit = f" {row.unit}" if row.unit else ""
        source = f"{sources[key]}: " if key in sources else ""
        if row.minimum is not None and value is not None and not value >= row.minimum:
            yield f"{source}{key}: expected at least {row.minimum}{unit}, found {value}"
        if row.maximum is not None and value is not None and not value <= row.maximum:
            yield f"{source}{key}: expected at most {row.maximum}{unit}, found {value}"
    rules = getattr(settings, "faults", None)
    if rules is not None:
        prefix = f"{'.'.join(path)}: " if path else ""
        yield from (prefix + fault for fault in rules())


def _nearest(name: str, known: Iterable[str]) -> str:
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if not close:
        # The table may be wrong although the name in it is right.
        last = name.rpartition(".")[2]
        close = [choice for choice in choices if choice.rpartition(".")[2] == last]
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(choices)}" if len(choices) <= 12 else ""


def _error(faults: list[str]) -> SettingsError:
    heading = "a setting is wrong" if len(faults) == 1 else f"{len(faults)} settings are wrong"
    return SettingsError("\n  - ".join([heading + ":", *faults]), faults=list(faults))
