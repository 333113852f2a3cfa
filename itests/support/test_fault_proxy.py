"""The fault proxy: each fault is seen by the peers as it is named, and TCP's promises hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from itests.support.fault_proxy import TO_CLIENT, TO_TARGET, FaultProxy


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """In front of a server that echoes."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with FaultProxy(f"{host}:{port}") as proxy:
        yield proxy
    server.close()


async def connect(proxy: FaultProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = proxy.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, seconds: float = 5) -> bytes:
    writer.write(data)
    async with asyncio.timeout(seconds):
        return await reader.readexactly(len(data))


async def nothing_comes(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await reader.read(1)


async def test_without_faults_bytes_pass_unchanged(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    data = bytes(range(256)) * 10_000
    assert await echoed(reader, writer, data) == data
    writer.transport.abort()


async def test_delay_holds_bytes_back_and_keeps_their_order(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    await echoed(reader, writer, b"warm")
    proxy.delay(0.15)
    begun = asyncio.get_running_loop().time()
    assert await echoed(reader, writer, b"slow") == b"slow"
    took_s = asyncio.get_running_loop().time() - begun
    assert round(took_s, 3) >= 0.3, "both directions; the clock of the loop counts milliseconds"
    writer.transport.abort()


async def test_throttle_limits_bytes_a_second(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    proxy.throttle(200_000, direction=TO_CLIENT)
    begun = asyncio.get_running_loop().time()
    data = bytes(60_000)
    assert await echoed(reader, writer, data + data) == data + data
    assert asyncio.get_running_loop().time() - begun >= 0.25
    writer.transport.abort()


@pytest.mark.parametrize("direction", [TO_TARGET, TO_CLIENT])
async def test_stalled_bytes_arrive_when_it_heals(proxy: FaultProxy, direction: str) -> None:
    reader, writer = await connect(proxy)
    await echoed(reader, writer, b"warm")
    proxy.stall(direction=direction)
    writer.write(b"late")
    await nothing_comes(reader)
    proxy.heal()
    assert await reader.readexactly(4) == b"late"
    writer.transport.abort()


@pytest.mark.parametrize("direction", [TO_TARGET, TO_CLIENT])
async def test_half_open_connections_swallow_bytes_and_are_reset_when_it_heals(
    proxy: FaultProxy, direction: str
) -> None:
    reader, writer = await connect(proxy)
    await echoed(reader, writer, b"warm")
    proxy.half_open(direction=direction)
    writer.write(b"lost")
    await nothing_comes(reader)
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    again = await connect(proxy)
    assert await echoed(*again, b"anew") == b"anew"
    again[1].transport.abort()


async def test_reset_ends_connections_with_an_error_and_new_ones_work(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    await echoed(reader, writer, b"warm")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    again = await connect(proxy)
    assert await echoed(*again, b"anew") == b"anew"
    again[1].transport.abort()


async def test_refused_connections_are_reset_at_once(proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(OSError, match="reset"):
        reader, _ = await connect(proxy)
        assert not await reader.read(1)
    proxy.heal()
    again = await connect(proxy)
    assert await echoed(*again, b"anew") == b"anew"
    again[1].transport.abort()
