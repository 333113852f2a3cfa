"""Pages over HTTP: every answer is JSON, errors too, and a browser's page changes nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from boki_common.errors import BokiError, DiskFailed, InvalidArgument, MetadataUnavailable, Overloaded, SettingsError
from boki_common.http_page import REQUEST_BYTES, HttpPage, answer, body_of, number_of


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
    for body in (b"[]", b"{", b"\xff"):
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


async def test_a_browsers_page_changes_nothing(url: str) -> None:
    status, _ = await ask("POST", f"{url}/echo", json={}, headers={"Origin": "http://elsewhere"})
    assert status == 403
    assert (await ask("GET", f"{url}/echo", headers={"Origin": "http://elsewhere"}))[0] == 200


async def test_bodies_are_bounded(url: str) -> None:
    status, value = await ask("POST", f"{url}/echo", data=b" " * (REQUEST_BYTES + 1))
    assert status == 413 and "error" in value


async def test_a_port_in_use_is_named_with_a_remedy(url: str) -> None:
    page = HttpPage("test page", setting="test_port")
    port = int(url.rpartition(":")[2])
    with pytest.raises(
        SettingsError, match=f"test page, found that 127.0.0.1:{port} is in use; choose another test_port"
    ):
        await page.listen("127.0.0.1", port)
