"""Code of workflows and other threads can use no message, consumer or handler, and cannot pop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Worker
from bokiflow.errors import OnlyInSteps
from bokiqueue import Message, Queue
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import Inline
from libs.tests.queue.conftest import take


async def test_code_of_a_workflow_and_other_threads_touch_no_message_and_no_consumer(cluster: MemoryCluster) -> None:
    """Its loop has another clock: by that one every lease of the shard had run out."""
    queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1)
    store = BokiStore((await cluster.connect()).book("shop"))
    shipped = queue.handler(store)(_never)
    await queue.push_many(list(range(4)))
    app, went_through = App("shop"), []
    async with queue.consume(member_lease_s=600) as messages, Worker(app, store.log, bodies=Inline()) as worker:
        first, *others = await take(messages, 4)
        tried: dict[str, Callable[[], Any]] = {
            "ack": first.ack,
            "nack": first.nack,
            "give_up": lambda: first.give_up("why"),
            "extend": lambda: first.extend(30),
            "acked": first.acked,
            "within": lambda: first.within(5),
            "give_back": lambda: first.give_back(None),
            "part_ended": lambda: first.part_ended(False),
            "async with": first.__aenter__,
            "anext": messages.__anext__,
            "has": lambda: messages.has(2),
            "drain": messages.drain,
            "enter": queue.consume().__aenter__,
            "exit": lambda: messages.__aexit__(None, None, None),
            "handle": lambda: shipped.handle(first),
            "run": shipped.run,
            "drain the handler": shipped.drain,
        }

        @app.workflow
        async def touches() -> None:
            for name, call in tried.items():
                try:
                    result = call()
                    if asyncio.iscoroutine(result):
                        await result
                except OnlyInSteps:
                    continue
                went_through.append(name)

        await (await worker.start(touches.call(), id="w")).result()
        assert went_through == []
        with pytest.raises(boki.WrongLoop, match=r"bokiqueue\.sync"):
            await asyncio.to_thread(first.ack)
        assert messages._next() is None, "nothing is handed out again"
        await asyncio.gather(*(message.ack() for message in (first, *others)))


async def _never(message: Message[object], tx: Transaction) -> None:
    raise AssertionError("it is not run")


async def test_code_of_a_workflow_pops_nothing(cluster: MemoryCluster) -> None:
    queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1, mode="pop")
    app = App("shop")

    @app.workflow
    async def pops() -> None:
        await queue.pop()

    async with Worker(app, (await cluster.connect()).book("shop"), bodies=Inline()) as worker:
        with pytest.raises(boki.BokiError, match="step"):
            await (await worker.start(pops.call(), id="w")).result()
