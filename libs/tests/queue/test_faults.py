"""Crashes at every operation of a producer, an owner and a handler that consumes, changes two objects and pushes: each effect once.

Another process, of the same name as after a restart, goes on; or one of another name runs in between, so that there are two owners.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import boki
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib.errors import AppendUnknown
from bokilib.follow.members import Heartbeat, Members
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.events import open_record
from bokilib.testing import UNANSWERED, UNKNOWNS, crash_everywhere, start_anywhere
from bokiqueue import Message, Queue
from bokiqueue.model.events import PICKER, Acked, Pushed
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.queue.conftest import alive

ORDERS = 3


async def surely(push: Callable[[], Awaitable[int]]) -> None:
    """Pushes again under the same id while it is not known whether it did."""
    while True:
        try:
            await push()
            return
        except AppendUnknown:
            pass


async def shop(book: BookPort) -> tuple[BokiStore, Queue[object], Queue[object]]:
    store = BokiStore(book, settings=StoreSettings(checkpoints=False, aux_data=False))
    orders = await Queue.open(store.log, "orders", object, shards=1, max_deliveries=0)
    return store, orders, await Queue.open(store.log, "emails", object, shards=1)


async def sell(book: BookPort, who: str, lease_s: float) -> None:
    """Pushes all orders, and handles them until all are sold."""
    store, orders, emails = await shop(book)
    for number in range(ORDERS):
        await surely(partial(orders.push, number, dedup_id=f"order-{number}"))
    sold = asyncio.Event()

    @orders.handler(store, at_once=2, who=who, member_lease_s=lease_s, backoff_s=0.001)
    async def ship(order: Message[object], tx: Transaction) -> None:
        await tx["stock"].get("left", 0)
        tx["stock"].inc("left", -1)
        tx["sales"].inc(f"order-{order.body}")
        tx.add(emails.pushed(order.body))

    async with ship:
        while True:
            sales = await store.object("sales").value()
            if len(sales or {}) == ORDERS:
                break
            try:
                async with asyncio.timeout(0.001):
                    await sold.wait()
            except TimeoutError:
                pass


async def check(book: boki.Book) -> None:
    """Each effect once: stock, sales, emails, and one ACK a message."""
    store, _, _ = await shop(book)
    assert await store.object("stock").value() == {"left": -ORDERS}
    assert await store.object("sales").value() == {f"order-{number}": 1 for number in range(ORDERS)}
    pushed: list[bytes] = []
    acked: Counter[object] = Counter()
    async for item in book.read():
        assert isinstance(item, boki.Record)
        for event in PICKER.of(item.seqnum, open_record(item.seqnum, item.data)):
            if isinstance(event, Pushed) and event.id == "emails/0":
                pushed += [bytes(one.body) for one in event.items]
            if isinstance(event, Acked):
                acked.update(event.ids)
    assert len(pushed) == len(set(pushed)) == ORDERS
    assert set(acked.values()) == {1}
    assert tags.queue_messages("emails", 0) == "queue/p/emails/0"


async def program(book: BookPort) -> None:
    await alive(book, sell(book, "host", 0.6))


async def another(book: BookPort) -> None:
    """Takes the other one for dead soon, though it only waits."""
    await alive(book, sell(book, "other", 0.03))


def without_lease(members: Members) -> Heartbeat:
    """Return a heartbeat as older programs append it: others judge its member by their own leases, and may take it for dead wrongly."""
    return Heartbeat(members._group, members.name, members._leaving)


@pytest.mark.timeout(300)  # machines may be busy
async def test_crashes_at_every_operation_leave_each_effect_once() -> None:
    explored = await crash_everywhere(program, program, check)
    assert explored.operations > 20
    assert explored.runs > 40


@pytest.mark.timeout(300)  # machines may be busy
async def test_lost_answers_leave_each_effect_once() -> None:
    explored = await crash_everywhere(program, program, check, kinds=UNKNOWNS)
    assert explored.runs > 10


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
async def test_crashes_of_recoveries_leave_each_effect_once() -> None:
    await crash_everywhere(program, program, check, pairs=True)


@pytest.mark.timeout(300)  # machines may be busy
async def test_a_second_owner_at_any_operation_leaves_each_effect_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Members, "_heartbeat", without_lease)
    explored = await start_anywhere(program, another, check)
    assert explored.runs > 20
