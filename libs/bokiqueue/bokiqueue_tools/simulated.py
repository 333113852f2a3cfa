"""Queues in the simulator: `boki sim run --profile queue`.

Producers push orders under ids, some with a key or a priority, and push again after an unknown outcome. A handler
changes two objects and pushes an e-mail. Another member finishes two orders in one record, perhaps of two shards. Two
auditors drop their group and register it again. A carrier rewrites records that are older than a second. Each is a host
of its own that is killed, paused and cut off, with a wrong clock and short timeouts.

In the end each acknowledged order was handled, none twice, those of a key in order, and no message waits. No auditor
saw a message twice, and none is missing that was pushed after the last registration of the group. The same holds after
days have passed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any, Final

import boki
import boki.sim
from boki_common.errors import BokiError, Conflict
from bokilib import Carrier, Log
from bokilib.errors import AppendUnknown, Fenced
from bokiqueue import Message, Queue, carried
from bokiqueue.errors import NoSuchGroup, StaleReceipt
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.testing.simulated import when_taken

LEASE_S: Final = 1.5
CARRY_MS: Final = 1_000
SECONDS: Final = 4.0
AUDIT: Final = "audit"
DAYS_S: Final = 9 * 86_400.0
TIMEOUTS_S: Final = (1.0, 4.0, 20.0)


class Shop:
    """A run, and the answers that its hosts got."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.acknowledged: list[str] = []
        self.begun: list[str] = []
        self.repeated: set[str] = set()
        """Orders that were pushed again: a group that is registered between the two pushes gets the second."""
        self.registered = 0
        """The number of orders begun when the group of auditors was registered last; some of these may have been pushed before."""
        self.stop = False
        self._cluster = cluster

    async def run(self) -> None:
        """Let all hosts work until the faults end and all orders are handled; then check."""
        cluster = self._cluster
        producers = [cluster.host(f"producer-{number}", self.produce) for number in (1, 2)]
        others = [cluster.host(f"member-{number}", self.handle) for number in (1, 2)]
        others += [cluster.host("pairs", self.handle_pairs)]
        carriers = [cluster.host(f"carrier-{number}", self.carry) for number in (1, 2)]
        others += [cluster.host(f"auditor-{number}", self.audit) for number in (1, 2)]
        changing = [cluster.host(f"registrar-{number}", self.register) for number in (1, 2)]
        await asyncio.sleep(SECONDS * 0.7)
        for host in changing:
            await host.stop()
        async with await cluster.connect() as client:
            _, orders, _ = await when_taken(partial(self.open, client))
            await when_taken(partial(orders.register, AUDIT))
            self.registered = len(self.begun)
            await cluster.faults_over()
            self.stop = True
            for host in producers:
                await host.result()
            for host in carriers:
                await host.stop()
            for group in ("default", AUDIT):
                while (await orders.stats(group)).depth:  # noqa: ASYNC110 - virtual time costs no time
                    await asyncio.sleep(2.0)
            for host in others:
                await host.stop()
            await self.check(client)
        await self.days()

    async def days(self) -> None:
        """Let days pass and a carrier rewrite: all checks hold as before, and an order is handled as on the first day."""
        await self._cluster.rest(DAYS_S)
        async with await self._cluster.connect() as client:
            store, orders, emails = await when_taken(partial(self.open, client))
            await Carrier(store.log, [carried(store.log), store.carried()], who="last").round()
            await when_taken(partial(orders.push, "late"))
            async with orders.consume() as messages, await anext(messages) as late, store.transaction() as tx:
                self._ship(tx, emails, late)
                tx.add(late.acked())
            await self.check(client)

    def _ship(self, tx: Transaction, emails: Queue[object], order: Message[object]) -> None:
        tx["stock"].inc("left", -1)
        tx["sales"].push("l", str(order.body))
        tx.add(emails.pushed(order.body))

    async def open(self, client: boki.Client) -> tuple[BokiStore, Queue[object], Queue[object]]:
        store = BokiStore(client.book("shop"), settings=StoreSettings(checkpoints=False))
        orders = await Queue.open(store.log, "orders", object, shards=4, max_deliveries=0, dedup_s=3600)
        return store, orders, await Queue.open(store.log, "emails", object, shards=1)

    async def produce(self, env: boki.sim.Environment) -> None:
        """Push orders, in order, as one incarnation of a producer."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            _, orders, _ = await when_taken(partial(self.open, client))
            life = env.random.token(4).hex()
            number = 0
            while not self.stop:
                number += 1
                order = f"{env.name}/{life}/{number}"
                key = f"{env.name}/{life}" if env.random.below(2) else None
                priority = env.random.below(3)
                self.begun.append(order)
                while True:
                    try:
                        await when_taken(partial(orders.push, order, key=key, dedup_id=order, priority=priority))
                    except boki.OutcomeUnknown:
                        self.repeated.add(order)
                        continue
                    break
                self.acknowledged.append(order)
                await asyncio.sleep(env.random.below(150) / 1000)

    async def carry(self, env: boki.sim.Environment) -> None:
        """Rewrite old records."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            log = Log(client.book("shop"))
            async with Carrier(log, [carried(log)], who=env.name, every_s=0.4, carry_ms=CARRY_MS):
                await asyncio.Event().wait()

    async def handle(self, env: boki.sim.Environment) -> None:
        """Handle orders."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
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
                self._ship(tx, emails, order)
                if env.random.below(20) == 0:
                    raise ValueError("by chance")

            await ship.run()

    async def handle_pairs(self, env: boki.sim.Environment) -> None:
        """Handle orders, finishing two in one record if two come."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            store, orders, emails = await self.open(client)
            consumer = orders.consume(
                who=env.random.token(6).hex(), member_lease_s=LEASE_S, lease_s=3.0, carry_s=CARRY_MS / 1000
            )
            async with consumer as messages:
                while True:
                    some = [await anext(messages)]
                    try:
                        async with asyncio.timeout(0.5):
                            some.append(await anext(messages))
                    except TimeoutError:
                        pass
                    try:
                        async with some[0], some[-1], store.transaction() as tx:
                            for order in some:
                                self._ship(tx, emails, order)
                                tx.add(order.acked())
                    except BokiError as error:
                        if not (error.retryable or isinstance(error, (Conflict, Fenced, StaleReceipt, AppendUnknown))):
                            raise

    async def register(self, env: boki.sim.Environment) -> None:
        """Drop the group of auditors and register it again, while another host does so too."""
        async with await env.connect(timeout=4.0) as client:
            _, orders, _ = await self.open(client)
            while True:
                await asyncio.sleep(env.random.below(600) / 1000)
                try:
                    await (orders.drop(AUDIT) if env.random.below(2) else orders.register(AUDIT))
                except NoSuchGroup:
                    pass

    async def audit(self, env: boki.sim.Environment) -> None:
        """Consume as a member of the group that comes and goes; begin again when the group is gone."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            store, orders, _ = await self.open(client)

            async def look(order: Message[object], tx: Transaction) -> None:
                tx["audited"].push("l", [str(order.body), list(order.id)])

            await orders.handler(store, group=AUDIT, member_lease_s=LEASE_S, lease_s=3.0, backoff_s=0.05)(look).run()

    async def check(self, client: boki.Client) -> None:
        store, _, emails = await self.open(client)
        sold: Any = await store.object("sales").get("l", [], consistency="linearizable")
        left = await store.object("stock").get("left", 0, consistency="linearizable")
        assert len(sold) == len(set(sold)), "an order was handled twice"
        assert set(self.acknowledged) <= set(sold), "an order that was acknowledged was not handled"
        assert left == -len(sold), "objects of one record differ"
        handled: Any = await store.object("audited").get("l", [], consistency="linearizable")
        messages = {tuple(id) for _, id in handled}
        assert len(handled) == len(messages), "a message was audited twice"
        audited = Counter(order for order, _ in handled)
        twice = {order for order, times in audited.items() if times > 1}
        assert twice <= self.repeated, "an order that was pushed once was audited twice"
        missing = set(self.begun[self.registered :]) & set(self.acknowledged) - set(audited)
        assert not missing, (
            f"orders that were pushed after the group was registered were not audited: {sorted(missing)[:3]}"
        )
        sent = [one.body for one in await emails.peek(1_000_000)]
        assert sent == sold, "an e-mail is missing, or was pushed twice"


async def program(cluster: boki.sim.Cluster) -> None:
    """Run the shop once."""
    await Shop(cluster).run()


QUEUE: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""The subject of `boki sim run --profile queue`."""
