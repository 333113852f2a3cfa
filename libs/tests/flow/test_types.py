"""Types: a typed program is accepted by pyright as it stands, and each of twelve wrong ones is refused at its wrong line."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.tests.typed_programs import check_typed_programs

GOOD = """
import asyncio
from dataclasses import dataclass

import boki
import bokiflow
from bokiflow import App, Flow, Handle, Json, Retry, Status, Worker
from bokilib import Log
from bokistore import BokiStore, Transaction

app = App("shop")


@dataclass
class Order:
    id: str
    cents: int = 0


@app.step(retry=Retry(attempts=5, on=(OSError,)), timeout_s=30)
async def charge(order: Order, *, card: str = "visa") -> str:
    return f"{order.id} {card}"


@app.step
def pack(order: Order) -> int:
    return order.cents


@app.step
async def plain(count: int) -> list[int]:
    return [count]


@app.workflow
async def child(order: Order) -> Order:
    return order


@app.workflow(version="2")
async def checkout(order: Order, note: str = "") -> tuple[str, int]:
    receipt, box, numbers = await asyncio.gather(charge(order, card=note), pack.aio(order), plain(1))
    async with asyncio.timeout(60):
        value: Json = await bokiflow.recv("go")
    other: Order = await child(order)
    bokiflow.emit("progress", {"value": value, "numbers": list(numbers)})
    async for one in bokiflow.as_completed([plain(1), plain(2)]):
        box += one[0]
    if bokiflow.patched("new"):
        bokiflow.send(bokiflow.workflow_id(), "again", bokiflow.unique())
    async with bokiflow.lock("seat 7", mode="shared", timeout_s=5) as fence:
        box += fence
    return receipt + other.id, box


app.schedule("nightly", checkout.call(Order("7")), cron="30 2 * * *", timezone="Europe/Berlin", missed="all")


async def move(tx: Transaction, cents: int) -> bool:
    tx["ann"].inc("cents", cents)
    return True


async def program(client: boki.Client) -> None:
    log = Log(client.book("shop"))
    store = BokiStore(log)

    @app.workflow
    async def pay(cents: int) -> bool:
        return await bokiflow.transact(store, move, cents)

    async with Worker(app, log, name="a", lease_s=5) as worker:
        handle: Handle[tuple[str, int]] = await worker.start(checkout.call(Order("7"), note="n"), id="7")
        receipt, count = await handle.result()
        print(receipt.upper(), count + 1, pack(Order("1")) + 1, await worker.handle("7", pay).result() is True)
        status: Status = await handle.status()
        await handle.signal("go", {"a": status})
        await worker.drain()
    async with Flow(app, client.book("shop")) as flow:
        anything: Json = await flow.handle("8").result()
        later: Handle[tuple[str, int]] = await flow.debounce(checkout.call(Order("9")), id="o", quiet_s=1, at_most_s=5)
        print(later.id, [(one.name, one.next_ms) for one in await flow.schedules.list()])
        async for value in flow.handle("8").events("progress", follow=False):
            print(value, anything, [done.kind async for done in handle.steps()], await flow.find(customer="ann"))
"""

WRONG = {
    "an argument that is missing": "await charge()",
    "an argument of the wrong type": 'await charge("7")',
    "an option that is none": 'await charge(Order("7"), cart="visa")',
    "a result of the wrong type": 'number: int = await charge(Order("7"))',
    "a call of the wrong type": 'await flow.start(checkout.call("7"))',
    "a coroutine in the place of a call": 'await flow.start(checkout(Order("7")))',
    "a handle's result of the wrong type": 'text: int = await (await flow.start(checkout.call(Order("7")))).result()',
    "a blocking step that is awaited": 'await pack(Order("7"))',
    "aio of the wrong type": "await pack.aio(7)",
    "retries that are no rules": "app.step(retry=3)",
    "an attribute that is no text": 'await flow.start(checkout.call(Order("7")), attributes={"a": 1})',
    "a lock of a mode that is none": 'bokiflow.lock("seat", mode="read")',
    "a schedule of a coroutine": 'app.schedule("nightly", checkout(Order("7")), cron="30 2 * * *")',
    "a transaction of the wrong type": 'await bokiflow.transact(store, move, "10")',
}

FRAME = """
from dataclasses import dataclass

import bokiflow
from bokiflow import Flow
from bokistore import BokiStore, Transaction

app = bokiflow.App("shop")


@dataclass
class Order:
    id: str


@app.step
async def charge(order: Order, *, card: str = "visa") -> str:
    return f"{order.id} {card}"


@app.step
def pack(order: Order) -> int:
    return len(order.id)


@app.workflow
async def checkout(order: Order) -> str:
    return await charge(order)


async def move(tx: Transaction, cents: int) -> bool:
    tx["ann"].inc("cents", cents)
    return True


async def program(flow: Flow, store: BokiStore) -> None:
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    check_typed_programs(tmp_path, GOOD, FRAME, list(WRONG.values()), ("bokiflow", "bokistore", "bokilib"))
