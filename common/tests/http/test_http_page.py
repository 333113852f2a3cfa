"""Pages over HTTP: every answer is JSON, errors too, and a browser's page changes nothing."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from boki_common import limits
from boki_common.cluster_token import parse
from boki_common.errors import BokiError, DiskFailed, InvalidArgument, MetadataUnavailable, Overloaded, SettingsError
from boki_common.http.http_page import HttpPage, answer, body_of, number_of


@pytest.fixture
async def url() -> AsyncIterator[str]:
    failures: dict[str, type[BokiError]] = {
        "usage": InvalidArgument, "full": Overloaded, "metadata": MetadataUnavailable, "disk": DiskFailed,
    }  # fmt: skip

    async def echo(request: web.Request) -> web.Response:
        return answer(await body_of(request) | {"n": number_of(request, "n", 5, minimum=-1, maximum=9)})

    async def fail(request: web.Request) -> web.Response:
        raise failures[request.match_info["how"]]("it failed")

    page = HttpPage("test page", setting="test_port")
    page.get("/echo", "Says it again.", echo)
    page.add("POST", "/echo", "Says it again.", echo)
    page.get("/fail/{how}", "Fails.", fail)
    await page.listen("127.0.0.1", 0)
    yield f"http://127.0.0.1:{page.port}"
    await page.close()
    await page.close()


async def ask(method: str, url: str, **options: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.request(method, url, **options) as response:
        return response.status, await response.json()


async def test_bodies_and_numbers(url: str) -> None:
    assert await ask("GET", f"{url}/echo") == (200, {"n": 5})
    assert await ask("POST", f"{url}/echo?n=-1", json={"a": [1]}) == (200, {"a": [1], "n": -1})
    for text in ("10", "-2", "x", "", "1.0", "9" * 30):
        status, value = await ask("GET", f"{url}/echo?n={text}")
        assert (status, value["error"]) == (400, f"n: expected a number from -1 to 9, found {text!r}")
    for body in (b"[]", b"{", b"\xff", b'{"a": ' + b"[" * 50_000):
        status, value = await ask("POST", f"{url}/echo", data=body)
        assert status == 400 and value["error"].startswith("expected a JSON object as body")


async def test_what_is_not_there_is_answered_with_what_is(url: str) -> None:
    status, value = await ask("GET", f"{url}/ech")
    assert status == 404 and "found /ech" in value["error"]
    assert value["paths"] == {
        "GET /echo": "Says it again.", "POST /echo": "Says it again.", "GET /fail/{how}": "Fails.",
    }  # fmt: skip
    assert await ask("DELETE", f"{url}/echo") == (405, {"error": "expected GET, POST of /echo, found DELETE"})


@pytest.mark.parametrize(("how", "status"), [("usage", 400), ("full", 503), ("metadata", 503), ("disk", 500)])
async def test_errors_have_the_status_that_fits(url: str, how: str, status: int) -> None:
    found, value = await ask("GET", f"{url}/fail/{how}")
    assert (found, value["error"]) == (status, "it failed")


async def test_a_defect_is_logged_and_answered(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="aiohttp.server"):
        async with aiohttp.ClientSession() as http, http.get(f"{url}/fail/unheard-of") as response:
            assert response.status == 500


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_origins_and_names_get_no_answer(url: str, method: str) -> None:
    for headers in (
        {"Origin": "http://elsewhere"},
        {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        status, value = await ask(method, f"{url}/echo", json={}, headers=headers)
        assert (status, value["type"]) == (403, "HostRefused" if "Host" in headers else "OriginRefused")


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
async def test_the_bind_widens_no_names_and_the_setting_does(host: str) -> None:
    page = HttpPage("test page", setting="test_port", allowed_hosts=["bookie-1.example"])
    page.get("/", "Nothing.", _nothing)
    await page.listen(host, 0)
    try:
        url = f"http://127.0.0.1:{page.port}/"
        answered = [
            (await ask("GET", url, headers={"Host": name}))[0]
            for name in ("bookie-1.example", "10.0.0.5", "evil.example")
        ]
    finally:
        await page.close()
    assert answered == [200, 200, 403]


async def _nothing(_request: web.Request) -> web.Response:
    return answer({})


async def test_bodies_are_bounded(url: str) -> None:
    status, value = await ask("POST", f"{url}/echo", data=b" " * (limits.HTTP_PAGE_REQUEST_BYTES + 1))
    assert status == 413 and "error" in value


async def test_a_port_in_use_is_named_with_a_remedy(url: str) -> None:
    page = HttpPage("test page", setting="test_port")
    port = int(url.rpartition(":")[2])
    with pytest.raises(
        SettingsError, match=f"test page, found that 127.0.0.1:{port} is in use; choose another test_port"
    ):
        await page.listen("127.0.0.1", port)


TOKEN = "a-token-of-the-cluster-01"


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    async def echo(_: web.Request) -> web.Response:
        return answer({})

    page = HttpPage("test page", setting="test_port", token=parse(TOKEN, "test"))
    page.get("/echo", "Says it.", echo)
    page.get("/metrics", "Says it.", echo)
    await page.listen("127.0.0.1", 0)
    yield f"http://127.0.0.1:{page.port}"
    await page.close()


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "admitted"),
    [
        (None, False),
        ("Bearer", False),
        ("Bearer another-token-0000000", False),
        (f"Bearer {TOKEN}x", False),
        (basic("wrong"), False),
        (f"Bearer {TOKEN}", True),
        (basic(TOKEN), True),
    ],
)
async def test_where_there_is_a_token_every_path_asks_for_it(
    guarded: str, authorization: str | None, admitted: bool
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for path, status in (("/echo", 200), ("/metrics", 200), ("/nothing-there", 404)):
        async with aiohttp.ClientSession() as http, http.get(guarded + path, headers=headers) as response:
            assert response.status == (status if admitted else 401), path
            body = await response.json()
            if not admitted:
                assert "this test page asks for a cluster token" in body["error"] and TOKEN not in str(body)
                challenges = response.headers.getall("WWW-Authenticate")
                assert [one.split()[0] for one in challenges] == ["Basic", "Bearer"], "a browser reads one a header"
