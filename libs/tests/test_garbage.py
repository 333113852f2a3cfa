"""What an operation makes is freed when it ends, and not by the collector of cycles, which stops the process to look for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from boki.testing import MemoryCluster
from bokiflow.testing import LoopClock, in_virtual_time
from bokiqueue import Message, Queue
from bokirsm import Host, Rsm
from bokistore import BokiStore, Transaction
from libs.tests.rsm.conftest import WORDS
from libs.tests.rsm.words import Best, Max

Operation = Callable[[], Awaitable[object]]

TIMES = 60


async def garbage(operation: Operation) -> float:
    """Objects in cycles that an operation leaves."""
    for _ in range(TIMES):
        await operation()
    await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            await operation()
        await asyncio.sleep(0)
        return gc.collect() / TIMES
    finally:
        gc.enable()


@in_virtual_time
async def test_operations_leave_no_cycles() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        store = BokiStore((await cluster.connect()).book("b"))
        queue = await Queue.open(store.log, "jobs", object, shards=2)
        work = await Queue.open(store.log, "work", object, shards=2)
        handled = asyncio.Semaphore(0)

        @work.handler(store)
        async def handle(message: Message[object], tx: Transaction) -> None:
            tx["done"].inc("n")
            handled.release()

        async def read_and_write(tx: Transaction) -> None:
            tx["a"].set("n", await tx["a"].get("n"))

        async def push_and_handle() -> None:
            await work.push("a")
            await handled.acquire()

        async with (
            handle,
            queue.consume() as messages,
            Host(WORDS, (await cluster.connect()).book("b"), stuck_after_s=None),
            Rsm(WORDS, (await cluster.connect()).book("b")) as client,
        ):
            await messages.has(2)
            top = await client.create(Max, key="max")

            async def push_and_consume() -> None:
                await queue.push("a")
                async with await anext(messages):
                    pass

            operations: dict[str, Operation] = {
                "a transaction": lambda: store.transact(read_and_write),
                "a read": lambda: store.object("a").get("n"),
                "a message": push_and_consume,
                "a message with a handler": push_and_handle,
                "a question": lambda: client.ask(Best().to(top)),
            }
            left = {what: await garbage(operation) for what, operation in operations.items()}
        assert left == pytest.approx(dict.fromkeys(operations, 0), abs=1)
        await store.close()
