"""The page of workflows in a real browser: live, by keyboard, on a phone, readable in both schemes, without JavaScript too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Final

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokiflow import App, Worker
from bokiflow_tools.page import PAGE
from itests.support.chromium import CONTRAST, LIVE, PHONE, UNNAMED, Browser
from libs.tests.flow import lives
from libs.tests.flow.conftest import Inline

pytestmark = pytest.mark.chromium

EVIL: Final = "<script>window.evil = 1</script>\"'><img src=x onerror='window.evil = 2'>"
TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


def at(requester: Requester, id: str | None = None) -> str:
    return f"{requester.url}/pages/flow?book=shop{'' if id is None else f'&id={id}'}"


async def test_each_step_comes_by_itself_until_the_result(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    await lives.fill(cluster)
    async with lives.working(cluster) as worker:
        await browser.open(at(requester, "order-7"))
        await browser.until(LIVE)
        assert await browser.texts("#ending") == [""]
        await browser.run("document.getElementById('call').open = true")
        await worker.handle("order-7").signal("delivered", "bob")
        await browser.until("document.querySelector('#ending h2')?.textContent === 'Result'")
        assert "completed" in (await browser.texts("#facts"))[0]
        rows = await browser.texts(".gantt > li:not(.axis)")
        assert rows[-1].startswith("end") and any(row.startswith("signal") for row in rows)
        assert await browser.run("document.getElementById('call').open"), "what was opened stays so"
        assert await browser.complaints() == []


async def test_the_list_is_live_and_leads_to_a_workflow_by_keyboard(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    await lives.fill(cluster)
    await browser.open(at(requester))
    await browser.until(LIVE)
    async with lives.working(cluster) as worker:
        await (await worker.start(lives.pack.call("kiwi"), id="new")).result()
        await browser.until("document.querySelector('#flows tbody a').textContent === 'new'")
    await browser.run("document.querySelector('#flows tbody a').focus()")
    await browser.key(ENTER)
    await browser.until(f"document.querySelector('h1').textContent === 'new' && {LIVE}")
    await browser.key(TAB)
    await browser.key(ENTER)
    assert await browser.run("location.hash") == "#content"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everything_can_be_read_in_both_schemes(
    requester: Requester, cluster: MemoryCluster, browser: Browser, scheme: str
) -> None:
    await lives.fill(cluster)
    await browser.prefers(scheme)
    for url in (f"{requester.url}/pages/flow", at(requester), *(at(requester, f"order-{one}") for one in (5, 6, 7))):
        await browser.open(url)
        await browser.until(LIVE)
        assert await browser.run(CONTRAST) == [], url
        assert await browser.run(UNNAMED) == [], url
        headings = await browser.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => +one.localName[1])")
        assert headings[0] == 1 and all(b - a <= 1 for a, b in pairwise(headings)), "no level is left out"
        ids = await browser.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids)), url


async def test_it_fits_a_phone(requester: Requester, cluster: MemoryCluster, browser: Browser) -> None:
    await lives.fill(cluster)
    async with lives.working(cluster) as worker:
        await (await worker.start(lives.pack.call("y"), id="x" * 200, attributes={"z" * 100: "w" * 100})).result()
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    for id in (None, "order-6", "order-7", "x" * 200):
        await browser.open(at(requester, id))
        await browser.until(LIVE)
        assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], f"nothing sticks out: {id}"


async def test_bars_stand_where_their_times_are(requester: Requester, cluster: MemoryCluster, browser: Browser) -> None:
    await lives.fill(cluster)
    await browser.open(at(requester, "order-6"))
    bars = await browser.run(
        "[...document.querySelectorAll('.gantt .bar')].map((one) => [one.getBBox().x, one.getBBox().width])"
    )
    assert len(bars) >= 7 and all(width > 0 and x >= 0 for x, width in bars)
    assert sorted(x for x, _ in bars) == [x for x, _ in bars], "in the order of their beginnings"


async def test_names_and_values_are_text_and_never_markup(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    app = App("shop")

    @app.workflow(name=EVIL)
    async def evil(value: str) -> str:
        return value

    client = await cluster.connect()
    async with Worker(app, client.book("shop"), name="w", bodies=Inline()) as worker:
        await (await worker.start(evil.call(EVIL), id=EVIL, attributes={EVIL: EVIL})).result()
    await browser.open(at(requester))
    await browser.until(LIVE)
    await browser.run("document.querySelector('#flows tbody a').click()")
    await browser.until(f"document.querySelector('.gantt') && {LIVE}")
    assert await browser.texts("h1") == [EVIL]
    assert await browser.run("window.evil ?? null") is None
    assert await browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert await browser.complaints() == []


async def test_it_is_read_whole_without_javascript(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    await lives.fill(cluster)
    await browser.tool("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await browser.open(at(requester, "order-6"))
        assert len(await browser.texts(".gantt > li:not(.axis)")) >= 10
        assert '"by": "bob"' in (await browser.texts("#ending pre"))[0]
    finally:
        await browser.tool("Emulation.setScriptExecutionDisabled", value=False)
