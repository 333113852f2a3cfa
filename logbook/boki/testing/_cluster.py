"""MemoryCluster: a model, an engine around it, and connections that are no sockets.

The engine lives in the event loop that opened the cluster. Clients of other loops (`boki.sync` has its own) reach it by
its memory:// URL; messages cross with `call_soon_threadsafe`, so the model is only ever touched by its own loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final

from boki._client import Client, connect
from boki._dial import EngineHandler, local_clusters
from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_common import errors
from boki_common.errors import BokiError, ClosedError, ConnectionLost, ProtocolError, Unreachable
from boki_common.runtime.ports import Buffer, Clock
from boki_common.runtime.process import SystemClock

_numbers: Final = itertools.count(1)


class MemoryCluster:
    """A cluster in memory. `async with` opens and closes it.

    Attributes:
        url: for `boki.connect` and `boki.sync.connect`, anywhere in this process while the cluster is open.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._name = f"cluster-{next(_numbers)}"
        self.url: Final = f"memory://{self._name}"
        self._clock = clock or SystemClock()
        self._engine: ModelEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: list[_SdkEnd] = []
        self._clients: list[Client] = []

    async def __aenter__(self) -> MemoryCluster:
        if self._loop is not None:
            raise ClosedError("this MemoryCluster was opened before; make a new one")
        self._loop = asyncio.get_running_loop()
        self._engine = ModelEngine(Model(), self._clock)
        local_clusters[self._name] = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        local_clusters.pop(self._name, None)
        self.disconnect()
        if self._engine is not None:
            self._engine.close()

    async def connect(self, *, timeout: float | None = None) -> Client:
        """A client that is open already. The cluster closes it, if nobody did."""
        client = await connect(self.url, timeout=timeout)
        self._clients.append(client)
        return client

    def disconnect(self) -> None:
        """Ends all connections, as an engine that dies would: answers under way are lost. Clients connect again."""
        links, self._links = self._links, []
        for link in links:
            _post(link.loop, link.lost, ConnectionLost("the memory cluster cut the connection"))

    # -- what the SDK calls: `Dialer` of `_dial`

    @property
    def engines(self) -> int:
        """For the SDK."""
        return 1

    def learn(self, addresses: Sequence[str]) -> None:
        """For the SDK: there is one engine."""

    async def dial(self, handler: EngineHandler) -> _SdkEnd:
        """For the SDK: makes a connection. Raises Unreachable when the cluster is closed."""
        if self._name not in local_clusters or self._engine is None or self._loop is None:
            raise Unreachable(f"the MemoryCluster {self.url} is closed", address=self.url)
        self._links = [link for link in self._links if not link.closed]
        link = _SdkEnd(handler, self._engine, self._loop)
        self._links.append(link)
        return link


class _SdkEnd:
    """The client's end of a connection (`EnginePeer`). Lives in the client's loop; only bytes cross."""

    def __init__(self, handler: EngineHandler, engine: ModelEngine, engine_loop: asyncio.AbstractEventLoop) -> None:
        self.peer: Final = "the memory cluster"
        self.closed = False
        self.loop: Final = asyncio.get_running_loop()
        self.engine_end: Final = _EngineEnd(self, engine)
        self._engine_loop = engine_loop
        self._handler = handler
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}

    @property
    def connection(self) -> _SdkEnd:
        return self

    def request(self, opcode: int, *body: Buffer) -> asyncio.Future[memoryview]:
        number, future = self.expect()
        _post(self._engine_loop, self.engine_end.received, opcode, number, b"".join(body))
        return future

    def expect(self) -> tuple[int, asyncio.Future[memoryview]]:
        if self.closed:
            raise ConnectionLost(f"the connection to {self.peer} is closed", peer=self.peer)
        number = next(self._ids)
        future: asyncio.Future[memoryview] = self.loop.create_future()
        self._waiting[number] = future
        return number, future

    def send_all(self, messages: Iterable[tuple[int, int, Sequence[Buffer]]]) -> None:
        if not self.closed:
            for opcode, number, body in messages:
                _post(self._engine_loop, self.engine_end.received, opcode, number, b"".join(body))

    def take_answers(self, answers: Iterable[tuple[int, memoryview]]) -> None:
        for number, body in answers:
            self.answered(number, bytes(body))

    def push_now(self, opcode: int, *body: Buffer) -> None:
        if not self.closed:
            _post(self._engine_loop, self.engine_end.received, opcode, 0, b"".join(body))

    def close(self) -> None:
        self.lost(None)

    def abort(self, error: BokiError) -> None:
        self.lost(error)

    def answered(self, number: int, answer: bytes | BokiError) -> None:
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if isinstance(answer, bytes):
            future.set_result(memoryview(answer))
        else:
            future.set_exception(answer)

    def pushed(self, opcode: int, body: bytes) -> None:
        if self.closed:
            return
        try:
            self._handler.message_received(self, opcode, 0, memoryview(body))
        except ProtocolError as error:
            self.lost(error)

    def lost(self, error: BokiError | None) -> None:
        if self.closed:
            return
        self.closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"the connection to {self.peer} ended", peer=self.peer))
                future.exception()  # whoever still waits gets it; nobody is warned about those who gave up
        _post(self._engine_loop, self.engine_end.lost)
        self._handler.peer_lost(self, error)


class _EngineEnd:
    """The engine's end (`_engine.Peer`). Lives in the engine's loop."""

    def __init__(self, other: _SdkEnd, engine: ModelEngine) -> None:
        self._other = other
        self._engine = engine

    def received(self, opcode: int, number: int, body: bytes) -> None:
        try:
            self._engine.message_received(self, opcode, number, memoryview(body))
        except BokiError as error:
            self.respond_error(number, error)

    def lost(self) -> None:
        self._engine.peer_lost(self, None)

    def push(self, opcode: int, *body: Buffer) -> None:
        _post(self._other.loop, self._other.pushed, opcode, b"".join(body))

    def respond(self, request_id: int, opcode: int, *body: Buffer) -> None:
        _post(self._other.loop, self._other.answered, request_id, b"".join(body))

    def respond_error(self, request_id: int, error: BaseException) -> None:
        answer = errors.from_wire(errors.to_wire(error))
        if request_id:
            _post(self._other.loop, self._other.answered, request_id, answer)
        else:  # as with `MessagePeer`: a refused push has no caller to tell, so the connection ends with it
            _post(self._other.loop, self._other.lost, answer)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    """Calls in the next turn of a loop, this one or another thread's."""
    if loop.is_closed():
        return
    if loop is asyncio.get_running_loop():
        loop.call_soon(call, *args)
    else:
        loop.call_soon_threadsafe(call, *args)
