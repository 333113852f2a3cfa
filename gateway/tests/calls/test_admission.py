"""What is over a bound is refused before it is read."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import TYPE_CHECKING

import pytest

from boki_common.errors import Overloaded
from boki_gateway.calls.admission import Admission
from boki_gateway.calls.table import SMALL_BODY
from boki_gateway.settings import GatewaySettings
from boki_gateway.testing import running_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from boki.testing import MemoryCluster

RECORDS = "/v1/books/b/records"
JSON = {"Content-Type": "application/json"}


def test_requests_and_streams_are_bounded() -> None:
    admission = Admission(GatewaySettings(requests=1, streams=1))
    for take in (admission.request, admission.stream):
        with take(), pytest.raises(Overloaded, match=r"1 .* at this gateway already; come back later"), take():
            pass
        with take():
            pass
    assert (admission.requests, admission.streams) == (0, 0)


async def body_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_body_without_a_length_is_bounded_as_it_comes(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as requester:
        async with requester.http.post(
            requester.url + RECORDS, data=body_of(b'{"text":', b'"x"}'), headers=JSON
        ) as answer:
            assert answer.status == 201
        parts = body_of(*[b" " * 2**20] * 3)
        async with requester.http.post(requester.url + RECORDS, data=parts, headers=JSON) as answer:
            assert answer.status == 413
        assert requester.gateway._parts.admission.body_bytes == 0


async def test_an_encoded_body_counts_as_the_most_that_it_may_stand_for(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as requester:
        address, admission = requester.gateway.address, requester.gateway._parts.admission
        _, writer = await asyncio.open_connection(address.host, address.port)
        head = f"POST {RECORDS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n".encode())
        while not admission.body_bytes:
            await asyncio.sleep(0)
        assert admission.body_bytes == SMALL_BODY
        writer.close()


async def test_a_bomb_is_refused_where_it_passes_the_limit(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as requester:
        bomb = gzip.compress(bytes(64 * SMALL_BODY))
        reply = await requester.ask("POST", RECORDS, data=bomb, headers=JSON | {"Content-Encoding": "gzip"})
        assert (reply.status, reply.body["error"]) == (413, "BodyTooLarge")
        fine = gzip.compress(b'{"text": "x"}')
        assert (
            await requester.ask("POST", RECORDS, data=fine, headers=JSON | {"Content-Encoding": "gzip"})
        ).status == 201


@pytest.mark.parametrize("what", ["empty members", "empty blocks", "spaces"])
async def test_a_body_that_stands_for_little_is_bounded_by_what_was_sent(cluster: MemoryCluster, what: str) -> None:
    """Neither its decoded bytes nor a Content-Length would end it."""
    packer = zlib.compressobj(wbits=31)
    begin = packer.compress(b" ") + packer.flush(zlib.Z_SYNC_FLUSH)
    piece = {
        "empty members": gzip.compress(b"", mtime=0) * 500,
        "empty blocks": b"\0\0\0\xff\xff" * 10_000,
        "spaces": bytes(20_000),
    }[what]
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield begin if what == "empty blocks" else b""
        while sent < 4 * SMALL_BODY:
            sent += len(piece)
            yield piece

    async with running_gateway(cluster) as requester:
        headers = JSON if what == "spaces" else JSON | {"Content-Encoding": "gzip"}
        async with requester.http.post(requester.url + RECORDS, data=endless(), headers=headers) as answer:
            assert answer.status == 413
        assert requester.gateway._parts.admission.body_bytes == 0


async def test_a_body_of_many_values_is_refused_before_it_is_decoded(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as requester:
        body = b'{"records": [' + b'{"text": ""},' * 200_000 + b'{"text": ""}]}'
        reply = await requester.ask("POST", f"{RECORDS}/batch", data=body, headers=JSON)
        assert (reply.status, reply.body["error"], reply.body["definite"]) == (413, "BodyTooLarge", True)


async def test_bodies_under_way_are_bounded_together(cluster: MemoryCluster) -> None:
    never = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with running_gateway(cluster, body_bytes=2_500_000) as requester:
        admission = requester.gateway._parts.admission
        first = asyncio.ensure_future(requester.http.post(requester.url + RECORDS, data=slow(), headers=JSON))
        while not admission.body_bytes:
            await asyncio.sleep(0)
        reply = await requester.ask("POST", RECORDS, {"text": "x" * 600_000})
        assert (reply.status, reply.body["error"]) == (503, "Overloaded")
        assert (await requester.ask("POST", RECORDS, {"text": "x" * 300_000})).status == 201
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        while admission.body_bytes:
            await asyncio.sleep(0)


async def test_a_body_that_does_not_end_is_given_up(cluster: MemoryCluster) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with (
        running_gateway(cluster, call_timeout_s=0.1) as requester,
        requester.http.post(requester.url + RECORDS, data=slow(), headers=JSON) as answer,
    ):
        assert answer.status == 408
        assert (await answer.json())["error"] == "BodyIncomplete"
