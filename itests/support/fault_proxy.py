"""A TCP proxy that misbehaves on demand, for tests between real processes.

    async with FaultProxy("127.0.0.1:3181") as proxy:      # peers connect to proxy.address instead
        proxy.delay(0.05)                                  # every byte arrives 50 ms later, in order
        proxy.throttle(100_000, direction=TO_CLIENT)       # bytes a second
        proxy.stall(direction=TO_TARGET)                   # bytes wait until `heal`: a partition, seen from one side
        proxy.half_open()                                  # bytes vanish while both ends believe in the connection
        proxy.reset()                                      # every connection ends with RST
        proxy.heal()                                       # as if nothing had been; what was half open is reset

What TCP promises stays true: bytes of one connection are never lost in the middle and then followed by others. A connection
that lost some is therefore reset by `heal`, as a peer's machine would after it came back.

Each direction of a connection holds at most `HELD_BYTES` on the way; more is left to the sender.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

TO_TARGET: Final = "to target"
TO_CLIENT: Final = "to client"
BOTH: Final = (TO_TARGET, TO_CLIENT)
HELD_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_LINGER_RESET: Final = struct.pack("ii", 1, 0)


@dataclass
class _Faults:
    """What happens to bytes of one direction."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    stalled: bool = False
    half_open: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, **values: float | bool | None) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.changed.set()
        self.changed = asyncio.Event()


class FaultProxy:
    """See the module. One target; port 0 of its own, see `address`."""

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.accepted = 0
        self._listen = host, port
        self._faults = {direction: _Faults() for direction in BOTH}
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._refusing = False

    @property
    def address(self) -> str:
        """host:port where it listens."""
        return f"{self._listen[0]}:{self._listen[1]}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, *self._listen)
        self._listen = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        while self._connections:
            await asyncio.wait([one.task for one in self._connections])
        await self._server.wait_closed()

    # -- faults

    def delay(self, seconds: float, *, direction: str | None = None) -> None:
        self._change(direction, delay_s=seconds)

    def throttle(self, bytes_per_s: float, *, direction: str | None = None) -> None:
        self._change(direction, bytes_per_s=bytes_per_s)

    def stall(self, *, direction: str | None = None) -> None:
        self._change(direction, stalled=True)

    def half_open(self, *, direction: str | None = None) -> None:
        self._change(direction, half_open=True)

    def refuse(self) -> None:
        """New connections are reset at once."""
        self._refusing = True

    def reset(self) -> None:
        """Ends every connection with RST, to both sides."""
        for connection in list(self._connections):
            connection.reset()

    def heal(self) -> None:
        """Ends all faults; connections that lost bytes are reset."""
        self._refusing = False
        for connection in list(self._connections):
            if connection.lost_bytes:
                connection.reset()
        self._change(None, delay_s=0.0, bytes_per_s=None, stalled=False, half_open=False)

    def _change(self, direction: str | None, **values: float | bool | None) -> None:
        for one in BOTH if direction is None else (direction,):
            self._faults[one].change(**values)

    # -- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            _reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(task, reader, writer)
        self._connections[connection] = None
        try:
            await connection.run(self.target, self._faults)
        except* OSError:
            pass  # its end is the test's wish, or a peer's
        except* asyncio.CancelledError:
            pass
        finally:
            connection.abort()
            del self._connections[connection]


class _Connection:
    """A client's connection and the one to the target that goes with it."""

    def __init__(self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.task = task
        self.lost_bytes = 0
        self._client = reader, writer
        self._writers = [writer]

    async def run(self, target: str, faults: dict[str, _Faults]) -> None:
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        client_reader, client_writer = self._client
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(client_reader, writer, faults[TO_TARGET]))
            group.create_task(self._pump(reader, client_writer, faults[TO_CLIENT]))

    def reset(self) -> None:
        for writer in self._writers:
            _reset(writer)
        self.task.cancel()

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: _Faults) -> None:
        """One direction: what is read is due after the delay; what is due is written at the throttle's pace."""
        held = _Held()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fill(reader, held, faults))
            group.create_task(self._drain(held, writer, faults))

    async def _fill(self, reader: asyncio.StreamReader, held: _Held, faults: _Faults) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await reader.read(_CHUNK_BYTES):
            if faults.half_open:
                self.lost_bytes += len(chunk)
                continue
            await held.put(loop.time() + faults.delay_s, chunk)
        await held.put(loop.time() + faults.delay_s, b"")

    async def _drain(self, held: _Held, writer: asyncio.StreamWriter, faults: _Faults) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await held.take()
            await asyncio.sleep(due - loop.time())
            while faults.stalled:
                await faults.changed.wait()
            if faults.half_open or self.lost_bytes:
                self.lost_bytes += len(chunk)
                continue
            if writer.transport.is_closing():
                raise ConnectionResetError("the other side is gone")
            if not chunk:
                writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()
            if faults.bytes_per_s is not None:
                await asyncio.sleep(len(chunk) / faults.bytes_per_s)


class _Held:
    """Chunks on the way, bounded by bytes."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._moved = asyncio.Event()

    async def put(self, due: float, chunk: bytes) -> None:
        while self._bytes > HELD_BYTES:
            await self._moved.wait()
        self._chunks.append((due, chunk))
        self._bytes += len(chunk)
        self._tell()

    async def take(self) -> tuple[float, bytes]:
        while not self._chunks:
            await self._moved.wait()
        due, chunk = self._chunks.popleft()
        self._bytes -= len(chunk)
        self._tell()
        return due, chunk

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN."""
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    writer.transport.abort()
