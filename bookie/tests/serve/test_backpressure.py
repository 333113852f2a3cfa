"""Back-pressure over real connections: who sends or asks for too much is not read from, who does not read is dropped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.serve.requester import Requester
from tests.turns import turns

from boki_bookie.serve import long_polls
from boki_bookie.serve.backpressure import Backpressure, BackpressureLimits
from boki_bookie.serve.server import LOAD_BYTES, BookieServer
from boki_bookie.storage.storage import Storage
from boki_common import limits
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import AddRequest, ReadRequest
from boki_common.errors import BokiError
from boki_common.limits import KIB, MIB
from boki_common.metrics import Metrics
from boki_common.net.connection import Address, FrameConnection, FrameServer
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.runtime.memory_disk import MemoryDisk

LIMITS = BackpressureLimits(request_bytes=64 * KIB, unsent_bytes=1 * MIB, slow_reader_timeout_s=30.0)


class Served:
    """A storage behind a server of which the connections can be looked at."""

    def __init__(self, storage: Storage, limits: BackpressureLimits, disk: MemoryDisk, world: Any) -> None:
        self.storage = storage
        self.world = world
        self.connections: list[FrameConnection] = []
        self.clients: list[Requester] = []
        self.requests = BookieServer(
            storage, requests_limit=10_000, free_bytes=disk.free_bytes, metrics=Metrics(), backpressure=limits
        )
        self.server: FrameServer

    async def start(self) -> None:
        def connected(connection: FrameConnection) -> Any:
            self.connections.append(connection)
            return self.requests.connected(connection)

        self.server = await FrameServer.start(Address("127.0.0.1", 0), connected, strangers=BEFORE_FIRST_FRAME)

    async def close(self) -> None:
        for connection in (*self.connections, *(client.connection for client in self.clients)):
            connection.abort(BokiError("over"))
        for client in self.clients:
            await client.lost
        await self.server.close()
        await self.requests.close()

    async def connect(self) -> Requester:
        self.clients.append(await Requester.of(self.server.address))
        return self.clients[-1]

    def add(self, entry_id: int, size: int = 10) -> list[Any]:
        return v2.encode_add_body([self.world.body(1, entry_id, bytes(size))], self.world.key)

    def v3_add(self, entry_id: int, size: int = 10) -> list[Any]:
        body = self.world.body(1, entry_id, bytes(size))
        return [v3.encode_request(AddRequest(entry_id, None, 1, entry_id, self.world.key, body, False, False))]


Serve = Callable[..., Any]


@pytest.fixture
async def serve(world: Any, disk: MemoryDisk) -> AsyncIterator[Serve]:
    made: list[Served] = []

    async def one(limits: BackpressureLimits, **changes: int) -> Served:
        settings = world.tiny(
            **{"journal_segment_bytes": 16 * MIB, "write_cache_bytes": 512 * MIB, "journal_queue_bytes": 512 * MIB}
            | changes
        )
        served = Served(await world.open(disk, settings), limits, disk, world)
        await served.start()
        made.append(served)
        return served

    yield one
    for served in made:
        await served.close()


async def settle(served: Served) -> None:
    """Waits until the server takes nothing more."""
    before = -1
    while served.storage.cached_bytes != before:
        before = served.storage.cached_bytes
        await turns(300)


async def test_adds_that_wait_for_the_journal_stop_the_reading(serve: Serve, disk: MemoryDisk) -> None:
    served = await serve(LIMITS)
    client = await served.connect()
    client.connection.send(*served.add(0))
    await client.statuses(1)
    disk.hold("sync")
    for entry_id in range(1, 401):
        client.connection.send(*served.add(entry_id, 10 * KIB))
    await settle(served)
    assert 64 * KIB < served.storage.cached_bytes < 2 * MIB, "of 4 MB that were sent"
    disk.release("sync")
    assert set(await client.statuses(400)) == {V2Status.OK}


# A client that was refused an add takes the bookie for broken. Where two of three bookies are fast, the third is sent
# whatever those acknowledge, so that it has to slow the client down and not to refuse.


@pytest.mark.parametrize("version", [2, 3])
async def test_a_write_cache_that_fills_slows_the_client_down(serve: Serve, disk: MemoryDisk, version: int) -> None:
    served = await serve(LIMITS._replace(request_bytes=32 * MIB), write_cache_bytes=8 * MIB)
    client = await served.connect()
    add, decode = (served.add, v2.decode_response) if version == 2 else (served.v3_add, v3.decode_response)
    client.connection.send(*add(0))
    await client.frames.get()
    disk.hold("sync", under="entries")  # nothing leaves memory
    for entry_id in range(1, 2_001):
        client.connection.send(*add(entry_id, 10 * KIB))
    await settle(served)
    assert 6 * MIB < served.storage.cached_bytes < 8 * MIB, "of 20 MB that were sent"
    disk.release("sync")
    answers = [decode(memoryview(await client.frames.get())).status for _ in range(2_000)]
    assert set(answers) == {V2Status.OK}


@pytest.mark.parametrize("version", [2, 3])
async def test_many_small_adds_slow_the_client_down(serve: Serve, disk: MemoryDisk, version: int) -> None:
    served = await serve(LIMITS._replace(request_bytes=32 * MIB))
    client = await served.connect()
    add, decode = (served.add, v2.decode_response) if version == 2 else (served.v3_add, v3.decode_response)
    client.connection.send(*add(0))
    await client.frames.get()
    disk.hold("sync")
    for entry_id in range(1, 15_001):
        client.connection.send(*add(entry_id))
    await settle(served)
    disk.release("sync")
    answers = [decode(memoryview(await client.frames.get())).status for _ in range(15_000)]
    assert set(answers) == {V2Status.OK}, "more than the 10,000 requests that are taken at once"


@pytest.mark.parametrize("version", [2, 3])
async def test_first_adds_slow_the_client_down_while_the_metadata_is_read(
    serve: Serve, world: Any, version: int
) -> None:
    served = await serve(LIMITS, validation_waiting_bytes=1 * MIB)
    client = await served.connect()
    add, decode = (served.add, v2.decode_response) if version == 2 else (served.v3_add, v3.decode_response)
    world.validate_after = asyncio.Event()
    for entry_id in range(400):
        client.connection.send(*add(entry_id, 10 * KIB))
    await settle(served)
    world.validate_after.set()
    answers = [decode(memoryview(await client.frames.get())).status for _ in range(400)]
    assert set(answers) == {V2Status.OK}, "four times what may wait at once"


async def test_a_client_is_read_from_again_although_its_room_came_at_once() -> None:
    class Peer:
        peer, closed, unsent_bytes, paused = "p", False, 0, False

        def pause_reading(self) -> None:
            self.paused = True

        def resume_reading(self) -> None:
            self.paused = False

        def abort(self, error: BokiError) -> None:
            raise error

    peer = Peer()
    backpressure = Backpressure(peer, LIMITS, 10)
    backpressure.took(100, 1)
    backpressure.released(100, 1)
    backpressure.wait_for_room()
    backpressure.look()
    assert not peer.paused, "nothing is left whose answer would let it go on"
    backpressure.took(100, 1)
    backpressure.took(100, 1)
    backpressure.wait_for_room()
    backpressure.look()
    assert peer.paused
    backpressure.released(100, 1)
    assert peer.paused, "one more waits for room"
    backpressure.released(100, 1)
    assert not peer.paused


@pytest.mark.parametrize("stored", [False, True])
async def test_answers_that_nobody_takes_are_bounded_and_come_when_they_are_taken(serve: Serve, stored: bool) -> None:
    served = await serve(LIMITS)
    client = await served.connect()
    for entry_id in range(10):
        client.connection.send(*served.add(entry_id, 500 * KIB))
    await client.statuses(10)
    if stored:
        await served.storage.checkpoint()
    client.connection.pause_reading()
    await settle(served)
    for number in range(300):
        client.connection.send(v2.encode_read(1, number % 10))
    most = 0
    for _ in range(2_000):
        await turns(1)
        most = max(most, served.connections[0].unsent_bytes)
    assert 512 * KIB < most < 1 * MIB + 3 * LOAD_BYTES, "of 150 MB that were asked for"
    client.connection.resume_reading()
    assert set(await client.statuses(300)) <= {V2Status.OK, V2Status.TOO_MANY_REQUESTS}


async def test_what_is_at_hand_is_answered_a_bounded_amount_a_turn(serve: Serve) -> None:
    served = await serve(LIMITS._replace(unsent_bytes=64 * MIB))
    client = await served.connect()
    for entry_id in range(10):
        client.connection.send(*served.add(entry_id, 500 * KIB))
    await client.statuses(10)
    client.connection.pause_reading()
    await settle(served)
    for number in range(100):
        client.connection.send(v2.encode_read(1, number % 10))
    unsent = [0]
    while unsent[-1] < 40 * MIB:
        await asyncio.sleep(0)
        unsent.append(served.connections[0].unsent_bytes)
    assert max(after - before for before, after in itertools.pairwise(unsent)) <= 2 * LOAD_BYTES
    client.connection.resume_reading()
    assert await client.statuses(100) == [V2Status.OK] * 100


async def test_a_client_that_does_not_read_is_dropped_and_nobody_else(serve: Serve) -> None:
    served = await serve(LIMITS._replace(slow_reader_timeout_s=0.1))
    slow, other = await served.connect(), await served.connect()
    for entry_id in range(10):
        other.connection.send(*served.add(entry_id, 500 * KIB))
    await other.statuses(10)
    slow.connection.pause_reading()
    await settle(served)
    for number in range(300):
        slow.connection.send(v2.encode_read(1, number % 10))
    await served.connections[0].ended()
    other.connection.send(v2.encode_read(1, 0))
    assert await other.statuses(1) == [V2Status.OK]
    slow.connection.resume_reading()
    await slow.lost


async def test_handshakes_without_end_are_not_answered_without_end(serve: Serve) -> None:
    served = await serve(LIMITS._replace(unsent_bytes=64 * KIB))
    client = await served.connect()
    client.connection.pause_reading()
    await settle(served)
    handshake = v2.encode_auth(auth.NO_AUTHENTICATION)
    for _ in range(100):
        client.connection.send(handshake * 2_000)
    most = 0
    for _ in range(2_000):
        await turns(1)
        most = max(most, served.connections[0].unsent_bytes)
    assert most < 1 * MIB, "one read of 256 KiB is answered whole"


async def test_long_polls_of_a_connection_and_watchers_of_a_bookie_are_bounded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "LONG_POLLS_LIMIT", 3)
    monkeypatch.setattr(limits, "BOOKIE_LAC_WAITERS", 5)
    served = await serve(LIMITS)
    first, second = await served.connect(), await served.connect()
    first.connection.send(*served.add(0))
    await first.statuses(1)

    def poll(txn_id: int) -> bytes:
        return v3.encode_request(ReadRequest(txn_id, None, 1, -1, None, True, 0, 60_000))

    for client, waiting in ((first, 3), (second, 2)):
        for txn_id in range(waiting + 1):
            client.connection.send(poll(txn_id))
        refused = v3.decode_response(memoryview(await client.frames.get()))
        assert (refused.txn_id, refused.status) == (waiting, V2Status.TOO_MANY_REQUESTS)
    first.connection.close()
    await first.lost
    while served.requests.watchers.is_full:
        await asyncio.sleep(0)
    second.connection.send(poll(9))
    await turns(100)
    assert second.frames.empty(), "room again: it waits"


async def test_who_only_adds_and_reads_no_answers_is_noticed_too(serve: Serve, world: Any) -> None:
    served = await serve(BackpressureLimits(request_bytes=64 * KIB, unsent_bytes=-1, slow_reader_timeout_s=0.01))
    assert await world.put(served.storage, world.add(1, 0)) == [V2Status.OK]
    client = await served.connect()
    client.connection.send(*served.add(1))
    assert await client.statuses(1) == [V2Status.OK]
    served.connections[0].pause_writing()  # as the transport says when it has more to send than it likes
    client.connection.send(*served.add(2))
    assert await client.lost is not None
