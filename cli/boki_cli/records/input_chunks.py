"""The bytes of a file or of standard input, in chunks, without blocking the event loop.

A pipe, a socket or a terminal hands out what is there as soon as it is there, so `tail -f x | boki append -` is live; what
is always ready (a regular file, /dev/null), which no event loop can wait for, is read by a thread, a large chunk at a time.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from boki_common import limits
from boki_common.errors import InvalidArgument

CHUNK_BYTES: Final = 1 * limits.MIB
STANDARD_INPUT: Final = "-"


def open_input(name: str) -> int:
    """Opens for reading; `-` is standard input. Returns a file descriptor. Raises InvalidArgument: no such file, a folder, not
    permitted, or standard input is closed."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise InvalidArgument("cannot read standard input: it is closed; give a file, or pipe something in")
        return sys.stdin.fileno()
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise InvalidArgument(f"cannot read {name}: {error.strerror}{_near(name)}") from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgument(f"cannot read {name}: it is a folder; give a file, or - for standard input")
    return descriptor


def size_of(descriptor: int) -> int | None:
    """Length in bytes of a regular file; None for what has no length."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def chunks(descriptor: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Chunks until the end of the input, or until `stop` is set."""
    mode = os.fstat(descriptor).st_mode
    live = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    read = _read_ready if live else _read_file
    while not stop.is_set():
        chunk = await read(descriptor, stop)
        if not chunk:
            return
        yield chunk


async def _read_file(descriptor: int, _: asyncio.Event) -> bytes:
    return await asyncio.to_thread(os.read, descriptor, CHUNK_BYTES)


async def _read_ready(descriptor: int, stop: asyncio.Event) -> bytes:
    """What a pipe or terminal has, once it has something; empty at its end and when `stop` is set first."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    waits = [asyncio.ensure_future(ready.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        for wait in waits:
            wait.cancel()
    return os.read(descriptor, CHUNK_BYTES) if ready.is_set() else b""


def _near(name: str) -> str:
    path = Path(name)
    if path.exists() or not path.parent.is_dir():
        return ""
    near = difflib.get_close_matches(path.name, sorted(os.listdir(path.parent)), n=1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
