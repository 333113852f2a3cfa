"""The status page in a real browser: it draws what `/v1/status` says, in light and dark, at the width of a phone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import pytest

from boki_common.cluster_token import parse
from boki_common.errors import MetadataUnavailable
from boki_gateway.testing import running_gateway
from itests.support.chromium import LIVE, NO_CHROMIUM, PHONE, Browser, browsing, chromium

if TYPE_CHECKING:
    from boki.testing import MemoryCluster
    from boki_gateway.testing import Requester

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One window, which the tests share."""
    with chromium(tmp_path_factory.mktemp("chromium")) as url:
        if url is None:
            pytest.skip(NO_CHROMIUM)
        yield url


@pytest.fixture
async def browser(window: str) -> AsyncIterator[Browser]:
    """The window, wide and light."""
    async with browsing(window) as one:
        yield one


async def opened(browser: Browser, url: str) -> None:
    """Opens a page of ours and waits until it is drawn."""
    await browser.open(url)
    await browser.until(LIVE)


async def test_it_draws_the_cluster(requester: Requester, browser: Browser) -> None:
    await opened(browser, requester.url)
    cards = dict(zip(await browser.texts(".card h3"), await browser.texts(".card .value"), strict=True))
    assert cards["Records ordered"] not in ("", "–/s"), "there are rates from the first answer on"
    assert cards["Ack latency"].replace(" ", "").startswith("0.75msmedian")
    assert (await browser.texts(".card .levels"))[0].split()[1] == "0"
    assert (await browser.texts(".card .times"))[0].split() == ["20", "s", "ago", "now"]
    assert await browser.texts("#faults li") == requester.facts.state.faults
    assert await browser.texts("#summary") == ["1 of 9 down"]
    assert await browser.run("document.title") == "(1 of 9 down) Boki"
    widths = "[...document.querySelectorAll('#slots rect')].map((one) => [one.dataset.log, one.getAttribute('width')])"
    assert await browser.run(widths) == [["0", "512"], ["1", "320"], ["0", "192"]]
    colours = await browser.run(
        "[...document.querySelectorAll('#slots rect')].map((one) => getComputedStyle(one).fill)"
    )
    assert colours[0] == colours[2] != colours[1]
    logs = await browser.texts("#logs tbody tr")
    assert [re.split(r"\s+", row)[:4] for row in logs] == [["Log", "0", "704", "7"], ["Log", "1", "320", "6"]]
    assert "1,203,990" in (await browser.texts("#engines tbody tr"))[1]
    assert (await browser.texts("#sequencers-note"))[0] == "3 of 3 up, 1 standing by"
    bookies = await browser.texts("#bookies tbody tr")
    assert re.split(r"\s+", bookies[0]) == [
        *["127.0.0.1:3181", "b1b1b1b1", "412", "GB", "548", "GB", "held", "takes", "writes"]
    ]
    assert "read only" in bookies[1]
    assert "refused; is it up?" in bookies[2]
    assert "leads" in (await browser.texts("#controllers tbody tr"))[0]
    await browser.until("document.querySelector('.spark-line').getAttribute('d').includes('L')")
    assert await browser.complaints() == []


async def test_what_changes_is_drawn_again(requester: Requester, browser: Browser) -> None:
    await opened(browser, requester.url)
    requester.facts.state.bookies[2].up = True
    requester.facts.state.faults.pop()
    await browser.soon("document.getElementById('summary').textContent === '2 faults'")
    requester.facts.state.faults = []
    await browser.soon("document.getElementById('summary').textContent === 'all 9 up'")
    assert await browser.run("document.getElementById('faults').hidden")
    requester.facts.state.sequencers[1].up = False
    await browser.soon("document.getElementById('summary').textContent === '1 log without a sequencer, 1 of 9 down'")
    requester.facts.error = MetadataUnavailable("no ZooKeeper answers")
    await browser.soon("document.getElementById('problem').textContent.includes('no ZooKeeper answers')")
    await requester.gateway.close()
    await browser.soon("document.documentElement.dataset.state === 'stale'")
    assert await browser.texts("#summary") == ["gateway away"]


async def test_names_are_text_and_never_markup(requester: Requester, browser: Browser) -> None:
    evil = "<img src=x onerror=alert(1)>"
    requester.facts.state.bookies[2].problem = requester.facts.state.engines[0].address = evil
    requester.facts.state.problem = evil
    await opened(browser, requester.url)
    assert await browser.run("document.querySelectorAll('main img').length") == 0
    assert (await browser.texts("#problem"))[0] == evil
    assert evil in (await browser.texts("#bookies tbody tr"))[2]


async def test_light_and_dark(requester: Requester, browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await browser.tool("Emulation.setEmulatedMedia", features=[feature])
        await opened(browser, requester.url)
        seen[scheme] = await browser.run(ground)
    assert seen["light"] != seen["dark"]
    await browser.run("document.getElementById('theme').click()")
    assert await browser.run(ground) == seen["light"], "the button changes it"
    await browser.open(requester.url)
    assert await browser.run(ground) == seen["light"], "and the choice stays"


TOKEN: Final = "0123456789abcdef-of-the-test"
FIRST_EVENT: Final = """new Promise((done) => {
  const source = new EventSource(`${location.origin}/v1/books/b/events?start=0&encoding=text`);
  source.addEventListener("record", (event) => { source.close(); done(JSON.parse(event.data).text); });
  source.onerror = () => { source.close(); done("failed"); };
})"""


async def test_the_page_and_its_streams_work_under_the_token_that_a_person_gave(
    cluster: MemoryCluster, browser: Browser
) -> None:
    async with running_gateway(cluster, token=parse(TOKEN, "the test")) as requester:
        await requester.client.book("b").append(b"hello")
        await opened(browser, requester.url.replace("http://", f"http://anybody:{TOKEN}@"))
        assert await browser.answer(FIRST_EVENT) == "hello"
        await opened(browser, f"{requester.url}/reference")
        assert await browser.complaints() == []


async def test_a_page_of_another_origin_changes_nothing_though_the_browser_has_the_token(
    cluster: MemoryCluster, requester: Requester, browser: Browser
) -> None:
    """The browser sends the token by itself; that a page wants it to is said by headers no page can change."""
    async with running_gateway(cluster, token=parse(TOKEN, "the test")) as victim:
        await opened(browser, victim.url.replace("http://", f"http://anybody:{TOKEN}@"))
        path = f"{victim.url}/v1/books/b"
        body = 'method: "POST", credentials: "include", body: JSON.stringify({text: "evil"})'
        json = 'headers: {"Content-Type": "application/json"}'
        own = f'fetch("{path}/records", {{{body}, {json}}}).then((answer) => answer.status)'
        assert await browser.answer(own) == 201, "of its own page it is wanted"
        await browser.open(f"{requester.url}/health")  # another origin, and without a policy of its own
        for options in (f"{body}, {json}", f'{body}, mode: "no-cors"'):
            await browser.answer(f'fetch("{path}/records", {{{options}}})')
        await browser.answer(f'fetch("{path}/trim", {{{body}, mode: "no-cors"}})')
        await browser.answer(
            f'new Promise((done) => {{ const one = new EventSource("{path}/events"); one.onerror = () => done(0); }})'
        )
        image = f'const one = new Image(); one.onload = one.onerror = () => done(0); one.src = "{path}/records/next?wait=60"'
        await browser.answer(f"new Promise((done) => {{ {image}; }})")
        metrics = (await victim.ask("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).body.decode()
        assert 'requests_total{route="append",status="201"} 1.0' in metrics
        assert 'requests_total{route="append",status="403"}' in metrics
        assert 'requests_total{route="follow",status="403"}' in metrics
        assert 'requests_total{route="read_next",status="403"}' in metrics
        assert 'requests_total{route="trim",status="200"}' not in metrics


@pytest.mark.parametrize("path", ["/", "/reference#append"])
async def test_it_fits_a_phone(requester: Requester, browser: Browser, path: str) -> None:
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    await opened(browser, requester.url + path)
    assert await browser.run("innerWidth") == PHONE["width"]
    assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], "nothing sticks out"


async def test_a_cluster_of_which_nothing_is_known(requester: Requester, browser: Browser) -> None:
    state = requester.facts.state
    state.sequencers, state.bookies, state.controllers, state.logs, state.slots = [], [], [], [], []
    state.engines[0].up = state.engines[1].up = False
    state.engines[0].name, state.faults = "", []
    await opened(browser, requester.url)
    assert "No bookie is known." in await browser.texts(".empty")
    assert await browser.texts("#summary") == ["2 of 2 down"]
    engines = await browser.texts("#engines td.main")
    assert [re.split(r"\s+", row.strip()) for row in engines] == [["127.0.0.1:7040"], ["127.0.0.1:7140", "e2e2e2e2"]]
    assert await browser.complaints() == []


async def test_the_reference_draws_every_route(requester: Requester, browser: Browser) -> None:
    await opened(browser, f"{requester.url}/reference#read_range")
    drawn = await browser.run("[...document.querySelectorAll('#calls details')].map((one) => one.id)")
    described = (await requester.get("/openapi.json")).body["paths"]
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
