"""Starts and signals in records with effects of other libraries: all happen once, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

import bokiflow
from boki.testing import MemoryCluster
from boki_common.errors import Conflict, InvalidArgument, Unreachable
from boki_common.limits import RECORD_EXPECTATIONS, RECORD_TAGS
from bokiflow import App, Flow, IdReused, recv
from bokiflow.client.in_atomic import signalling, starting
from bokilib import Atomic, Contribution, Fenced, Log, NotEncodable
from bokilib.records.contribution import addressed, joined
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


async def test_a_signal_reaches_the_workflow_of_another_app(cluster: MemoryCluster) -> None:
    """In records of all libraries; which app the workflow is of is read when the record is sent."""
    flow = Flow(App("other"), (await cluster.connect()).book("shop"))
    store = BokiStore(flow.log)
    early = signalling(flow, "o-1", "paid", 1)  # before the workflow is there
    async with working(cluster, app) as worker, asyncio.timeout(30):
        for number in (1, 2):
            await worker.start(order.call("ann"), id=f"o-{number}")
        async with Atomic(flow.log) as tx:
            tx.add(early)
        assert await worker.handle("o-1").result() == "ann 1"
        async with store.transaction() as changed:
            changed["orders"].inc("count")
            changed.add(signalling(flow, "o-2", "paid", 2))
        assert await worker.handle("o-2").result() == "ann 2"


async def test_a_signal_to_an_id_that_is_started_meanwhile_reaches_it(cluster: MemoryCluster) -> None:
    """It was read as free, and another app starts it before the record is in the log."""
    flow = Flow(App("other"), (await cluster.connect()).book("shop"))
    part = signalling(flow, "o-1", "paid", 1)
    (address,) = part.addresses
    reads: list[bool] = []
    async with working(cluster, app) as worker, asyncio.timeout(30):

        async def overtaken(again: bool) -> tuple[str, Mapping[str, int | None]]:
            reads.append(again)
            found = await address.read(again)
            if not again:
                await worker.start(order.call("ann"), id="o-1")
            return found

        await flow.log.append(msgspec.structs.replace(part, addresses=(address._replace(read=overtaken),)))
        assert await worker.handle("o-1").result() == "ann 1"
    assert reads == [False, True]


async def test_a_record_whose_address_cannot_be_read_is_not_sent(cluster: MemoryCluster) -> None:
    flow = Flow(app, (await cluster.connect()).book("shop"))

    async def unreachable(again: bool) -> tuple[str, Mapping[str, int | None]]:
        raise Unreachable("no engine")

    part = signalling(flow, "o-1", "paid", 1)
    part = msgspec.structs.replace(part, addresses=(part.addresses[0]._replace(read=unreachable),))
    with pytest.raises(Unreachable):
        await flow.log.append(part)
    assert flow.log.appends == 0


async def test_a_workflow_signals_one_of_another_app(cluster: MemoryCluster) -> None:
    """Also one that is started later, and none of its own children is looked up by another app's name."""
    other = App("other")

    @other.workflow
    async def pays(ids: list[str]) -> None:
        for id in ids:
            bokiflow.send(id, "paid", id)
            await bokiflow.recv("next")

    async with working(cluster, app) as worker, working(cluster, other, "o") as payer, asyncio.timeout(30):
        await worker.start(order.call("ann"), id="o-1")
        paying = await payer.start(pays.call(["o-1", "nobody", "o-2"]), id="p")
        assert await worker.handle("o-1").result() == "ann o-1"
        await paying.signal("next")
        await worker.start(order.call("bob"), id="o-2")
        await paying.signal("next")
        assert await worker.handle("o-2").result() == "bob o-2"


async def test_signals_take_no_more_streams_than_were_counted(cluster: MemoryCluster) -> None:
    """Before they are sent, a record is filled by the number of its streams: apps of all workflows may differ."""
    flow = Flow(App("other"), (await cluster.connect()).book("shop"))
    parts = joined(signalling(flow, f"o-{number}", "paid", number) for number in range(RECORD_TAGS // 2))
    assert len(parts.tags) == RECORD_TAGS - 1
    found = [(f"flow/to/of {number}/1", {f"own {number}": None}) for number in range(RECORD_TAGS // 2)]
    whole = addressed(msgspec.structs.replace(parts, expect=dict.fromkeys(map(str, range(200)), 1)), found)
    assert len(whole.tags) == len(parts.tags) and len(whole.expect) == RECORD_EXPECTATIONS
    assert not any(tag.endswith("/to") for tag in whole.tags)
