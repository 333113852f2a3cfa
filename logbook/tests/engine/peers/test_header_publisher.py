"""Headers go to who asked and takes them; nobody waits for who does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, connect_messages, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_logbook.peers import header_publisher
from boki_logbook.peers.header_publisher import HeaderPublisher
from boki_logbook.peers.pushed_headers import AckedEntry, decode_headers
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch


class Subscriber:
    """The other end of a connection; keeps the entries of each push."""

    def __init__(self) -> None:
        self.pushes: list[list[int]] = []
        self.changed = asyncio.Event()
        self.lost = False

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        assert (opcode, request_id) == (wire.OP_HEADERS, 0)
        self.pushes.append([entry for _, entry, _ in decode_headers(body)])
        self.changed.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost = True

    async def until(self, pushes: int) -> list[list[int]]:
        async with asyncio.timeout(10):
            while len(self.pushes) < pushes:
                self.changed.clear()
                await self.changed.wait()
        return self.pushes


class Publishing:
    """A publisher with one connection."""

    def __init__(self) -> None:
        self.publisher = HeaderPublisher()
        self.subscriber = Subscriber()
        self.peer: MessagePeer
        self.other: MessagePeer
        self._server: FrameServer

    async def start(self) -> None:
        accepted: asyncio.Future[MessagePeer] = asyncio.get_running_loop().create_future()

        def connected(peer: MessagePeer) -> Subscriber:
            accepted.set_result(peer)
            return Subscriber()

        self._server = await serve_messages(Address("127.0.0.1", 0), connected, strangers=BEFORE_FIRST_FRAME)
        self.other = await connect_messages(self._server.address, self.subscriber)
        self.peer = await accepted

    async def close(self) -> None:
        self.other.close()
        await self._server.close()


@pytest.fixture
async def publishing() -> AsyncIterator[Publishing]:
    made = Publishing()
    await made.start()
    yield made
    await made.close()


def entries(first: int, count: int, *, tags: int = 1) -> list[AckedEntry]:
    record = RecordSpec(data=b"x", tags=tuple(range(1, 1 + tags)))
    return [
        AckedEntry(entry, entry, make_batch(RunSpec(1, bytes(16), 1 + entry, (record,))))
        for entry in range(first, first + count)
    ]


async def test_entries_that_were_acknowledged_together_are_one_push(publishing: Publishing) -> None:
    publishing.publisher.acked(7, 1, 0, entries(0, 1))  # nobody asked yet
    publishing.publisher.subscribe(publishing.peer)
    publishing.publisher.acked(7, 1, 0, entries(1, 3))
    publishing.publisher.acked(7, 1, 0, [])
    publishing.publisher.acked(7, 1, 0, entries(4, 1))
    assert await publishing.subscriber.until(2) == [[1, 2, 3], [4]]


async def test_large_headers_are_pushed_one_by_one(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_publisher, "PUSH_BYTES", 1_000)
    publishing.publisher.subscribe(publishing.peer)
    publishing.publisher.acked(7, 1, 0, entries(0, 3, tags=100))
    assert await publishing.subscriber.until(3) == [[0], [1], [2]]


async def test_who_takes_nothing_is_passed_over(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_publisher, "UNSENT_BYTES", 100_000)
    publishing.publisher.subscribe(publishing.peer)
    publishing.other.connection.pause_reading()
    for entry in range(20_000):
        publishing.publisher.acked(7, 1, 0, entries(entry, 1, tags=100))
        if publishing.peer.unsent_bytes > 100_000:
            break
    else:
        pytest.fail("everything was taken")
    before = publishing.peer.unsent_bytes
    publishing.publisher.acked(7, 1, 0, entries(20_000, 1))
    assert publishing.peer.unsent_bytes == before
    assert not publishing.peer.closed


async def test_who_left_gets_nothing(publishing: Publishing) -> None:
    publishing.publisher.subscribe(publishing.peer)
    publishing.publisher.leave(publishing.peer)
    publishing.publisher.leave(publishing.peer)
    publishing.publisher.acked(7, 1, 0, entries(0, 1))
    assert not publishing.publisher.subscribers
    assert publishing.peer.unsent_bytes == 0
