"""Logs: one line of key=value (or JSON) per event, on stderr.

    log = get_logger("bookie")
    log.info("ledger fenced", ledger_id=7)      →  time=2026-05-04T10:11:12.131Z level=info source=bookie event="ledger fenced" ledger_id=7

Rules:
- Whoever has a caller raises; only what has none (a background task, a process) logs.
- INFO is lifecycle: term change, seal, fence, bookie up or down. DEBUG is per entry, and there is nothing per record.
- As a library Boki is quiet: only warnings and errors appear until a process calls `configure`. It never touches the
  logging of the program that uses Boki.
- Facts of an exception go in as `error=exception`; `exc_info=True`, or the exception itself, adds the traceback.
- In key=value a text with spaces, quotes, backslashes or `=` is quoted; nothing breaks a line. In JSON what is no JSON is a string.

Loggers made before `configure` obey it too.
"""

from __future__ import annotations

import datetime
import json as json_lines
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TextIO

from boki_common.errors import SettingsError

Level = Literal["debug", "info", "warning", "error"]

_RANKS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PLAIN: Final = re.compile(r'[^\s="\\]*')
"""A text that needs no quotes."""
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\r": "\\r", "\n": "\\n"}


class Logger(Protocol):
    """What `get_logger` returns. `event` is a short fixed phrase; what varies goes into the facts."""

    def debug(self, event: str, **facts: Any) -> None: ...
    def info(self, event: str, **facts: Any) -> None: ...
    def warning(self, event: str, **facts: Any) -> None: ...
    def error(self, event: str, **facts: Any) -> None: ...

    def bind(self, **facts: Any) -> Logger:
        """A logger that adds these facts to every line."""


class _State:
    """What `configure` sets, for all loggers of the process."""

    rank: int = _RANKS["warning"]
    json: bool = False
    stream: TextIO | None = None


def configure(*, level: Level | str = "info", json: bool = False, stream: TextIO | None = None) -> None:
    """Sets level, form and destination of all loggers of this process.

    Args:
        level: "debug", "info", "warning" or "error".
        json: one JSON object a line instead of key=value.
        stream: instead of stderr.

    Raises:
        SettingsError: an unknown level.
    """
    if level not in _RANKS:
        raise SettingsError(f"expected a log level of {', '.join(_RANKS)}, found {level!r}", found=level)
    _State.rank = _RANKS[level]
    _State.json = json
    _State.stream = stream


def get_logger(name: str) -> Logger:
    """A logger whose lines carry `source=name`."""
    return _Lines({"source": name})


class _Lines:
    """The logger of some facts: one write a line, so that lines of several processes on one stream do not mix."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def debug(self, event: str, **facts: Any) -> None:
        self._log("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        self._log("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._log("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        self._log("error", event, facts)

    def bind(self, **facts: Any) -> _Lines:
        return _Lines({**self._facts, **facts})

    def _log(self, level: str, event: str, facts: dict[str, Any]) -> None:
        if _RANKS[level] < _State.rank:
            return
        trace = _traceback(facts.pop("exc_info", None))
        said = {"time": _now(), "level": level, "source": "", "event": event, **self._facts, **facts, **trace}
        shown = {key: _readable(value) for key, value in said.items()}
        line = json_lines.dumps(shown, default=str) if _State.json else " ".join(map(_key_value, shown.items()))
        stream = _State.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _traceback(wanted: bool | BaseException | None) -> dict[str, str]:
    """Of an exception, or with True of the one that is being handled."""
    error = wanted if isinstance(wanted, BaseException) else sys.exception() if wanted else None
    return {} if error is None else {"exception": "".join(traceback.format_exception(error)).rstrip()}


def _readable(value: object) -> object:
    """Exceptions as `Type: message`, bytes as hexadecimal."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value[:64]).hex()
    return value


def _key_value(fact: tuple[str, object]) -> str:
    key, value = fact
    if value is None:
        return f"{key}="
    if isinstance(value, bool):
        return f"{key}={'true' if value else 'false'}"
    text = str(value)
    if _PLAIN.fullmatch(text):
        return f"{key}={text}"
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return f'{key}="{text}"'
