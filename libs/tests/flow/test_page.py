"""The page of workflows over HTTP, read as a browser without JavaScript would: what is shown, and that names stay text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokiflow import App, Flow, Worker
from bokiflow_tools import picture
from bokiflow_tools.page import PAGE
from libs.tests.flow import lives
from libs.tests.flow.conftest import Inline
from libs.tests.html_page import Page

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e"


@pytest.fixture
async def requester(cluster: MemoryCluster) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(PAGE,)) as one:
        yield one


async def look(requester: Requester, answer: int = 200, /, **query: str) -> Page:
    reply = await requester.get("/pages/flow", **query)
    assert reply.status == answer, reply.body.decode()
    return Page(reply.body.decode())


async def test_without_a_book_it_asks_for_one(requester: Requester) -> None:
    page = await look(requester)
    assert "Workflows are durable functions on a book" in page.text
    assert "name the app" in (await look(requester, book="nothing")).text


async def test_a_book_lists_its_workflows_newest_first(
    requester: Requester, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lives.fill(cluster)
    page = await look(requester, book="shop")
    assert page.text.index("order-7 checkout") < page.text.index("order-5") < page.text.index("order-6 ")
    assert "failed ValueError: no such address" in page.text and "customer=ann" in page.text
    assert "/pages/flow?book=shop&id=order-7" in page.links
    assert 'data-events="/v1/books/shop/events' in page.main
    failed = await look(requester, book="shop", group="shop", status="failed")
    assert "order-5" in failed.text and "order-6" not in failed.text and 'selected=""' in failed.main
    assert "There is none." in (await look(requester, book="shop", group="shop", name="nothing")).text
    await look(requester, 400, book="shop", status="well")
    monkeypatch.setattr("bokiflow_tools.page.LIMIT", 2)
    (older,) = [link for link in (await look(requester, book="shop")).links if "before" in link]
    behind = Page((await requester.get(older)).body.decode())
    assert "order-7 checkout" in behind.text and "data-events" not in behind.main


async def test_what_no_worker_runs_says_so_in_the_list_and_on_its_page(
    requester: Requester, cluster: MemoryCluster
) -> None:
    client = await cluster.connect()
    async with Flow(lives.app, client.book("shop")) as flow:
        await flow.start(lives.fails.call("x"), id="lonely")
    words = "no worker of this app was seen"
    assert words in (await look(requester, book="shop")).text
    assert words in (await look(requester, book="shop", id="lonely")).text
    async with lives.working(cluster) as worker:
        await asyncio.gather(worker.handle("lonely").result(), return_exceptions=True)
        await worker.start(lives.checkout.call("visa", []), id="runs")
        shown = (await look(requester, book="shop")).text
    assert "runs" in shown and "no worker" not in shown and "its worker" not in shown


async def test_a_book_of_several_apps_shows_each(requester: Requester, cluster: MemoryCluster) -> None:
    await lives.fill(cluster)
    other = App("other")

    @other.workflow
    async def nothing() -> None:
        pass

    client = await cluster.connect()
    async with Worker(other, client.book("shop"), name="o", bodies=Inline()) as worker:
        await (await worker.start(nothing.call(), id="n")).result()
    page = await look(requester, book="shop")
    assert "Apps other shop" in page.text and "/pages/flow?book=shop&group=other" in page.links
    only = await look(requester, book="shop", group="other")
    assert "nothing()" in only.text and "order-7" not in only.text


async def test_a_workflow_that_ended(requester: Requester, cluster: MemoryCluster) -> None:
    await lives.fill(cluster)
    page = await look(requester, book="shop", id="order-6")
    assert "Status completed" in page.text and "customer ann" in page.text and '"by": "bob"' in page.text
    assert 'Arguments ["visa",["apple","pear"]]' in page.text
    rows = re.findall(r'<span class="kind of-([a-z]*)">', page.main)
    assert rows.count("step") == 4 and rows.count("child") == 2 and rows.count("emit") == 2
    assert {"signal", "timer", "end"} <= set(rows) and rows[-1] == "end"
    assert "2 attempts" in page.text or "receipt 900 of visa" in page.text
    assert "/pages/flow?book=shop&id=order-6%2F0%2F3%3A1" in page.links, "children are links"
    assert "steps" in page.text and "timers" in page.text and "data-events" not in page.main
    child = await look(requester, book="shop", id="order-6/0/3:1")
    assert "Child of order-6" in child.text
    failed = await look(requester, book="shop", id="order-5")
    assert "ValueError : no such address" in failed.text.replace("ValueError:", "ValueError :")


async def test_an_error_is_shown_with_those_of_its_group_and_its_cause(
    requester: Requester, cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop")

    @app.step
    async def decline() -> None:
        try:
            raise KeyError("visa")
        except KeyError as declined:
            raise RuntimeError("order 7") from declined

    @app.workflow
    async def order() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(decline())

    async with Worker(app, (await cluster.connect()).book("shop"), name="w", bodies=Inline()) as worker:
        await asyncio.gather((await worker.start(order.call(), id="x")).result(), return_exceptions=True)
        known = await worker.flow.known("x")
    text = (await look(requester, book="shop", id="x")).text
    assert "error 1 of 1: RuntimeError: order 7" in text and "cause: KeyError: 'visa'" in text
    words = "(1 sub-exception) [RuntimeError: order 7 (cause: KeyError: 'visa')]"
    assert words in text and words in (await look(requester, book="shop")).text
    assert words in capsys.readouterr().err, "the log line of the worker names them, too"
    assert known is not None and known.outcome is not None and known.outcome.error is not None
    (declined,) = known.outcome.error.errors
    assert declined.cause is not None and "bokiflow" not in declined.stack


async def test_a_workflow_that_runs_at_its_second_worker(requester: Requester, cluster: MemoryCluster) -> None:
    await lives.fill(cluster)
    stay = asyncio.Event()
    worker = asyncio.create_task(lives.take_over(cluster, stay))
    try:
        while True:
            page = await look(requester, book="shop", id="order-7")
            if "takeover" in page.text:
                break
        assert "Status running" in page.text and "Runs at host-7." in page.text and "waits" in page.text
        assert 'data-events="/v1/books/shop/events?tag=flow%2Fwf%2Forder-7' in page.main
    finally:
        stay.set()
        await worker


async def test_a_long_history_comes_in_parts(
    requester: Requester, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "ROWS", 4)
    async with lives.working(cluster) as worker:
        await (await worker.start(lives.many.call(9), id="x")).result()
    last = await look(requester, book="shop", id="x")
    assert "Part 3 of 3." in last.text and last.main.count('class="kind of-') == 2
    first = await look(requester, book="shop", id="x", part="1")
    assert "Part 1 of 3." in first.text and first.main.count('class="kind of-') == 4
    assert "Show what it does now" in first.text
    await look(requester, 400, book="shop", id="x", part="-1")


async def test_what_is_not_there_is_named(requester: Requester) -> None:
    assert "there is no workflow 'nobody'" in (await look(requester, 400, book="shop", id="nobody")).text


async def test_names_and_values_are_text_and_never_markup(requester: Requester, cluster: MemoryCluster) -> None:
    app = App(EVIL.replace("/", ""))

    @app.step(name=EVIL)
    async def step(value: str) -> str:
        return value

    @app.workflow(name=EVIL, version=EVIL)
    async def evil(value: str) -> str:
        await step(value)
        raise ValueError(value)

    client = await cluster.connect()
    async with Worker(app, client.book("shop"), name=EVIL, bodies=Inline()) as worker:
        handle = await worker.start(evil.call(EVIL), id=EVIL, attributes={EVIL: EVIL})
        await handle.signal(EVIL, EVIL)
        await asyncio.gather(handle.result(), return_exceptions=True)
    queries: list[dict[str, str]] = [{}, {"id": EVIL}, {"group": EVIL, "name": EVIL}]
    for query in queries:
        page = await look(requester, 200, book="shop", **query)
        assert "\x1b" not in page.text and "\u202e" not in page.text
