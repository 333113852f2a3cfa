"""MemoryCluster: a model, an engine around it, and connections that are no sockets.

The engine lives in the event loop that opened the cluster. Clients of other loops (`boki.sync` has its own) reach it by
its memory:// URL; messages cross with `call_soon_threadsafe`, so the model is only ever touched by its own loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from boki import _arguments as arguments
from boki._arguments import Tag, TrimPairs
from boki._client import Client, connect
from boki._dial import EngineHandler, local_clusters
from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_common import errors, limits
from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError, ClosedError, ConnectionLost, InvalidArgument, ProtocolError, Unreachable
from boki_common.ids import book_id
from boki_common.runtime.ports import Buffer, Clock
from boki_common.runtime.process import SystemClock

_numbers: Final = itertools.count(1)
_NAMES: Final = {
    wire.OP_APPEND: "append",
    wire.OP_READ: "read",
    wire.OP_READS: "read",
    wire.OP_READ_TAGS: "read_tags",
    wire.OP_READ_PREV_MANY: "read_prev_many",
    wire.OP_POSITION: "position",
    wire.OP_TRIM: "trim",
    wire.OP_SET_AUX: "set_aux_data",
    wire.OP_WRITER: "writer",
    wire.OP_SEEK: "seek",
}


class MemoryCluster:
    """A cluster in memory. `async with` opens and closes it.

    What goes wrong is up to the test: answers are lost (`losing_answers`), connections cut (`disconnect`), writers forgotten
    (`forget_writers`), books trimmed (`trim`), all of it also right before a request is applied (`before_each`). These are called
    in the loop that opened the cluster.

    Attributes:
        url: for `boki.connect` and `boki.sync.connect`, anywhere in this process while the cluster is open.
        before_each: is called before each request is applied, with its name: "append" (a batch), "read", "read_tags",
            "read_prev_many", "position", "trim", "set_aux_data", "writer", "seek". A BokiError that it raises is the request's answer.
    """

    def __init__(self, *, clock: Clock | None = None, forget_age_s: float = 3_600.0) -> None:
        """
        Args:
            clock: of the log.
            forget_age_s: a trim with `forget` takes streams whose newest record is older; whole minutes count.

        Raises:
            InvalidArgument: an age below twice `limits.TRANSACTION_AGE_S`.
        """
        if not forget_age_s >= 2 * limits.TRANSACTION_AGE_S:
            raise InvalidArgument(
                f"expected forget_age_s of at least {2 * limits.TRANSACTION_AGE_S} s, found {forget_age_s}: what was read may be "
                "counted on for half of it"
            )
        self.before_each: Callable[[str], None] | None = None
        self._forget_age_ms = round(forget_age_s * 1000)
        self._losing = False
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
        self._engine = ModelEngine(Model(forget_age_ms=self._forget_age_ms), self._clock)
        local_clusters[self._name] = self
        return self

    async def __aexit__(self, *_: object) -> None:
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

    # -- what goes wrong

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        """Whatever is asked within is done, and no answer arrives; then all connections end, and clients ask again.

        An append of which the answer is lost is sent again under its number, and is in the log once. One whose time-out ends
        within raises OutcomeUnknown.
        """
        self._losing = True
        try:
            yield
        finally:
            self._losing = False
            self.disconnect()

    def forget_writers(self) -> None:
        """The log forgets all writers, as after an hour without a word of them: what was sent and has no answer yet fails with
        WriterForgotten, or goes on under another writer if it certainly is not in the log."""
        self._serving().model.forget_writers()

    def trim(
        self,
        book: str | int,
        pairs: TrimPairs | None = None,
        *,
        before: int | None = None,
        tag: Tag | None = None,
        forget: bool = False,
    ) -> None:
        """Orders a trim now, as `book.trim` of somebody else would. Raises InvalidArgument."""
        marks = arguments.encode_trim(pairs, before, tag)
        self._serving().trim(book_id(book), list(marks.items()), forget=forget)

    def _serving(self) -> ModelEngine:
        if self._engine is None:
            raise ClosedError("the MemoryCluster is not open")
        return self._engine

    def asks(self, opcode: int) -> None:
        """For the connections: a request is about to be applied."""
        name = _NAMES.get(opcode)
        if self.before_each is not None and name is not None:
            self.before_each(name)

    @property
    def answers_arrive(self) -> bool:
        """For the connections."""
        return not self._losing

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
        link = _SdkEnd(handler, self, self._engine, self._loop)
        self._links.append(link)
        return link


class _SdkEnd:
    """The client's end of a connection (`EnginePeer`). Lives in the client's loop; only bytes cross."""

    def __init__(
        self,
        handler: EngineHandler,
        cluster: MemoryCluster,
        engine: ModelEngine,
        engine_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.peer: Final = "the memory cluster"
        self.closed = False
        self.loop: Final = asyncio.get_running_loop()
        self.engine_end: Final = _EngineEnd(self, cluster, engine)
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

    def __init__(self, other: _SdkEnd, cluster: MemoryCluster, engine: ModelEngine) -> None:
        self._other = other
        self._cluster = cluster
        self._engine = engine

    def received(self, opcode: int, number: int, body: bytes) -> None:
        try:
            self._cluster.asks(opcode)
            self._engine.message_received(self, opcode, number, memoryview(body))
        except BokiError as error:
            self.respond_error(number, error)

    def lost(self) -> None:
        self._engine.peer_lost(self, None)

    def push(self, opcode: int, *body: Buffer) -> None:
        if self._cluster.answers_arrive:
            _post(self._other.loop, self._other.pushed, opcode, b"".join(body))

    def respond(self, request_id: int, opcode: int, *body: Buffer) -> None:
        if self._cluster.answers_arrive:
            _post(self._other.loop, self._other.answered, request_id, b"".join(body))

    def respond_error(self, request_id: int, error: BaseException) -> None:
        answer = errors.from_wire(errors.to_wire(error))
        if not self._cluster.answers_arrive:
            return
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
