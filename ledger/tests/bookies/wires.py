"""A scripted bookie behind a loopback socket, its registration, and a network that talks to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, TypeVar

from boki_common.bookkeeper import layout
from boki_common.bookkeeper.digests import master_key
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError
from boki_common.ids import BookieId
from boki_common.metadata.memory import MemoryStore
from boki_common.net.connection import Address, FrameConnection, FrameServer
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.testing.machine import CountingRandom
from boki_ledger.bookies.bookie_client import BookieNetwork
from boki_ledger.bookies.bookie_directory import BookieDirectory
from boki_ledger.settings import WIRE_V2
from boki_ledger.testing.ledgers import QUICK, make_cookie, until
from boki_ledger.testing.scripted_bookies import ScriptedBookie
from boki_ledger.transport import AddChannel

KEY: Final = master_key(b"")
LEDGER: Final = 7
B1: Final = BookieId("b1")

R = TypeVar("R")


class SocketBookie(ABC, Generic[R]):
    """While `mute` it keeps what is asked, and answers nothing; kinds of it say how frames are read and answered."""

    def __init__(self, name: str = "b1") -> None:
        self.state = ScriptedBookie(BookieId(name))
        self.mute = False
        self.requests: list[R] = []
        self.waiting: list[tuple[FrameConnection, R]] = []
        self.connections: list[FrameConnection] = []

    @abstractmethod
    def decode(self, frame: memoryview) -> R: ...

    @abstractmethod
    def answer(self, connection: FrameConnection, request: R) -> None: ...

    async def start(self, port: int = 0) -> None:
        self.server = await FrameServer.start(
            Address("127.0.0.1", port), lambda made: _Connection(self, made), strangers=BEFORE_FIRST_FRAME
        )

    async def stop(self) -> None:
        await self.server.close()
        await until(lambda: all(connection.closed for connection in self.connections))
        self.connections.clear()

    def take(self, connection: FrameConnection, request: R) -> None:
        self.requests.append(request)
        if self.mute:
            self.waiting.append((connection, request))
        else:
            self.answer(connection, request)

    def speak(self) -> None:
        self.mute = False
        waiting, self.waiting = self.waiting, []
        for connection, request in waiting:
            self.answer(connection, request)


class _Connection(Generic[R]):
    def __init__(self, bookie: SocketBookie[R], connection: FrameConnection) -> None:
        self._bookie = bookie
        self._connection = connection
        bookie.connections.append(connection)

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self._bookie.take(self._connection, self._bookie.decode(memoryview(bytes(frame))))

    def connection_lost(self, error: BokiError | None) -> None:
        pass


class Listener:
    """Records what a channel reports."""

    def __init__(self) -> None:
        self.ups = 0
        self.downs: list[BokiError] = []
        self.acked: list[tuple[int, int]] = []
        self.refused: list[tuple[int, V2Status]] = []
        self.batches = 0

    def channel_up(self) -> None:
        self.ups += 1

    def channel_down(self, error: BokiError) -> None:
        self.downs.append(error)

    def adds_answered(self, acked: Sequence[tuple[int, int]], refused: Sequence[tuple[int, V2Status]]) -> None:
        self.batches += 1
        self.acked += acked
        self.refused += refused


async def register(store: MemoryStore, port: int, bookie: BookieId = B1) -> None:
    """In the place of the registration that may be there."""
    value = layout.encode_bookie_service(Address("127.0.0.1", port))
    path = layout.bookie_path(bookie)
    if await store.exists(path):
        await store.delete(path, version=0)
    await store.create(path, value, ephemeral=True)


@asynccontextmanager
async def directory_with(bookie: BookieId, port: int) -> AsyncIterator[BookieDirectory]:
    """A directory that finds the bookie at the port."""
    store = MemoryStore()
    await store.start()
    await layout.init_cluster(store, rng=CountingRandom())
    await register(store, port, bookie)
    directory = BookieDirectory(store, retry_s=0.001)
    await directory.start()
    yield directory
    await directory.close()


B = TypeVar("B", bound=SocketBookie)  # type: ignore[type-arg]  # of any kind of request


class Wire(Generic[B]):
    """A bookie, its registration, and a network that talks to it."""

    def __init__(self, bookie: B, *, answer_timeout_s: float = 30.0, wire_protocol: str = WIRE_V2) -> None:
        self.bookie = bookie
        self.store = MemoryStore()
        self.settings = replace(QUICK, answer_timeout_s=answer_timeout_s, wire_protocol=wire_protocol)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Wire[B]]:
        await self.store.start()
        await layout.init_cluster(self.store, rng=CountingRandom())
        await self.bookie.start()
        await self.register(self.bookie.server.address.port)
        self.directory = BookieDirectory(self.store, retry_s=0.001)
        await self.directory.start()
        self.network = BookieNetwork(self.directory, self.settings)
        yield self
        await self.network.close()
        await self.directory.close()
        await self.bookie.server.close()

    async def channel(self) -> tuple[AddChannel, Listener]:
        """One that is up, and who listens to it."""
        listener = Listener()
        channel = self.network.open_channel(B1, LEDGER, listener)
        await until(lambda: channel.up)
        return channel, listener

    async def register(self, port: int, bookie: BookieId = B1) -> None:
        await register(self.store, port, bookie)
        await make_cookie(self.store, bookie)
