"""One record across libraries: a handler consumes, writes two objects, pushes, begins a workflow and signals another; crashes at every
operation of handlers and workers, lost answers, second processes: each effect once, each workflow's result one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

import boki
import bokiflow
from bokiflow import App, Flow, Worker
from bokiflow.client.in_atomic import signalling, starting
from bokiflow.model.flow_events import PICKER as FLOW
from bokiflow.model.flow_events import Ended, Signalled, Started
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.errors import AppendUnknown
from bokilib.ports import BookPort
from bokilib.records.events import open_record
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere
from bokiqueue import Message, Queue
from bokiqueue.model.events import PICKER, Acked, Pushed
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import Inline
from libs.tests.queue.conftest import alive
from libs.tests.queue.test_faults import surely

ORDERS = ("ann", "bob")
app = App("shop")


@app.workflow
async def ship(name: str) -> str:
    return f"sent to {name}"


@app.workflow
async def count(orders: int) -> list[str]:
    """Gets each order."""
    return sorted([str(await bokiflow.recv("order")) for _ in range(orders)])


class Shop:
    """A process: it handles orders, and runs workflows."""

    def __init__(self, book: BookPort) -> None:
        self.store = BokiStore(book, settings=StoreSettings(checkpoints=False, aux_data=False))

    async def open(self) -> tuple[Queue[str], Queue[str]]:
        orders = await Queue.open(self.store.log, "orders", str, shards=1, max_deliveries=0)
        return orders, await Queue.open(self.store.log, "emails", str, shards=1)

    async def run(self, who: str, lease_s: float) -> None:
        orders, emails = await self.open()
        for name in ORDERS:
            await surely(partial(orders.push, name, dedup_id=name))
        async with Worker(app, self.store.log, name="host", lease_s=lease_s, bodies=Inline()) as worker:
            while True:
                try:
                    counted = await worker.start(count.call(len(ORDERS)), id="count")
                    break
                except AppendUnknown:
                    pass

            @orders.handler(self.store, at_once=2, who=who, member_lease_s=lease_s, backoff_s=0.001)
            async def handle(order: Message[str], tx: Transaction) -> None:
                tx["stock"].inc("left", -1)
                tx["sales"].inc(order.body)
                tx.add(emails.pushed(order.body))
                tx.add(await starting(worker.flow, ship.call(order.body), id=f"ship-{order.body}"))
                tx.add(signalling(worker.flow, "count", "order", order.body))

            async with handle:
                assert await counted.result() == sorted(ORDERS)
                for name in ORDERS:
                    assert await worker.flow.handle(f"ship-{name}", ship).result() == f"sent to {name}"


async def check(book: boki.Book) -> None:
    shop = Shop(book)
    assert await shop.store.object("stock").value() == {"left": -len(ORDERS)}
    assert await shop.store.object("sales").value() == dict.fromkeys(ORDERS, 1)
    found: Counter[str] = Counter()
    async for item in book.read():
        assert isinstance(item, boki.Record)
        envelope = open_record(item.seqnum, item.data)
        for event in PICKER.of(item.seqnum, envelope):
            if isinstance(event, Pushed) and event.id == "emails/0":
                found.update(f"email {bytes(one.body)!r}" for one in event.items)
            elif isinstance(event, Acked):
                found.update(f"ack {id}" for id in event.ids)
        for one in FLOW.of(item.seqnum, envelope):
            if isinstance(one, Started | Ended):
                found[f"{type(one).__name__} {one.id}"] += 1
            elif isinstance(one, Signalled):
                found[f"signal {one.value}"] += 1
    assert len(found) == len(ORDERS) * 5 + 2 and set(found.values()) == {1}, found


async def program(book: BookPort) -> None:
    await alive(book, Shop(book).run("host", 0.6))


async def another(book: BookPort) -> None:
    await alive(book, Shop(book).run("other", 0.03))


@pytest.mark.timeout(300)  # machines may be busy
async def test_crashes_at_every_operation_leave_each_effect_once() -> None:
    explored = await crash_everywhere(program, program, check)
    assert explored.operations > 30


@pytest.mark.timeout(300)  # machines may be busy
async def test_lost_answers_leave_each_effect_once() -> None:
    assert (await crash_everywhere(program, program, check, kinds=UNKNOWNS)).runs > 10


@pytest.mark.timeout(300)  # machines may be busy
@in_virtual_time
async def test_deaths_after_unanswered_appends_leave_each_effect_once() -> None:
    explored = await crash_everywhere(program, program, check, kinds=UNANSWERED, clock=LoopClock())
    assert explored.runs > 20


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@in_virtual_time
async def test_deaths_long_after_unanswered_appends_leave_each_effect_once() -> None:
    explored = await crash_everywhere(
        program, program, check, kinds=UNANSWERED, later=(0, 2, 5, 8, 13), clock=LoopClock()
    )
    assert explored.runs > 50


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_a_second_process_at_any_operation_leaves_each_effect_once() -> None:
    assert (await start_anywhere(program, another, check)).runs > 20


async def test_a_handler_s_record_is_all_of_it() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        shop = Shop((await cluster.connect()).book("shop"))
        orders, _ = await shop.open()
        flow = Flow(app, shop.store.log)
        done = asyncio.Event()

        @orders.handler(shop.store)
        async def handle(order: Message[str], tx: Transaction) -> None:
            tx["sales"].inc(order.body)
            tx.add(await starting(flow, ship.call(order.body), id=order.body))
            done.set()

        await orders.push("ann")
        async with handle:
            await done.wait()
            while (await orders.stats()).depth:
                pass
        records = [item async for item in shop.store.log.book.read("flow/own/ann")]
        assert [{"store/o/sales", "queue/c/orders/0/default"} <= set(one.tags) for one in records] == [True]
