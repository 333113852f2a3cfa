"""Logs: one line of key=value (or JSON) per event, on stderr.

    log = get_logger("bookie")
    log.info("ledger fenced", ledger_id=7)      →  time=2026-05-04T10:11:12.131Z level=info source=bookie event="ledger fenced" ledger_id=7

Rules:
- Whoever has a caller raises; only what has none (a background task, a process) logs.
- INFO is lifecycle: term change, seal, fence, bookie up or down. DEBUG is per entry, and there is nothing per record.
- As a library Boki is quiet: only warnings and errors appear until a process calls `configure`. It never touches
  structlog's global configuration, which belongs to the program that uses Boki.
- What runs the product inside a process of somebody else's (a simulation, a test) uses `configured`, which puts everything back.
- To log never raises and changes nothing: a line that cannot be rendered says so instead, one that cannot be written is lost, counted
  (`lost_lines`), and reported by the next line that can be written. Standard error of a server does not wait either
  (`runtime.error_stream`).
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

NAMED: Final = 16
"""The most things that one line names of many; it says how many there are."""

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
    lost: int = 0
    """Lines, for as long as the process lives."""
    unreported: int = 0
    """Lost lines that no written line has reported yet."""


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


def lost_lines() -> int:
    """How many lines of this process could not be written."""
    return _State.lost


def count_lost(lines: int) -> None:
    """So many lines could not be written: for a stream that keeps that to itself."""
    _State.lost += lines


def lost_notice(lines: int) -> str:
    """The line that reports lines that were lost before it, its end included."""
    event: _Event = {"level": "warning", "source": "logs", "event": "lines of the log were lost", "count": lines}
    return _render(None, "warning", _TIME(None, "warning", event)) + "\n"


def get_logger(name: str) -> Logger:
    """A logger whose lines carry `source=name`."""
    made = structlog.wrap_logger(
        _Sink(),
        processors=[
            _drop_quiet,
            structlog.processors.add_log_level,
            _TIME,
            structlog.processors.format_exc_info,
            _readable,
            _render,
        ],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=False,
        source=name,
    )
    return cast(Logger, made.bind())


_Event = MutableMapping[str, Any]
_TIME: Final = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
_KNOWN: Final = ("time", "level", "source", "event")
_JSON: Final = structlog.processors.JSONRenderer(default=str)
_KEY_VALUE: Final = structlog.processors.LogfmtRenderer(key_order=_KNOWN, drop_missing=True, bool_as_flag=False)


class _Sink:
    """Where rendered lines end: one write a line, so that lines of several processes on one stream do not mix."""

    def _write(self, line: str) -> None:
        stream = _State.stream or sys.stderr
        if stream is None:  # a process without one
            return
        try:
            if _State.unreported:
                stream.write(lost_notice(_State.unreported))
                _State.unreported = 0
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):  # a full disk, a reader that is gone, a stream that was closed
            _State.unreported += 1
            count_lost(1)

    debug = info = warning = error = _write


def _drop_quiet(_logger: Any, method: str, event: _Event) -> _Event:
    if _RANKS[method] < _State.rank:
        raise structlog.DropEvent
    return event


def _readable(_logger: Any, _method: str, event: _Event) -> _Event:
    """Exceptions as `Type: message`, bytes as hexadecimal."""
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = _described(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            event[key] = bytes(value[:64]).hex()
    return event


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is
        return type(error).__name__


def _render(logger: Any, method: str, event: _Event) -> str:
    try:
        rendered = _JSON(logger, method, event) if _State.json else _KEY_VALUE(logger, method, dict(event))
    except Exception as fault:  # noqa: BLE001 - a fact of a log line must not end what logs it
        known = {key: str(event.get(key, "")) for key in _KNOWN} | {"unreadable": repr(type(fault).__name__)}
        rendered = _JSON(logger, method, known) if _State.json else _KEY_VALUE(logger, method, known)
    return rendered if isinstance(rendered, str) else rendered.decode()
