"""One end of a simulated TCP connection: an asyncio transport over two one-way pipes.

    write → pipe (latency, order kept) → peer's inbox → peer's protocol

Rules, as a kernel has them:
- Bytes arrive in order, complete, once; or the connection ends. How they are cut into reads is the network's choice.
- What the peer has not read counts as sent up to `SOCKET_BYTES`; the rest is the write buffer that `pause_writing` is about.
- `close` sends what is buffered, then FIN. `abort` and a killed process drop the write buffer and send FIN or RST.
- A machine that lost its power says nothing: its connections are half open until somebody sends to it after its restart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from boki_common.runtime.ports import Buffer
from boki_sim.world.handles import SimHandle

if TYPE_CHECKING:
    from boki_sim.world.frames_seen import FramesSeen
    from boki_sim.world.links import Pipe
    from boki_sim.world.process import SimProcess

SOCKET_BYTES: Final = 256 * 1024
"""What the two kernels of a connection take before a write stays in the sender's buffer."""
HIGH_WATER_BYTES: Final = 64 * 1024
FIN: Final = bytes(bytearray(b"FIN"))
RST: Final = bytes(bytearray(b"RST"))
"""Marks in a pipe, distinguished from data by identity."""


class Carrier(Protocol):
    """The network, as an end of a connection sees it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def send(self, transport: SimTransport, piece: bytes) -> None:
        """Puts a piece on its way to the peer."""

    def took(self, transport: SimTransport, piece: bytes) -> None:
        """A protocol is given a piece."""

    def refuse(self, transport: SimTransport) -> None:
        """Something arrived at an end that is gone."""

    def ending(self) -> bytes:
        """How an abrupt end looks from the other side."""

    def forget(self, transport: SimTransport) -> None: ...


class SimTransport(asyncio.Transport):
    """See the module. `protocol` is set when the connection is established at this end."""

    def __init__(
        self, network: Carrier, process: SimProcess, out: Pipe, local: tuple[str, int], peer: tuple[str, int], path: str
    ) -> None:
        super().__init__({"sockname": path or local, "peername": "" if path else peer})
        self.process = process
        self.peer: SimTransport
        self.out = out
        self.name = f"{local[0]}>{peer[0]}"
        self.arrival = SimHandle(self.arrived, (), process.context)
        """What is done when a piece arrives here."""
        self.seen: FramesSeen | None = None
        self.step_of: Callable[[bytes], str] = lambda _: ""
        """Of a frame that `seen` saw arrive here, by its head."""
        self.dead = False
        """The connection does not exist at this end any more, whatever the peer thinks."""
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffered: asyncio.BufferedProtocol | None = None
        """The protocol, if it has a buffer of its own."""
        self._inbox: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._lost_reported = False
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._full = SOCKET_BYTES + HIGH_WATER_BYTES
        self._writing_paused = False

    # -- asyncio's transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            if self._inbox:
                self._network.loop.call_soon(self._read_inbox)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
        self._full = SOCKET_BYTES + self._high

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        excess = self.out.outstanding - SOCKET_BYTES
        return excess if excess > 0 else 0

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        if type(data) is not bytes:
            data = bytes(data)
        out = self.out
        if not data or self._closing or out.ended:
            return
        out.outstanding += len(data)
        self._network.send(self, data)
        if out.outstanding > self._full and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._end_output(FIN)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._end_output(FIN)
        if not self.get_write_buffer_size():
            self._report_lost(None)

    def abort(self) -> None:
        self._closing = True
        self.drop(self._network.ending())
        self._report_lost(None)

    # -- called by the network

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Established at this end; runs in its process."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if self.dead:  # reset before anybody could look
            self._network.loop.call_soon(
                protocol.connection_lost, ConnectionResetError(104, "Connection reset by peer")
            )
        elif self._inbox:
            self._network.loop.call_soon(self._read_inbox)

    def drop(self, mark: bytes) -> None:
        """Ends the output at once; what exceeds the kernels' buffers is gone."""
        out = self.out
        excess = out.outstanding - SOCKET_BYTES
        for at in range(len(out.flight) - 1, -1, -1):
            if excess <= 0 or out.ended:
                break
            excess -= len(out.flight[at])
            out.outstanding -= len(out.flight[at])
            out.flight[at] = b""
        self._end_output(mark)

    def arrived(self) -> None:
        """The next piece of the peer's pipe is here; runs in this end's process."""
        piece = self.peer.out.flight.popleft()
        if self.dead:
            self._network.refuse(self)
            return
        if not self._reading or self._inbox or self._protocol is None:
            self._inbox.append(piece)
        else:
            self._take(piece)

    def _read_inbox(self) -> None:
        while self._inbox and self._reading and not self.dead:
            self._take(self._inbox.popleft())

    def _take(self, piece: bytes) -> None:
        if piece is RST:
            self._closing = True
            self._report_lost(ConnectionResetError(104, "Connection reset by peer"))
        elif piece is FIN:
            self._take_end()
        elif piece:
            self._network.took(self, piece)
            peer = self.peer
            peer.out.outstanding -= len(piece)
            waits = peer._writing_paused or peer._closing
            if waits and not peer.dead and peer.get_write_buffer_size() <= peer._low:
                peer.process.call_soon(peer._room)
            if not self._closing:
                try:
                    self._feed(piece)
                except Exception as error:  # noqa: BLE001 - as asyncio's transports: the connection ends with it
                    self._defect(error)

    def _take_end(self) -> None:
        assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def _feed(self, piece: bytes) -> None:
        protocol = self._buffered
        if protocol is None:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(piece)
            return
        size = len(piece)
        buffer = protocol.get_buffer(-1)
        if type(buffer) is not memoryview:
            buffer = memoryview(buffer).cast("B")
        if len(buffer) < size:
            self._fill(protocol, buffer, piece)
        else:  # as a rule
            buffer[:size] = piece
            protocol.buffer_updated(size)

    def _defect(self, error: Exception) -> None:
        self._network.loop.call_exception_handler(
            {"message": "a protocol failed while it received", "exception": error, "protocol": self._protocol}
        )
        self._closing = True
        self.drop(RST)
        self._report_lost(error)

    def _fill(self, protocol: asyncio.BufferedProtocol, buffer: memoryview, piece: bytes) -> None:
        at, end = 0, len(piece)
        while at < end:
            count = min(len(buffer), end - at)
            buffer[:count] = piece[at : at + count]
            protocol.buffer_updated(count)
            at += count
            if at < end:
                if self._closing:
                    return
                if not self._reading:
                    self.peer.out.outstanding += end - at
                    self._inbox.appendleft(piece[at:])
                    return
                following = protocol.get_buffer(-1)
                buffer = following if type(following) is memoryview else memoryview(following).cast("B")

    def _room(self) -> None:
        if self.dead:
            return
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        if self._closing and not self.get_write_buffer_size():
            self._report_lost(None)

    def _end_output(self, mark: bytes) -> None:
        if not self.out.ended:
            self._network.send(self, mark)
            self.out.ended = True

    def _report_lost(self, error: Exception | None) -> None:
        if self._lost_reported:
            return
        self._lost_reported = True
        self._network.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.dead = True
        self._inbox.clear()
        if not self.out.ended:
            self.drop(RST)
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


class SimServer:
    """What `create_server` returns: as much of `asyncio.Server` as anybody uses."""

    def __init__(self, name: tuple[str, int], stop: Callable[[], None]) -> None:
        self._name = name
        self._stop = stop
        self._serving = True

    @property
    def sockets(self) -> tuple[SimServer, ...]:
        """Stands for the listening socket, of which people ask the name."""
        return (self,) if self._serving else ()

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        if self._serving:
            self._serving = False
            self._stop()

    async def wait_closed(self) -> None:
        """Connections are ended by their owners."""
