"""Standard error of a server: writing to it never raises and never waits, whether it is read or not.

A pipe whose reader has stopped, a terminal that was halted and a disk that is full must not change what a server does. So a
server's `sys.stderr` is an `ErrorStream` (`install`):

- What can be written is written at once, so that a crash loses nothing.
- What cannot yet be is held, up to `limits.LOG_HELD_BYTES`, and written by a thread that lives as long as something is held.
  At the end of the process that is waited for, `limits.LOG_FLUSH_S` at most.
- What has no room there, or fails to be written, is lost: counted, and reported in one line once something can be written again.

Pipes and terminals are opened anew, without waiting: that flag belongs to an open description, and the one that was inherited has
others who did not ask for it. Files never wait. Of what cannot be opened again (a socket, another user's terminal) it is
asked before each piece whether there is room.

One of the few modules that may use `os` and threads. It knows nothing of what is written.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from boki_common import limits

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PIECE_BYTES: Final = 4_096
"""PIPE_BUF of Linux: so much is written as a whole or not at all, and there is room for it when a pipe says that there is any."""
_TIMEOUT_S: Final = 1.0


class ErrorStream(io.TextIOBase):
    """See the module. Text streams count in lines, so that is what is counted."""

    def __init__(
        self,
        descriptor: int,
        *,
        notice: Callable[[int], str],
        lost: Callable[[int], None],
        held_bytes_limit: int = limits.LOG_HELD_BYTES,
    ) -> None:
        """`notice` makes the line that reports so many lost ones, `lost` is called at each loss."""
        super().__init__()
        self._inherited = descriptor
        self._own = _opened_anew(descriptor)
        self._descriptor = descriptor if self._own is None else self._own
        self._notice = notice
        self._report_lost = lost
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._held_bytes_limit = held_bytes_limit
        self._lost = 0
        """Lines, since the last notice."""
        self._begun = False
        """The last thing written is not a whole line."""
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.buffer = _Bytes(self)
        """For callers that write bytes."""

    # -- a text stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has an attribute
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]  # typeshed has an attribute
        return "backslashreplace"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._inherited

    def isatty(self) -> bool:
        return os.isatty(self._inherited)

    def write(self, text: str, /) -> int:
        self.take(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def take(self, data: bytes) -> None:
        with self._lock:
            if not self._held:
                data = self._written(data)
            if data:
                self._keep(data)

    def flush(self) -> None:
        """Nothing is kept back that could be written."""

    def finish(self) -> None:
        """Waits until what is held is written, for `limits.LOG_FLUSH_S` at most."""
        end = time.monotonic() + limits.LOG_FLUSH_S
        while True:
            with self._lock:
                self._write_held()
                if not self._held:
                    return
            left = end - time.monotonic()
            if left <= 0:
                return
            self._room_within(left)

    def _room_within(self, timeout_s: float) -> bool:
        """Whether something can be written; waits for it. With a poll object each: one cannot be used by two threads."""
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        return bool(ready.poll(timeout_s * 1_000))

    # -- inside, under the lock

    def _keep(self, data: bytes) -> None:
        if self._held_bytes + len(data) > self._held_bytes_limit:
            self._lose(data)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="standard error", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no thread can be had, or the process ends: the next write, or `finish`, goes on
                self._thread = None

    def _lose(self, data: bytes, lines: int | None = None) -> None:
        if lines is None:
            lines = max(1, data.count(b"\n"))
        self._lost += lines
        self._report_lost(lines)

    def _written(self, data: bytes) -> bytes:
        """Writes what can be written now, after a notice of what was lost; returns the rest."""
        if self._lost:
            notice = ("\n" if self._begun else "") + self._notice(self._lost)
            data = notice.encode("utf-8", "backslashreplace") + data
            reported, self._lost = self._lost, 0
            rest = self._piecewise(data, lines=data.count(b"\n") - notice.count("\n"))
            if self._lost:  # it failed again: the count goes on
                self._lost += reported
            return rest
        return self._piecewise(data)

    def _piecewise(self, data: bytes, lines: int | None = None) -> bytes:
        """`lines`: that are lost with it, if they are not those that it has."""
        while data:
            try:
                if self._own is None and not self._room_within(0):
                    return data
                count = os.write(self._descriptor, data[:_PIECE_BYTES])
            except BlockingIOError:
                return data
            except OSError:
                self._lose(data, lines)
                return b""
            self._begun = data[count - 1 : count] != b"\n"
            data = data[count:]
        return b""

    def _write_held(self) -> None:
        while self._held:
            first = self._held.popleft()
            self._held_bytes -= len(first)
            rest = self._piecewise(first)
            if rest:
                self._held.appendleft(rest)
                self._held_bytes += len(rest)
                return
        if self._lost:
            self._written(b"")

    def _write_on(self) -> None:
        """The thread."""
        while True:
            self._room_within(_TIMEOUT_S)
            with self._lock:
                self._write_held()
                if not self._held:
                    self._thread = None
                    return


class _Bytes(io.RawIOBase):
    """The binary stream below an `ErrorStream`."""

    def __init__(self, stream: ErrorStream) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: ReadableBuffer, /) -> int:
        copied = bytes(data)
        self._stream.take(copied)
        return len(copied)


def install(*, notice: Callable[[int], str], lost: Callable[[int], None]) -> ErrorStream | None:
    """Makes standard error of this process an `ErrorStream` for the rest of its life; None where it is something else already."""
    found = sys.__stderr__
    if found is None or sys.stderr is not found:
        return None
    try:
        found.flush()
        stream = ErrorStream(found.fileno(), notice=notice, lost=lost)
    except (OSError, ValueError):  # closed, or no descriptor
        return None
    sys.stderr = stream
    atexit.register(stream.finish)
    return stream


def _opened_anew(descriptor: int) -> int | None:
    """The same pipe or terminal, with a description of our own that does not wait."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or os.isatty(descriptor)):
        return None
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
