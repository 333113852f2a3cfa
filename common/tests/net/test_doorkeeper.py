"""Who stays connected to a server: peers that introduce themselves, and say something now and then."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator

import pytest

from boki_common import limits
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, Overloaded, ProtocolError
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.net.frames import prefix
from boki_common.net.strangers import StrangerLimits

HELLO = prefix(5) + b"hello"


class End:
    """One of a connection."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: BokiError | None) -> None:
        self.ended.set_result(error)


class Guest(End):
    """The server's: a frame `hello` introduces, all others are kept."""

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            if bytes(frame) == b"hello":
                self.connection.introduced()
            self.connection.send(prefix(2), b"ok")
            self.frames.append(bytes(frame))


class Caller(End):
    """The client's."""

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.answers.put_nowait(bytes(frame))

    async def say(self, *frames: bytes) -> None:
        self.connection.send(*frames)
        for _ in frames:
            assert await self.answers.get() == b"ok"


class Scene:
    """One server and whoever calls it."""

    def __init__(self) -> None:
        self.server: FrameServer
        self.guests: asyncio.Queue[Guest] = asyncio.Queue()

    def made(self, connection: FrameConnection) -> Guest:
        guest = Guest(connection)
        self.guests.put_nowait(guest)
        return guest

    async def call(self) -> tuple[Caller, Guest]:
        connection = await connect(self.server.address, Caller)
        assert isinstance(connection.handler, Caller)
        return connection.handler, await self.guests.get()


@pytest.fixture
async def scenes() -> AsyncIterator[list[Scene]]:
    made: list[Scene] = []
    yield made
    for scene in made:
        await scene.server.close()


async def opened(
    scenes: list[Scene],
    *,
    connections: int = 100,
    idle_s: float = limits.CONNECTION_IDLE_S,
    strangers: StrangerLimits | None = None,
) -> Scene:
    scene = Scene()
    scene.server = await FrameServer.start(
        Address("127.0.0.1", 0),
        scene.made,
        connections_limit=connections,
        idle_s=idle_s,
        strangers=strangers or StrangerLimits(),
    )
    scenes.append(scene)
    return scene


def hurry(scene: Scene, allowed: StrangerLimits) -> None:
    """Give the strangers that come from now on a short time; those before had as long as they needed."""
    keeper = scene.server._doorkeeper
    keeper._strangers.allowed = allowed
    if keeper._next_end is not None:
        keeper._next_end.cancel()
        keeper._next_end = None


async def test_who_says_nothing_is_dropped_and_who_introduced_himself_stays(scenes: list[Scene]) -> None:
    scene = await opened(scenes)
    known, _ = await scene.call()
    await known.say(HELLO)
    hurry(scene, StrangerLimits(wait_s=0.05))
    for _ in range(2):
        silent, guest = await scene.call()
        error = await guest.ended
        assert isinstance(error, CallTimeout)
        assert "did not introduce itself within 0.05 s" in str(error)
        assert isinstance(await silent.ended, ConnectionLost)
    await known.say(prefix(4) + b"more")


async def test_who_never_ends_a_frame_is_dropped_too(scenes: list[Scene]) -> None:
    scene = await opened(scenes, strangers=StrangerLimits(wait_s=0.05))
    caller, guest = await scene.call()
    caller.connection.send(prefix(100), b"part of it")
    assert isinstance(await guest.ended, CallTimeout)


async def test_a_large_frame_before_the_introduction_ends_the_connection_for_no_memory(
    scenes: list[Scene],
) -> None:
    scene = await opened(scenes)
    caller, guest = await scene.call()
    caller.connection.send(prefix(limits.FRAME_BYTES), bytes(limits.STRANGER_FRAME_BYTES))
    assert isinstance(await caller.ended, ConnectionLost), "it gets an end, not a reset"
    error = await guest.ended
    assert isinstance(error, ProtocolError)
    assert f"at most {limits.STRANGER_FRAME_BYTES} bytes, found a length of {limits.FRAME_BYTES}" in str(error)
    assert guest.frames == []


async def test_after_the_introduction_large_frames_are_taken_also_in_one_piece_with_it(scenes: list[Scene]) -> None:
    scene = await opened(scenes)
    caller, guest = await scene.call()
    large = bytes(limits.STRANGER_FRAME_BYTES + 1)
    await caller.say(HELLO + prefix(1) + b"x", prefix(len(large)) + large)
    assert await caller.answers.get() == b"ok"
    assert [len(frame) for frame in guest.frames] == [5, 1, len(large)]


async def test_strangers_that_hold_much_together_are_dropped_and_others_still_come_in(scenes: list[Scene]) -> None:
    allowed = StrangerLimits(buffered_bytes=3 * limits.STRANGER_FRAME_BYTES)
    scene = await opened(scenes, strangers=allowed)
    callers = [await scene.call() for _ in range(8)]
    for caller, _ in callers:
        caller.connection.send(prefix(limits.STRANGER_FRAME_BYTES), bytes(limits.STRANGER_FRAME_BYTES - 1))
    ended, _ = await asyncio.wait([guest.ended for _, guest in callers], return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(one.result(), Overloaded) for one in ended)
    honest, _ = await scene.call()
    await honest.say(HELLO)


async def test_one_stranger_too_many_takes_the_place_of_the_oldest(scenes: list[Scene]) -> None:
    scene = await opened(scenes, strangers=StrangerLimits(connections=2))
    (_, first), (second, _), _ = [await scene.call() for _ in range(3)]
    assert isinstance(await first.ended, Overloaded)
    await second.say(HELLO)


async def test_a_full_server_drops_strangers_before_it_refuses_anybody(scenes: list[Scene]) -> None:
    scene = await opened(scenes, connections=2)
    known, _ = await scene.call()
    await known.say(HELLO)
    _, silent = await scene.call()
    second, _ = await scene.call()
    assert isinstance(await silent.ended, Overloaded)
    await second.say(HELLO)
    _, third = await scene.call()
    error = await third.ended
    assert isinstance(error, Overloaded)
    assert "at most 2 connections" in str(error)


async def test_where_there_is_no_hello_the_first_whole_frame_introduces(scenes: list[Scene]) -> None:
    allowed = StrangerLimits(frame_bytes=limits.FRAME_BYTES, first_frame_introduces=True)
    scene = await opened(scenes, strangers=allowed)
    caller, _ = await scene.call()
    await caller.say(prefix(1) + b"x")
    hurry(scene, dataclasses.replace(allowed, wait_s=0.05))
    _, silent = await scene.call()
    assert isinstance(await silent.ended, CallTimeout)
    await caller.say(prefix(1) + b"y")


async def test_many_drops_are_logged_in_one_line(scenes: list[Scene], capsys: pytest.CaptureFixture[str]) -> None:
    scene = await opened(scenes, strangers=StrangerLimits(wait_s=0.0))
    for _ in range(5):
        _, guest = await scene.call()
        await guest.ended
    assert capsys.readouterr().err.count("dropped connections") == 1


async def test_a_connection_of_which_nobody_says_anything_is_closed(scenes: list[Scene]) -> None:
    scene = await opened(scenes, idle_s=0.05)
    silent, guest = await scene.call()
    await silent.say(HELLO)
    error = await guest.ended
    assert isinstance(error, ConnectionLost)
    assert "nothing was said to or by" in str(error)


async def test_who_talks_or_is_talked_to_between_two_looks_stays(scenes: list[Scene]) -> None:
    scene = await opened(scenes)
    keeper = scene.server._doorkeeper
    (talks, talking), (hears, answered), (silent, quiet) = [await scene.call() for _ in range(3)]
    for caller in (talks, hears, silent):
        await caller.say(HELLO)
    for _ in range(3):
        keeper.look()
        talks.connection.send(prefix(1) + b"x")
        assert await talks.answers.get() == b"ok"
        answered.connection.send_now((prefix(4), b"push"))
        assert await hears.answers.get() == b"push"
    assert await quiet.ended is not None
    assert not talking.ended.done()
    assert not answered.ended.done()


async def test_a_silent_connection_lets_go_of_its_large_buffer_before_it_is_closed(scenes: list[Scene]) -> None:
    scene = await opened(scenes)
    caller, guest = await scene.call()
    await caller.say(HELLO, prefix(limits.MIB) + bytes(limits.MIB))
    for _ in range(2):
        scene.server._doorkeeper.look()
    assert guest.connection._parser.size == limits.CONNECTION_FIRST_BUFFER_BYTES
    await caller.say(prefix(1) + b"x")


async def test_nothing_is_kept_of_who_left(scenes: list[Scene]) -> None:
    scene = await opened(scenes)
    caller, guest = await scene.call()
    await caller.say(HELLO)
    _, stranger = await scene.call()
    for end in (guest, stranger):
        end.connection.abort(ConnectionLost("enough"))
        await end.ended
    keeper = scene.server._doorkeeper
    assert (keeper.guests, len(keeper._strangers), keeper._next_end, keeper._next_look) == ({}, 0, None, None)


async def test_the_kernel_looks_after_silent_tcp_peers_at_both_ends() -> None:
    ends: list[FrameConnection] = []
    loop = asyncio.get_running_loop()

    def made() -> FrameConnection:
        connection = FrameConnection()
        connection.handler = Caller(connection)
        ends.append(connection)
        return connection

    listener = await loop.create_server(made, "127.0.0.1", 0)
    client = await connect(Address("127.0.0.1", listener.sockets[0].getsockname()[1]), Caller)
    client.send(HELLO)
    assert isinstance(ends[0].handler, Caller)
    assert await ends[0].handler.answers.get() == b"hello"
    for connection in (client, ends[0]):
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            silent, interval, probes, unanswered_ms = (
                sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT
                )
            )  # fmt: skip
            assert silent + interval * probes == unanswered_ms / 1_000 == limits.CONNECTION_VANISHED_S
    client.close()
    await ends[0].ended()
    listener.close()
    await listener.wait_closed()
