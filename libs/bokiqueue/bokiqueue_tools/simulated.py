"""Queues in the simulator: `boki sim run --profile queue`.

Producers push orders under ids, some with a key or a priority, and push again after an unknown outcome. A handler
changes two objects and pushes an e-mail. Another member finishes two orders in one record, perhaps of two shards. Two
auditors drop their group and register it again. Clerks ACK and NACK orders one by one, in a group of their own. Tickets are
pushed by the dozen to another queue and popped. A carrier rewrites records that are older than a second. Each is a host
of its own that is killed, paused and cut off, with a wrong clock and short timeouts. Most hosts cancel calls while they are
in flight: pushes, pops, iteration, decisions, records with ACKs, and whole members while they enter, work or leave.

Users do odd things with one of eight orders: a handler's function acks it, a clerk exits in its block or gives it up for a reason that is
none. All change bodies in place after they gave or got them; e-mails are models with aliases.

In the end each acknowledged order was handled, none twice, those of a key in order, and no message waits. No auditor
saw a message twice, and none is missing that was pushed after the last registration of the group. The same holds after
days have passed. No message was acknowledged twice, or popped twice; tickets are missing only if a pop that may have taken
them has no known outcome. Of a member that was left no task runs on.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import boki
import boki.sim
from boki_common.errors import BokiError, Conflict, InvalidArgument, UsageError
from bokilib import Carrier, Log
from bokilib.errors import AppendUnknown, Fenced
from bokilib.records.codec import from_json
from bokilib.testing import CallCancelled, Cancellations, all_ended, until
from bokilib.testing.odd_values import PARCEL, parcel, parcel_json
from bokiqueue import Message, Queue, carried
from bokiqueue.errors import NoSuchGroup, QueueEmpty, StaleReceipt
from bokistore import BokiStore, StoreSettings, Transaction
from bokistore.testing.simulated import cancellations, when_taken

LEASE_S: Final = 1.5
CARRY_MS: Final = 1_000
SECONDS: Final = 4.0
AUDIT: Final = "audit"
CLERKS: Final = "clerks"
DOZEN: Final = 3
"""Tickets that are pushed together."""
LIVES: Final = (0, 1, 3)
"""A host cancels one of so many of its members, at any point of their lives; 0: none."""
ODD_IN: Final = 8
"""One of so many orders is odd."""
ODD_REASONS: Final[tuple[Any, ...]] = (b"x", None, ["a"], "\ud800")
"""Reasons of dead letters that no record may have."""
EXITS: Final = 20
"""Blocks of one order that exit at its first attempt: each but the last one's attempt was not recorded, by a fault."""
DAYS_S: Final = 9 * 86_400.0
TIMEOUTS_S: Final = (1.0, 4.0, 20.0)


def body_of(order: str) -> dict[str, Any]:
    """Return the body of an order."""
    return {"order": order, "lines": [["apple"]]}


def is_odd(order: Message[Any]) -> bool:
    """Return whether users do odd things with an order, by its id."""
    return zlib.crc32(str(order.id).encode()) % ODD_IN == 0


class Popping:
    """Pops of one start of a host.

    Attributes:
        popped: tickets that its pops returned.
        unknown: pops whose outcome stayed unknown, so that each may have taken a ticket.
        cancelled: pops that were cancelled. Each leaves its ticket to a later pop of the start.
        ended: the start popped until nothing was left.
    """

    def __init__(self) -> None:
        self.popped: list[str] = []
        self.unknown = self.cancelled = 0
        self.ended = False

    @property
    def lost(self) -> int:
        """The number of tickets that may have been taken and not returned."""
        return self.unknown + (0 if self.ended else self.cancelled + 1)


class Shop:
    """A run, and the answers that its hosts got."""

    def __init__(self, cluster: boki.sim.Cluster) -> None:
        self.acknowledged: list[str] = []
        self.begun: list[str] = []
        self.repeated: set[str] = set()
        """Orders that were pushed again: a group that is registered between the two pushes gets the second."""
        self.registered = 0
        """The number of orders begun when the group of auditors was registered last; some of these may have been pushed before."""
        self.clerks_since = -1
        """The number of orders begun when the group of clerks was registered first; -1: it was not."""
        self.finished: Counter[tuple[int, ...]] = Counter()
        """How often clerks learned that an order is finished, by message."""
        self.seen_by_clerks: set[str] = set()
        self.tickets: dict[str, bool] = {}
        """All batches of tickets that were pushed, and whether the push was acknowledged."""
        self.poppings: list[Popping] = []
        self.exits: Counter[tuple[int, ...]] = Counter()
        """How often the block of a clerk exited at the first attempt, by message."""
        self.wrong: list[str] = []
        """Things that happened in hosts and must not."""
        self.stop = False
        """No order is pushed any more."""
        self.over = False
        """All orders are handled: members leave."""
        self._cluster = cluster

    async def run(self) -> None:
        """Let all hosts work until the faults end and all orders are handled; then check."""
        cluster = self._cluster
        producers = [cluster.host(f"producer-{number}", self.produce) for number in (1, 2)]
        producers += [cluster.host("printer", self.print_tickets)]
        others = [cluster.host(f"member-{number}", self.handle) for number in (1, 2)]
        others += [cluster.host("pairs", self.handle_pairs)]
        others += [cluster.host(f"carrier-{number}", self.carry) for number in (1, 2)]
        others += [cluster.host(f"auditor-{number}", self.audit) for number in (1, 2)]
        others += [cluster.host(f"clerk-{number}", self.clerk) for number in (1, 2)]
        popping = [cluster.host(f"visitor-{number}", self.pop_tickets) for number in (1, 2)]
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
            for host in popping:
                await host.result()
            for group in ("default", AUDIT, *([CLERKS] if self.clerks_since >= 0 else [])):
                while (await orders.stats(group)).depth:  # noqa: ASYNC110 - virtual time costs no time
                    await asyncio.sleep(2.0)
            self.over = True
            for host in others:
                await host.result()
            await self.check(client)
            await self.check_tickets(client)
        await self.days()

    async def days(self) -> None:
        """Let days pass and a carrier rewrite: all checks hold as before, and an order is handled as on the first day."""
        await self._cluster.rest(DAYS_S)
        async with await self._cluster.connect() as client:
            store, orders, emails = await when_taken(partial(self.open, client))
            await Carrier(store.log, [carried(store.log), store.carried()], who="last").round()
            await when_taken(partial(orders.push, body_of("late")))
            async with orders.consume() as messages, await anext(messages) as late, store.transaction() as tx:
                self._ship(tx, emails, late)
                tx.add(late.acked())
            await self.check(client)

    def _name(self, order: Message[Any]) -> str:
        """Return the id of an order; note a body that is not as it was pushed, and change it in place."""
        body = order.body
        if body != body_of(body["order"]):
            self.wrong.append(f"an order was delivered as {body}")
        name = str(body["order"])
        body["order"] = "spoilt"
        body["lines"][0].append("spoilt")
        return name

    def _ship(self, tx: Transaction, emails: Queue[Any], order: Message[Any]) -> None:
        tx["stock"].inc("left", -1)
        tx["sales"].push("l", self._name(order))
        tx.add(emails.pushed(parcel(self._name(order))))

    async def open(self, client: boki.Client) -> tuple[BokiStore, Queue[Any], Queue[Any]]:
        store = BokiStore(client.book("shop"), settings=StoreSettings(checkpoints=False))
        orders = await Queue.open(store.log, "orders", object, shards=4, max_deliveries=0, dedup_s=3600)
        return store, orders, await Queue.open(store.log, "emails", PARCEL, shards=1)

    async def open_tickets(self, client: boki.Client) -> Queue[Any]:
        return await Queue.open(client.book("shop"), "tickets", object, mode="pop", shards=2)

    async def produce(self, env: boki.sim.Environment) -> None:
        """Push orders, in order, as one incarnation of a producer."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            _, orders, _ = await when_taken(partial(self.open, client))
            cancels = cancellations(env)
            life = env.random.token(4).hex()
            number = 0
            while not self.stop:
                number += 1
                order = f"{env.name}/{life}/{number}"
                key = f"{env.name}/{life}" if env.random.below(2) else None
                priority = env.random.below(3)
                self.begun.append(order)
                while True:
                    body = body_of(order)
                    push = partial(orders.push, body, key=key, dedup_id=order, priority=priority)
                    try:
                        await cancels.call(partial(when_taken, push))
                        body["lines"][0].append("later")
                    except boki.OutcomeUnknown:
                        self.repeated.add(order)
                        continue
                    break
                self.acknowledged.append(order)
                await asyncio.sleep(env.random.below(150) / 1000)

    async def print_tickets(self, env: boki.sim.Environment) -> None:
        """Push tickets, several at once; a push without a known outcome is not repeated."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            tickets, cancels = await when_taken(partial(self.open_tickets, client)), cancellations(env)
            while not self.stop:
                batch = env.random.token(4).hex()
                self.tickets[batch] = False
                push = partial(tickets.push_many, [f"{batch}/{number}" for number in range(DOZEN)])
                try:
                    await cancels.call(partial(when_taken, push))
                    self.tickets[batch] = True
                except boki.OutcomeUnknown:
                    pass
                await asyncio.sleep(env.random.below(400) / 1000)

    async def pop_tickets(self, env: boki.sim.Environment) -> None:
        """Pop tickets; in the end until there is none."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            tickets, cancels, mine = await when_taken(partial(self.open_tickets, client)), cancellations(env), Popping()
            self.poppings.append(mine)
            while True:
                last = self.stop
                pop = partial(tickets.pop, timeout=env.random.below(2))
                try:
                    mine.popped.append(str(await (pop() if last else cancels.call(pop))))
                except CallCancelled:
                    mine.cancelled += 1
                except QueueEmpty:
                    if last:
                        break
                except BokiError as error:
                    mine.unknown += not error.definite
                    await asyncio.sleep(0.1)
            await all_ended(env.running_tasks, "bokiqueue")
            mine.ended = True

    async def _live(self, env: boki.sim.Environment, life: Callable[[], Awaitable[None]]) -> None:
        """Be a member again and again, until all is done: a life ends by itself, or is cancelled anywhere."""
        cancels = Cancellations(env.random, one_in=LIVES[env.random.below(len(LIVES))])
        while not self.over:
            try:
                await cancels.call(partial(until, lambda: self.over, life), longest_s=SECONDS)
            except CallCancelled:
                pass
            await all_ended(env.running_tasks, "bokiqueue", "bokilib members", "bokilib carrier")

    async def carry(self, env: boki.sim.Environment) -> None:
        """Rewrite old records."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            log = Log(client.book("shop"))

            async def life() -> None:
                async with Carrier(log, [carried(log)], who=env.name, every_s=0.4, carry_ms=CARRY_MS):
                    await asyncio.Event().wait()

            await self._live(env, life)

    async def clerk(self, env: boki.sim.Environment) -> None:
        """ACK and NACK orders one by one."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            _, orders, _ = await self.open(client)
            await when_taken(partial(orders.register, CLERKS))
            if self.clerks_since < 0:
                self.clerks_since = len(self.begun)
            cancels = cancellations(env)

            async def life() -> None:
                consumer = orders.consume(group=CLERKS, member_lease_s=LEASE_S, lease_s=3.0, carry_s=CARRY_MS / 1000)
                async with consumer as messages:
                    while True:
                        try:
                            order = await cancels.call(partial(anext, messages))
                            self.seen_by_clerks.add(self._name(order))
                            if await self._exits(order):
                                continue
                            decided = order.nack if env.random.below(8) == 0 else order.ack
                            await cancels.call(decided)
                        except (StaleReceipt, Fenced, boki.OutcomeUnknown):
                            continue
                        self.finished[tuple(order.id)] += decided == order.ack

            await self._live(env, life)

    async def _exits(self, order: Message[Any]) -> bool:
        """Give some orders up for reasons that are none, which is refused; exit in the block of others, which fails their first attempt."""
        if is_odd(order):
            for reason in ODD_REASONS:
                try:
                    _ = order.give_up(reason)
                except InvalidArgument:
                    continue
                self.wrong.append(f"the reason {reason!r:.20} was taken")
        if not is_odd(order) or order.attempt > 1:
            return False
        try:
            async with order:
                raise SystemExit("odd")
        except SystemExit:
            self.exits[tuple(order.id)] += 1
        assert self.exits[tuple(order.id)] <= EXITS, f"{order.id} has attempt 1 although {EXITS} blocks of it exited"
        return True

    def _decide(self, order: Message[Any]) -> None:
        """Decide about an order within a handler's function, whose transaction decides about it: each call is refused."""
        for call in (order.ack, order.nack, partial(order.give_up, "odd")):
            try:
                _ = call()
            except UsageError:
                continue
            self.wrong.append(f"a handler's function decided about {order.id} itself")

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
            async def ship(order: Message[Any], tx: Transaction) -> None:
                await tx["stock"].get("left", 0)
                if is_odd(order):
                    self._decide(order)
                self._ship(tx, emails, order)
                if env.random.below(20) == 0:
                    raise ValueError("by chance")

            await self._live(env, ship.run)

    async def handle_pairs(self, env: boki.sim.Environment) -> None:
        """Handle orders, finishing two in one record if two come."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            store, orders, emails = await self.open(client)
            consumer = orders.consume(
                who=env.random.token(6).hex(), member_lease_s=LEASE_S, lease_s=3.0, carry_s=CARRY_MS / 1000
            )
            cancels = cancellations(env)

            async def finish(some: list[Message[Any]]) -> None:
                async with some[0], some[-1], store.transaction() as tx:
                    for order in some:
                        self._ship(tx, emails, order)
                        tx.add(order.acked())

            async def life() -> None:
                async with consumer as messages:
                    while True:
                        some = [await anext(messages)]
                        try:
                            async with asyncio.timeout(0.5):
                                some.append(await anext(messages))
                        except TimeoutError:
                            pass
                        try:
                            await cancels.call(partial(finish, some))
                        except BokiError as error:
                            known = (Conflict, Fenced, StaleReceipt, AppendUnknown)
                            if not (error.retryable or isinstance(error, known)):
                                raise

            await self._live(env, life)

    async def register(self, env: boki.sim.Environment) -> None:
        """Drop the group of auditors and register it again, while another host does so too."""
        async with await env.connect(timeout=4.0) as client:
            _, orders, _ = await self.open(client)
            cancels = cancellations(env)
            while True:
                await asyncio.sleep(env.random.below(600) / 1000)
                try:
                    await cancels.call(partial(orders.drop if env.random.below(2) else orders.register, AUDIT))
                except (NoSuchGroup, CallCancelled):
                    pass

    async def audit(self, env: boki.sim.Environment) -> None:
        """Consume as a member of the group that comes and goes; begin again when the group is gone."""
        async with await env.connect(timeout=TIMEOUTS_S[env.random.below(3)]) as client:
            store, orders, _ = await self.open(client)

            async def look(order: Message[Any], tx: Transaction) -> None:
                tx["audited"].push("l", [self._name(order), list(order.id)])

            handler = orders.handler(store, group=AUDIT, member_lease_s=LEASE_S, lease_s=3.0, backoff_s=0.05)(look)
            await self._live(env, handler.run)

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
        assert sent == [parcel_json(order) for order in sold], "an e-mail is missing or changed, or was pushed twice"
        assert [from_json(PARCEL, one) for one in sent] == list(map(parcel, sold)), "an e-mail is read as another one"
        assert not self.wrong, self.wrong[0]
        doubled = [id for id, times in self.finished.items() if times > 1]
        assert not doubled, f"messages were acknowledged twice: {doubled[:3]}"
        if self.clerks_since >= 0:
            missing = set(self.begun[self.clerks_since :]) & set(self.acknowledged) - self.seen_by_clerks
            assert not missing, f"orders did not come to any clerk: {sorted(missing)[:3]}"

    async def check_tickets(self, client: boki.Client) -> None:
        """Check that each ticket was popped once; those that are missing may have been taken by pops without a known outcome."""
        tickets = await when_taken(partial(self.open_tickets, client))
        popped = [ticket for one in self.poppings for ticket in one.popped]
        while True:
            try:
                popped.append(str(await when_taken(tickets.pop)))
            except QueueEmpty:
                break
        assert len(popped) == len(set(popped)), "a ticket was popped twice"
        batches = Counter(ticket.partition("/")[0] for ticket in popped)
        assert batches.keys() <= self.tickets.keys(), "a ticket was popped that was not pushed"
        missing = sum(DOZEN - batches[batch] for batch, taken in self.tickets.items() if taken or batches[batch])
        lost = sum(one.lost for one in self.poppings)
        assert missing <= lost, f"{missing} tickets are missing, at most {lost} may have been taken"


async def program(cluster: boki.sim.Cluster) -> None:
    """Run the shop once."""
    await Shop(cluster).run()


QUEUE: Final = boki.sim.Subject(program, seconds=SECONDS, steady=True)
"""The subject of `boki sim run --profile queue`."""
