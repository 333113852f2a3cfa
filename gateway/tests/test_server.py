"""The way of a request: who may ask, what is refused before it is read, and one shape for every error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from boki_common.errors import SettingsError
from boki_common.net.connection import Address
from boki_gateway.server import Gateway
from boki_gateway.table import SMALL_BODY

if TYPE_CHECKING:
    from boki.testing import MemoryCluster
    from boki_gateway.testing import Asker

SHAPE = {"error", "message", "facts", "retryable", "definite"}
RECORDS = "/v1/books/b/records"


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "error"),
    [
        ("GET", "/v2/x", {}, 404, "NoSuchPath"),
        ("DELETE", RECORDS, {}, 405, "MethodRefused"),
        ("GET", f"{RECORDS}/x", {}, 400, "InvalidArgument"),
        ("GET", RECORDS, {"params": {"limt": "1"}}, 400, "InvalidArgument"),
        ("GET", RECORDS, {"headers": {"Host": "evil.example"}}, 403, "HostRefused"),
        ("POST", RECORDS, {"body": {"text": "x"}, "headers": {"Origin": "http://evil.example"}}, 403, "OriginRefused"),
        ("POST", RECORDS, {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, "UnsupportedBody"),
        ("POST", RECORDS, {"data": b"x" * (SMALL_BODY + 1), "headers": {"Content-Type": "application/json"}}, 413, "BodyTooLarge"),
        ("POST", RECORDS, {"body": {"text": "x" * 2**20}}, 413, "RecordTooLarge"),
    ],
)  # fmt: skip
async def test_what_is_refused(
    asker: Asker, method: str, path: str, options: dict[str, Any], status: int, error: str
) -> None:
    reply = await asker.ask(method, path, **options)
    assert (reply.status, reply.body["error"], set(reply.body)) == (status, error, SHAPE)
    assert "expected" in reply.body["message"]
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert (await asker.get(f"{RECORDS}/tail")).body["record"] is None, "nothing was appended"


async def test_the_methods_of_a_path_are_told(asker: Asker) -> None:
    assert (await asker.ask("DELETE", RECORDS)).headers["Allow"] == "GET, POST"


async def test_answers_carry_the_session_errors_too(asker: Asker) -> None:
    await asker.append("b", "x", "t")
    refused = await asker.ask("POST", RECORDS, {"text": "y", "expect": {"t": None}})
    assert refused.status == 409
    token = refused.headers["Boki-Session"]
    assert asker.client.session(token).session_token() == token
    assert "Boki-Session" not in (await asker.get("/health")).headers


async def test_a_lost_cluster_is_503_and_to_be_tried_again(cluster: MemoryCluster, asker: Asker) -> None:
    assert (await asker.get("/health")).body == {"status": "ok", "reasons": []}
    await asker.client.close()
    reply = await asker.get(f"{RECORDS}/tail")
    assert (reply.status, reply.body["error"], reply.headers["Retry-After"]) == (503, "ClosedError", "1")
    health = await asker.get("/health")
    assert (health.status, health.body["status"]) == (503, "failing")
    assert "no engine answers" in health.body["reasons"][0]


async def test_requests_are_counted_by_route_and_status(asker: Asker) -> None:
    await asker.append("b", "x")
    await asker.get("/nowhere")
    text = (await asker.get("/metrics")).body.decode()
    assert 'boki_gateway_requests_total{route="append",status="201"} 1.0' in text
    assert 'boki_gateway_requests_total{route="none",status="404"} 1.0' in text
    assert 'boki_gateway_request_seconds_count{route="append"} 1.0' in text
    assert "boki_gateway_streams 0.0" in text


async def test_a_fault_of_the_gateway_is_answered_and_logged(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_session: object) -> str:
        raise RuntimeError("secret")

    monkeypatch.setattr(asker.gateway._parts.sessions, "token_of", broken)
    reply = await asker.get(f"{RECORDS}/tail")
    assert (reply.status, reply.body["error"], set(reply.body)) == (500, "InternalError", SHAPE)
    assert "secret" not in str(reply.body)
    assert "a request could not be answered" in capsys.readouterr().err


async def test_a_client_that_leaves_cancels_its_request(asker: Asker) -> None:
    admission = asker.gateway._parts.admission
    waiting = asyncio.ensure_future(asker.get(f"{RECORDS}/next", wait="60"))
    while not admission.requests:
        await asyncio.sleep(0)
    waiting.cancel()
    while admission.requests:
        await asyncio.sleep(0)


async def test_an_address_in_use_is_named(asker: Asker, cluster: MemoryCluster) -> None:
    parts = asker.gateway._parts
    with pytest.raises(SettingsError, match=r"found that 127.0.0.1:\d+ is in use; choose another gateway.port"):
        await Gateway.start(
            asker.client,
            asker.facts,
            parts.settings,
            parts.metrics,
            address=Address("127.0.0.1", asker.gateway.address.port),
        )
