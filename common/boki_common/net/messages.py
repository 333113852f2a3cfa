"""Requests, answers and pushes of our own protocols (engine, sequencer) on frames, both ends alike.

    offset  size  field, little endian (after the frame's length)
    0       1     version, 1
    1       1     opcode; 255 = ERROR, whose body is `errors.to_wire`
    2       2     flags: 1 = answer
    4       4     request id; 0 = a push, which has no answer
    8       4     crc32c of bytes 0-7 and the body
    12      n     body, as the opcode says

Requests are pipelined: answers come in any order and find their request by its id. A message whose checksum, version or
length is wrong ends the connection with a ProtocolError on the side that saw it. One message carries a batch, so the few
objects made here are per batch and never per record.

A client whose connection is silent says, a few times in `limits.CONNECTION_IDLE_S`, that it is still there: an answer to a request
that nobody made, which every version drops. Servers close connections over which nobody says anything (`doorkeeper`).

A protocol whose messages carry several requests, or several answers, has ids from `expect` and hands in what came by
`take_answers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, Protocol

import crc32c as _crc32c

from boki_common import errors, limits
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    RemoteError,
    Unauthenticated,
    VersionMismatch,
)
from boki_common.logs import get_logger
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.net.strangers import BEFORE_HELLO, StrangerLimits
from boki_common.runtime.ports import Buffer

VERSION: Final = 1
OP_ERROR: Final = 255
FLAG_ANSWER: Final = 1

_LENGTH: Final = Struct(">I")
_HEAD: Final = Struct("<BBHI")
_START: Final = Struct("<4s8sI")
"""Frame length, head and checksum."""
_WHOLE_HEAD: Final = Struct("<BBHII")
"""Head and checksum, as they are read."""
_HEAD_BYTES: Final = _WHOLE_HEAD.size
_JOINED_BYTES: Final = 4_096
"""Up to which size a message leaves as one buffer: to copy so little is cheaper than to send pieces."""

_NOBODYS_REQUEST: Final = 0xFFFF_FFFF
"""The last of all ids, which no connection gets to."""
STILL_HERE_S: Final = limits.CONNECTION_IDLE_S / 4

_checksum = _crc32c.crc32c
_PUSH_HEADS: Final = tuple((head, _checksum(head)) for head in (_HEAD.pack(VERSION, code, 0, 0) for code in range(256)))
"""By opcode, bytes 0-7 of a push and their checksum: pushes are most messages, and differ in nothing else."""
_log = get_logger("net.messages")


class MessageHandler(Protocol):
    """Who answers one peer."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        """One request, or one push when `request_id` is 0. The body view stays valid for ever.

        A BokiError raised here is sent as the answer; a ProtocolError or Unauthenticated also ends the connection.
        """

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """The connection ended; None when this side closed it. Unanswered requests have failed already."""


def encode(opcode: int, flags: int, request_id: int, body: Sequence[Buffer]) -> list[Buffer]:
    """One whole message as buffers, its frame length included; a large `body` is not copied."""
    if request_id or flags:
        head = _HEAD.pack(VERSION, opcode, flags, request_id)
        crc = _checksum(head)
    else:
        head, crc = _PUSH_HEADS[opcode]
    size = _HEAD_BYTES
    for part in body:
        crc = _checksum(part, crc)
        size += len(part)
    start = _START.pack(_LENGTH.pack(size), head, crc)
    return [b"".join((start, *body))] if size <= _JOINED_BYTES else [start, *body]


def decode(frame: memoryview) -> tuple[int, int, int, memoryview]:
    """Splits a frame into (opcode, flags, request id, body). Raises ProtocolError: too short, or the checksum does not match;
    VersionMismatch: another version."""
    try:
        version, opcode, flags, request_id, expected = _WHOLE_HEAD.unpack_from(frame)
    except StructError:
        raise ProtocolError(
            f"expected a message of at least {_HEAD_BYTES} bytes, found {len(frame)}", found=len(frame)
        ) from None
    if version != VERSION:
        raise VersionMismatch(
            f"expected message version {VERSION}, found {version}: one side must be upgraded, or is not Boki",
            expected=VERSION,
            found=version,
        )
    body = frame[_HEAD_BYTES:]
    found = _checksum(body, _checksum(frame[: _HEAD.size]) if request_id or flags else _PUSH_HEADS[opcode][1])
    if found != expected:
        raise ProtocolError(
            f"a message of {len(frame)} bytes (opcode {opcode}) has checksum {found:#010x}, expected {expected:#010x}",
            expected=expected,
            found=found,
        )
    return opcode, flags, request_id, body


class MessagePeer:
    """One end of a connection that carries messages. Both ends may request and push."""

    def __init__(self, connection: FrameConnection) -> None:
        self.handler: MessageHandler
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._still_here: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> str:
        """The other end's address."""
        return self.connection.peer

    @property
    def closed(self) -> bool:
        return self.connection.closed

    @property
    def unsent_bytes(self) -> int:
        return self.connection.unsent_bytes

    def request(self, opcode: int, *body: Buffer) -> asyncio.Future[memoryview]:
        """Sends a request; the future gets the answer's body, the peer's error, or ConnectionLost. Raises ConnectionLost: the
        connection has ended already; Overloaded: too many unanswered requests."""
        number, future = self.expect()
        self.connection.send(*encode(opcode, 0, number, body))
        return future

    def request_now(self, opcode: int, *body: Buffer) -> asyncio.Future[memoryview]:
        """`request`, written at once: for who has collected what a turn of the loop brought."""
        number, future = self.expect()
        self.send_all([(opcode, number, body)])
        return future

    def expect(self) -> tuple[int, asyncio.Future[memoryview]]:
        """The id of a request that the caller sends later, by itself or inside of a message of his own, and the future of its
        answer. Raises as `request`."""
        if self.connection.closed:
            raise ConnectionLost(f"the connection to {self.peer} is closed", peer=self.peer)
        if len(self._waiting) >= limits.CONNECTION_CALLS:
            raise Overloaded(f"{len(self._waiting)} requests to {self.peer} are unanswered", found=len(self._waiting))
        self._last_id = number = self._last_id % 0xFFFF_FFFF + 1
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting[number] = future
        return number, future

    def send_all(self, messages: Iterable[tuple[int, int, Sequence[Buffer]]]) -> None:
        """Sends messages, written at once: opcode, the id of a request that `expect` gave or 0 for a push, body."""
        buffers: list[Buffer] = []
        for opcode, number, body in messages:
            buffers += encode(opcode, 0, number, body)
        self.connection.send_now(buffers)

    def take_answers(self, answers: Iterable[tuple[int, memoryview]]) -> None:
        """Answers to requests came inside of a message of the caller's: by request id."""
        waiting = self._waiting
        for number, body in answers:
            future = waiting.pop(number, None)
            if future is not None and not future.done():  # else its caller gave up
                future.set_result(body)

    async def call(self, opcode: int, *body: Buffer, timeout_s: float = limits.CALL_TIMEOUT_S) -> memoryview:
        """Sends a request and waits for its answer. Raises CallTimeout too."""
        future = self.request(opcode, *body)
        number = self._last_id
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise CallTimeout(
                f"{self.peer} did not answer opcode {opcode} within {timeout_s} s", peer=self.peer, opcode=opcode
            ) from error
        finally:
            self._waiting.pop(number, None)

    def push(self, opcode: int, *body: Buffer) -> None:
        """Sends a message that has no answer. Ignored after the end of the connection."""
        self.connection.send(*encode(opcode, 0, 0, body))

    def push_now(self, opcode: int, *body: Buffer) -> None:
        """`push`, written at once: for who has collected what a turn of the loop brought."""
        self.connection.send_now(encode(opcode, 0, 0, body))

    def send_encoded(self, buffers: list[Buffer]) -> None:
        """Sends a push that was encoded once for many peers."""
        self.connection.send(*buffers)

    def respond(self, request_id: int, opcode: int, *body: Buffer) -> None:
        """Answers a request."""
        self.connection.send(*encode(opcode, FLAG_ANSWER, request_id, body))

    def respond_error(self, request_id: int, error: BaseException) -> None:
        """Answers a request with an error."""
        self.connection.send(*encode(OP_ERROR, FLAG_ANSWER, request_id, (errors.to_wire(error),)))

    async def drain(self) -> None:
        await self.connection.drain()

    def close(self) -> None:
        self.connection.close()

    def introduced(self) -> None:
        """The handler accepted the peer's HELLO: to be called by every server's, else the connection ends soon."""
        self.connection.introduced()

    def stay(self, every_s: float = STILL_HERE_S) -> None:
        """From now on sends a keep-alive whenever nothing was sent for `every_s`, up to twice that long."""
        if self._still_here is not None:
            self._still_here.cancel()
        if not self.connection.closed:
            if not self.connection.active:
                self.connection.send(*encode(0, FLAG_ANSWER, _NOBODYS_REQUEST, ()))
            self._still_here = self._loop.call_later(every_s, self._look, every_s)

    def _look(self, every_s: float) -> None:
        self.stay(every_s)
        self.connection.active = False

    # -- FrameHandler

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            opcode, flags, number, body = decode(frame)
            if flags & FLAG_ANSWER:
                if self.connection.is_stranger and number != _NOBODYS_REQUEST:
                    raise ProtocolError(
                        f"expected HELLO first, found an answer (opcode {opcode}) to no request", found=opcode
                    )
                self._answered(number, opcode, body)
                continue
            try:
                self.handler.message_received(self, opcode, number, body)
            except Exception as error:  # noqa: BLE001 - one peer's request must not end the server for all others
                self._failed(number, opcode, error)

    def connection_lost(self, error: BokiError | None) -> None:
        if self._still_here is not None:
            self._still_here.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    ConnectionLost(f"the connection to {self.peer} ended before the answer came", peer=self.peer)
                )
                future.exception()  # whoever still waits gets it; nobody is warned about those who gave up
        self.handler.peer_lost(self, error)

    def _answered(self, number: int, opcode: int, body: memoryview) -> None:
        if number == 0:  # the peer refuses a push of ours: there is no caller to get it, so the connection ends with it
            if opcode != OP_ERROR:
                raise ProtocolError("expected a request id in an answer, found 0")
            self.connection.abort(errors.from_wire(body))
            return
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return  # its caller gave up
        if opcode == OP_ERROR:
            future.set_exception(errors.from_wire(body))
        else:
            future.set_result(body)

    def _failed(self, number: int, opcode: int, error: Exception) -> None:
        """Answers a request, or a push, that the handler refused."""
        if isinstance(error, BokiError):
            self.respond_error(number, error)
            if isinstance(error, ProtocolError | Unauthenticated):
                self.connection.close()
        else:
            _log.error("a request failed inside", peer=self.peer, opcode=opcode, error=repr(error), exc_info=error)
            self.respond_error(number, RemoteError(f"internal error: {error!r}"))


MakeMessageHandler = Callable[[MessagePeer], MessageHandler]


async def connect_messages(
    address: Address, handler: MessageHandler, *, timeout_s: float = limits.CONNECT_TIMEOUT_S
) -> MessagePeer:
    """Connects to a server that speaks messages. Raises Unreachable."""
    peers: list[MessagePeer] = []

    def made(connection: FrameConnection) -> MessagePeer:
        peer = MessagePeer(connection)
        peer.handler = handler
        peers.append(peer)
        return peer

    connection = await connect(address, made, timeout_s=timeout_s)
    peer = next(peer for peer in peers if peer.connection is connection)
    peer.stay()
    return peer


async def serve_messages(
    address: Address, make_handler: MakeMessageHandler, *, strangers: StrangerLimits = BEFORE_HELLO
) -> FrameServer:
    """Listens on `address`; handlers call `MessagePeer.introduced`. Raises SettingsError when it cannot."""

    def made(connection: FrameConnection) -> MessagePeer:
        peer = MessagePeer(connection)
        peer.handler = make_handler(peer)
        return peer

    return await FrameServer.start(address, made, strangers=strangers)
