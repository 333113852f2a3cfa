"""Both ends of a connection to a bookie: who asks, and a storage behind a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from boki_bookie.serve.server import BookieServer
from boki_bookie.storage.storage import Storage
from boki_common.bookkeeper import v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import AddRequest
from boki_common.errors import BokiError
from boki_common.metrics import Metrics
from boki_common.net.connection import Address, FrameConnection, FrameHandler, FrameServer, connect
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.runtime.memory_disk import MemoryDisk

LOCAL = Address("127.0.0.1", 0)

Recorded = Callable[[str], list[tuple[bytes, bytes]]]
"""The fixture `recorded`."""


class Requester:
    """One connection; frames come out of a queue, and None when it has ended."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.batches: list[int] = []
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        self.lost: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def of(cls, address: Address) -> Requester:
        connection = await connect(address, cls)
        assert isinstance(connection.handler, cls)
        return connection.handler

    def frames_received(self, frames: list[memoryview]) -> None:
        self.batches.append(len(frames))
        for frame in frames:
            self.frames.put_nowait(memoryview(bytes(frame)))

    def connection_lost(self, error: BokiError | None) -> None:
        self.frames.put_nowait(None)
        self.lost.set_result(error)

    async def next(self) -> Any:
        """The next answer in v2, decoded; None after the last one."""
        frame = await self.frames.get()
        return None if frame is None else v2.decode_response(frame)

    async def ask(self, *request: Any) -> Any:
        self.connection.send(*request)
        return await self.next()

    async def next_v3(self) -> Any:
        return v3.decode_response(await self.frames.get())

    async def ask_v3(self, request: v3.KnownRequest) -> Any:
        self.connection.send(v3.encode_request(request))
        return await self.next_v3()

    async def statuses(self, count: int) -> list[V2Status]:
        return [(await self.next()).status for _ in range(count)]

    async def replay(self, exchanges: list[tuple[bytes, bytes]], name: str = "") -> None:
        """Recorded requests get the recorded responses."""
        for request, response in exchanges:
            self.connection.send(request)
            assert (await self.frames.get()).hex() == response[4:].hex(), name


class Served:
    """A storage behind a server."""

    def __init__(self, storage: Storage, requests: BookieServer, server: FrameServer, world: Any) -> None:
        self.storage = storage
        self.requests = requests
        self.server = server
        self.world = world

    async def connect(self) -> Requester:
        return await Requester.of(self.server.address)

    def add(self, ledger_id: int, entry_id: int, payload: bytes = b"payload", *, recovery: bool = False) -> list[Any]:
        return v2.encode_add_body([self.world.body(ledger_id, entry_id, payload)], self.world.key, recovery=recovery)

    def add_v3(self, txn_id: int, ledger_id: int, entry_id: int, *, recovery: bool = False, **body: Any) -> AddRequest:
        made = self.world.body(ledger_id, entry_id, **body)
        return AddRequest(txn_id, None, ledger_id, entry_id, self.world.key, made, recovery, False)


@asynccontextmanager
async def serving(
    storage: Storage,
    world: Any,
    disk: MemoryDisk,
    *,
    admit: Callable[[BookieServer, FrameConnection], FrameHandler] = BookieServer.connected,
    **options: Any,
) -> AsyncIterator[Served]:
    """Closed at the end; the storage is the world's."""
    requests = BookieServer(
        storage, requests_limit=50, free_bytes=disk.free_bytes, metrics=Metrics(), clock=world.clock, **options
    )
    server = await FrameServer.start(LOCAL, partial(admit, requests), strangers=BEFORE_FIRST_FRAME)
    try:
        yield Served(storage, requests, server, world)
    finally:
        await server.close()
        await requests.close()
