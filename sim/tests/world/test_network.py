"""The network under the real frames: order, partitions, resets, deaths, half-open connections, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from boki_common.errors import BokiError, ConnectionLost, SettingsError, Unreachable
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.net.frames import prefix
from boki_sim.world.network import LONGEST_S, Weather

HERE = Address("10.0.0.1", 7000)


class Collects:
    """Keeps the frames of a connection, and how it ended."""

    def __init__(self, echo: FrameConnection | None = None) -> None:
        self.frames: list[bytes] = []
        self.lost: list[BokiError | None] = []
        self._echo = echo

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.frames.append(bytes(frame))
            if self._echo is not None:
                self._echo.send(prefix(len(frame)), frame)

    def connection_lost(self, error: BokiError | None) -> None:
        self.lost.append(error)


class Pair:
    """A server that echoes, and one client, on machines of their own."""

    def __init__(self, simulation: Any) -> None:
        self.simulation = simulation
        self.server_process = simulation.process("server")
        self.client_process = simulation.process("client")
        self.handlers: list[Collects] = []
        self.server: FrameServer
        self.client: FrameConnection
        self.got = Collects()

    async def start(self) -> None:
        self.server = await self.server_process.start(FrameServer.start(HERE, self._handler))
        self.client = await self.client_process.start(connect(HERE, lambda _: self.got))

    def _handler(self, connection: FrameConnection) -> Collects:
        handler = Collects(connection)
        connection.introduced()
        self.handlers.append(handler)
        return handler

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.client_process.call_soon(self.client.send, prefix(len(payload)), payload)


def in_simulation(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test runs in the loop of its simulation, or of the one that its pair is in."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        simulation = fixtures.get("simulation") or fixtures["pair"].simulation
        simulation.run(test(**fixtures))

    return run


@pytest.fixture
def pair(simulation: Any) -> Pair:
    return Pair(simulation)


def test_frames_arrive_once_and_in_order_however_they_are_cut(make_simulation: Any) -> None:
    for seed in range(5):
        pair = Pair(make_simulation(seed, Weather(cut_chance=0.9, spike_chance=0.2)))
        sent = [f"{number}".encode() * (number % 700) for number in range(300)]

        async def scenario(pair: Pair = pair, sent: list[bytes] = sent) -> None:
            await pair.start()
            pair.send(*sent)
            await asyncio.sleep(30)

        pair.simulation.run(scenario())
        assert pair.got.frames == sent
        assert pair.handlers[0].frames == sent


@in_simulation
async def test_what_is_sent_into_a_partition_arrives_when_it_heals(pair: Pair) -> None:
    links = [("10.0.0.2", "10.0.0.1")]
    await pair.start()
    pair.simulation.network.block(links)
    pair.send(b"one", b"two")
    await asyncio.sleep(5)
    assert pair.handlers[0].frames == []
    pair.simulation.network.unblock(links)
    await asyncio.sleep(1)
    assert pair.got.frames == [b"one", b"two"]


@in_simulation
async def test_what_was_sent_over_a_slow_link_has_arrived_some_seconds_later(pair: Pair) -> None:
    """However slow: who judges a log after the last fault need not guess when the last append is taken."""
    await pair.start()
    pair.simulation.network.slow("10.0.0.2", "10.0.0.1", 1e6)
    pair.send(b"one")
    await asyncio.sleep(LONGEST_S / 2)
    assert pair.handlers[0].frames == []
    await asyncio.sleep(LONGEST_S / 2 + 0.1)
    assert pair.handlers[0].frames == [b"one"]


@in_simulation
async def test_one_direction_alone_can_be_blocked(pair: Pair) -> None:
    await pair.start()
    pair.simulation.network.block([("10.0.0.1", "10.0.0.2")])
    pair.send(b"one")
    await asyncio.sleep(5)
    assert pair.handlers[0].frames == [b"one"]
    assert pair.got.frames == []


@in_simulation
async def test_nobody_connects_through_a_partition_or_to_nobody(pair: Pair) -> None:
    with pytest.raises(Unreachable, match="Connect call failed"):
        await pair.client_process.start(connect(HERE, lambda _: Collects()))
    await pair.start()
    pair.simulation.network.block([("10.0.0.2", "10.0.0.1")])
    with pytest.raises(Unreachable, match="no answer"):
        await pair.client_process.start(connect(HERE, lambda _: Collects(), timeout_s=2))
    pair.simulation.network.unblock([("10.0.0.2", "10.0.0.1")])
    await asyncio.sleep(5)
    assert pair.simulation.loop.faults == []


@in_simulation
async def test_the_peers_of_a_killed_process_notice_it(pair: Pair) -> None:
    await pair.start()
    pair.server_process.kill()
    await asyncio.sleep(1)
    assert isinstance(pair.got.lost[0], ConnectionLost)
    with pytest.raises(Unreachable):
        await pair.client_process.start(connect(HERE, lambda _: Collects()))


@in_simulation
async def test_a_machine_without_power_says_nothing_until_it_is_back(pair: Pair) -> None:
    network = pair.simulation.network
    await pair.start()
    network.power_off("10.0.0.1")
    pair.server_process.kill()
    pair.send(b"into the void")
    await asyncio.sleep(60)
    assert pair.got.lost == []
    network.power_on("10.0.0.1")
    pair.send(b"is anybody there")
    await asyncio.sleep(1)
    assert isinstance(pair.got.lost[0], ConnectionLost)


@in_simulation
async def test_a_reset_ends_both_ends(pair: Pair) -> None:
    await pair.start()
    assert pair.simulation.network.reset("10.0.0.1", "10.0.0.2") == 1
    await asyncio.sleep(1)
    assert isinstance(pair.got.lost[0], ConnectionLost)
    assert isinstance(pair.handlers[0].lost[0], ConnectionLost)


@in_simulation
async def test_closing_sends_what_was_queued_first(pair: Pair) -> None:
    async def close() -> None:
        pair.client.send(prefix(4), b"last")
        pair.client.close()
        await pair.client.ended()

    await pair.start()
    await pair.client_process.start(close())
    await asyncio.sleep(1)
    assert pair.handlers[0].frames == [b"last"]
    assert pair.got.lost == [None]
    assert isinstance(pair.handlers[0].lost[0], ConnectionLost)


@in_simulation
async def test_a_peer_that_does_not_read_is_felt(pair: Pair) -> None:
    async def send_much() -> float:
        for _ in range(64):
            pair.client.send(prefix(100_000), bytes(100_000))
        await asyncio.sleep(0)
        assert pair.client.unsent_bytes > 1_000_000
        await pair.client.drain()
        return float(pair.simulation.loop.time())

    await pair.start()
    pair.server_process.pause()
    start = pair.simulation.loop.time()
    drained = pair.client_process.start(send_much())
    await asyncio.sleep(10)
    assert not drained.done()
    pair.server_process.resume()
    assert await drained - start >= 10
    assert pair.client.unsent_bytes < 100_000


@in_simulation
async def test_a_port_is_listened_on_once_and_free_ports_are_found(simulation: Any) -> None:
    one, other = simulation.process("one"), simulation.process("other")
    first = await one.start(FrameServer.start(Address("10.0.0.1", 0), lambda _: Collects()))
    assert first.address.port > 0
    with pytest.raises(SettingsError, match="another process listens"):
        await one.start(FrameServer.start(first.address, lambda _: Collects()))
    with pytest.raises(SettingsError, match="no such address"):
        await other.start(FrameServer.start(first.address, lambda _: Collects()))
    await one.start(first.close())
    await one.start(FrameServer.start(first.address, lambda _: Collects()))


@in_simulation
async def test_unix_sockets_connect_processes_of_one_machine(simulation: Any) -> None:
    server, client = simulation.loop.process("server", "10.0.0.9"), simulation.loop.process("client", "10.0.0.9")
    address, got = Address.parse("unix:///run/boki"), Collects()
    await server.start(FrameServer.start(address, lambda one: Collects(one)))
    connection = await client.start(connect(address, lambda _: got))
    client.call_soon(connection.send, prefix(2), b"hi")
    await asyncio.sleep(1)
    assert got.frames == [b"hi"]


@in_simulation
async def test_streams_of_asyncio_work_too(simulation: Any) -> None:
    server, client = simulation.process("server"), simulation.process("client")

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("10.0.0.1", 80)
        writer.write(b"hello")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    await server.start(asyncio.start_server(shout, "10.0.0.1", 80))
    assert await client.start(ask()) == b"HELLO"


def test_a_duplicated_connect_is_one_more_silent_connection(make_simulation: Any) -> None:
    pair = Pair(make_simulation(1, Weather(duplicate_connect_chance=1.0)))

    async def scenario() -> None:
        await pair.start()
        pair.send(b"x")
        await asyncio.sleep(10)
        assert len(pair.handlers) == 2
        assert pair.handlers[1].frames == [] or pair.handlers[0].frames == []
        assert sum(len(handler.lost) for handler in pair.handlers) == 1
        assert pair.got.frames == [b"x"]

    pair.simulation.run(scenario())
