"""Starts and signals in records with effects of other libraries: all happen once, or none."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import Conflict, InvalidArgument
from bokiflow import App, Flow, IdReused, recv
from bokiflow.client.in_atomic import signalling, starting
from bokilib import Atomic, Contribution, Fenced, Log, NotEncodable
from bokistore import BokiStore, Transaction
from libs.tests.flow.conftest import working

app = App("shop")


@app.workflow
async def order(name: str) -> str:
    return f"{name} {await recv('paid')}"


async def test_a_start_and_a_signal_are_one_record_with_the_rest(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("shop"))
    flow = Flow(app, log)
    store = BokiStore(log)
    async with working(cluster, app):
        before = log.appends
        async with store.transaction() as tx:
            tx["orders"].inc("count")
            tx.add(await starting(flow, order.call("ann"), id="o-1", attributes={"of": "ann"}))
            tx.add(signalling(flow, "o-1", "paid", 7))
        assert log.appends == before + 1
        assert await flow.handle("o-1").result() == "ann 7"
        assert (await flow.find(of="ann"), await store.object("orders").value()) == (["o-1"], {"count": 1})


async def test_a_start_that_is_tried_again_adds_nothing(cluster: MemoryCluster) -> None:
    flow = Flow(app, (await cluster.connect()).book("shop"))
    again = Flow(app, (await cluster.connect()).book("shop"))
    for one in (flow, again):
        async with Atomic(one.log) as tx:
            tx.add(await starting(one, order.call("ann"), id="o-1"))
    assert (flow.log.appends, again.log.appends) == (1, 0)
    with pytest.raises(IdReused, match="other arguments"):
        await starting(again, order.call("bob"), id="o-1")


async def test_who_was_overtaken_between_the_look_and_the_record_does_nothing(cluster: MemoryCluster) -> None:
    flow = Flow(app, (await cluster.connect()).book("shop"))
    late = await starting(flow, order.call("ann"), id="o-1")
    await flow.start(order.call("bob"), id="o-1")
    store = BokiStore(flow.log)
    with pytest.raises(Conflict):
        async with store.transaction() as tx:
            tx["orders"].inc("count")
            tx.add(late)
    assert await store.object("orders").value() is None


async def test_transactions_at_once_that_begin_one_id_do_not_share_a_record(cluster: MemoryCluster) -> None:
    log = Log((await cluster.connect()).book("shop"))
    flow, store = Flow(app, log), BokiStore(log)
    parts = [await starting(flow, order.call(name), id="o-1") for name in ("ann", "bob")]

    async def begin(part: Contribution) -> bool:
        async def body(tx: Transaction) -> None:
            tx["orders"].inc("count")
            tx.add(part)

        try:
            await store.transact(body)
        except Fenced:
            return False
        return True

    assert await asyncio.gather(*(begin(part) for part in parts)) == [True, False]
    assert await store.object("orders").value() == {"count": 1}


async def test_what_cannot_be_encoded_is_refused(cluster: MemoryCluster) -> None:
    flow = Flow(app, (await cluster.connect()).book("shop"))
    with pytest.raises(InvalidArgument):
        await starting(flow, order.call("ann"), id="")
    with pytest.raises(NotEncodable):
        signalling(flow, "o-1", "paid", float("nan"))
