"""Logs: one line of key=value (or JSON) per event, on stderr.

    log = get_logger("bookie")
    log.info("ledger fenced", ledger_id=7)      →  time=2026-05-04T10:11:12.131Z level=info source=bookie event="ledger fenced" ledger_id=7

Rules:
- Whoever has a caller raises; only what has none (a background task, a process) logs.
- INFO is lifecycle: term change, seal, fence, bookie up or down. DEBUG is per entry, and there is nothing per record.
- As a library Boki is quiet: only warnings and errors appear until a process calls `configure`. It never touches
  structlog's global configuration, which belongs to the program that uses Boki.
- What runs the product inside a process of somebody else's (a simulation, a test) uses `configured`, which puts everything back.
- Facts of an exception go in as `error=exception`; `exc_info=True` adds the traceback.

Loggers made before `configure` obey it too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, Literal, Protocol, TextIO, cast

import structlog

from boki_common.errors import SettingsError

Level = Literal["debug", "info", "warning", "error"]

_RANKS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


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


@contextlib.contextmanager
def configured(*, level: Level | str = "info", json: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """`configure` for a while: afterwards level, form and destination are what they were before. Raises what it does."""
    before = _State.rank, _State.json, _State.stream
    configure(level=level, json=json, stream=stream)
    try:
        yield
    finally:
        _State.rank, _State.json, _State.stream = before


def get_logger(name: str) -> Logger:
    """A logger whose lines carry `source=name`."""
    made = structlog.wrap_logger(
        _Sink(),
        processors=[_drop_quiet, _add_level, _TIME, structlog.processors.format_exc_info, _readable, _render],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=False,
        source=name,
    )
    return cast(Logger, made.bind())


_Event = MutableMapping[str, Any]
_TIME: Final = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
_JSON: Final = structlog.processors.JSONRenderer(default=str)
_KEY_VALUE: Final = structlog.processors.LogfmtRenderer(
    key_order=["time", "level", "source", "event"], drop_missing=True, bool_as_flag=False
)


class _Sink:
    """Where rendered lines end: one write a line, so that lines of several processes on one stream do not mix."""

    def _write(self, line: str) -> None:
        stream = _State.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()

    debug = info = warning = error = _write


def _drop_quiet(_logger: Any, method: str, event: _Event) -> _Event:
    if _RANKS[method] < _State.rank:
        raise structlog.DropEvent
    return event


def _add_level(_logger: Any, method: str, event: _Event) -> _Event:
    event["level"] = method
    return event


def _readable(_logger: Any, _method: str, event: _Event) -> _Event:
    """Exceptions as `Type: message`, bytes as hexadecimal."""
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = f"{type(value).__name__}: {value}"
        elif isinstance(value, (bytes, bytearray, memoryview)):
            event[key] = bytes(value[:64]).hex()
    return event


def _render(logger: Any, method: str, event: _Event) -> str:
    rendered = _JSON(logger, method, event) if _State.json else _KEY_VALUE(logger, method, event)
    return rendered if isinstance(rendered, str) else rendered.decode()
