"""What a client hears of a store in limbo, in both protocols: bodies that are held, else UNKNOWN_LEDGER_STATE, never a no."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from boki_bookie.serve.server import BookieServer
from boki_bookie.storage.limbo import Limbo, LimboValidation
from boki_common.bookkeeper import v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import AddRequest, ListEntriesRequest, ReadLacRequest, ReadRequest
from boki_common.errors import BokiError
from boki_common.metrics import Metrics
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.runtime.memory_disk import MemoryDisk

OK, UNKNOWN = V2Status.OK, V2Status.UNKNOWN_LEDGER_STATE
SALVAGED, LOST = 1, 2


class Client:
    """Asks one thing at a time."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: asyncio.Queue[memoryview] = asyncio.Queue()

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.frames.put_nowait(frame)

    def connection_lost(self, error: BokiError | None) -> None:
        """Nobody asks any more."""

    async def v2(self, frame: bytes) -> Any:
        self.connection.send(frame)
        return v2.decode_response(await self.frames.get())

    async def v3(self, request: v3.KnownRequest) -> Any:
        self.connection.send(v3.encode_request(request))
        return v3.decode_response(await self.frames.get())


@pytest.fixture(params=["in memory", "stored"])
async def client(world: Any, disk: MemoryDisk, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Of a bookie that holds entries 0 and 2 of one ledger and nothing of another, both listed."""
    await world.format(disk)
    limbo = await Limbo.begin(disk, world.raw_id, {SALVAGED: True, LOST: True})
    storage = await world.open(disk, validate=LimboValidation(limbo, world.validate))
    storage.limbo = limbo
    await world.put(storage, *(world.add(SALVAGED, entry, recovery=True) for entry in (0, 2)))
    if request.param == "stored":
        await storage.checkpoint()
    requests = BookieServer(
        storage, requests_limit=50, free_bytes=disk.free_bytes, metrics=Metrics(), clock=world.clock
    )
    server = await FrameServer.start(Address("127.0.0.1", 0), requests.connected, strangers=BEFORE_FIRST_FRAME)
    connection = await connect(server.address, Client)
    assert isinstance(connection.handler, Client)
    yield connection.handler
    await server.close()
    await requests.close()


@pytest.mark.parametrize("fencing", [False, True])
async def test_v2_reads(client: Client, world: Any, fencing: bool) -> None:
    key = world.key if fencing else None
    found = await client.v2(v2.encode_read(SALVAGED, 2, fence_key=key))
    assert (found.status, found.body) == (OK, world.body(SALVAGED, 2))
    for ledger_id, entry_id in ((SALVAGED, 1), (SALVAGED, 3), (SALVAGED, -1), (LOST, 0), (LOST, -1), (77, 0)):
        assert (await client.v2(v2.encode_read(ledger_id, entry_id, fence_key=key))).status is UNKNOWN


async def test_a_batch_read_ends_before_what_is_unknown(client: Client, world: Any) -> None:
    def ask(entry_id: int) -> bytes:
        return v2.encode_batch_read(SALVAGED, entry_id, request_id=1, max_count=10, max_bytes=100_000)

    found = await client.v2(ask(0))
    assert (found.status, list(found.bodies)) == (OK, [world.body(SALVAGED, 0)])
    assert (await client.v2(ask(1))).status is UNKNOWN


@pytest.mark.parametrize("fencing", [False, True])
async def test_v3_reads(client: Client, world: Any, fencing: bool) -> None:
    key = world.key if fencing else None

    def read(ledger_id: int, entry_id: int) -> ReadRequest:
        return ReadRequest(1, None, ledger_id, entry_id, key, False, -1, 0)

    found = await client.v3(read(SALVAGED, 2))
    assert (found.status, bytes(found.body), found.lac) == (OK, bytes(world.body(SALVAGED, 2)), None)
    for ledger_id, entry_id in ((SALVAGED, 1), (SALVAGED, 3), (SALVAGED, -1), (LOST, 0), (LOST, -1), (77, 0)):
        assert (await client.v3(read(ledger_id, entry_id))).status is UNKNOWN


async def test_the_lac_the_list_of_entries_and_a_long_poll_are_unknown(client: Client) -> None:
    for ledger_id in (SALVAGED, LOST, 77):
        assert (await client.v3(ReadLacRequest(1, None, ledger_id))).status is UNKNOWN
        assert (await client.v3(ListEntriesRequest(2, None, ledger_id))).status is UNKNOWN
        poll = ReadRequest(3, None, ledger_id, -1, None, True, 0, 60_000)
        assert (await client.v3(poll)).status is UNKNOWN


async def test_normal_adds_are_fenced_and_recovery_adds_taken(client: Client, world: Any) -> None:
    for ledger_id in (SALVAGED, LOST):
        for recovery, expected in ((False, V2Status.FENCED), (True, OK)):
            body = world.body(ledger_id, 4)
            add = AddRequest(1, None, ledger_id, 4, world.key, body, recovery, False)
            assert (await client.v3(add)).status is expected
