"""Faults that an event loop reports because no caller gets them: one line each, and one a minute where it would be thousands.

- `socket.accept()` without a descriptor left: asyncio tries again each second, a thousand times each time. uvloop accepts and
  closes at once instead, and reports nothing. Either way connections are taken again when there are descriptors.
- Everything else is a fault of ours, or of a library: its traceback, on one line.

`LibraryLogs` does the same for what libraries say through `logging`, which would print tracebacks over many lines.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, Final

from boki_common.logs import get_logger

REPORT_EVERY_S: Final = 60.0

_NO_RESOURCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = get_logger("process")


class LoopFaults:
    """The exception handler of one loop."""

    def __init__(self) -> None:
        self._accept_reported_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in _NO_RESOURCE:
            self._cannot_accept(loop.time(), error)
            return
        if isinstance(error, ValueError) and "_start_serving" in repr(context.get("handle")):
            return  # a server was closed during asyncio's pause after the above
        about = context.get("task") or context.get("future") or context.get("handle") or context.get("transport")
        facts = {} if about is None else {"about": repr(about)}
        _log.error(str(context.get("message", "a fault")), error=error, exc_info=error, **facts)

    def _cannot_accept(self, now: float, error: OSError) -> None:
        if self._accept_reported_at is not None and now - self._accept_reported_at < REPORT_EVERY_S:
            return
        self._accept_reported_at = now
        _log.error(
            "no connection can be accepted for now: trying again each second; raise the limit of open files, `ulimit -n`",
            error=error,
        )


class LibraryLogs(logging.Handler):
    """Gives what libraries log to ours. For the root logger of a process that is ours."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = get_logger(record.name)
            say = log.error if record.levelno >= logging.ERROR else log.warning
            say(record.getMessage(), exc_info=record.exc_info)
        except Exception as error:  # noqa: BLE001 - a library's words must not end what it was doing
            _log.error("a library's log line cannot be read", library=record.name, error=error)


def take_library_logs() -> None:
    """Once in a process."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(LibraryLogs(logging.WARNING))
