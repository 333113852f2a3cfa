"""The way of a request: who may ask, what is refused before it is read, and one shape for every error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from boki.testing import MemoryCluster
from boki_common.engine.admission import Admission
from boki_common.engine.answers import encode_answers
from boki_common.errors import SettingsError
from boki_common.net.connection import Address
from boki_gateway.calls.table import SMALL_BODY
from boki_gateway.server import ROUTES, Gateway, _has_head
from boki_gateway.testing import running_gateway

if TYPE_CHECKING:
    from boki_gateway.testing import Requester

SHAPE = {"error", "message", "facts", "retryable", "definite"}
RECORDS = "/v1/books/b/records"
ENCODED = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "error"),
    [
        ("GET", "/v2/x", {}, 404, "NoSuchPath"),
        ("DELETE", RECORDS, {}, 405, "MethodRefused"),
        ("GET", f"{RECORDS}/x", {}, 400, "InvalidArgument"),
        ("GET", RECORDS, {"params": {"limt": "1"}}, 400, "InvalidArgument"),
        ("GET", RECORDS, {"headers": {"Host": "evil.example"}}, 403, "HostRefused"),
        ("POST", RECORDS, {"body": {"text": "x"}, "headers": {"Origin": "http://evil.example"}}, 403, "OriginRefused"),
        ("GET", "/v1/books/b/events", {"headers": {"Origin": "http://evil.example"}}, 403, "OriginRefused"),
        ("GET", "/metrics", {"headers": {"Origin": "null"}}, 403, "OriginRefused"),
        ("POST", RECORDS, {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, "UnsupportedBody"),
        ("POST", RECORDS, {"data": b"x" * (SMALL_BODY + 1), "headers": {"Content-Type": "application/json"}}, 413, "BodyTooLarge"),
        ("POST", RECORDS, {"data": b'{"text":"x"}', "headers": ENCODED | {"Content-Encoding": "gzip"}}, 400, "InvalidArgument"),
        ("POST", RECORDS, {"data": b'{"text":"x"}', "headers": ENCODED | {"Content-Encoding": "br"}}, 415, "UnsupportedEncoding"),
        ("POST", RECORDS, {"data": b'{"text":"x"}', "headers": ENCODED | {"Content-Encoding": "x"}}, 415, "UnsupportedEncoding"),
        ("POST", RECORDS, {"body": {"text": "x"}, "headers": {"Expect": "tea"}}, 417, "ExpectationRefused"),
        ("GET", RECORDS, {"headers": {"X-Long": "x" * 20_000}}, 431, "HeadersTooLarge"),
        ("GET", RECORDS, {"params": {"tag": "x" * 9_000}}, 414, "TargetTooLong"),
        ("POST", RECORDS, {"body": {"text": "x" * (2**20 + 1)}}, 413, "RecordTooLarge"),
    ],
)  # fmt: skip
async def test_what_is_refused(
    requester: Requester,
    method: str,
    path: str,
    options: dict[str, Any],
    status: int,
    error: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reply = await requester.ask(method, path, **options)
    assert (reply.status, reply.body["error"], set(reply.body)) == (status, error, SHAPE)
    assert "expected" in reply.body["message"]
    assert (reply.headers.get("Accept-Encoding") == "gzip, deflate") == (error == "UnsupportedEncoding")
    assert "Traceback" not in capsys.readouterr().err
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert (await requester.get(f"{RECORDS}/tail")).body["record"] is None, "nothing was appended"


@pytest.mark.parametrize("address", [Address("127.0.0.1", 0), Address("0.0.0.0", 0)], ids=str)
async def test_a_name_that_was_made_to_mean_this_address_is_refused_on_any_bind(
    cluster: MemoryCluster, address: Address
) -> None:
    rebound = {"Host": "evil.example:7080", "Origin": "http://evil.example:7080"}
    async with running_gateway(cluster, address, allowed_hosts=["log.example"]) as requester:
        for route in ROUTES:
            reply = await requester.ask(route.method, route.path, {} if route.body else None, headers=rebound)
            assert (reply.status, reply.body["error"]) == (403, "HostRefused"), route
        for host in ("log.example:7080", "10.0.0.5:7080", "localhost"):
            assert (await requester.ask("GET", "/v1/books/b/records", headers={"Host": host})).status == 200


async def test_the_methods_of_a_path_are_named(requester: Requester) -> None:
    """Of every path exactly those that the table has: what is a path by itself is no value of a variable."""
    methods: dict[str, set[str]] = {}
    for route in ROUTES:
        methods.setdefault(route.path, set()).update([route.method, *(["HEAD"] if _has_head(route) else [])])
    for path, allowed in methods.items():
        filled = path.format(book="b", seqnum="7", writer="w", time_ms="0")
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - allowed:
            reply = await requester.ask(method, filled)
            assert (reply.status, reply.headers.get("Allow")) == (405, ", ".join(sorted(allowed))), (method, path)
    assert methods[f"{RECORDS.replace('/b/', '/{book}/')}/batch"] == {"POST"}


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", RECORDS, f"{RECORDS}/7"])
async def test_head_is_get_without_the_body(requester: Requester, path: str) -> None:
    async with requester.http.get(requester.url + path) as got, requester.http.head(requester.url + path) as headed:
        assert await headed.read() == b""
        assert headed.status == got.status
        names = (
            ("Content-Type", "Boki-Session")
            if path == "/metrics"
            else ("Content-Type", "Boki-Session", "Content-Length")
        )
        assert [headed.headers.get(name) for name in names] == [got.headers.get(name) for name in names]
    async with requester.http.head(f"{requester.url}/v1/books/b/events") as endless:
        assert endless.status == 405


@pytest.mark.parametrize("target", ["/v1/books/%FF/records", f"{RECORDS}?tag=M%FCnchen", f"{RECORDS}?tag=%C3"])
async def test_bytes_that_are_no_utf8_name_nothing(requester: Requester, target: str) -> None:
    url = URL(requester.url + target, encoded=True)
    method, body = ("GET", None) if "?" in target else ("POST", {"text": "x"})
    async with requester.http.request(method, url, json=body) as answer:
        refused = await answer.json()
    assert (answer.status, refused["error"]) == (400, "InvalidArgument")
    assert refused["message"].startswith("expected UTF-8, percent-encoded, in the URL, found ")
    async with requester.http.get(URL(f"{requester.url}{RECORDS}?tag=M%C3%BCnchen", encoded=True)) as fine:
        assert fine.status == 200


async def test_answers_carry_the_session_errors_too(requester: Requester) -> None:
    await requester.append("b", "x", "t")
    refused = await requester.ask("POST", RECORDS, {"text": "y", "expect": {"t": None}})
    assert refused.status == 409
    token = refused.headers["Boki-Session"]
    assert requester.client.session(token).session_token() == token
    assert "Boki-Session" not in (await requester.get("/health")).headers


async def test_a_session_of_another_cluster_is_named_at_once(requester: Requester) -> None:
    async with MemoryCluster() as elsewhere:
        client = await elsewhere.connect()
        await client.book("b").append(b"x")
        token = client.session_token()
    for method, path, body in (("GET", f"{RECORDS}/tail", None), ("POST", RECORDS, {"text": "x"})):
        reply = await requester.ask(method, path, body, headers={"Boki-Session": token})
        assert (reply.status, reply.body["error"], reply.body["definite"]) == (400, "WrongCluster", True)
        assert "expected a session token of the cluster that this client is connected to" in reply.body["message"]


async def test_a_lost_cluster_is_503_and_to_be_tried_again(cluster: MemoryCluster, requester: Requester) -> None:
    assert (await requester.get("/health")).body == {"status": "ok", "reasons": []}
    await requester.client.close()
    reply = await requester.get(f"{RECORDS}/tail")
    assert (reply.status, reply.body["error"], reply.headers["Retry-After"]) == (503, "ClosedError", "1")
    health = await requester.get("/health")
    assert (health.status, health.body["status"]) == (503, "failing")
    assert "no engine answers" in health.body["reasons"][0]


async def test_appends_that_are_refused_are_503_and_health_says_why(requester: Requester) -> None:
    refusal = Admission(1, 2, 2)
    appends = requester.client._appends
    assert appends is not None
    appends.answers(memoryview(b"".join(encode_answers({}, [refusal.row()]))))
    reply = await requester.ask("POST", RECORDS, {"text": "x"})
    assert (reply.status, reply.body["error"], reply.headers["Retry-After"]) == (503, "DiskFull", "1")
    assert (reply.body["definite"], reply.body["retryable"]) == (True, True)
    health = await requester.get("/health")
    assert (health.status, health.body) == (200, {"status": "ok", "reasons": [f"DiskFull: {refusal.error()}"]})
    assert (await requester.get(RECORDS)).status == 200, "reads go on"


async def test_requests_are_counted_by_route_and_status(requester: Requester) -> None:
    await requester.append("b", "x")
    await requester.get("/nowhere")
    text = (await requester.get("/metrics")).body.decode()
    assert 'boki_gateway_requests_total{route="append",status="201"} 1.0' in text
    assert 'boki_gateway_requests_total{route="none",status="404"} 1.0' in text
    assert 'boki_gateway_request_seconds_count{route="append"} 1.0' in text
    assert "boki_gateway_streams 0.0" in text


async def test_a_fault_of_the_gateway_is_answered_and_logged(
    requester: Requester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_session: object) -> str:
        raise RuntimeError("secret")

    monkeypatch.setattr(requester.gateway._parts.sessions, "token_of", broken)
    reply = await requester.get(f"{RECORDS}/tail")
    assert (reply.status, reply.body["error"], set(reply.body)) == (500, "InternalError", SHAPE)
    assert "secret" not in str(reply.body)
    assert "a request could not be answered" in capsys.readouterr().err


async def test_a_client_that_leaves_cancels_its_request(requester: Requester) -> None:
    admission = requester.gateway._parts.admission
    waiting = asyncio.ensure_future(requester.get(f"{RECORDS}/next", wait="60"))
    while not admission.requests:
        await asyncio.sleep(0)
    waiting.cancel()
    while admission.requests:
        await asyncio.sleep(0)


async def test_an_address_in_use_is_named(requester: Requester, cluster: MemoryCluster) -> None:
    parts = requester.gateway._parts
    with pytest.raises(SettingsError, match=r"found that 127.0.0.1:\d+ is in use; choose another gateway.port"):
        await Gateway(
            requester.client,
            requester.facts,
            parts.settings,
            parts.metrics,
            address=Address("127.0.0.1", requester.gateway.address.port),
        ).listen()
