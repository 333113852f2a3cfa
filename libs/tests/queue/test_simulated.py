"""Queues on simulated clusters: producers and members on hosts of their own, killed, paused, cut off, with wrong clocks.

Producers push orders under ids, some under a key, and push again what they do not know. A handler changes two objects and pushes an
e-mail. In the end each order that was acknowledged was handled, none twice, those of a key in order, and nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

import boki
import boki.sim
from bokilib.events import open_record
from bokiqueue import Message, Queue
from bokiqueue.events import PICKER, Pushed
from bokistore import BokiStore, StoreSettings, Transaction

pytestmark = [
    pytest.mark.blocking_allowed,
    pytest.mark.timeout(300),
]  # the simulator's guard stands in; machines may be busy

LEASE_S = 1.5


class Shop:
    """One run, and what everybody was told."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.acknowledged: list[str] = []
        self.stop = False
        self._cluster = cluster

    async def run(self) -> None:
        """Everybody works until the faults are over and all is handled; then it is checked."""
        cluster = self._cluster
        producers = [cluster.host(f"producer-{number}", self.produce) for number in (1, 2)]
        members = [cluster.host(f"member-{number}", self.handle) for number in (1, 2, 3)]
        await cluster.faults_over()
        self.stop = True
        for host in producers:
            await host.result()
        async with await cluster.connect() as client:
            _, orders, _ = await self.open(client)
            while (await orders.stats()).depth:
                await asyncio.sleep(0.2)
            for host in members:
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
                while True:
                    try:
                        await orders.push(order, key=key, dedup_id=order)
                    except boki.OutcomeUnknown:
                        continue
                    break
                self.acknowledged.append(order)
                await asyncio.sleep(env.random.below(150) / 1000)

    async def handle(self, env: boki.sim.Environment) -> None:
        """A member."""
        async with await env.connect(timeout=4.0) as client:
            store, orders, emails = await self.open(client)

            @orders.handler(
                store, at_once=3, member_lease_s=LEASE_S, lease_s=3.0, backoff_s=0.05, who=env.random.token(6).hex()
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
        store, _, _ = await self.open(client)
        sold: Any = await store.object("sales").get("l", [], consistency="linearizable")
        left = await store.object("stock").get("left", 0, consistency="linearizable")
        assert len(sold) == len(set(sold)), "an order was handled twice"
        assert set(self.acknowledged) <= set(sold), "an order that was acknowledged was not handled"
        assert left == -len(sold), "objects of one record differ"
        sent: list[object] = []
        async for item in client.book("shop").read("queue/p/emails/0", consistency="linearizable"):
            assert isinstance(item, boki.Record)
            for event in PICKER.of(item.seqnum, open_record(item.seqnum, item.data), about="emails/0"):
                assert isinstance(event, Pushed)
                sent += [msgspec.msgpack.decode(one.body) for one in event.items]
        assert sent == sold, "an e-mail is missing, or was pushed twice"


async def program(cluster: boki.sim.Cluster) -> None:
    await Shop(cluster).run()


def on_models(seeds: Iterable[int]) -> None:
    for seed in seeds:
        boki.sim.run(program, seed=seed, faults="harsh", seconds=4.0, model=True)


def test_on_models_each_order_is_handled_once() -> None:
    on_models(range(1, 7))


def test_on_clusters_each_order_is_handled_once() -> None:
    boki.sim.run(program, seed=1, faults="harsh", seconds=3.0, steady=True)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_on_a_thousand_models_each_order_is_handled_once() -> None:
    on_models(range(1, 1_001))


def test_effects_that_happen_twice_are_found_when_they_are_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler whose record is not its ACK."""
    monkeypatch.setattr("bokiqueue.messages.Message.acked", lambda self: (self.ack() and None) or _nothing())
    with pytest.raises(AssertionError, match=r"twice|not handled|objects|e-mail"):
        on_models(range(1, 40))


def _nothing() -> Any:
    from bokilib import Contribution

    return Contribution()
