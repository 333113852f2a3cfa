"""A process that does not hear its streams any more says so, and others take its work over.

It would go on sending heartbeats otherwise: its workflows, messages and machines would wait for it for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import ClosedError
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Call, Flow, Worker
from bokiflow.testing import LoopClock, in_virtual_time
from bokiqueue import Queue
from bokirsm import Host, Rsm
from bokistore import BokiStore, StoreSettings
from libs.tests.deaf_book import REASONS, DeafBook, deaf_port
from libs.tests.rsm.conftest import WORDS
from libs.tests.rsm.words import Best, Freq, Max

LEASE_S = 3.0
WITHIN_S = 10 * LEASE_S

reasons = pytest.mark.parametrize("reason", REASONS, ids=["of the log", "of a subscriber"])


def flow_app(ran: list[str], who: str) -> tuple[App, Call[str]]:
    app = App("shop")

    @app.workflow
    async def order() -> str:
        ran.append(who)
        return who

    return app, order.call()


@reasons
@in_virtual_time
async def test_workflows_of_a_deaf_worker_run_at_another(reason: Exception) -> None:
    ran: list[str] = []
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        app, order = flow_app(ran, "deaf")
        async with Worker(app, deaf_port(book), lease_s=LEASE_S) as deaf:
            book.deaf.set()
            async with Flow(app, (await cluster.connect()).book("b")) as outside:
                started = await outside.start(order, id="x")
                with pytest.raises(type(reason)):
                    await asyncio.wait_for(deaf.handle("x").result(), WITHIN_S)
                async with Worker(flow_app(ran, "other")[0], (await cluster.connect()).book("b"), lease_s=LEASE_S):
                    assert await asyncio.wait_for(started.result(), WITHIN_S) == "other"
    assert ran == ["other"]


@reasons
@in_virtual_time
async def test_a_deaf_consumer_raises_and_another_gets_its_messages(reason: Exception) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        queue = await Queue.open(deaf_port(book), "jobs", object, shards=2)
        theirs = await Queue.open((await cluster.connect()).book("b"), "jobs", object)
        async with queue.consume(who="deaf", member_lease_s=LEASE_S) as messages:
            await messages.has(2)
            book.deaf.set()
            await theirs.push("a")
            with pytest.raises(type(reason)):
                await asyncio.wait_for(anext(messages), WITHIN_S)
            async with (
                theirs.consume(who="other", member_lease_s=LEASE_S) as others,
                await asyncio.wait_for(anext(others), WITHIN_S) as message,
            ):
                assert message.body == "a"


@reasons
@in_virtual_time
async def test_a_deaf_host_says_so_and_another_runs_its_machines(reason: Exception) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        async with (
            Host(WORDS, deaf_port(book), lease_s=LEASE_S, stuck_after_s=None) as deaf,
            Rsm(WORDS, (await cluster.connect()).book("b")) as client,
        ):
            top = await client.create(Max, key="max")
            await client.ask(Best().to(top))
            book.deaf.set()
            await client.send(top, Freq("to", 3))
            async with Host(WORDS, (await cluster.connect()).book("b"), lease_s=LEASE_S, stuck_after_s=None):
                assert await client.ask(Best().to(top), timeout_s=WITHIN_S) == "to 3"
            assert deaf.failed is reason and deaf.partitions == []


@reasons
@in_virtual_time
async def test_calls_for_results_that_cannot_be_heard_fail_and_later_ones_do_not(reason: Exception) -> None:
    ran: list[str] = []
    app, order = flow_app(ran, "w")
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        async with Flow(app, deaf_port(book)) as outside:
            handle = await outside.start(order, id="x")
            waits = asyncio.create_task(handle.result())
            await let_pass(1)
            book.deaf.set()
            with pytest.raises(type(reason)):
                await asyncio.wait_for(waits, WITHIN_S)
            book.deaf.clear()
            async with Worker(app, (await cluster.connect()).book("b"), lease_s=LEASE_S):
                assert await asyncio.wait_for(handle.result(), WITHIN_S) == "w"


@reasons
@in_virtual_time
async def test_questions_whose_answers_cannot_be_heard_fail_and_later_ones_do_not(reason: Exception) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        async with Rsm(WORDS, deaf_port(book)) as client:
            top = await client.create(Max, key="max")
            asks = asyncio.create_task(client.ask(Best().to(top), timeout_s=WITHIN_S))
            await let_pass(1)
            book.deaf.set()
            with pytest.raises(type(reason)):
                await asks
            book.deaf.clear()
            async with Host(WORDS, (await cluster.connect()).book("b"), lease_s=LEASE_S, stuck_after_s=None):
                assert await client.ask(Best().to(top), timeout_s=WITHIN_S) == " 0"


@reasons
@in_virtual_time
async def test_objects_that_are_not_followed_any_more_are_read_from_the_log(reason: Exception) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book = DeafBook((await cluster.connect()).book("b"), reason)
        mine: Any = BokiStore(deaf_port(book), settings=StoreSettings(followed_objects=8, followed_within_s=60))
        theirs: Any = BokiStore((await cluster.connect()).book("b"))
        await theirs.object("x").set("n", 0)
        following = mine.views._following()
        while not following.served:
            assert await mine.object("x").get("n") == 0
            await let_pass(0.1)
        book.deaf.set()
        await let_pass(1)
        await theirs.object("x").set("n", 1)
        served = following.served
        assert await mine.object("x").get("n") == 1 and following.served == served
        book.deaf.clear()
        while following.served == served:
            assert await mine.object("x").get("n") == 1
            await let_pass(0.1)
        await mine.close()
        await theirs.close()


@in_virtual_time
async def test_calls_for_results_end_when_the_client_is_closed() -> None:
    app, order = flow_app([], "w")
    async with MemoryCluster(clock=LoopClock()) as cluster:
        client = await cluster.connect()
        async with Flow(app, client.book("b")) as outside:
            handle = await outside.start(order, id="x")
            waits = asyncio.create_task(handle.result())
            await let_pass(1)
            await client.close()
            with pytest.raises(ClosedError):
                await asyncio.wait_for(waits, WITHIN_S)
