"""What is no request is answered in the shape of its server, in one line of the log; connections are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from boki_common import limits
from boki_common.errors import BokiError
from boki_common.http import http_server
from boki_common.http.http_page import HttpPage, answer, body_of
from boki_common.http.http_server import HttpRunner
from boki_common.logs import configured

HOST = b"Host: localhost\r\n"
BODY = b"Content-Length: 2\r\n\r\n{}"
REFUSED: dict[str, tuple[bytes, int, str]] = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "MalformedRequest"),
    "method": (b"G@T / HTTP/1.1\r\n" + HOST + b"\r\n", 400, "MalformedRequest"),
    "version": (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", 400, "MalformedRequest"),
    "header": (b"GET / HTTP/1.1\r\n" + HOST + b"a b: c\r\n\r\n", 400, "MalformedRequest"),
    "two hosts": (b"GET / HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n", 400, "MalformedRequest"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "MalformedRequest"),
    "length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: x\r\n\r\n", 400, "MalformedRequest"),
    "two lengths": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "MalformedRequest"),
    "length and chunks": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "MalformedRequest",
    ),
    "chunk": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "MalformedRequest"),
    "target": (b"GET /" + b"a" * limits.HTTP_TARGET_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "TargetTooLong"),
    "long value": (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * (limits.HTTP_FIELD_BYTES + 1) + b"\r\n\r\n", 431, "HeadersTooLarge"),
    "long name": (b"GET / HTTP/1.1\r\n" + HOST + b"X" * (limits.HTTP_FIELD_BYTES + 1) + b": a\r\n\r\n", 431, "HeadersTooLarge"),
    "many headers": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n" * (limits.HTTP_FIELDS + 1) + b"\r\n", 431, "HeadersTooLarge"),
    "expectation": (b"POST / HTTP/1.1\r\n" + HOST + b"Expect: tea\r\n" + BODY, 417, "ExpectationRefused"),
    "expectation nowhere": (b"GET /nowhere HTTP/1.1\r\n" + HOST + b"Expect: tea\r\n\r\n", 417, "ExpectationRefused"),
    "encoding": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Encoding: gzip\r\n" + BODY, 400, "InvalidArgument"),
}  # fmt: skip


async def _echo(request: web.Request) -> web.Response:
    return answer(await body_of(request))


@pytest.fixture
async def page() -> AsyncIterator[HttpPage]:
    found = HttpPage("test page", setting="test_port")
    found.get("/", "Nothing.", _echo)
    found.add("POST", "/", "Says it again.", _echo)
    await found.listen("127.0.0.1", 0)
    yield found
    await found.close()


async def exchange(port: int, data: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer to some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return int(head.split()[1]), head, await reader.readexactly(int(length.partition(b":")[2]))
    finally:
        writer.close()


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_read_is_refused_in_the_shape_of_the_server(
    page: HttpPage, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, status, error = REFUSED[what]
    found, head, body = await exchange(page.port, data)
    assert (found, error.encode() in body) == (status, True), body
    assert b"application/json" in head.lower() and body.startswith(b'{"error":"expected ')
    said = capsys.readouterr().err
    assert "Traceback" not in said and len(said.splitlines()) <= 1
    assert (await exchange(page.port, b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"))[0] == 200, "others go on"


async def test_an_expectation_of_100_continue_is_met(page: HttpPage) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    writer.write(b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(b"{}")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def _admit(request: web.Request) -> web.Response:
    http_server.admitted(request)
    return answer({})


async def _begin(request: web.Request) -> web.StreamResponse:
    """Begin one answer, and give another."""
    stream = web.StreamResponse()
    stream.enable_chunked_encoding()
    await stream.prepare(request)
    await stream.write(b"begun")
    return answer({"error": "too late"}, 500)


@asynccontextmanager
async def running(connections: int, first_head_s: float) -> AsyncIterator[int]:
    """The port of a server that answers `/` to anybody, and `/mine` as a request that shows the token."""

    def refuse(error: BokiError) -> web.Response:
        return answer({"error": str(error)}, http_server.STATUSES[type(error)])

    application = web.Application()
    application.router.add_get("/", _echo)
    application.router.add_get("/mine", _admit)
    application.router.add_get("/begin", _begin)
    application.router.add_post("/", _echo)
    runner = HttpRunner(application, refuse=refuse, connections=connections, first_head_s=first_head_s)
    yield await runner.listen("127.0.0.1", 0, what="test", setting="port")
    await runner.cleanup()


class Caller:
    """One connection. `ask` returns the status of an answer; None: the connection ended."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Caller:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, path: str) -> int | None:
        try:
            self._writer.write(f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n")
            head = await self._reader.readuntil(b"\r\n\r\n")
            await self._reader.readexactly(len(b"{}\n"))
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        return int(head.split()[1])

    async def ended(self) -> bytes:
        """What still came before the end."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local"])
async def test_a_connection_that_brings_no_whole_head_in_time_is_ended(sent: bytes) -> None:
    async with running(connections=2, first_head_s=0.01) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_a_stranger_gets_one_answer_and_a_guest_many() -> None:
    async with running(connections=9, first_head_s=60) as port, Caller(port) as stranger, Caller(port) as guest:
        assert [await stranger.ask("/"), await stranger.ask("/mine")] == [200, None]
        assert [await guest.ask("/mine"), await guest.ask("/"), await guest.ask("/mine")] == [200, 200, 200]


async def test_strangers_never_keep_a_guest_out() -> None:
    """Connections that say nothing, or whose body never comes, are the first to be dropped for a new one."""
    async with running(connections=3, first_head_s=60) as port, Caller(port) as kept:
        assert await kept.ask("/mine") == 200
        async with Caller(port) as silent, Caller(port) as slow:
            slow._writer.write(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\n")
            async with Caller(port) as guest, Caller(port) as other:
                assert [await guest.ask("/mine"), await other.ask("/mine")] == [200, 200]
                assert [await silent.ended(), await slow.ended()] == [b"", b""]
                assert [await caller.ask("/mine") for caller in (kept, guest, other)] == [200, 200, 200]


async def test_a_connection_over_the_bound_is_ended_until_a_guest_leaves() -> None:
    async with running(connections=1, first_head_s=60) as port:
        async with Caller(port) as guest:
            assert await guest.ask("/mine") == 200
            async with Caller(port) as refused:
                assert await refused.ask("/mine") is None
            assert await guest.ask("/mine") == 200
        while True:  # the server sees in its own time that the guest left
            async with Caller(port) as another:
                if await another.ask("/mine") == 200:
                    break


async def test_an_answer_that_began_is_cut_off_and_not_followed_by_another_status_line() -> None:
    async with running(connections=9, first_head_s=60) as port, Caller(port) as caller:
        caller._writer.write(b"GET /begin HTTP/1.1\r\n" + HOST + b"\r\n")
        answered = await caller.ended()
        assert answered.endswith(b"5\r\nbegun\r\n") and answered.count(b"HTTP/1.1") == 1


async def test_what_anybody_can_cause_is_one_line_a_minute(page: HttpPage, capsys: pytest.CaptureFixture[str]) -> None:
    with configured(level="debug"):
        for _ in range(3):
            for data, _, _ in REFUSED.values():
                await exchange(page.port, data)
    assert capsys.readouterr().err.count("\n") == 1


async def test_the_last_line_about_connections_is_written_when_the_server_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = next(data for data, _, _ in REFUSED.values())
    with configured(level="debug"):
        async with running(connections=9, first_head_s=60) as port:
            for _ in range(4):
                await exchange(port, sent)
        lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "left_out=2" in lines[1]
