"""Health, metrics, status and the description are there; `test_server` shows what they say when something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boki_gateway.testing import Requester


async def test_status(requester: Requester) -> None:
    reply = await requester.get("/v1/status")
    assert reply.status == 200
    assert reply.headers["Cache-Control"] == "no-store"
    assert set(reply.body) == {"cluster", "gateway", "history", "age_s"}
    assert [slots["log"] for slots in reply.body["cluster"]["slots"]] == [0, 1, 0]
    assert reply.body["cluster"]["engines"][0]["logs"][0]["seqnum"] == "240518219776", "seqnums are text here too"


async def test_metrics_are_prometheus_text(requester: Requester) -> None:
    reply = await requester.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert b"# HELP boki_gateway_requests_total" in reply.body


async def test_the_description_is_openapi(requester: Requester) -> None:
    assert (await requester.get("/openapi.json")).body["openapi"] == "3.1.0"
