"""A shop. Orders come through a queue; handling one takes from the stock, pushes a receipt and begins the order's workflow: one record.
The workflow picks the goods, which is a step outside of the log, and writes the order's result. An order whose handler fails too often is a
dead letter; one whose step fails is a workflow that failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

import bokiflow
from bokiflow import App, Flow
from bokiflow.in_atomic import starting
from bokilib import Log
from bokilib.ports import BookPort
from bokiqueue import Handler, Message, Queue
from bokistore import BokiStore, StoreSettings, Transaction
from examples.orders.wrong import go_wrong

BOOK: Final = "shop"
ITEMS: Final = ("apples", "pears", "plums")
STOCK: Final = 150
"""Of each item."""
SHARDS: Final = 4
LEASE_S: Final = 3.0
"""A worker that is silent for so long is replaced."""
HANDLER_S: Final = 2.0
"""A handler may take so long for an order; then that attempt has failed."""
ATTEMPTS: Final = 3
"""Of an order that fail until it is a dead letter."""
PICK_S: Final = 3.0
"""Picking the goods of an order may take so long."""
DEAD: Final = "orders.dead"


class Order(msgspec.Struct, frozen=True):
    """An order of a customer. `wrong`: what goes wrong with it (see `wrong`); nothing with a good one."""

    id: str
    item: str
    count: int
    wrong: str = ""


def workflow_of(id: str) -> str:
    """The id of an order's workflow."""
    return f"order-{id}"


class Shop:
    """One process's view of it. Made by `open`.

    Attributes:
        orders, receipts, dead: queues. fulfil: the workflow of an order.
    """

    def __init__(self, log: Log) -> None:
        self.log: Final = log
        self.store: Final = BokiStore(log, settings=StoreSettings())
        self.app: Final = App("orders")
        self.orders: Queue[Order]
        self.receipts: Queue[str]
        self.dead: Queue[Order]

        @self.app.step(timeout_s=PICK_S)
        async def pick(item: str, count: int, wrong: str) -> str:
            """Outside of the log: at least once."""
            await go_wrong(wrong, "step")
            return f"{count} {item}"

        async def note(tx: Transaction, id: str, text: str) -> str:
            tx[f"result:{id}"].set("text", text)
            tx[f"result:{id}"].inc("times")
            return text

        @self.app.workflow
        async def fulfil(id: str, item: str, count: int, there: bool, wrong: str) -> str:
            text = f"sent {await pick(item, count, wrong)}" if there else f"no {item} left"
            return await bokiflow.transact(self.store, note, id, text)

        self.fulfil: Final = fulfil

    @staticmethod
    async def open(book: BookPort) -> Shop:
        """The shop of a book."""
        shop = Shop(Log(book))
        shop.orders = await Queue.open(
            shop.log, "orders", Order, shards=SHARDS, dead_letter=DEAD, max_deliveries=ATTEMPTS, dedup_s=3_600
        )
        shop.receipts = await Queue.open(shop.log, "receipts", str, shards=1)
        shop.dead = await Queue.open(shop.log, DEAD, Order)
        return shop

    async def fill(self) -> None:
        """Puts what there is on the shelves, once."""

        async def put(tx: Transaction) -> None:
            if await tx["stock"].value() is None:
                for item in ITEMS:
                    tx["stock"].set(item, STOCK)

        await self.store.transact(put)

    def handler(self, flow: Flow, who: str) -> Handler[Order, Transaction]:
        """Handles orders, each in one record."""

        @self.orders.handler(self.store, at_once=8, who=who, lease_s=HANDLER_S, member_lease_s=LEASE_S, backoff_s=0.1)
        async def handle(message: Message[Order], tx: Transaction) -> None:
            order = message.body
            await go_wrong(order.wrong, "handler")
            left = await tx["stock"].get(order.item, 0)
            assert isinstance(left, int)
            there = left >= order.count
            if there:
                tx["stock"].inc(order.item, -order.count)
                tx["sold"].inc(order.item, order.count)
            tx.add(self.receipts.pushed(order.id))
            call = self.fulfil.call(order.id, order.item, order.count, there, order.wrong)
            tx.add(await starting(flow, call, id=workflow_of(order.id)))

        return handle
