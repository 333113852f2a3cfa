"""The routes that are about the gateway and its cluster: health, metrics, status, the API's description."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from boki_common.errors import BokiError
from boki_gateway.calls.board import StatusAnswer
from boki_gateway.calls.bodies import HealthAnswer
from boki_gateway.calls.call import JSON, Answer, Call
from boki_gateway.calls.table import Route

HEALTH_TIMEOUT_S: Final = 2.0


async def health(call: Call) -> Answer:
    """Asks an engine something that is answered at once. Why it fails is for those who show the token; so is what else there is to
    say: that appends are refused ends no reads."""
    try:
        await call.parts.client.book(0).check_tail(consistency="any", timeout=HEALTH_TIMEOUT_S)
    except BokiError as error:
        reasons = [f"no engine answers this gateway: {error}"]
        return HealthAnswer("failing", reasons if call.admitted else [])
    refusal = call.parts.client.refusal
    return HealthAnswer("ok", [f"{type(refusal).__name__}: {refusal}"] if refusal is not None and call.admitted else [])


async def metrics(call: Call) -> Answer:
    return web.Response(body=call.parts.metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def status(call: Call) -> StatusAnswer:
    return await call.parts.board.look()


async def openapi(call: Call) -> Answer:
    return web.Response(body=call.parts.document, content_type=JSON)


_route = partial(Route, method="GET", group="operation", session=False)

OPERATION_ROUTES: Final = (
    _route(
        path="/v1/status",
        summary="How the cluster is: logs, terms, slots, engines, sequencers, bookies, and the last minutes' rates.",
        handler=status,
        answer=StatusAnswer,
    ),
    _route(
        path="/health",
        summary="Whether the gateway reaches an engine; 503 when not. Asks for no token; the reasons are for who shows one.",
        handler=health,
        answer=HealthAnswer,
        failing=503,
        open=True,
    ),
    _route(
        path="/metrics",
        summary="Metrics in Prometheus' text format.",
        handler=metrics,
        content_type="text/plain",
    ),
    _route(
        path="/openapi.json",
        summary="This description.",
        handler=openapi,
        answer=dict,
    ),
)
