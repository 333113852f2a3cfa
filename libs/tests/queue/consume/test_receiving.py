"""Messages as steps of workflows: each belongs to one step, also when workers die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import boki
import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import UsageError
from bokiflow import App, Worker
from bokilib.append.log import Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import UNKNOWNS, FaultKind, crash_everywhere
from bokiqueue import Queue, Received, Receiving
from bokistore import BokiStore, StoreSettings, Transaction
from libs.tests.flow.conftest import Inline
from libs.tests.queue.conftest import SHORT_S, alive
from libs.tests.queue.test_faults import surely

ORDERS = ["apples", "pears"]


class Till:
    """A process: a queue of orders, and a workflow that takes two of them."""

    def __init__(self, book: BookPort) -> None:
        self.log = Log(book)
        self.store = BokiStore(self.log, settings=StoreSettings(checkpoints=False, aux_data=False))
        self.app = App("till")
        self.fails: Callable[[str], bool] = lambda item: False

    async def open(self) -> Queue[str]:
        return await Queue.open(self.log, "orders", str, shards=1, max_deliveries=0)

    async def run(self, name: str, lease_s: float, *, again_s: float = 0.001) -> list[str]:
        orders = await self.open()
        for item in ORDERS:
            await surely(lambda item=item: orders.push(item, dedup_id=item))  # type: ignore[misc]
        messages = orders.consume(who=name, member_lease_s=lease_s)
        received = Receiving(messages, self.store, again_s=again_s)

        async def take(tx: Received[str, Transaction]) -> str:
            if self.fails(tx.body):
                raise ValueError(tx.body)
            tx.store["sold"].inc(tx.body)
            return tx.body

        @self.app.workflow
        async def sell() -> list[str]:
            return [await bokiflow.transact(received, take) for _ in ORDERS]

        async with messages, Worker(self.app, self.log, name="host", lease_s=0.6, bodies=Inline()) as worker:
            while True:
                try:
                    handle = await worker.start(sell.call(), id="x")
                    break
                except boki.OutcomeUnknown:
                    pass
            return await handle.result()


async def program(book: BookPort) -> None:
    async def run() -> None:
        assert sorted(await Till(book).run("host", 0.6)) == ORDERS

    await alive(book, run())


async def sold_once(book: boki.Book) -> None:
    till = Till(book)
    assert await till.store.object("sold").value() == dict.fromkeys(ORDERS, 1)
    assert (await (await till.open()).stats()).depth == 0


@pytest.mark.timeout(300)  # machines may be busy
@pytest.mark.parametrize("kinds", [("before", "after"), UNKNOWNS])
async def test_a_crash_or_a_lost_answer_anywhere_takes_each_message_once(kinds: tuple[FaultKind, ...]) -> None:
    assert (await crash_everywhere(program, program, sold_once, kinds=kinds)).runs > 10


async def test_a_step_that_fails_gives_its_message_back(cluster: MemoryCluster) -> None:
    till = Till((await cluster.connect()).book("shop"))
    till.fails = lambda item: item == "apples"
    with pytest.raises(ValueError, match="apples"):
        await till.run("host", 15)
    orders = await till.open()
    assert sorted((one.body, one.attempts) for one in await orders.peek()) == [("apples", 1), ("pears", 0)]
    assert await till.store.object("sold").value() is None


async def test_a_step_that_loses_keeps_its_message_and_the_step_is_one_record(cluster: MemoryCluster) -> None:
    till = Till((await cluster.connect()).book("shop"))
    other = BokiStore((await cluster.connect()).book("shop"))
    orders = await till.open()
    await orders.push("apples")
    tries: list[int] = []

    async def take(tx: Received[str, Transaction]) -> int:
        tries.append(tx.message.attempt)
        count = await tx.store["sold"].get("count", 0)
        if len(tries) == 1:
            await other.object("sold").set("count", 5)
        assert isinstance(count, int)
        tx.store["sold"].set("count", count + 1)
        return count + 1

    async with orders.consume() as messages:
        received = Receiving(messages, till.store)

        @till.app.workflow
        async def sell() -> int:
            return await bokiflow.transact(received, take)

        async with Worker(till.app, till.log, name="w", bodies=Inline()) as worker:
            assert await (await worker.start(sell.call(), id="x")).result() == 6
    assert tries == [1, 1]
    history, consumed = tags.flow_history("x"), tags.queue_consumer("orders", 0, "default")
    both = [record.seqnum async for record in till.log.book.read(history) if consumed in record.tags]
    assert len(both) == 1


async def test_a_message_whose_lease_ran_out_is_not_committed(cluster: MemoryCluster) -> None:
    till = Till((await cluster.connect()).book("shop"))
    orders = await till.open()
    await orders.push("apples")
    async with orders.consume() as messages:
        received = Receiving(messages, till.store)
        first = await received.begin()
        first.message.extend(SHORT_S)
        again = await asyncio.wait_for(anext(messages), 5)
        with pytest.raises(boki.Conflict, match="lease"):
            await received.commit(first)
        async with again:
            assert again.attempt == 1


async def test_a_step_that_acks_its_message_itself_fails_before_anything_is_sent(cluster: MemoryCluster) -> None:
    """The writes of its transaction would be dropped."""
    till = Till((await cluster.connect()).book("shop"))
    orders = await till.open()
    await orders.push("apples")
    messages = orders.consume()
    received = Receiving(messages, till.store, again_s=0.001)
    refused: list[str] = []

    async def take(tx: Received[str, Transaction]) -> str:
        tx.store["sold"].inc(tx.body)
        if not refused:
            try:
                await tx.message.ack()
            except UsageError as error:
                refused.append(str(error))
        return tx.body

    @till.app.workflow
    async def sell() -> str:
        return await bokiflow.transact(received, take)

    async with messages, Worker(till.app, till.log, name="host", lease_s=600, bodies=Inline()) as worker:
        assert await (await worker.start(sell.call(), id="x")).result() == "apples"
    assert "nothing was sent" in refused[0]
    assert await till.store.object("sold").value() == {"apples": 1}
    assert (await orders.stats()).depth == 0
