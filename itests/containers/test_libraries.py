"""One scenario of each library on containers, while a role is killed: money stays, messages are done once, workflows end."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import boki
from boki.testing.containers import BokiCluster
from bokiflow import App, Retry, Worker
from bokiqueue import Message, Queue
from bokistore import BokiStore, Transaction

pytestmark = [pytest.mark.containers, pytest.mark.alone, pytest.mark.blocking_allowed, pytest.mark.timeout(600)]

TIMEOUT_S = 240.0


async def kill_and_start_again(cluster: BokiCluster, name: str) -> None:
    await asyncio.to_thread(cluster.kill, name)
    await asyncio.to_thread(cluster.start_again, name)


async def test_what_transactions_move_is_neither_lost_nor_made(cluster: BokiCluster) -> None:
    accounts = ["ann", "bob", "cleo"]

    async def move(tx: Transaction, source: str, target: str) -> bool:
        if not await tx[source].get("balance", 0):
            return False
        tx[source].inc("balance", -1)
        tx[target].inc("balance", 1)
        return True

    async with boki.connect(cluster.url, timeout=120.0) as client, asyncio.timeout(TIMEOUT_S):
        store = BokiStore(client.book("bank"))
        for name in accounts:
            await store.object(name).set("balance", 10)
        async with asyncio.TaskGroup() as group:
            group.create_task(kill_and_start_again(cluster, "engine-1"))
            for number in range(60):
                source, target = accounts[number % 3], accounts[(number + 1 + number // 30) % 3]
                await store.transact(move, source, target)
        balances = [int(str(await store.object(name).get("balance"))) for name in accounts]
        assert sum(balances) == 30 and min(balances) >= 0


async def test_a_message_changes_the_store_once(cluster: BokiCluster) -> None:
    async with boki.connect(cluster.url, timeout=120.0) as client, asyncio.timeout(TIMEOUT_S):
        store = BokiStore(client.book("work"))
        queue = await Queue.open(store.log, "jobs", dict, shards=2, max_deliveries=0)

        @queue.handler(store, at_once=4)
        async def done(message: Message[dict[str, int]], tx: Transaction) -> None:
            tx["done"].inc(str(message.body["number"]))

        async with asyncio.TaskGroup() as group:
            group.create_task(kill_and_start_again(cluster, "bookie-1"))
            for number in range(40):
                await queue.push({"number": number}, dedup_id=str(number))
        async with done:
            async with asyncio.TaskGroup() as group:
                group.create_task(kill_and_start_again(cluster, "engine-2"))
            while (await queue.stats()).depth:
                pass  # asking takes a moment
        assert await store.object("done").value() == {str(number): 1 for number in range(40)}


async def test_workflows_end_once_with_what_their_steps_said(cluster: BokiCluster) -> None:
    app = App("shop")
    charged: Counter[str] = Counter()

    @app.step(retry=Retry(attempts=20, delay_s=0.1))
    async def charge(order: str) -> str:
        charged[order] += 1
        return f"charged {order}"

    @app.workflow
    async def checkout(order: str) -> str:
        return await charge(order)

    async with (
        asyncio.timeout(TIMEOUT_S),
        boki.connect(cluster.url, timeout=120.0) as client,
        Worker(app, client.book("orders"), name="worker-1") as worker,
    ):
        async with asyncio.TaskGroup() as group:
            group.create_task(kill_and_start_again(cluster, "sequencer-1"))
            handles = [await worker.start(checkout.call(str(n)), id=f"order-{n}") for n in range(10)]
        assert [await handle.result() for handle in handles] == [f"charged {n}" for n in range(10)]
        again = await worker.start(checkout.call("3"), id="order-3")
        assert await again.result() == "charged 3" and set(charged) == {str(n) for n in range(10)}
