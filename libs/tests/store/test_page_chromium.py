"""The page of objects in a real browser: live, by keyboard, at the width of a phone, readable in both schemes, without JavaScript too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import pytest

from boki.testing import MemoryCluster
from boki_common.cluster_token import parse
from boki_gateway.testing import Requester, running_gateway
from bokistore import BokiStore, Inc, Set
from bokistore_tools.page import PAGE
from itests.support.chromium import CONTRAST, LIVE, PHONE, UNNAMED, Browser

pytestmark = pytest.mark.chromium

EVIL: Final = "<script>window.evil = 1</script>\"'><img src=x onerror='window.evil = 2'>"
TOKEN: Final = "0123456789abcdef-of-the-test"
TAB, ENTER, SPACE = "\ue004", "\ue007", " "


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


def at(requester: Requester, name: str = "cart", **more: int) -> str:
    query = "".join(f"&{key}={value}" for key, value in more.items())
    return f"{requester.url}/pages/store?book=shop&object={quote(name)}{query}"


async def filled(store: BokiStore) -> list[int]:
    """A cart with four versions."""
    cart = store.object("cart")
    made = [await cart.send(Set("owner", "ann")), await cart.send(Inc("n", 1)), await cart.send(Inc("n", 1))]
    async with store.transaction() as tx:
        tx["cart"].delete("owner")
        tx["cart"].set("deep", {"er": [1, 2, {"text": "a long text that has to be broken somewhere " * 5}]})
    return [*made, tx.seqnum]


async def test_each_change_comes_by_itself(requester: Requester, store: BokiStore, browser: Browser) -> None:
    seqnums = await filled(store)
    await browser.open(at(requester))
    await browser.until(LIVE)
    assert await browser.texts("#live") == ["live"]
    assert len(await browser.texts(".timeline > li")) == 4
    await browser.run(f"document.getElementById('before-{seqnums[1]}').click()")
    await browser.run("document.getElementById('whole').open = false")
    await browser.run(f"document.getElementById('before-{seqnums[1]}').focus()")
    seqnum = await store.object("cart").send(Inc("n", 5))
    await browser.until("document.querySelectorAll('.timeline > li').length === 5")
    newest = (await browser.texts(".timeline > li"))[0]
    assert str(seqnum) in newest and "inc n 5" in newest
    changes = [row.split() for row in await browser.texts("table.diff tbody tr")]
    assert changes == [["~", "changed", "n", "2", "7"]]
    assert await browser.run("document.querySelector('.timeline > li').classList.contains('new')")
    assert await browser.run(f"document.getElementById('before-{seqnums[1]}').checked"), "what was chosen stays so"
    assert await browser.run(f"document.activeElement.id === 'before-{seqnums[1]}'"), "and what has the focus"
    assert not await browser.run("document.getElementById('whole').open")
    await store.delete("cart")
    await browser.until("document.querySelector('#facts .state').textContent === 'deleted'")
    assert await browser.complaints() == []


async def test_an_object_that_is_not_there_yet_appears(
    requester: Requester, store: BokiStore, browser: Browser
) -> None:
    await browser.open(at(requester, "soon"))
    await browser.until(LIVE)
    assert await browser.texts("#facts .state") == ["never seen"]
    await store.object("soon").inc("n")
    await browser.until("document.querySelector('#facts .state').textContent === 'exists'")
    assert len(await browser.texts(".timeline > li")) == 1
    assert await browser.texts("#changes h2") != []


async def test_a_book_shows_what_changed_last(requester: Requester, store: BokiStore, browser: Browser) -> None:
    await filled(store)
    await browser.open(f"{requester.url}/pages/store?book=shop")
    await browser.until(LIVE)
    await store.object("other").inc("n")
    await browser.until("document.querySelector('#objects tbody a').textContent === 'other'")
    await browser.run("document.querySelector('#objects tbody a').click()")
    await browser.until("document.querySelector('h1').textContent === 'other'")


async def test_a_gateway_that_ends_is_shown(requester: Requester, store: BokiStore, browser: Browser) -> None:
    await filled(store)
    await browser.open(at(requester))
    await browser.until(LIVE)
    await requester.gateway.close()
    await browser.until("document.getElementById('live').textContent === 'not live'")


async def test_by_keyboard(requester: Requester, store: BokiStore, browser: Browser) -> None:
    seqnums = await filled(store)
    await browser.open(at(requester))
    await browser.until(LIVE)
    await browser.key(TAB)
    assert await browser.run("document.activeElement.textContent") == "To the content"
    assert await browser.run("document.activeElement.getBoundingClientRect().top >= 0"), (
        "it is seen while it has the focus"
    )
    await browser.key(ENTER)
    assert await browser.run("location.hash") == "#content"
    await browser.run(f"document.getElementById('before-{seqnums[2]}').focus()")
    await browser.key("\ue015")  # arrow down: the choice of the version before
    assert await browser.run(f"document.getElementById('before-{seqnums[1]}').checked")
    await browser.run("document.getElementById('compare').focus()")
    await browser.key(ENTER)
    await browser.until(f"document.querySelector('#changes small').textContent === 'from {seqnums[1]} to {seqnums[3]}'")
    assert await browser.run("document.querySelectorAll('pre[tabindex=\"0\"]').length") == 1, (
        "what scrolls can be reached"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everything_can_be_read_in_both_schemes(
    requester: Requester, store: BokiStore, browser: Browser, scheme: str
) -> None:
    await filled(store)
    await store.collection("user", dict).create("ann", {})
    await store.expire("user/ann", 10**13)
    await browser.prefers(scheme)
    for path in (
        "",
        "?book=shop",
        "?book=shop&object=cart",
        "?book=shop&object=user/ann",
        "?book=shop&collection=user",
        "?book=~x",
    ):
        await browser.open(f"{requester.url}/pages/store{path}")
        await browser.until(LIVE)
        assert await browser.run(CONTRAST) == [], path
        assert await browser.run(UNNAMED) == [], path
        headings = await browser.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => +one.localName[1])")
        assert headings[0] == 1 and all(b - a <= 1 for a, b in pairwise(headings)), "no level is left out"
        ids = await browser.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids)), path


async def test_it_fits_a_phone(requester: Requester, store: BokiStore, browser: Browser) -> None:
    await filled(store)
    await store.object("x" * 200).set("y" * 150, "z" * 300)
    await browser.tool("Emulation.setDeviceMetricsOverride", **PHONE)
    for path in ("?book=shop", "?book=shop&object=cart", f"?book=shop&object={'x' * 200}"):
        await browser.open(f"{requester.url}/pages/store{path}")
        await browser.until(LIVE)
        assert await browser.run("document.documentElement.scrollWidth") <= PHONE["width"], (
            f"nothing sticks out: {path}"
        )


async def test_names_and_values_are_text_and_never_markup(
    requester: Requester, store: BokiStore, browser: Browser
) -> None:
    await store.object(EVIL).set(EVIL.replace(".", ""), {EVIL: EVIL})
    await browser.open(at(requester, EVIL))
    await browser.until(LIVE)
    assert await browser.texts("h1") == [EVIL]
    await store.object(EVIL).inc("n")
    await browser.until("document.querySelectorAll('.timeline > li').length === 2")
    await browser.open(f"{requester.url}/pages/store?book=shop")
    await browser.until(LIVE)
    await browser.run("document.querySelector('#objects tbody a').click()")
    await browser.until(f"document.querySelectorAll('.timeline > li').length === 2 && {LIVE}")
    assert await browser.run("window.evil ?? null") is None
    assert await browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert await browser.complaints() == []


async def test_it_is_read_whole_without_javascript(requester: Requester, store: BokiStore, browser: Browser) -> None:
    seqnums = await filled(store)
    await browser.tool("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await browser.open(at(requester, before=seqnums[0], after=seqnums[2]))
        assert len(await browser.texts(".timeline > li")) == 4
        assert [row.split() for row in await browser.texts("table.diff tbody tr")] == [["+", "made", "n", "2"]]
        assert "Without JavaScript" in (await browser.texts("footer"))[0]
        assert not await browser.run("document.getElementById('live').checkVisibility()")
    finally:
        await browser.tool("Emulation.setScriptExecutionDisabled", value=False)


async def test_it_is_live_under_the_token_that_the_browser_asked_a_person_for(
    cluster: MemoryCluster, store: BokiStore, browser: Browser
) -> None:
    await filled(store)
    async with running_gateway(cluster, token=parse(TOKEN, "the test"), pages=(PAGE,)) as requester:
        await browser.open(at(requester).replace("http://", f"http://anybody:{TOKEN}@"))
        await browser.until(LIVE)
        await store.object("cart").inc("n")
        await browser.until("document.querySelectorAll('.timeline > li').length === 5")
        assert await browser.complaints() == []
