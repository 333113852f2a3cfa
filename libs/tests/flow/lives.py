"""An app whose workflows do all that a page shows, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import bokiflow
from boki.testing import MemoryCluster
from bokiflow import App, Retry, Worker
from libs.tests.flow.conftest import Inline

app = App("shop")
_FAILS = 1


@app.step
async def reserve(sku: str) -> int:
    await asyncio.sleep(0.004 * len(sku))
    return len(sku)


@app.step(retry=Retry(attempts=3, delay_s=0.005))
async def charge(card: str, cents: int) -> str:
    global _FAILS
    _FAILS += 1
    if _FAILS % 2 == 0:
        raise OSError("the bank does not answer")
    return f"receipt {cents} of {card}"


@app.step
async def refuse(why: str) -> None:
    await asyncio.sleep(0.002)
    raise ValueError(why)


@app.workflow
async def pack(sku: str) -> str:
    await reserve(sku)
    await asyncio.sleep(0.01)
    return f"a box with {sku}"


@app.workflow
async def checkout(card: str, skus: list[str]) -> dict[str, object]:
    bokiflow.emit("state", "reserving")
    counts = await asyncio.gather(*(reserve(sku) for sku in skus))
    receipt = await charge(card, 100 * sum(counts))
    boxes = await asyncio.gather(*(pack(sku) for sku in skus))
    try:
        await refuse("no stamp")
    except ValueError:
        bokiflow.emit("state", "without a stamp")
    await asyncio.sleep(0.03)
    who = await bokiflow.recv("delivered")
    return {"receipt": receipt, "boxes": boxes, "by": who}


@app.workflow
async def fails(why: str) -> None:
    await refuse(why)


@app.workflow
async def many(count: int) -> int:
    total = 0
    for number in range(count):
        total += await reserve("x" if number else "")
    return total


@asynccontextmanager
async def working(cluster: MemoryCluster, name: str = "host-7") -> AsyncIterator[Worker]:
    """A worker of its own session."""
    client = await cluster.connect()
    async with Worker(app, client.book("shop"), name=name, bodies=Inline()) as worker:
        yield worker


async def fill(cluster: MemoryCluster) -> None:
    """An order that waits for its delivery on its second worker, one that ended, and one that failed."""
    async with working(cluster) as worker:
        done = await worker.start(
            checkout.call("visa", ["apple", "pear"]), id="order-6", attributes={"customer": "ann"}
        )
        await done.signal("delivered", "bob")
        await done.result()
        failed = await worker.start(fails.call("no such address"), id="order-5", attributes={"customer": "eve"})
        await asyncio.gather(failed.result(), return_exceptions=True)
        handle = await worker.start(checkout.call("amex", ["plum", "cherry", "fig"]), id="order-7")
        async for state in handle.events("state"):
            if state == "without a stamp":
                break
        while "timer" not in [done.kind async for done in handle.steps()]:
            await asyncio.sleep(0)


async def take_over(cluster: MemoryCluster, stay: asyncio.Event) -> None:
    """The worker begins again, and stays until `stay` is set."""
    async with working(cluster):
        await stay.wait()
