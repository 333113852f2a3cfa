"""Handlers: effects once, errors give back, who may be dead stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from boki_common.errors import InvalidArgument
from bokilib import Atomic, Log
from bokiqueue import Message, Queue
from bokiqueue.attempts import backoff_s
from bokistore import BokiStore, Transaction
from libs.tests.queue.conftest import Another, book_of


async def shop(another: Another) -> tuple[BokiStore, Queue[object]]:
    store = BokiStore(book_of(await another()))
    return store, await Queue.open(store.log, "orders", object, shards=2, max_deliveries=2, dead_letter="orders.dead")


async def test_each_message_changes_the_store_once_and_pushes_once(another: Another) -> None:
    store, orders = await shop(another)
    emails = await Queue.open(store.log, "emails", object, shards=1)
    done = asyncio.Event()

    @orders.handler(store, member_lease_s=600)
    async def ship(order: Message[object], tx: Transaction) -> None:
        sold = await tx["stock"].get("sold", 0)
        assert isinstance(sold, int)
        tx["stock"].set("sold", sold + 1)
        tx.add(emails.pushed(order.body))

    await orders.push_many(list(range(20)))
    async with ship:
        watcher = asyncio.create_task(_until(store, 20, done))
        async with asyncio.timeout(10):
            await done.wait()
        await watcher
    got = []
    async with emails.consume() as messages:
        for _ in range(20):
            async with await anext(messages) as message:
                got.append(message.body)
        assert messages._next() is None
    assert set(got) == set(range(20))
    assert await store.object("stock").get("sold") == 20


async def _until(store: BokiStore, sold: int, done: asyncio.Event) -> None:
    async for _ in store.object("stock").watch():
        if await store.object("stock").get("sold", 0) == sold:
            done.set()
            return


async def test_an_error_gives_the_message_back_until_it_is_a_dead_letter(another: Another) -> None:
    store, orders = await shop(another)
    runs: list[int] = []

    @orders.handler(store, backoff_s=0.001, at_once=1)
    async def ship(order: Message[object], tx: Transaction) -> None:
        runs.append(order.attempt)
        tx["stock"].inc("sold")
        raise ValueError("no")

    await orders.push("bad")
    dead = await Queue.open(store.log, "orders.dead", object)
    running = asyncio.create_task(ship.run())
    async with dead.consume() as letters:
        assert (await anext(letters)).body == "bad"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (runs, await store.object("stock").value()) == ([1, 2], None)


class Plain:
    """Runs transactions that are one record, in the task of the handler."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def transact(self, body: Callable[[Atomic], Awaitable[None]]) -> None:
        async with Atomic(self._log) as tx:
            await body(tx)


async def test_a_member_whose_heartbeats_end_stops_its_handlers(another: Another) -> None:
    store, orders = await shop(another)
    begun, stopped = asyncio.Event(), asyncio.Event()

    @orders.handler(Plain(store.log), member_lease_s=0.2)
    async def ship(order: Message[object], tx: Atomic) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await orders.push("slow")
    async with ship:
        await begun.wait()
        assert ship.consumer is not None
        for task in ship.consumer._members._tasks:
            task.cancel()
        async with asyncio.timeout(5):
            await stopped.wait()


def test_it_comes_again_later_each_time() -> None:
    assert [backoff_s(attempt, 1.0) for attempt in (1, 2, 3, 11, 1_000)] == [1.0, 2.0, 4.0, 60.0, 60.0]


async def test_no_handlers_are_refused(another: Another) -> None:
    store, orders = await shop(another)
    with pytest.raises(InvalidArgument, match="one handler"):
        orders.handler(store, at_once=0)(None)  # type: ignore[arg-type]  # never called


class Interrupted(Plain):
    """Commits, and whoever waits is cancelled."""

    async def transact(self, body: Callable[[Atomic], Awaitable[None]]) -> None:
        await super().transact(body)
        raise asyncio.CancelledError


async def test_a_wait_that_was_ended_proves_nothing_about_its_record(another: Another) -> None:
    store, orders = await shop(another)
    emails = await Queue.open(store.log, "emails", object, shards=1)

    @orders.handler(Interrupted(store.log))
    async def ship(order: Message[object], tx: Atomic) -> None:
        tx.add(emails.pushed(order.body))

    await orders.push("first", key="k")
    await orders.push("second", key="k")
    async with orders.consume() as messages:
        with pytest.raises(asyncio.CancelledError):
            await ship.handle(await anext(messages))
        assert (await anext(messages)).body == "second"
    assert [one.body for one in await emails.peek()] == ["first"]
