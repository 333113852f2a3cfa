"""The page of queues over HTTP, read as a browser without JavaScript would: its contents, and that names stay text."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from boki.testing import MemoryCluster
from boki_gateway.testing import Requester, running_gateway
from bokiqueue import Queue
from bokiqueue.manage import inspection
from bokiqueue_tools.page import page
from libs.tests.html_page import Page
from libs.tests.queue.conftest import Another, SetClock, all_appended

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\x1b[31m\u202e"


@pytest.fixture
async def requester(cluster: MemoryCluster, clock: SetClock) -> AsyncIterator[Requester]:
    async with running_gateway(cluster, pages=(page(clock),)) as one:
        yield one


async def look(requester: Requester, status: int = 200, **query: str) -> str:
    """The text of a page."""
    reply = await requester.get("/pages/queue", **query)
    assert reply.status == status, reply.body.decode()
    return Page(reply.body.decode()).text


async def test_without_a_book_it_asks_for_one(requester: Requester) -> None:
    assert "Name the book" in await look(requester)


async def test_the_queues_of_a_book(requester: Requester, another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.push(1)
    await another("popped", mode="pop")
    await (await another("still")).pause()
    text = await look(requester, book="shop")
    assert "jobs default 1 0 0.0 s no consumers" in text
    assert "jobs.dead default 0 0 none empty" in text
    assert "popped popped 0 0 none empty" in text and "still default 0 0 none paused" in text
    assert "The book has no queues." in await look(requester, book="nothing")


async def test_a_queue_with_its_oldest_and_its_dead_letters(
    requester: Requester, another: Another, clock: SetClock
) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead", max_deliveries=1)
    await queue.push({"n": 1}, key="k")
    await queue.push("bad")
    clock.ms += 5_000
    async with queue.consume(who="host-7") as messages:
        first, second = [await anext(messages) for _ in range(2)]
        await second.give_up("no good")
        await first.ack()
        await queue.push("late", delay_s=60)
        await queue.push("now")
        await anext(messages)
        await all_appended(messages)
        text = await look(requester, book="shop", queue="jobs")
    assert "Unfinished 2 In flight 1 Delayed 1" in text
    assert "shard 0 host-7 2 1 1" in text
    assert '"late" delayed 0' in text and '"now" in flight 1' in text
    assert '"bad" jobs no good 1' in text
    assert "Pushed 0.1/s Done 0.0/s Rates of the last 60.0 s" in text
    assert "of the book shop" in text


async def test_the_page_of_a_queue_of_dead_letters_says_why_each_is_there(
    requester: Requester, another: Another
) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead", max_deliveries=1)
    await queue.push("bad")
    async with queue.consume(who="host-7") as messages:
        with pytest.raises(ValueError, match="no such"):
            async with await anext(messages):
                raise ValueError("no such address")
        await all_appended(messages)
    text = await look(requester, book="shop", queue="jobs.dead")
    assert "State keeps dead letters Dead letters of jobs" in text
    assert "Message Of Why Error Attempts Given up (UTC)" in text
    assert "too many attempts failed ValueError('no such address') 1 " in text and '"bad" jobs ' in text
    assert "no consumers" not in text and "each message is redelivered" not in text
    assert "`boki queue redrive` sends them back" in text
    assert "jobs.dead default 1 0 0.0 s keeps dead letters" in await look(requester, book="shop")
    dead = await Queue.open(queue.log.book, "jobs.dead", object)
    async with dead.consume(who="host-7") as messages:
        await (await anext(messages)).ack()
    text = await look(requester, book="shop", queue="jobs.dead")
    assert "State empty Dead letters of jobs" in text and "each message is redelivered" not in text


async def test_what_is_not_there_is_text(requester: Requester, queue: Queue[object]) -> None:
    assert "there is no queue 'x'" in await look(requester, 404, book="shop", queue="x")
    assert "no group 'y'" in await look(requester, 404, book="shop", queue="jobs", group="y")


async def test_names_and_bodies_of_others_stay_text(requester: Requester, another: Another) -> None:
    name = EVIL[:150]
    queue = await another(name, shards=1)
    await queue.push(EVIL, key="<b>")
    assert "alert(1)" in await look(requester, book="shop")
    assert "<b>" in await look(requester, book="shop", queue=name)


async def test_rates_are_of_what_the_log_keeps(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    config = queue._found.config
    assert (await inspection.rates(queue.log, config, "default")).span_ms == 60_000
    for _ in range(10):
        clock.ms += 1_000
        await queue.push(1)
    found = await inspection.rates(queue.log, config, "default")
    assert (found.pushed_per_s, found.done_per_s) == (10 / 60, 0)
    await queue.log.book.trim([("queue/p/jobs/0", await queue.log.book.now())])
    found = await inspection.rates(queue.log, config, "default")
    assert found.pushed_per_s is None and found.span_ms == 0
