"""Waits in a thread until another thread wakes it, or until somebody writes to a file: with Linux's inotify.

    changes = FileChanges()          # on the thread that wakes
    changes.watch(path)              # on the thread that waits, as all that follows
    changes.wait(seconds)            # True: the file was written to since `forget`, or nobody can say
    changes.forget()                 # before looking at the file: later writes are reported again

A write of any process is reported before its `write` returns; so a caller that looks after `forget`, and finds the file locked
by its writer, has to look once more. Network file systems report this machine's writes only. Where there is
no inotify (macOS, or too many instances of it), `wait` says after its time that the file may have changed: its caller polls.

`wake` and `close` belong to the thread that made it, so that nothing is ever written to a file descriptor that is closed.
"""

from __future__ import annotations

import ctypes
import os
import select

from boki_common.logs import get_logger

_MODIFIED = 2
_READ_BYTES = 64 * 1024
"""More than a pipe or a queue of events ever holds of this."""

_log = get_logger("metadata")


class FileChanges:
    """See the module."""

    def __init__(self) -> None:
        self._woken, self._wakes = os.pipe()
        self._events = -1
        self._of_both = select.poll()
        self._of_wakes = select.poll()
        for descriptor in (self._woken, self._wakes):
            os.set_blocking(descriptor, False)
        for poll in (self._of_both, self._of_wakes):
            poll.register(self._woken, select.POLLIN)

    @property
    def notified(self) -> bool:
        """Whether the system reports writes."""
        return self._events >= 0

    def wake(self) -> None:
        """Ends the `wait` that runs, or else the next one. Any number before it are one."""
        try:
            os.write(self._wakes, b"w")
        except BlockingIOError:
            pass  # so many wake it already

    def watch(self, path: str) -> None:
        """Begins to look at a file, which exists."""
        try:
            self._events = _watched(os.fsencode(path))
        except OSError as error:
            _log.info("the metadata file is polled", path=path, error=error)
            return
        self._of_both.register(self._events, select.POLLIN)

    def wait(self, timeout_s: float, *, for_changes: bool = True) -> bool:
        """Waits to be woken, for the file to change if wanted, or so long; returns whether the file may have changed."""
        poll = self._of_both if for_changes else self._of_wakes
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1_000)]
        if self._woken in ready:
            os.read(self._woken, _READ_BYTES)
        return not self.notified or self._events in ready

    def forget(self) -> None:
        """Writes until now are not reported any more."""
        if self.notified:
            try:
                os.read(self._events, _READ_BYTES)
            except BlockingIOError:
                pass  # nothing was

    def close(self) -> None:
        """Nobody waits any more."""
        for descriptor in (self._woken, self._wakes, self._events):
            if descriptor >= 0:
                os.close(descriptor)


def _watched(path: bytes) -> int:
    """A descriptor that can be read when the file is written to. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    begin, add = getattr(library, "inotify_init1", None), getattr(library, "inotify_add_watch", None)
    if begin is None or add is None:
        raise OSError("this system has no inotify")
    descriptor: int = begin(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor >= 0 and add(descriptor, path, _MODIFIED) >= 0:
        return descriptor
    number = ctypes.get_errno()
    if descriptor >= 0:
        os.close(descriptor)
    raise OSError(number, os.strerror(number), os.fsdecode(path))
