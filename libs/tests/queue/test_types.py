"""Types: a typed program is accepted by pyright as it stands, and each of ten wrong ones is refused at its wrong line."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.tests.typed_programs import check_typed_programs

GOOD = """
from dataclasses import dataclass

import boki
import bokiflow
import bokiqueue.sync
from bokiflow import App, Flow, Worker
from bokiflow.client.in_atomic import signalling, starting
from bokiqueue import Limits, Message, Peeked, Queue, Received, Receiving, Stats
from bokistore import BokiStore, Transaction


@dataclass
class Email:
    to: str
    size: int = 0


async def program(client: boki.Client) -> None:
    store = BokiStore(client.book("shop"))
    emails = await Queue.open(store.log, "emails", Email, shards=4, limits=Limits(in_flight=8), dead_letter="dead")
    place: int = await emails.push(Email("ann"), key="ann", dedup_id="e-1")
    await emails.push_many([Email("bob"), Email("cleo")])
    async with emails.consume(group="default", prefetch=8) as messages:
        async for message in messages:
            async with message:
                size: int = message.body.size + message.attempt
                print(size, message.key, place)
            await message.nack(1.5)
            break

    @emails.handler(store, at_once=4)
    async def send(message: Message[Email], tx: Transaction) -> None:
        tx["sent"].inc(message.body.to)
        tx.add(emails.pushed(message.body))

    await send.run()
    stats: Stats = await emails.stats()
    peeked: list[Peeked] = await emails.peek(stats.depth)
    moved: int = await emails.redrive()
    numbers = await Queue.open(client.book("b"), "numbers", int, mode="pop")
    number: int = await numbers.pop(timeout=1)
    print(peeked, moved + number)


app = App("shop")


@app.workflow
async def ship(to: str) -> int:
    return len(to)


async def with_workflows(client: boki.Client) -> None:
    store = BokiStore(client.book("shop"))
    emails = await Queue.open(store.log, "emails", Email, limits=Limits(key_per_second=1.5))
    flow = Flow(app, store.log)

    @emails.handler(store)
    async def begin(message: Message[Email], tx: Transaction) -> None:
        tx.add(await starting(flow, ship.call(message.body.to), id=message.body.to))
        tx.add(signalling(flow, "count", "email", message.body.size))

    async def take(tx: Received[Email, Transaction]) -> int:
        tx.store["sent"].inc(tx.body.to)
        return tx.body.size

    async with emails.consume() as messages, begin:
        received = Receiving(messages, store)

        @app.workflow
        async def consume() -> int:
            size: int = await bokiflow.transact(received, take)
            return size

        async with Worker(app, store.log) as worker:
            size: int = await (await worker.start(consume.call(), id="x")).result()
            print(size)


def blocking(client: boki.sync.Client) -> str:
    queue = bokiqueue.sync.Queue.open(client.book("shop"), "emails", Email)
    queue.push(Email("ann"))
    with queue.consume() as messages:
        for message in messages:
            with message:
                return message.body.to
    return ""
"""

WRONG = {
    "a message of another type": 'await emails.push("ann")',
    "a batch of another type": "await emails.push_many([1, 2])",
    "a key that is a number": 'await emails.push(Email("ann"), key=5)',
    "a field that is not there": "message.body.name",
    "a result of another type": "text: str = await emails.push(Email('ann'))",
    "a mode that is none": 'await Queue.open(book, "q", Email, mode="both")',
    "a type that is a value": 'await Queue.open(book, "q", 5)',
    "a delay that is a text": 'await message.nack("1")',
    "a store that runs nothing": "emails.handler(book)",
    "a message that is iterated": "[one for one in message]",
}

FRAME = """
from dataclasses import dataclass

import boki
from bokiqueue import Message, Queue


@dataclass
class Email:
    to: str


async def program(emails: Queue[Email], message: Message[Email], book: boki.Book) -> None:
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    check_typed_programs(
        tmp_path,
        GOOD,
        FRAME,
        list(WRONG.values()),
        ("bokiqueue", "bokiflow", "bokistore", "bokilib"),
        reportUnusedExpression="none",
    )
