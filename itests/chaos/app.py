"""The programs that a chaos run kills: one application over all libraries, in one book.

| role | does, and notes |
|---|---|
| `sell` | pushes orders under ids, half of them under a key; starts a workflow for some, signals it, and asks for results |
| `work` | handles orders, each in one record with its effect and a receipt; runs workflows; keeps the schedule; carries |
| `teller` | moves money between few accounts, in transactions of many tasks at once |
| `web` | appends through the gateway, under a named writer's numbers |
| `bank`, `pay` | machines of a bank, and transfers between their accounts: `bank` |

A process writes down what it is about to do, then what it was told, each line by one call to the kernel: so a file says what callers know
however its process ended. `checks` compares that with the log. Processes use the public API only, and the defaults where there are some.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import aiohttp

import boki
import bokiflow
import bokiqueue
from boki_common.errors import BokiError, Conflict
from bokiflow import App, Flow, Handle, Worker
from bokilib import Carrier, Log
from bokilib.errors import AppendUnknown
from bokiqueue import Handler, Message, Queue
from bokistore import BokiStore, Transaction
from bokistore.errors import TransactionTimeout
from examples.process import parser, serve
from itests.chaos import bank
from itests.chaos.notes import Notes

BOOK: Final = "chaos"
RAW: Final = "chaos-raw"
ACCOUNTS: Final = tuple(f"account/{number}" for number in range(6))
OPENING: Final = 1_000
LEASE_S: Final = 4.0
TIMEOUT_S: Final = 8.0
TELLERS: Final = 8
"""Tasks of one process that move money at the same time: their transactions meet each other."""
KEYS: Final = 5
SCHEDULE_S: Final = 2.0


async def answered(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call that may be repeated, until it is answered."""
    while True:
        try:
            return await call()
        except BokiError as error:
            if error.definite and not error.retryable:
                raise
        await asyncio.sleep(0.05)


async def answered_definitely(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call while it certainly did not happen. Raises AppendUnknown."""
    while True:
        try:
            return await call()
        except AppendUnknown:
            raise
        except BokiError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(0.05)


class Shop:
    """The application as one process has it. Made by `open`."""

    def __init__(self, log: Log) -> None:
        self.log: Final = log
        self.store: Final = BokiStore(log)
        self.app: Final = App("chaos")
        self.orders: Queue[str]
        self.receipts: Queue[str]

        @self.app.step
        async def price(order: str) -> int:
            """Outside of the log: it happens at least once, and its outcome is kept once."""
            return len(order)

        async def book_sale(tx: Transaction, order: str, cents: int) -> int:
            tx[f"sale/{order}"].inc("times")
            tx["revenue"].inc("cents", cents)
            return cents

        @self.app.workflow
        async def pack(order: str) -> str:
            return f"box of {order}"

        @self.app.workflow
        async def deliver(order: str) -> str:
            cents = await price(order)
            await asyncio.sleep(0.2)
            box, _ = await asyncio.gather(pack(order), bokiflow.transact(self.store, book_sale, order, cents))
            address = await bokiflow.recv("address")
            return f"{box} to {address}"

        @self.app.workflow
        async def tick() -> str:
            return "tick"

        self.app.schedule("tick", tick.call(), every_s=SCHEDULE_S, missed="all", late_s=3_600)
        self.deliver: Final = deliver

    @staticmethod
    async def open(book: boki.Book) -> Shop:
        """The shop of a book."""
        shop = Shop(Log(book))
        shop.orders = await answered(lambda: Queue.open(shop.log, "orders", str, shards=4, dedup_s=36_000))
        shop.receipts = await answered(lambda: Queue.open(shop.log, "receipts", str, shards=1))
        return shop

    async def fill(self) -> None:
        """Open the accounts, once."""

        async def put(tx: Transaction) -> None:
            if await tx[ACCOUNTS[0]].value() is None:
                for name in ACCOUNTS:
                    tx[name].set("cents", OPENING)

        await answered(lambda: self.store.transact(put))

    def handler(self, who: str) -> Handler[str, Transaction]:
        """Handles orders, each in one record."""

        @self.orders.handler(self.store, at_once=8, who=who, member_lease_s=LEASE_S, backoff_s=0.1)
        async def handle(message: Message[str], tx: Transaction) -> None:
            tx[f"order/{message.body}"].inc("times")
            tx["orders"].inc("handled")
            tx.add(self.receipts.pushed(message.body))

        return handle


async def work(shop: Shop, name: str, stop: asyncio.Event) -> None:
    """Handle orders, run workflows, carry. If the log does not answer while this begins, as when the process is stopped, begin again."""
    libraries = [bokiqueue.carried(shop.log), shop.store.carried()]
    begun = False
    while not begun:
        try:
            async with (
                Worker(shop.app, shop.log, name=name, lease_s=LEASE_S),
                shop.handler(name),
                Carrier(shop.log, libraries, who=name, every_s=5.0),
            ):
                begun = True
                await stop.wait()
        except BokiError as error:
            if begun or not error.retryable:
                raise


async def sell(shop: Shop, name: str, notes: Notes, stop: asyncio.Event) -> None:
    """Push orders and start workflows; never more than a few wait for their results."""
    flow, results, chance = Flow(shop.app, shop.log), set[asyncio.Task[None]](), random.Random(name)
    number = 0
    async with flow:
        while not stop.is_set():
            number += 1
            order = f"{name}/{number}"
            key = f"{name}/{number % KEYS}" if number % 2 else None
            notes.note("push?", order, key or "-")
            await answered(partial(shop.orders.push, order, key=key, dedup_id=order))
            notes.note("push!", order)
            if number % 4 == 0 and len(results) < 20:
                task = asyncio.create_task(deliver(shop, flow, order, notes))
                results.add(task)
                task.add_done_callback(results.discard)
            await asyncio.sleep(chance.random() * 0.08)
        for task in list(results):
            task.cancel()
        await asyncio.gather(*results, return_exceptions=True)


async def deliver(shop: Shop, flow: Flow, order: str, notes: Notes) -> None:
    """Start one workflow, signal it once, and write its result down."""
    id = f"deliver/{order}"
    notes.note("start?", id)
    handle = await answered(lambda: flow.start(shop.deliver.call(order), id=id))
    notes.note("start!", id)
    notes.note("signal?", id)
    while not await signalled(handle, f"address of {order}"):
        pass
    notes.note("signal!", id)
    result = await answered(handle.result)
    notes.note("result!", id, str(result).replace(" ", "_"))


async def signalled(handle: Handle[str], value: str) -> bool:
    """Send the signal; return False if it certainly did not happen."""
    try:
        await answered_definitely(lambda: handle.signal("address", value))
    except AppendUnknown as unknown:
        return isinstance(await answered(partial(unknown.outcome, settle=True)), boki.Committed)
    return True


async def teller(shop: Shop, name: str, notes: Notes, stop: asyncio.Event) -> None:
    """Several tasks that move money."""

    async def moves(task: int) -> None:
        chance, number = random.Random(f"{name}/{task}"), 0
        while not stop.is_set():
            number += 1
            id, (source, target) = f"{name}/{task}/{number}", chance.sample(ACCOUNTS, 2)
            notes.note("move?", id)
            try:
                await shop.store.transact(move, id, source, target, chance.randint(1, 50))
            except BokiError as error:  # in a process that was stopped for long it timed out, and is refused
                notes.note("move-refused" if error.definite else "move-unknown", id)
                if not error.retryable and not isinstance(error, (Conflict, AppendUnknown, TransactionTimeout)):
                    raise
            else:
                notes.note("move!", id)
            await asyncio.sleep(chance.random() * 0.1)

    async with asyncio.TaskGroup() as group:
        for task in range(TELLERS):
            group.create_task(moves(task))


async def move(tx: Transaction, id: str, source: str, target: str, cents: int) -> None:
    """Read one account and write both: an update that is lost shows in the sum."""
    there = await tx[source].get("cents", 0)
    assert isinstance(there, int)
    tx[f"move/{id}"].set("cents", cents)
    tx[source].set("cents", there - cents)
    tx[target].inc("cents", cents)


async def web(gateway: str, name: str, notes: Notes, stop: asyncio.Event) -> None:
    """Append under numbers over HTTP; what is not answered is sent again under its number."""
    number = 0
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as http:
        while not stop.is_set():
            number += 1
            body = {"text": f"{name}/{number}", "writer": name, "number": number, "tags": [f"web/{name}"]}
            notes.note("web?", f"{name}/{number}")
            while not stop.is_set():
                try:
                    async with http.post(f"{gateway}/v1/books/{RAW}/records", json=body) as answer:
                        said = await answer.json(content_type=None)
                        if answer.status == 201:
                            notes.note("web!", f"{name}/{number}", said["seqnum"])
                            break
                        assert answer.status >= 429, f"the gateway answered {answer.status}: {said}"
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.02)


def main() -> None:
    """The entry point of the process."""
    made = parser("itests.chaos.app")
    made.add_argument("--role", choices=("sell", "work", "teller", "web", "bank", "pay"), required=True)
    made.add_argument("--notes", required=True)
    made.add_argument("--gateway", default="")
    asked = made.parse_args()

    async def run(stop: asyncio.Event) -> None:
        notes = Notes(f"{asked.notes}.{asked.name}")
        if asked.role == "web":
            await web(asked.gateway, asked.name, notes, stop)
            return
        async with boki.connect(asked.url, timeout=TIMEOUT_S) as client:
            if asked.role == "bank":
                await bank.host(client.book(bank.BOOK), asked.name, stop)
                return
            if asked.role == "pay":
                await bank.pay(client.book(bank.BOOK), asked.name, notes, stop)
                return
            shop = await Shop.open(client.book(BOOK))
            if asked.role == "work":
                await work(shop, asked.name, stop)
            else:
                await (sell if asked.role == "sell" else teller)(shop, asked.name, notes, stop)

    serve(run)


if __name__ == "__main__":
    main()
