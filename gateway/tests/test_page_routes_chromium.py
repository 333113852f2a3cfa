"""The status page in a real browser: it draws what `/v1/status` says, in light and dark, at the width of a phone.

Chromium without its window, driven through chromedriver's HTTP protocol (W3C WebDriver and the DevTools commands behind it),
so that nothing has to be installed but the browser: on Debian the packages chromium and chromium-driver.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

import aiohttp
import pytest

from boki_common.errors import MetadataUnavailable

if TYPE_CHECKING:
    from boki_gateway.testing import Asker

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PHONE: Final = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESK: Final = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}

pytestmark = pytest.mark.chromium


class Browser:
    """One window. `run` runs JavaScript in it, `until` waits for a condition there."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def _ask(self, path: str, body: object) -> Any:
        async with self._http.post(self._url + path, json=body) as answer:
            value = (await answer.json())["value"]
            assert answer.status == 200, value
            return value

    async def open(self, url: str) -> None:
        await self._ask("/url", {"url": url})

    async def run(self, script: str) -> Any:
        return await self._ask("/execute/sync", {"script": f"return {script}", "args": []})

    async def until(self, condition: str) -> None:
        script = (
            "const done = arguments[0]; const look = setInterval(() => {"
            f"if ({condition}) {{ clearInterval(look); done(true); }} }}, 20);"
        )
        await self._ask("/execute/async", {"script": script, "args": []})

    async def soon(self, condition: str) -> None:
        """As `until`, on a page that does not wait two seconds before it asks again."""
        await self.until(f"document.dispatchEvent(new Event('visibilitychange')) && ({condition})")

    async def tool(self, command: str, **params: Any) -> None:
        """A command of the DevTools."""
        await self._ask("/goog/cdp/execute", {"cmd": command, "params": params})

    async def complaints(self) -> list[str]:
        """What the console says since the last time: errors of scripts, of loading, of the policy."""
        return [line["message"] for line in await self._ask("/se/log", {"type": "browser"})]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of one window, which the tests share: opening a browser takes seconds."""
    found = shutil.which("chromedriver")
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None or binary is None:
        pytest.skip("needs Chromium and chromedriver on PATH; on Debian: apt-get install chromium chromium-driver")
    directory = tmp_path_factory.mktemp("chromium")
    options = {"args": [*FLAGS, f"--user-data-dir={directory / 'profile'}"], "binary": binary}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": 30_000}}
    with subprocess.Popen(
        [found, "--port=0", f"--log-path={directory / 'log'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            driver = _driver_url(process.stdout)
            url = asyncio.run(_open_window(driver, wanted))
            yield url
            asyncio.run(_close_window(url))
        finally:
            process.terminate()


def _driver_url(said: IO[str] | None) -> str:
    assert said is not None
    for line in said:
        if port := re.search(r"successfully on port (\d+)", line):
            return f"http://127.0.0.1:{port[1]}"
    pytest.fail("chromedriver ended before it listened")


async def _open_window(driver: str, wanted: dict[str, Any]) -> str:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{driver}/session", json={"capabilities": {"alwaysMatch": wanted}}) as answer,
    ):
        value = (await answer.json())["value"]
        assert answer.status == 200, value
        return f"{driver}/session/{value['sessionId']}"


async def _close_window(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.delete(url) as answer:
        assert answer.status == 200


@pytest.fixture
async def browser(window: str) -> AsyncIterator[Browser]:
    """The window, wide and light."""
    async with aiohttp.ClientSession() as http:
        one = Browser(http, window)
        await one.tool("Emulation.setDeviceMetricsOverride", **DESK)
        await one.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        await one.complaints()
        yield one
        await one.open("about:blank")


LIVE: Final = "document.documentElement.dataset.state === 'live'"


async def text_of(browser: Browser, selector: str) -> list[str]:
    found: list[str] = await browser.run(f"[...document.querySelectorAll('{selector}')].map((one) => one.innerText)")
    return found


async def test_it_draws_the_cluster(asker: Asker, browser: Browser) -> None:
    await browser.open(asker.url)
    await browser.until(LIVE)
    assert await text_of(browser, "#summary") == ["1 of 9 down"]
    assert await browser.run("document.title") == "(1 of 9 down) Boki"
    widths = "[...document.querySelectorAll('#slots rect')].map((one) => [one.dataset.log, one.getAttribute('width')])"
    assert await browser.run(widths) == [["0", "512"], ["1", "320"], ["0", "192"]]
    colours = await browser.run(
        "[...document.querySelectorAll('#slots rect')].map((one) => getComputedStyle(one).fill)"
    )
    assert colours[0] == colours[2] != colours[1]
    logs = await text_of(browser, "#logs tbody tr")
    assert [re.split(r"\s+", row)[:4] for row in logs] == [["Log", "0", "704", "7"], ["Log", "1", "320", "6"]]
    assert "1,203,990" in (await text_of(browser, "#engines tbody tr"))[1]
    assert (await text_of(browser, "#sequencers-note"))[0] == "3 of 3 up, 1 standing by"
    bookies = await text_of(browser, "#bookies tbody tr")
    assert "takes writes" in bookies[0]
    assert "read only" in bookies[1]
    assert "refused; is it up?" in bookies[2]
    assert "leads" in (await text_of(browser, "#controllers tbody tr"))[0]
    await browser.until("document.querySelector('.spark-line').getAttribute('d').includes('L')")
    assert await browser.complaints() == []


async def test_what_changes_is_drawn_again(asker: Asker, browser: Browser) -> None:
    await browser.open(asker.url)
    await browser.until(LIVE)
    asker.facts.state.bookies[2].up = True
    await browser.soon("document.getElementById('summary').textContent === 'all 9 up'")
    asker.facts.state.sequencers[1].up = False
    await browser.soon("document.getElementById('summary').textContent === '1 log without a sequencer, 1 of 9 down'")
    asker.facts.error = MetadataUnavailable("no ZooKeeper answers")
    await browser.soon("document.getElementById('problem').textContent.includes('no ZooKeeper answers')")
    await asker.gateway.close()
    await browser.soon("document.documentElement.dataset.state === 'stale'")
    assert await text_of(browser, "#summary") == ["gateway away"]


async def test_names_are_text_and_never_markup(asker: Asker, browser: Browser) -> None:
    evil = "<img src=x onerror=alert(1)>"
    asker.facts.state.bookies[2].problem = asker.facts.state.engines[0].address = evil
    asker.facts.state.problem = evil
    await browser.open(asker.url)
    await browser.until(LIVE)
    assert await browser.run("document.querySelectorAll('main img').length") == 0
    assert (await text_of(browser, "#problem"))[0] == evil
    assert evil in (await text_of(browser, "#bookies tbody tr"))[2]


async def test_light_and_dark(asker: Asker, browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await browser.tool("Emulation.setEmulatedMedia", features=[feature])
        await browser.open(asker.url)
        await browser.until(LIVE)
        seen[scheme] = await browser.run(ground)
    assert seen["light"] != seen["dark"]
    await browser.run("document.getElementById('theme').click()")
    assert await browser.run(ground) == seen["light"], "the button changes it"
    await browser.open(asker.url)
    assert await browser.run(ground) == seen["light"], "and the choice stays"


@pytest.mark.parametrize("path", ["/", "/reference#append"])
async def test_it_fits_a_phone(asker: Asker, browser: Browser, path: str) -> None:
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    await browser.open(asker.url + path)
    await browser.until(LIVE)
    assert await browser.run("innerWidth") == PHONE["width"]
    assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], "nothing sticks out"


async def test_a_cluster_of_which_nothing_is_known(asker: Asker, browser: Browser) -> None:
    state = asker.facts.state
    state.sequencers, state.bookies, state.controllers, state.logs, state.slots = [], [], [], [], []
    state.engines[0].up = state.engines[1].up = False
    await browser.open(asker.url)
    await browser.until(LIVE)
    assert "No bookie is known." in await text_of(browser, ".empty")
    assert await text_of(browser, "#summary") == ["2 of 2 down"]
    assert await browser.complaints() == []


async def test_the_reference_draws_every_route(asker: Asker, browser: Browser) -> None:
    await browser.open(f"{asker.url}/reference#read_range")
    await browser.until(LIVE)
    drawn = await browser.run("[...document.querySelectorAll('#calls details')].map((one) => one.id)")
    described = (await asker.get("/openapi.json")).body["paths"]
    names = [
        operation["operationId"]
        for methods in described.values()
        for operation in methods.values()
        if operation["tags"] != ["pages"]
    ]
    assert sorted(drawn) == sorted(names)
    assert await browser.run("document.querySelector('#read_range').open")
    assert "wait" in await browser.run(
        "[...document.querySelectorAll('#read_range .said code')].map((one) => one.textContent)"
    )
    assert "`" not in await browser.run("document.body.textContent"), "prose in backticks is code"
    assert await browser.complaints() == []
