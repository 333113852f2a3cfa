"""The page of machines in a real browser: it follows the log, also at the width of a phone, and runs no code of values."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokirsm import Ref, Rsm
from bokirsm_tools.page import PAGE
from itests.support.chromium import LIVE, PHONE, Browser
from libs.tests.rsm.operated import APP, Gate, Item, fill, run

pytestmark = pytest.mark.chromium

EVIL = "<script>window.evil = 1</script>\"'><img src=x onerror='window.evil = 2'>"


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


async def test_a_decision_about_a_fault_is_seen_by_itself(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    client = await cluster.connect()
    await fill(client)
    await browser.open(f"{requester.url}/pages/rsm?book=shop&id=divider")
    await browser.until(LIVE)
    assert "ZeroDivisionError: division by zero" in (await browser.texts("#fault .problem"))[0]
    await Rsm(APP, client.book("shop")).skip(Ref.parse("shop/53/divider"))
    await browser.until("document.querySelector('#fault .problem').textContent.includes('to be skipped')")
    await run(client)
    await browser.until("document.querySelector('#fault').textContent === ''")
    assert await browser.texts("#waiting .empty") == ["Nothing waits."]
    assert (await browser.texts("#timeline tbody tr"))[-1].startswith("arrives")


async def test_at_the_width_of_a_phone_nothing_is_cut_and_no_value_runs(
    requester: Requester, cluster: MemoryCluster, browser: Browser
) -> None:
    client = await cluster.connect()
    await fill(client)
    rsm = Rsm(APP, client.book("shop"))
    gate = await rsm.create(Gate, key=EVIL)
    await rsm.send(gate, Item(EVIL))
    await rsm.send(Ref.parse("shop/51/gate"), Item("a long text that has to be broken somewhere " * 3))
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    for query in ("book=shop", "book=shop&id=divider", "book=shop&id=gate", "book=shop&id=counter"):
        await browser.open(f"{requester.url}/pages/rsm?{query}")
        await browser.until(LIVE)
        assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], query
    assert not await browser.run("window.evil")
