"""Who is answered: every route, with no token, a wrong and a right one, of the own host, of a foreign one, of a foreign page."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import aiohttp
import pytest

from boki_common.cluster_token import parse
from boki_gateway.server import ROUTES, _has_head
from boki_gateway.testing import running_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from boki.testing import MemoryCluster
    from boki_gateway.calls.table import Route
    from boki_gateway.testing import Requester

TOKEN = "0123456789abcdef-in-use"
NEXT = "0123456789abcdef-next"


def basic(password: str) -> str:
    return "Basic " + b64encode(f"anybody:{password}".encode()).decode()


SHOWN = {
    "no token": {},
    "wrong": {"Authorization": f"Bearer {TOKEN}x"},
    "wrong by Basic": {"Authorization": basic(TOKEN[:-1])},
    "other scheme": {"Authorization": f"Digest {TOKEN}"},
    "in the URL": {"X-Query": f"token={TOKEN}"},
    "right": {"Authorization": f"Bearer {TOKEN}"},
    "right by Basic": {"Authorization": basic(TOKEN)},
    "the one that replaces it": {"Authorization": f"Bearer {NEXT}"},
}
RIGHT = {"right", "right by Basic", "the one that replaces it"}
FROM = {
    "a program": ({}, None),
    "an own page": ({"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}, None),
    "a foreign host": ({"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"}, "HostRefused"),
    "a foreign page": ({"Origin": "http://evil.example"}, "OriginRefused"),
    "a foreign load": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "OriginRefused"),
}


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, token=parse(f"{TOKEN}\n{NEXT}\n", "the test")) as one:
        yield one


async def asked(
    requester: Requester, method: str, path: str, headers: dict[str, str], *, body: bool
) -> aiohttp.ClientResponse:
    """The answer, of which only the head is read: one of them never ends."""
    answer = await requester.http.request(method, requester.url + path, headers=headers, json={} if body else None)
    if answer.headers.get("Content-Type") == "text/event-stream":
        answer.close()
    return answer


def expected(route: Route, who: str, shown: str) -> str | None:
    refused = FROM[who][1]
    if refused is not None:
        return refused
    return None if shown in RIGHT or route.name == "health" else "NotAdmitted"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_a_route_is_answered_to_who_shows_the_token_and_is_no_foreign_page(
    requester: Requester, route: Route
) -> None:
    path = route.path.format(book="b", seqnum="7", writer="w", time_ms="0")
    for method in (route.method, "HEAD") if _has_head(route) else (route.method,):
        for who, (who_headers, _) in FROM.items():
            for shown, credential in SHOWN.items():
                headers = {name: text.format(port=requester.gateway.address.port) for name, text in who_headers.items()}
                answer = await asked(requester, method, path, headers | credential, body=route.body is not None)
                error = expected(route, who, shown)
                where = (method, route.path, who, shown)
                assert answer.status == {None: answer.status, "NotAdmitted": 401}.get(error, 403), where
                assert (answer.status in (401, 403)) == (error is not None), where
                if error is not None and method != "HEAD":
                    assert (await answer.json())["error"] == error, where
                assert (len(answer.headers.getall("WWW-Authenticate", [])) == 2) == (answer.status == 401), where
                assert "Access-Control-Allow-Origin" not in answer.headers
                assert TOKEN not in str(answer.headers)
                answer.release()
    assert (await requester.client.book("b").read_prev()) is None, "nothing was appended"


@pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("DELETE", "/v1/books/b/records"), ("OPTIONS", "/")])
async def test_which_paths_exist_is_not_revealed_without_a_token(requester: Requester, method: str, path: str) -> None:
    without = await requester.ask(method, path)
    assert (without.status, without.body["error"], "Allow" in without.headers) == (401, "NotAdmitted", False)
    assert (await requester.ask(method, path, headers=SHOWN["right"])).status in (404, 405)


async def test_the_reasons_of_ill_health_are_for_those_who_show_the_token(requester: Requester) -> None:
    await requester.client.close()
    assert (await requester.get("/health")).body == {"status": "failing", "reasons": []}
    assert (await requester.ask("GET", "/health", headers=SHOWN["right"])).body["reasons"]


async def test_a_token_that_is_missing_is_named_with_a_remedy(requester: Requester) -> None:
    reply = await requester.get("/v1/status")
    assert "this gateway asks for a cluster token, and none was shown" in reply.body["message"]
    assert "Authorization: Bearer TOKEN" in reply.body["message"]
    assert (reply.body["retryable"], reply.body["definite"]) == (False, True)
    assert reply.headers.getall("WWW-Authenticate") == ['Basic realm="boki", charset="UTF-8"', 'Bearer realm="boki"']


async def test_a_token_that_is_no_longer_valid_is_refused(requester: Requester) -> None:
    requester.gateway._token.renew(parse(NEXT, "the test"))
    assert (await requester.ask("GET", "/metrics", headers=SHOWN["right"])).status == 401
    assert (await requester.ask("GET", "/metrics", headers=SHOWN["the one that replaces it"])).status == 200


async def test_a_gateway_that_asks_for_no_token_takes_any(cluster: MemoryCluster) -> None:
    async with running_gateway(cluster) as open_to_all:
        for credential in SHOWN.values():
            assert (await open_to_all.ask("GET", "/metrics", headers=credential)).status == 200
