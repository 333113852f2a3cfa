"""Connections that carry frames, over TCP or Unix sockets: connect, serve, send, receive. Between processes of one machine
a loopback port has a `shortcut`, which is used without being asked for.

Data walks in whole reads: all complete frames of one read reach the handler in one call, and everything that was sent
during one turn of the event loop leaves in one write. Nothing here knows what a frame means.

A server keeps a peer short until its handler calls `introduced` (`strangers`), and closes what is silent for long (`doorkeeper`).

Back-pressure: `unsent_bytes` counts what the peer has not taken; `drain` waits while the transport asks to pause. Who
must not wait (pushes, acks) looks at `unsent_bytes` and decides.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, cast

from boki_common import limits
from boki_common.errors import (
    BokiError,
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    SettingsError,
    Unreachable,
)
from boki_common.logs import get_logger
from boki_common.net import shortcut
from boki_common.net.doorkeeper import Doorkeeper
from boki_common.net.frames import FrameParser, FrameTooLong
from boki_common.net.names import connect_by_name
from boki_common.net.strangers import BEFORE_HELLO, StrangerLimits
from boki_common.runtime.ports import Buffer

EARLY_WRITE_BYTES: Final = 32 * limits.KIB
"""With so much queued there is nothing to win by waiting for the end of the turn."""
UNIX_BUFFER_BYTES: Final = 4 * limits.MIB
"""Asked for on Unix sockets, whose default does not hold one large frame and does not grow; the system may give less."""
_PROBES: Final = 3
"""So many in a row that are not answered end a connection."""

_log = get_logger("net")


class Address(NamedTuple):
    """Where a server listens: a host and port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads `tcp://host:port`, `host:port`, `[v6]:port` or `unix:///path`. Raises InvalidArgument."""
        if text.startswith("unix://"):
            path = text.removeprefix("unix://")
            if not path.startswith("/"):
                raise InvalidArgument(f"expected unix:///absolute/path, found {text!r}", found=text)
            return cls("", 0, path)
        host, separator, port = text.removeprefix("tcp://").rpartition(":")
        if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise InvalidArgument(f"expected host:port or unix:///path, found {text!r}", found=text)
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class FrameHandler(Protocol):
    """Who receives the frames of one connection."""

    def frames_received(self, frames: list[memoryview]) -> None:
        """All frames that one read completed, without their lengths, in order. Views stay valid for ever.

        A ProtocolError raised here ends the connection.
        """

    def connection_lost(self, error: BokiError | None) -> None:
        """The connection ended; called once. `error` is None when this side closed."""


class FrameConnection(asyncio.BufferedProtocol):
    """One connection. The handler is set by `connect` and `FrameServer` before any frame arrives."""

    handler: FrameHandler

    def __init__(self, *, frame_bytes_limit: int = limits.FRAME_BYTES) -> None:
        self.closed = False
        self.paused = False
        """Whether the transport has more to send than it likes: only then `unsent_bytes` can be above 64 KiB and what is
        queued for the end of the turn."""
        self.peer = "unconnected"
        self.active = True
        """Something was received or sent; a server resets it."""
        self._frame_bytes_limit = frame_bytes_limit
        self._parser = FrameParser(limit=frame_bytes_limit)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._queue: list[Buffer] = []
        self._queued_bytes = 0
        self._resumed: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._error: BokiError | None = None
        self._doorkeeper: Doorkeeper[FrameConnection] | None = None
        """Of the server, at its end."""
        self.is_stranger = False
        """At a server's end: not `introduced` yet."""
        self._give_up: asyncio.TimerHandle | None = None

    def introduced(self) -> None:
        """The handler knows who this is: from now on the peer has the limits of a guest. Idempotent, and nothing at a client's end."""
        if self.is_stranger:
            self.is_stranger = False
            self._parser.trust(self._frame_bytes_limit)
            if self._doorkeeper is not None:
                self._doorkeeper.introduced(self)

    # -- sending

    def send(self, *buffers: Buffer) -> None:
        """Queues whole frames (their lengths included) for the end of this turn of the loop. Ignored after the end."""
        if self.closed:
            return
        queue = self._queue
        if not queue:
            self._loop.call_soon(self._flush)
        queue += buffers
        for buffer in buffers:
            self._queued_bytes += len(buffer)
        if self._queued_bytes >= EARLY_WRITE_BYTES:
            self._flush()

    def send_now(self, buffers: Sequence[Buffer]) -> None:
        """`send`, written at once: for who has collected what a turn of the loop brought."""
        if self.closed:
            return
        if self._queue or self._transport is None:
            self.send(*buffers)
            self._flush()
        else:
            self.active = True
            self._transport.writelines(buffers)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the operating system has not taken yet."""
        if self._transport is None or self.closed:
            return 0
        return self._queued_bytes + self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Waits while the peer is slower than we send. Raises ConnectionLost."""
        if not self.closed and self.paused:
            if self._resumed is None:
                self._resumed = self._loop.create_future()
            await asyncio.shield(self._resumed)
        if self.closed:
            if self._error is not None:
                raise self._error.again()
            raise ConnectionLost(f"the connection to {self.peer} is closed", peer=self.peer)

    def pause_reading(self) -> None:
        """Takes no more from the peer, who slows down, until `resume_reading`; what was read already still arrives."""
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()

    async def ended(self) -> None:
        """Waits until the connection has ended and its handler was called."""
        await asyncio.shield(self._ended)

    def close(self) -> None:
        """Sends what is queued, then ends the connection; the handler gets `connection_lost(None)`. A peer that does not take it
        within `limits.CALL_TIMEOUT_S` gets no more."""
        if self.closed:
            return
        self._flush()
        if self._transport is not None:
            if self._give_up is None and self._transport.get_write_buffer_size():
                self._give_up = self._loop.call_later(limits.CALL_TIMEOUT_S, self._transport.abort)
            self._transport.close()

    def abort(self, error: BokiError) -> None:
        """Ends the connection at once; the handler gets `error`."""
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._queue and self._transport is not None and not self.closed:
            queue, self._queue, self._queued_bytes = self._queue, [], 0
            self.active = True
            self._transport.writelines(queue)

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_BUFFER_BYTES)
        elif sock is not None:
            _keep_watch(sock)
        self.peer = _peer_name(transport)
        if self._doorkeeper is not None:
            self._doorkeeper.came(self)
            if not self.is_stranger:  # its handler asks for no introduction
                self._doorkeeper.introduced(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.free or self._renew()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        try:
            frames = self._parser.received(nbytes)
            if frames and not self.closed and self._error is None:
                self.handler.frames_received(frames)
        except FrameTooLong as error:
            self._too_long(error)
        except ProtocolError as error:
            self.abort(error)

    def _renew(self) -> memoryview:
        free = self._parser.renew()
        if self.is_stranger and self._doorkeeper is not None:
            self._doorkeeper.may_hold(self, self._parser.size)
        return free

    def _too_long(self, error: FrameTooLong) -> None:
        """What came before it is handled; a HELLO among it makes longer frames right."""
        if self.closed or self._error is not None:
            self._parser.discard()
            return
        try:
            if error.frames:
                self.handler.frames_received(error.frames)
                frames = self._parser.received(0)
                if frames and self._error is None:
                    self.handler.frames_received(frames)
                return
        except ProtocolError as other:
            self.abort(other)
            return
        if self.is_stranger and self._transport is not None and self._transport.can_write_eof():
            self._error = error  # a reset would discard what the peer has not read yet: the stranger time-out ends this
            self._transport.write_eof()
            self._parser.discard()
        else:
            self.abort(error)

    def rest(self) -> None:
        """Nothing was sent or received for a while: its memory is given back."""
        self._parser.rest()

    def eof_received(self) -> bool:
        if self._parser.incomplete_bytes and self._error is None:
            self._error = ConnectionLost(
                f"{self.peer} closed in the middle of a frame ({self._parser.incomplete_bytes} bytes of it came)",
                peer=self.peer,
            )
        elif self._error is None:
            self._error = ConnectionLost(f"{self.peer} closed the connection", peer=self.peer)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error
        if error is None and exc is not None:
            error = ConnectionLost(f"the connection to {self.peer} broke: {exc}", peer=self.peer)
        self._error = error
        self.closed = True
        if self._give_up is not None:
            self._give_up.cancel()
        self._parser.release()  # an ended connection lives in cycles until the collector comes by, which may take hours
        self._queue.clear()
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        if self._doorkeeper is not None:
            self._doorkeeper.lost(self)
        self._ended.set_result(None)
        self.handler.connection_lost(error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None


def _keep_watch(sock: socket.socket) -> None:
    """Has the kernel ask a silent TCP peer now and then, and end the connection when it does not answer, nor take what it is sent,
    for `limits.CONNECTION_VANISHED_S`."""
    vanished_s = limits.CONNECTION_VANISHED_S
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", vanished_s // 2),
        ("TCP_KEEPINTVL", vanished_s // 2 // _PROBES),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", vanished_s * 1_000),
    ):
        option = getattr(socket, name, None)  # a system without the option uses its own time-out
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _peer_name(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername") or transport.get_extra_info("sockname")
    if isinstance(name, tuple):
        return str(Address(str(name[0]), int(name[1])))
    return f"unix://{name}" if name else "a local peer"


MakeHandler = Callable[[FrameConnection], FrameHandler]


async def connect(
    address: Address,
    make_handler: MakeHandler,
    *,
    timeout_s: float = limits.CONNECT_TIMEOUT_S,
    frame_bytes_limit: int = limits.FRAME_BYTES,
) -> FrameConnection:
    """Connects to a server. Raises Unreachable: refused, no such host or socket, or no answer within `timeout_s`. Nothing was
    sent."""
    loop = asyncio.get_running_loop()

    def made() -> FrameConnection:
        connection = FrameConnection(frame_bytes_limit=frame_bytes_limit)
        connection.handler = make_handler(connection)
        return connection

    try:
        async with asyncio.timeout(timeout_s):
            if address.path:
                _, connection = await loop.create_unix_connection(made, address.path)
            elif shortcut.exists_for(address.host) and (local := shortcut.connect(address.host, address.port)):
                _, connection = await loop.create_unix_connection(made, sock=local)
                connection.peer = str(address)
            else:
                connection = await connect_by_name(made, address.host, address.port)
    except TimeoutError as error:
        raise Unreachable(f"no answer from {address} within {timeout_s} s; is it up?", address=str(address)) from error
    except OSError as error:
        raise Unreachable(f"cannot connect to {address}: {error}; is it up?", address=str(address)) from error
    return connection


class Nobody:
    """The handler of who connects only to see that somebody listens."""

    def frames_received(self, frames: list[memoryview]) -> None: ...

    def connection_lost(self, error: BokiError | None) -> None: ...


class FrameServer:
    """Listens and makes a handler for each connection. Use `start`."""

    def __init__(
        self, address: Address, servers: list[asyncio.Server], doorkeeper: Doorkeeper[FrameConnection]
    ) -> None:
        self.address = address
        self._servers = servers
        self._doorkeeper = doorkeeper

    @classmethod
    async def start(
        cls,
        address: Address,
        make_handler: MakeHandler,
        *,
        frame_bytes_limit: int = limits.FRAME_BYTES,
        connections_limit: int = limits.CONNECTIONS,
        strangers: StrangerLimits = BEFORE_HELLO,
        idle_s: float = limits.CONNECTION_IDLE_S,
    ) -> FrameServer:
        """Listens on `address`; port 0 takes a free one, see `.address`.

        Args:
            connections_limit: with so many peers connected, one more is dropped at once: its handler gets Overloaded.
            strangers: what a peer is allowed until its handler calls `FrameConnection.introduced`.
            idle_s: after so long without a word of either side a connection is closed.

        Raises:
            SettingsError: the address is in use, not ours, or not permitted.
        """
        loop = asyncio.get_running_loop()
        doorkeeper: Doorkeeper[FrameConnection] = Doorkeeper(
            connections=connections_limit, strangers=strangers, idle_s=idle_s
        )

        def made() -> FrameConnection:
            connection = FrameConnection(frame_bytes_limit=frame_bytes_limit)
            connection._doorkeeper = doorkeeper
            connection.is_stranger = True
            connection._parser.restrict(min(strangers.frame_bytes, frame_bytes_limit))
            connection.handler = make_handler(connection)
            if strangers.first_frame_introduces:
                connection.handler = _UntilFirstFrame(connection, connection.handler)
            return connection

        try:
            if address.path:
                await _refuse_live_socket(address)
                server = await loop.create_unix_server(made, address.path, backlog=limits.CONNECTION_BACKLOG)
                doorkeeper.address = str(address)
                return cls(address, [server], doorkeeper)
            server = await loop.create_server(made, address.host, address.port, backlog=limits.CONNECTION_BACKLOG)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        address = address._replace(port=server.sockets[0].getsockname()[1])
        doorkeeper.address = str(address)
        servers = [server]
        if shortcut.exists_for(address.host) and (local := _shortcut_beside(address)) is not None:
            servers.append(await loop.create_unix_server(made, sock=local, backlog=limits.CONNECTION_BACKLOG))
        return cls(address, servers, doorkeeper)

    async def close(self) -> None:
        """Stops listening and ends all connections, also those that were accepted and not made yet. Idempotent.

        A close that is cancelled waits for no connection; nothing listens after it either.
        """
        self._doorkeeper.close()
        try:
            await self._stop_accepting()
        finally:
            for server in self._servers:
                server.close()
            for connection in self._connections():
                connection.close()
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
                for connection in self._connections():
                    await connection.ended()
        except TimeoutError:
            for connection in self._connections():  # a peer that does not take what was sent
                connection.abort(ConnectionLost(f"{self.address} was closed", peer=connection.peer))
                await connection.ended()
        for server in self._servers:
            await server.wait_closed()

    async def _stop_accepting(self) -> None:
        """asyncio accepts in one turn of the loop and makes the transport in the next one. If the server is closed between the two,
        it drops the transport without closing it, and the peer waits until the garbage collector comes by."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.SelectorEventLoop):
            for server in self._servers:
                for listening in server.sockets:
                    loop.remove_reader(listening.fileno())
            await asyncio.sleep(0)

    def _connections(self) -> list[FrameConnection]:
        return list(self._doorkeeper.guests)


class _UntilFirstFrame:
    """Handler of a stranger where there is no HELLO: the first whole frame introduces it, and has its own handler take over."""

    def __init__(self, connection: FrameConnection, handler: FrameHandler) -> None:
        self._connection = connection
        self._handler = handler

    def frames_received(self, frames: list[memoryview]) -> None:
        self._connection.introduced()
        self._connection.handler = self._handler
        self._handler.frames_received(frames)

    def connection_lost(self, error: BokiError | None) -> None:
        self._handler.connection_lost(error)


async def check_free(address: Address) -> None:
    """Check that a server could listen at an address now. Nothing listens there afterwards; a port 0, which takes a free one, is free.

    Raises:
        SettingsError: as `FrameServer.start`.
    """
    try:
        if address.path:
            await _refuse_live_socket(address)
        elif address.port:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(asyncio.Protocol, address.host, address.port, start_serving=False)
            server.close()
            await server.wait_closed()
    except OSError as error:
        raise _cannot_listen(address, error) from error


async def _refuse_live_socket(address: Address) -> None:
    """asyncio replaces an existing socket file without asking: make sure that nobody serves it."""

    try:
        connection = await connect(address, lambda _: Nobody(), timeout_s=limits.CONNECT_TIMEOUT_S)
    except Unreachable:
        return
    connection.close()
    await connection.ended()
    raise OSError(errno.EADDRINUSE, "another process serves this socket")


def _shortcut_beside(address: Address) -> socket.socket | None:
    """The shortcut of a port that is ours; None when somebody else has its name: who connects finds that out, and takes the port."""
    try:
        return shortcut.listen(address.host, address.port, backlog=limits.CONNECTION_BACKLOG)
    except OSError as error:
        _log.warning("serves the port only: another process has the name of its shortcut", address=address, error=error)
        return None


def _cannot_listen(address: Address, error: OSError) -> SettingsError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = {
        errno.EADDRINUSE: "another process listens there: stop it, or choose another port (0 takes a free one)",
        errno.EADDRNOTAVAIL: "this machine has no such address: choose one of its own, such as 127.0.0.1",
        errno.EACCES: "it is not permitted: choose a port above 1023 or a folder of your own",
    }.get(error.errno or 0, "choose another address")
    return SettingsError(f"cannot listen on {address}: {reason}; {remedy}", address=str(address), errno=error.errno)
