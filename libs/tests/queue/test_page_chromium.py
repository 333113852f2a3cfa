"""The page of queues in a real browser: it follows the book, also at the width of a phone, and runs no code of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokiqueue import Queue
from bokiqueue_tools.page import PAGE
from itests.support.chromium import LIVE, PHONE, Browser

pytestmark = pytest.mark.chromium

EVIL = "<script>window.evil = 1</script>\"'><img src=x onerror='window.evil = 2'>"


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


async def test_what_waits_and_dies_comes_by_itself(
    requester: Requester, queue: Queue[object], browser: Browser
) -> None:
    await queue.push(EVIL)
    await browser.open(f"{requester.url}/pages/queue?book=shop&queue=jobs")
    await browser.until(LIVE)
    assert len(await browser.texts("#oldest tbody tr")) == 1
    async with queue.consume() as messages:
        await (await anext(messages)).give_up("it does not work")
        await browser.until("document.querySelectorAll('#letters tbody tr').length === 1")
    assert "it does not work" in (await browser.texts("#letters tbody tr"))[0]
    await browser.until("document.querySelector('#oldest .empty')?.textContent === 'No message waits.'")
    assert not await browser.run("window.evil")


async def test_at_the_width_of_a_phone_nothing_is_cut(
    requester: Requester, queue: Queue[object], browser: Browser
) -> None:
    for number in range(3):
        await queue.push({"n": number, "text": "a long text that has to be broken somewhere " * 3}, key="some key")
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    for query in ("book=shop", "book=shop&queue=jobs"):
        await browser.open(f"{requester.url}/pages/queue?{query}")
        await browser.until(LIVE)
        assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], query
