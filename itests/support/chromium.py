"""For tests of pages in a real browser: Chromium without its window, driven through chromedriver's HTTP protocol (W3C WebDriver and
the DevTools commands behind it), so that nothing has to be installed but the browser: on Debian the packages chromium and
chromium-driver.

    with chromium(directory) as window:                  # opening a browser takes seconds: tests of a module share one
        async with browsing(window) as browser: ...      # wide and light, and an empty page behind it
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, Final

import aiohttp

from boki_common.net.lasting_ports import lasting_port

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
NO_CHROMIUM: Final = "needs Chromium and chromedriver on PATH; on Debian: apt-get install chromium chromium-driver"
PHONE: Final = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESK: Final = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}

CONTRAST: Final = """(() => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const one of colours) { canvas.fillStyle = one; canvas.fillRect(0, 0, 1, 1); }
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (rgb) => [...rgb].slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const faults = [];
  for (const element of document.querySelectorAll("body *")) {
    const said = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!(said || element.matches("input[type=text], select")) || !element.checkVisibility()) continue;
    if (element.closest(".visually-hidden, .skip")) continue;
    const grounds = [];
    for (let one = element; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
    const ground = light(over(grounds)), ink = light(over([...grounds, getComputedStyle(element).color]));
    const ratio = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    if (ratio < 4.5) faults.push(`${element.localName}.${element.className} ${ratio.toFixed(2)} ${element.textContent.slice(0, 30)}`);
  }
  return faults;
})()"""
"""Texts that stand out too little from what is behind them: WCAG 2.2, 1.4.3."""

UNNAMED: Final = """[...document.querySelectorAll("main input:not([type=hidden]), main button, main a")]
  .filter((one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map((one) => one.outerHTML)"""
"""Controls that a screen reader has no name for."""

LIVE: Final = "document.documentElement.dataset.state === 'live'"
"""Holds once a page has drawn what it is about."""


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

    async def answer(self, script: str) -> Any:
        """What a promise of the page comes to."""
        waiting = f"const done = arguments[0]; ({script}).then(done, (fault) => done(String(fault)));"
        return await self._ask("/execute/async", {"script": waiting, "args": []})

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

    async def prefers(self, scheme: str) -> None:
        """The system is light, or dark."""
        await self.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def texts(self, selector: str) -> list[str]:
        """What a person reads in each element that is chosen."""
        found: list[str] = await self.run(f"[...document.querySelectorAll('{selector}')].map((one) => one.innerText)")
        return found

    async def key(self, name: str) -> None:
        """A key is pressed: "\\ue004" is Tab, "\\ue007" Enter."""
        steps = [{"type": "keyDown", "value": name}, {"type": "keyUp", "value": name}]
        await self._ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    async def picture(self, file: Path) -> None:
        """The window as a PNG."""
        async with self._http.get(f"{self._url}/screenshot") as answer:
            await asyncio.to_thread(file.write_bytes, base64.b64decode((await answer.json())["value"]))

    async def complaints(self) -> list[str]:
        """What the console says since the last time: errors of scripts, of loading, of the policy."""
        return [line["message"] for line in await self._ask("/se/log", {"type": "browser"})]


@contextmanager
def chromium(directory: Path) -> Iterator[str | None]:
    """The URL of one window, None where the machine has no Chromium; the browser keeps its files in `directory`."""
    found = shutil.which("chromedriver")
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None or binary is None:
        yield None
        return
    options = {"args": [*FLAGS, f"--user-data-dir={directory / 'profile'}"], "binary": binary}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": 30_000}}
    port = lasting_port()  # with port 0, chromedriver takes what is free at ::1 and ends if it is taken at 127.0.0.1
    with subprocess.Popen(
        [found, f"--port={port}", f"--log-path={directory / 'log'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            _until_it_listens(process.stdout, directory / "log")
            url = asyncio.run(_open_window(f"http://127.0.0.1:{port}", wanted))
            yield url
            asyncio.run(_close_window(url))
        finally:
            process.terminate()


def _until_it_listens(said: IO[str] | None, log: Path) -> None:
    assert said is not None
    if not any("successfully on port" in line for line in said):
        raise RuntimeError(f"chromedriver ended before it listened; its log says: {log.read_text()}")


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


@asynccontextmanager
async def browsing(window: str) -> AsyncIterator[Browser]:
    """The window, wide and light."""
    async with aiohttp.ClientSession() as http:
        one = Browser(http, window)
        await one.tool("Emulation.setDeviceMetricsOverride", **DESK)
        await one.prefers("light")
        await one.complaints()
        yield one
        await one.open("about:blank")
