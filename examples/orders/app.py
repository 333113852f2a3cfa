"""The shop: a queue of orders, stock in a store, and a workflow per order.

The handler of an order takes the items from the stock, pushes a receipt and starts the order's workflow, all in one record of the
log. The workflow picks the goods, a step with an effect outside of the log, and writes the order's result. An order whose handler
fails too often becomes a dead letter; an order whose step fails has a failed workflow.
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
"""Units of each item at the beginning."""
SHARDS: Final = 4
LEASE_S: Final = 3.0
"""Time after which a silent worker loses its shards and partitions to others."""
HANDLER_S: Final = 2.0
"""Time-out of an attempt to handle an order."""
ATTEMPTS: Final = 3
"""Failed attempts after which an order becomes a dead letter."""
PICK_S: Final = 3.0
"""Time-out of the step that picks the goods."""
DEAD: Final = "orders.dead"


class Order(msgspec.Struct, frozen=True):
    """Order of a customer.

    Attributes:
        id: unique id.
        item: one of ITEMS.
        count: units of the item.
        wrong: bad code that the order meets, a key of `examples.orders.wrong.WRONG`; "" for a good order.
    """

    id: str
    item: str
    count: int
    wrong: str = ""


def workflow_of(id: str) -> str:
    """Return the id of an order's workflow."""
    return f"order-{id}"


class Shop:
    """The shop in one process, created by `open`.

    Attributes:
        log: the log of the shop's book.
        store: the stock, the items sold, and results of orders.
        app: the app with the workflow.
        orders: queue of orders.
        receipts: queue of ids of handled orders.
        dead: queue of orders that are dead letters.
        fulfil: workflow of an order.
    """

    def __init__(self, log: Log) -> None:
        """Use `open` instead, which opens the queues too."""
        self.log: Final = log
        self.store: Final = BokiStore(log, settings=StoreSettings())
        self.app: Final = App("orders")
        self.orders: Queue[Order]
        self.receipts: Queue[str]
        self.dead: Queue[Order]

        @self.app.step(timeout_s=PICK_S)
        async def pick(item: str, count: int, wrong: str) -> str:
            """Pick the goods, an effect outside of the log that happens at least once."""
            await go_wrong(wrong, "step")
            return f"{count} {item}"

        async def note(tx: Transaction, id: str, text: str) -> str:
            tx[f"result:{id}"].set("text", text)
            tx[f"result:{id}"].inc("times")
            return text

        @self.app.workflow
        async def fulfil(id: str, item: str, count: int, in_stock: bool, wrong: str) -> str:
            text = f"sent {await pick(item, count, wrong)}" if in_stock else f"no {item} left"
            return await bokiflow.transact(self.store, note, id, text)

        self.fulfil: Final = fulfil

    @staticmethod
    async def open(book: BookPort) -> Shop:
        """Open the shop of a book."""
        shop = Shop(Log(book))
        shop.orders = await Queue.open(
            shop.log, "orders", Order, shards=SHARDS, dead_letter=DEAD, max_deliveries=ATTEMPTS, dedup_s=3_600
        )
        shop.receipts = await Queue.open(shop.log, "receipts", str, shards=1)
        shop.dead = await Queue.open(shop.log, DEAD, Order)
        return shop

    async def fill(self) -> None:
        """Write the initial stock unless it exists."""

        async def put(tx: Transaction) -> None:
            if await tx["stock"].value() is None:
                for item in ITEMS:
                    tx["stock"].set(item, STOCK)

        await self.store.transact(put)

    def handler(self, flow: Flow, who: str) -> Handler[Order, Transaction]:
        """Return a handler of orders that commits each in one record; `who` is its name in the queue."""

        @self.orders.handler(self.store, at_once=8, who=who, lease_s=HANDLER_S, member_lease_s=LEASE_S, backoff_s=0.1)
        async def handle(message: Message[Order], tx: Transaction) -> None:
            order = message.body
            await go_wrong(order.wrong, "handler")
            left = await tx["stock"].get(order.item, 0, type=int)
            in_stock = left >= order.count
            if in_stock:
                tx["stock"].inc(order.item, -order.count)
                tx["sold"].inc(order.item, order.count)
            tx.add(self.receipts.pushed(order.id))
            call = self.fulfil.call(order.id, order.item, order.count, in_stock, order.wrong)
            tx.add(await starting(flow, call, id=workflow_of(order.id)))

        return handle
