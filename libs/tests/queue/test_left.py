"""Consumers and handlers that are used after they were left, or entered twice: callers get an end or an error, and do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread

import pytest

import boki.sync
import bokiflow
import bokiqueue.sync
from boki.testing import MemoryCluster
from boki_cli.testing.commands import memory_cluster
from boki_common.errors import ClosedError, UsageError
from boki_common.testing.virtual_time import let_pass
from bokiflow import App, Worker
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Log
from bokiqueue import Consumer, Message, NotEntered, Queue, Received, Receiving
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline
from libs.tests.queue.conftest import Another


async def iterated(messages: Consumer[object]) -> str:
    async for message in messages:
        async with message:
            pass
    return "ended"


@pytest.mark.parametrize("how", ["leave", "drain", "cancelled"])
@in_virtual_time
async def test_who_waits_for_a_consumer_that_is_left_or_drained_gets_its_end(how: str) -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await Queue.open((await cluster.connect()).book("b"), "jobs", object, shards=2)
        messages = queue.consume()
        await messages.__aenter__()
        iterating, waiting = asyncio.create_task(iterated(messages)), asyncio.create_task(messages.has(3))
        await let_pass(5)
        assert not iterating.done() and not waiting.done()
        if how == "drain":
            await messages.drain()
        else:
            leaving = asyncio.create_task(messages.__aexit__(None, None, None))
            if how == "cancelled":
                await asyncio.sleep(0)
                leaving.cancel()
            await asyncio.wait([leaving])
        async with asyncio.timeout(60):
            assert await iterating == "ended"
            with pytest.raises(ClosedError, match="takes no more"):
                await waiting
            assert [message async for message in messages] == []
            await messages.has(0)
            with pytest.raises(ClosedError, match="expected 1 shards"):
                await messages.has(1)
            assert await messages.drain()


async def test_a_consumer_that_was_not_entered_has_no_messages(another: Another) -> None:
    messages = (await another()).consume()
    with pytest.raises(NotEntered, match="async with"):
        await anext(messages)
    with pytest.raises(ClosedError, match="not entered"):
        await messages.has(1)
    assert await messages.drain()


async def test_a_consumer_is_entered_once_at_a_time(another: Another) -> None:
    queue, others = await another(shards=2), await another()
    messages = queue.consume(member_lease_s=600)
    async with messages:
        await messages.has(2)
        with pytest.raises(UsageError, match="entered already"):
            await messages.__aenter__()
        await queue.push("a")
        async with await anext(messages):
            pass
    async with messages:
        await messages.has(2)
    async with others.consume(member_lease_s=600) as rest:
        await rest.has(2)


@pytest.mark.parametrize("after_turns", [0, 1, 5, 100])
@in_virtual_time
async def test_a_handler_that_runs_is_not_run_beside_itself(after_turns: int) -> None:
    """Also while it enters its group; afterwards it may run again."""
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store = BokiStore((await cluster.connect()).book("b"))
        queue = await Queue.open(store.log, "jobs", object, shards=2)
        others = await Queue.open((await cluster.connect()).book("b"), "jobs", object)
        handled: list[object] = []

        @queue.handler(store, member_lease_s=3)
        async def ship(order: Message[object], tx: Transaction) -> None:
            handled.append(order.body)

        for body in ("first", "again"):
            running = asyncio.create_task(ship.run())
            for _ in range(after_turns + 1):
                await asyncio.sleep(0)
            with pytest.raises(UsageError, match="runs already"):
                await ship.run()
            await queue.push(body)
            await let_pass(10)
            running.cancel()
            await asyncio.wait([running])
        await queue.push("late")
        async with others.consume(member_lease_s=3) as messages, asyncio.timeout(100):
            await messages.has(2)
            assert (await anext(messages)).body == "late"
        assert handled == ["first", "again"]


@in_virtual_time
async def test_a_workflow_waits_for_a_message_of_a_consumer_that_is_not_entered() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        log = Log((await cluster.connect()).book("b"))
        store, queue = BokiStore(log), await Queue.open(log, "jobs", object, shards=1)
        messages = queue.consume(member_lease_s=3)
        received = Receiving(messages, store)
        app = App("shop")

        async def take(tx: Received[object, Transaction]) -> object:
            return tx.body

        @app.workflow
        async def sell() -> object:

            return await bokiflow.transact(received, take)

        async with Worker(app, log, bodies=Inline()) as worker:
            handle = await worker.start(sell.call(), id="x")
            await let_pass(5)
            with pytest.raises(NotEntered, match="async with"):
                await received.begin()
            async with messages:
                await let_pass(5)
            await let_pass(5)
            with pytest.raises(NotEntered, match="was left or drained"):
                await received.begin()
            async with messages:
                await queue.push("a")
                assert await handle.result() == "a"


@pytest.fixture
def book() -> Iterator[boki.sync.Book]:
    with memory_cluster() as url, boki.sync.connect(url) as client:
        yield client.book("shop")


def test_threads_that_iterate_end_with_the_block(book: boki.sync.Book) -> None:
    queue = bokiqueue.sync.Queue.open(book, "jobs", int)
    got: list[int] = []

    def work(messages: bokiqueue.sync.Consumer[int]) -> None:
        for message in messages:
            with message:
                got.append(message.body)

    messages = queue.consume()
    with messages:
        queue.push(1)
        threads = [Thread(target=work, args=(messages,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        with pytest.raises(UsageError, match="entered already"):
            messages.__enter__()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(StopIteration):
        next(messages)
