"""Standard input, output and error of a process that may have been started without them, or loses one.

- Closed at the start (`boki … >&-`): descriptors 0, 1 and 2 are filled with /dev/null before anything else is opened. Otherwise
  the first socket or file would get such a number, and what is printed would go into it.
- Standard output fails by two errors of its own, whoever writes to it: `ReaderGone` (`boki read | head`) is a normal end,
  `OutputFailed` (a full disk) is not. So no command has to distinguish them from its own errors of files and connections.
- Who has nothing to write for a while watches for it (`reader_watched`): `boki tail -f | head -1` ends with its reader.
- After either, `discard_output`: what is still in the buffer is thrown away, or Python would complain once more when it ends.

It knows no command and no exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from boki_common.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD: Final = (0, 1, 2)
_BUFFER_BYTES: Final = 64 * 1024


class OutputFailed(UsageError):
    """Standard output took no more."""


class ReaderGone(Exception):
    """The reader of standard output has all it wants."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            raise OutputFailed(f"cannot write to standard output: {error.strerror}") from error


def prepare() -> None:
    """Fills standard descriptors that are closed with /dev/null, and gives the process an output as this module says."""
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    found = sys.stdout
    output = io.BufferedWriter(_Output(1, "w", closefd=False), _BUFFER_BYTES)
    sys.stdout = io.TextIOWrapper(
        output,
        encoding=None if found is None else found.encoding,
        errors=None if found is None else found.errors,
        line_buffering=os.isatty(1),
    )


@contextlib.contextmanager
def reader_watched(gone: Callable[[], object], *, output: int = 1) -> Iterator[None]:
    """Calls back, on the running loop and once, when nobody reads standard output any more. Only a pipe tells."""
    if not stat.S_ISFIFO(os.fstat(output).st_mode):
        yield
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(output)
        gone()

    # Nothing is ever read from the end that writes: what it reports is that the other one is closed.
    loop.add_reader(output, ended)
    try:
        yield
    finally:
        loop.remove_reader(output)


def discard_output() -> None:
    """Sends what standard output still holds, and all that follows, to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
