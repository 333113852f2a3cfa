"""What this machine can do without Boki, measured in the same run: the ruler beside every figure.

    fdatasync   one 4 KiB write and fdatasync on a file whose blocks were written before (a journal segment is like that)
    echo        one frame to another process and back over a Unix socket: bare uvloop, BufferedProtocol, no Boki code

`python -m benchmarks.yardsticks SOCKET` is the other process of the echo.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import struct
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks import child

BLOCK_BYTES: Final = 4096
FILE_BYTES: Final = 8 * 1024 * 1024
ECHO_BYTES: Final = 1024
_LENGTH: Final = struct.Struct(">I")


def fdatasync_us(directory: Path, *, count: int = 300) -> float:
    """Median time in µs of one 4 KiB write with fdatasync, one after another."""
    path = directory / "yardstick"
    if not path.exists():
        path.write_bytes(b"\1" * FILE_BYTES)
    block = os.urandom(BLOCK_BYTES)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.fsync(descriptor)
        taken = []
        for number in range(count):
            started = perf_counter()
            os.pwrite(descriptor, block, number * BLOCK_BYTES % FILE_BYTES)
            os.fdatasync(descriptor)
            taken.append(perf_counter() - started)
    finally:
        os.close(descriptor)
    return statistics.median(taken) * 1e6


class _Frames(asyncio.BufferedProtocol):
    """Splits a stream into frames of one length prefix each."""

    def __init__(self) -> None:
        self._buffer = bytearray(256 * 1024)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        at = 0
        while self._filled - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            end = at + _LENGTH.size + length
            if end > self._filled:
                break
            self.frame_received(self._view[at:end])
            at = end
        if at:
            self._buffer[: self._filled - at] = self._buffer[at : self._filled]
            self._filled -= at

    def frame_received(self, frame: memoryview) -> None:
        raise NotImplementedError


class _Echo(_Frames):
    def frame_received(self, frame: memoryview) -> None:
        self.transport.write(bytes(frame))


class _EchoClient(_Frames):
    """Sends the next frame when the last one came back."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.taken: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count = count
        self._frame = _LENGTH.pack(ECHO_BYTES) + os.urandom(ECHO_BYTES)
        self._started = 0.0

    def ask(self) -> None:
        self._started = perf_counter()
        self.transport.write(self._frame)

    def frame_received(self, frame: memoryview) -> None:
        self.taken.append(perf_counter() - self._started)
        if len(self.taken) < self._count:
            self.ask()
        elif not self.done.done():
            self.done.set_result(None)


def echo_server(socket: Path) -> AbstractContextManager[int]:
    """The other process, for as long as the block lasts."""
    return child.running("benchmarks.yardsticks", str(socket))


async def echo_us(socket: Path, *, count: int = 2000) -> float:
    """Median time in µs from sending a frame of 1 KiB until it is back."""
    loop = asyncio.get_running_loop()
    transport, requester = await loop.create_unix_connection(lambda: _EchoClient(count), str(socket))
    try:
        requester.ask()
        await requester.done
    finally:
        transport.close()
    return statistics.median(requester.taken) * 1e6


if __name__ == "__main__":
    import uvloop

    uvloop.run(child.serve(_Echo, Path(sys.argv[1])))
