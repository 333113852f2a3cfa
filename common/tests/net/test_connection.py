"""Connections over loopback TCP and Unix sockets: batches, ends, addresses, refusals."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from boki_common.errors import BokiError, ConnectionLost, InvalidArgument, ProtocolError, SettingsError, Unreachable
from boki_common.net.connection import EARLY_WRITE_BYTES, Address, FrameConnection, FrameServer, check_free, connect
from boki_common.net.frames import prefix


class Collector:
    """Keeps what it receives; `ended` resolves with the error of the end."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.frames.put_nowait(bytes(frame))

    def connection_lost(self, error: BokiError | None) -> None:
        self.ended.set_result(error)


class Echo(Collector):
    def __init__(self, connection: FrameConnection, made: asyncio.Queue[Echo] | None = None) -> None:
        super().__init__(connection)
        connection.introduced()
        if made is not None:
            made.put_nowait(self)

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.connection.send(prefix(len(frame)), frame)


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    return Address("127.0.0.1", 0) if request.param == "tcp" else Address("", 0, str(tmp_path / "socket"))


async def test_an_address_is_free_until_a_server_listens_there(address: Address) -> None:
    await check_free(address)
    server = await FrameServer.start(address, Echo)
    with pytest.raises(
        SettingsError, match=f"cannot listen on .*{server.address.port or server.address.path}: Address already in use"
    ):
        await check_free(server.address)
    await server.close()
    for _ in range(2):
        await check_free(server.address)
    await (await FrameServer.start(server.address, Echo)).close()
    with pytest.raises(SettingsError, match="no such address"):
        await check_free(Address("203.0.113.1", 7))


def test_a_server_whose_close_is_cancelled_listens_no_more(address: Address) -> None:
    """On the loop of asyncio, on which the close waits before it closes."""

    async def cancelled() -> None:
        server = await FrameServer.start(address, Echo)
        closing = asyncio.ensure_future(server.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert not any(listening.is_serving() for listening in server._servers)
        await check_free(server.address)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(cancelled())


async def test_frames_of_all_sizes_come_back_in_order(address: Address) -> None:
    server = await FrameServer.start(address, Echo)
    connection = await connect(server.address, Collector)
    collector = connection.handler
    assert isinstance(collector, Collector)
    payloads = [bytes([size % 251]) * size for size in (0, 1, 100, 70_000, 1_000_000, 3)]
    for payload in payloads:
        connection.send(prefix(len(payload)), payload)
    assert [await collector.frames.get() for _ in payloads] == payloads
    connection.close()
    assert await collector.ended is None
    await server.close()


async def test_close_of_the_server_ends_connections_and_notifies_both_ends(address: Address) -> None:
    server = await FrameServer.start(address, Echo)
    connection = await connect(server.address, Collector)
    connection.send(prefix(1), b"x")
    assert await connection.handler.frames.get() == b"x"  # type: ignore[attr-defined]
    await server.close()
    assert isinstance(await connection.handler.ended, ConnectionLost)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionLost):
        await connection.drain()
    connection.send(b"ignored after the end")


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_while_a_server_closes_is_closed_too(address: Address, turns: int) -> None:
    """At whatever turn of the loop: accepted or not, made or not, it is not left waiting for an answer."""
    server = await FrameServer.start(address, Echo)
    family = socket.AF_UNIX if server.address.path else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as peer:
        peer.connect_ex(server.address.path or (server.address.host, server.address.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        for _ in range(10):
            await asyncio.sleep(0)
        try:
            assert peer.recv(1) == b""  # raises BlockingIOError where the connection is still open
        except ConnectionResetError:
            pass


async def test_an_ended_connection_keeps_no_receive_buffer(address: Address) -> None:
    server = await FrameServer.start(address, Echo)
    connection = await connect(server.address, Collector)
    buffer = connection.get_buffer(-1).obj
    assert isinstance(buffer, bytearray)
    connection.close()
    await connection.ended()
    await server.close()
    buffer.clear()  # which is refused while somebody has a view of it


async def test_oversized_length_ends_the_connection_at_the_side_that_saw_it() -> None:
    handlers: asyncio.Queue[Echo] = asyncio.Queue()
    server = await FrameServer.start(Address("127.0.0.1", 0), lambda made: Echo(made, handlers), frame_bytes_limit=100)
    connection = await connect(server.address, Collector)
    connection.send(prefix(101))
    assert isinstance(await (await handlers.get()).ended, ProtocolError)
    assert isinstance(await connection.handler.ended, ConnectionLost)  # type: ignore[attr-defined]
    await server.close()


async def test_an_end_in_the_middle_of_a_frame_is_an_error() -> None:
    handlers: asyncio.Queue[Echo] = asyncio.Queue()
    server = await FrameServer.start(Address("127.0.0.1", 0), lambda made: Echo(made, handlers))
    connection = await connect(server.address, Collector)
    connection.send(prefix(10), b"half")
    connection.close()
    error = await (await handlers.get()).ended
    assert isinstance(error, ConnectionLost)
    assert "middle of a frame" in str(error)
    await server.close()


async def test_port_in_use_says_which_and_what_to_do() -> None:
    server = await FrameServer.start(Address("127.0.0.1", 0), Echo)
    with pytest.raises(SettingsError, match=rf"{server.address}.*stop it, or choose another port"):
        await FrameServer.start(server.address, Echo)
    await server.close()


@pytest.mark.blocking_allowed  # asyncio removes the socket file that was left behind, once, before it serves
async def test_socket_that_somebody_serves_is_not_taken_over(tmp_path: Path) -> None:
    address = Address("", 0, str(tmp_path / "socket"))
    server = await FrameServer.start(address, Echo)
    with pytest.raises(SettingsError, match="stop it"):
        await FrameServer.start(address, Echo)
    connection = await connect(address, Collector)  # the first server still serves
    connection.send(prefix(1), b"x")
    assert await connection.handler.frames.get() == b"x"  # type: ignore[attr-defined]
    await server.close()
    again = await FrameServer.start(address, Echo)  # a socket file that was left behind is replaced
    await again.close()


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="is it up"):
        await connect(Address("", 0, str(tmp_path / "nothing")), Collector)
    server = await FrameServer.start(Address("127.0.0.1", 0), Echo)
    await server.close()
    with pytest.raises(Unreachable, match="is it up"):
        await connect(server.address, Collector)


async def test_drain_waits_for_a_slow_reader() -> None:
    received = bytearray()

    async def read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await started.wait()
        while data := await reader.read(1 << 20):
            received.extend(data)
        writer.close()
        await writer.wait_closed()
        finished.set()

    started, finished = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(read_slowly, "127.0.0.1", 0)
    connection = await connect(Address("127.0.0.1", server.sockets[0].getsockname()[1]), Collector)
    for _ in range(40):
        connection.send(bytes(1 << 20))
    await asyncio.tasks.sleep(0)
    assert connection.unsent_bytes > 0
    waiting = asyncio.ensure_future(connection.drain())
    await asyncio.tasks.sleep(0)
    assert not waiting.done()
    started.set()
    await waiting
    connection.close()
    await finished.wait()
    assert len(received) == 40 << 20
    server.close()
    await server.wait_closed()


class Recording(asyncio.Transport):
    """A transport that keeps what each write brought."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.writes.append(b"".join(list_of_data))

    def close(self) -> None: ...


async def test_what_a_turn_sends_leaves_in_one_write_and_in_order() -> None:
    connection, transport = FrameConnection(), Recording()
    connection.connection_made(transport)
    connection.send(b"a", b"b")
    connection.send(b"c")
    assert transport.writes == []
    await asyncio.tasks.sleep(0)
    assert transport.writes == [b"abc"]
    connection.send(b"d")
    connection.send_now((b"e", b"f"))
    connection.send_now([b"g"])
    assert transport.writes[1:] == [b"def", b"g"]
    await asyncio.tasks.sleep(0)
    assert len(transport.writes) == 3


class Silent:
    def frames_received(self, frames: list[memoryview]) -> None: ...

    def connection_lost(self, error: BokiError | None) -> None: ...


def calls_of(function: Callable[..., object], *arguments: object) -> list[str]:
    """Names of the functions of Python and C that one call calls, itself first."""
    names: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call" and argument is not sys.setprofile:
            names.append(argument.__name__)

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.own_interpreter
async def test_one_frame_is_read_in_five_calls_and_sent_in_two() -> None:
    """An append is seventeen of each, and waits for most of them."""
    connection, transport = FrameConnection(), Recording()
    connection.handler = Silent()
    connection.connection_made(transport)
    frame = prefix(3) + b"abc"
    for _ in range(3):
        connection.get_buffer(-1)[: len(frame)] = frame
        reading = [*calls_of(connection.get_buffer, -1), *calls_of(connection.buffer_updated, len(frame))]
        assert reading == ["get_buffer", "buffer_updated", "received", "unpack_from", "frames_received"]
        assert calls_of(connection.send_now, (frame,))[:2] == ["send_now", "writelines"]


async def test_much_is_written_before_the_turn_is_over() -> None:
    connection, transport = FrameConnection(), Recording()
    connection.connection_made(transport)
    connection.send(bytes(EARLY_WRITE_BYTES - 2), b"1")
    assert transport.writes == []
    connection.send(b"2")
    assert list(map(len, transport.writes)) == [EARLY_WRITE_BYTES]
    connection.send(b"3")
    await asyncio.tasks.sleep(0)
    assert transport.writes[1:] == [b"3"]


async def test_what_is_sent_before_the_connection_is_made_leaves_when_it_is() -> None:
    connection, transport = FrameConnection(), Recording()
    connection.send_now((b"a",))
    connection.send(b"b")
    connection.connection_made(transport)
    await asyncio.tasks.sleep(0)
    assert transport.writes == [b"ab"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7040", Address("127.0.0.1", 7040)),
        ("tcp://localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
        ("unix:///tmp/s", Address("", 0, "/tmp/s")),
    ],
)
def test_addresses_are_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:port", "host:70000", "unix://relative", "h:-1"])
def test_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected"):
        Address.parse(text)
