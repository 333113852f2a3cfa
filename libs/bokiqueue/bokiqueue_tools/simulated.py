"""Queues in the simulator: `boki sim run --profile queue`.

Producers push orders under ids, some under a key, some first, and push again what they do not know. A handler changes two objects and
pushes an e-mail. Somebody carries forward what is older than a second. All are hosts of their own, killed, paused, cut off, with wrong
clocks. In the end each order that was acknowledged was handled, none twice, those of a key in order, and nothing waits.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import boki
import boki.sim
from bokilib import Carrier, Log
from bokiqueue import Message, Queue, carried
from bokistore import BokiStore, StoreSettings, Transaction

LEASE_S: Final = 1.5
CARRY_MS: Final = 1_000
SECONDS: Final = 4.0


class Shop:
    """One run, and the answers that everybody got."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.acknowledged: list[str] = []
        self.stop = False
        self._cluster = cluster

    async def run(self) -> None:
        """Everybody works until the faults are over and all is handled; then it is checked."""
        cluster = self._cluster
        producers = [cluster.host(f"producer-{number}", self.produce) for number in (1, 2)]
        members = [cluster.host(f"member-{number}", self.handle) for number in (1, 2, 3)]
        carriers = [cluster.host(f"carrier-{number}", self.carry) for number in (1, 2)]
        await cluster.faults_over()
        self.stop = True
        for host in producers:
            await host.result()
        async with await cluster.connect() as client:
            _, orders, _ = await self.open(client)
            while (await orders.stats()).depth:  # noqa: ASYNC110 - virtual time: nobody waits
                await asyncio.sleep(0.2)
            for host in (*members, *carriers):
                await host.stop()
            await self.check(client)

    async def open(self, client: boki.Client) -> tuple[BokiStore, Queue[object], Queue[object]]:
        store = BokiStore(client.book("shop"), settings=StoreSettings(checkpoints=False))
        orders = await Queue.open(store.log, "orders", object, shards=2, max_deliveries=0, dedup_s=3600)
        return store, orders, await Queue.open(store.log, "emails", object, shards=1)

    async def produce(self, env: boki.sim.Environment) -> None:
        """Orders of one producer and one of its lives, in order."""
        async with await env.connect(timeout=4.0) as client:
            _, orders, _ = await self.open(client)
            life = env.random.token(4).hex()
            number = 0
            while not self.stop:
                number += 1
                order = f"{env.name}/{life}/{number}"
                key = f"{env.name}/{life}" if env.random.below(2) else None
                priority = env.random.below(3)
                while True:
                    try:
                        await orders.push(order, key=key, dedup_id=order, priority=priority)
                    except boki.OutcomeUnknown:
                        continue
                    break
                self.acknowledged.append(order)
                await asyncio.sleep(env.random.below(150) / 1000)

    async def carry(self, env: boki.sim.Environment) -> None:
        """Who carries."""
        async with await env.connect(timeout=4.0) as client:
            log = Log(client.book("shop"))
            async with Carrier(log, [carried(log)], who=env.name, every_s=0.4, carry_ms=CARRY_MS):
                await asyncio.Event().wait()

    async def handle(self, env: boki.sim.Environment) -> None:
        """A member."""
        async with await env.connect(timeout=4.0) as client:
            store, orders, emails = await self.open(client)

            @orders.handler(
                store,
                at_once=3,
                member_lease_s=LEASE_S,
                lease_s=3.0,
                backoff_s=0.05,
                who=env.random.token(6).hex(),
                carry_s=CARRY_MS / 1000,
            )
            async def ship(order: Message[object], tx: Transaction) -> None:
                await tx["stock"].get("left", 0)
                tx["stock"].inc("left", -1)
                tx["sales"].push("l", str(order.body))
                tx.add(emails.pushed(order.body))
                if env.random.below(20) == 0:
                    raise ValueError("by chance")

            await ship.run()

    async def check(self, client: boki.Client) -> None:
        store, _, emails = await self.open(client)
        sold: Any = await store.object("sales").get("l", [], consistency="linearizable")
        left = await store.object("stock").get("left", 0, consistency="linearizable")
        assert len(sold) == len(set(sold)), "an order was handled twice"
        assert set(self.acknowledged) <= set(sold), "an order that was acknowledged was not handled"
        assert left == -len(sold), "objects of one record differ"
        sent = [one.body for one in await emails.peek(1_000_000)]
        assert sent == sold, "an e-mail is missing, or was pushed twice"


async def program(cluster: boki.sim.Cluster) -> None:
    """One run."""
    await Shop(cluster).run()


QUEUE: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""For `boki sim run --profile queue`."""
