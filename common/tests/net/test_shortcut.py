"""The socket beside a loopback port: when it is used, and when the port is."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from boki_common.errors import BokiError
from boki_common.net import shortcut
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.net.frames import prefix
from boki_common.net.lasting_ports import lasting_port

LOOPBACK = Address("127.0.0.1", 0)

pytestmark = pytest.mark.skipif(not shortcut.exists_for("127.0.0.1"), reason="abstract sockets are Linux's")


class Echo:
    """Sends every frame back."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection = connection

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self._connection.send(prefix(len(frame)), frame)

    def connection_lost(self, error: BokiError | None) -> None: ...


class Caller:
    """Keeps what comes back."""

    def __init__(self, connection: FrameConnection) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.frames.put_nowait(bytes(frame))

    def connection_lost(self, error: BokiError | None) -> None: ...


async def family_of(address: Address) -> socket.AddressFamily:
    """Connects, sends a frame there and back, and tells over which kind of socket."""
    connection = await connect(address, Caller)
    assert isinstance(connection.handler, Caller)
    connection.send(prefix(5), b"hello")
    assert await connection.handler.frames.get() == b"hello"
    assert connection._transport is not None
    assert connection.peer == str(address), "people see the port, whichever way is taken"
    family = socket.AddressFamily(connection._transport.get_extra_info("socket").family)
    connection.close()
    await connection.ended()
    return family


@pytest.fixture
async def server() -> AsyncIterator[FrameServer]:
    made = await FrameServer.start(LOOPBACK._replace(port=lasting_port()), Echo)  # others begin there again
    yield made
    await made.close()


@pytest.fixture
async def port_only() -> AsyncIterator[int]:
    """The port of an echo server that has no shortcut."""
    made = await asyncio.start_server(echo_bytes, "127.0.0.1", 0)
    yield made.sockets[0].getsockname()[1]
    made.close()
    await made.wait_closed()


async def echo_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_loopback_server_is_reached_through_its_shortcut(server: FrameServer, host: str) -> None:
    assert await family_of(server.address._replace(host=host)) is socket.AF_UNIX


async def test_without_a_shortcut_the_port_is_used(port_only: int) -> None:
    assert await family_of(Address("127.0.0.1", port_only)) is socket.AF_INET


async def test_a_proxy_on_a_port_of_its_own_is_not_passed_by(server: FrameServer) -> None:
    passed: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.address.port)
        while data := await reader.read(1 << 16):
            passed.append(data)
            back.write(data)
            writer.write(await there.readexactly(len(data)))
        back.close()
        writer.close()

    proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
    assert await family_of(Address("127.0.0.1", proxy.sockets[0].getsockname()[1])) is socket.AF_INET
    assert b"".join(passed) == prefix(5) + b"hello"
    proxy.close()
    await proxy.wait_closed()


async def test_the_shortcut_ends_with_its_server(server: FrameServer) -> None:
    await server.close()
    assert shortcut.connect("127.0.0.1", server.address.port) is None
    again = await FrameServer.start(server.address, Echo)
    assert await family_of(again.address) is socket.AF_UNIX
    await again.close()


async def test_a_name_that_another_process_has_leaves_the_port_and_is_said_once(
    server: FrameServer, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.address.port
    await server.close()
    holder = shortcut.listen("127.0.0.1", port, backlog=0)
    again = await FrameServer.start(server.address, Echo)
    holder.close()
    assert await family_of(again.address) is socket.AF_INET
    assert capsys.readouterr().err.count("serves the port only") == 1
    await again.close()
    third = await FrameServer.start(server.address, Echo)
    assert await family_of(third.address) is socket.AF_UNIX
    await third.close()


async def test_a_full_backlog_does_not_wait(port_only: int) -> None:
    with shortcut.listen("127.0.0.1", port_only, backlog=0):
        waiting = []
        while (client := shortcut.connect("127.0.0.1", port_only)) is not None:
            waiting.append(client)
        assert waiting
        assert await family_of(Address("127.0.0.1", port_only)) is socket.AF_INET
        for client in waiting:
            client.close()


@pytest.fixture
def strangers_socket(port_only: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another user has taken the name of the port's shortcut."""
    if os.geteuid() == 0:
        os.seteuid(65_534)
        stranger = shortcut.listen("127.0.0.1", port_only, backlog=8)
        os.seteuid(0)
    else:  # we cannot become somebody else: then they are us, and we are
        stranger = shortcut.listen("127.0.0.1", port_only, backlog=8)
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    yield
    stranger.close()


@pytest.mark.usefixtures("strangers_socket")
async def test_another_users_socket_is_not_used(port_only: int) -> None:
    assert shortcut.connect("127.0.0.1", port_only) is None
    assert await family_of(Address("127.0.0.1", port_only)) is socket.AF_INET


def test_only_loopback_has_shortcuts() -> None:
    assert [host for host in ("127.0.0.1", "localhost", "::1") if not shortcut.exists_for(host)] == []
    assert [host for host in ("0.0.0.0", "10.0.0.1", "bookie-1", "") if shortcut.exists_for(host)] == []
