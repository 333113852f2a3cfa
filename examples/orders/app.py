"""A shop. Orders come through a queue; handling one takes from the stock, pushes a receipt and begins the order's workflow: one record.
The workflow picks the goods, which is a step outside of the log, and writes the order's result.
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

ITEMS: Final = ("apples", "pears", "plums")
STOCK: Final = 150
"""Of each item."""
SHARDS: Final = 4
LEASE_S: Final = 3.0


class Order(msgspec.Struct, frozen=True):
    """What somebody wants."""

    id: str
    item: str
    count: int


def workflow_of(id: str) -> str:
    """The id of an order's workflow."""
    return f"order-{id}"


class Shop:
    """One process's view of it. Made by `open`.

    Attributes:
        orders, receipts: queues. fulfil: the workflow of an order.
    """

    def __init__(self, log: Log) -> None:
        self.log: Final = log
        self.store: Final = BokiStore(log, settings=StoreSettings())
        self.app: Final = App("orders")
        self.orders: Queue[Order]
        self.receipts: Queue[str]

        @self.app.step
        async def pick(item: str, count: int) -> str:
            """Outside of the log: at least once."""
            return f"{count} {item}"

        async def note(tx: Transaction, id: str, text: str) -> str:
            tx[f"result:{id}"].set("text", text)
            tx[f"result:{id}"].inc("times")
            return text

        @self.app.workflow
        async def fulfil(id: str, item: str, count: int, there: bool) -> str:
            text = f"sent {await pick(item, count)}" if there else f"no {item} left"
            return await bokiflow.transact(self.store, note, id, text)

        self.fulfil: Final = fulfil

    @staticmethod
    async def open(book: BookPort) -> Shop:
        """The shop of a book."""
        shop = Shop(Log(book))
        shop.orders = await Queue.open(shop.log, "orders", Order, shards=SHARDS, max_deliveries=0, dedup_s=3_600)
        shop.receipts = await Queue.open(shop.log, "receipts", str, shards=1)
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

        @self.orders.handler(self.store, at_once=8, who=who, member_lease_s=LEASE_S, backoff_s=0.1)
        async def handle(message: Message[Order], tx: Transaction) -> None:
            order = message.body
            left = await tx["stock"].get(order.item, 0)
            assert isinstance(left, int)
            there = left >= order.count
            if there:
                tx["stock"].inc(order.item, -order.count)
                tx["sold"].inc(order.item, order.count)
            tx.add(self.receipts.pushed(order.id))
            call = self.fulfil.call(order.id, order.item, order.count, there)
            tx.add(await starting(flow, call, id=workflow_of(order.id)))

        return handle
