"""Handles of workflows."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import App, Flow, NoSuchWorkflow, Worker, WorkflowCancelled
from libs.tests.cutting import cut_everywhere
from libs.tests.flow.conftest import working
from libs.tests.flow.shop import Shop


async def test_what_was_never_started_has_no_status_and_takes_no_signal(book: boki.Book) -> None:
    handle = Flow(Shop().app, book).handle("nobody")
    for call in (handle.status(), handle.signal("a"), handle.cancel(), handle.result()):
        with pytest.raises(NoSuchWorkflow, match="nobody"):
            await call


async def test_a_handle_has_what_was_done_and_what_is_emitted(shop: Shop, worker: Worker) -> None:
    handle = await worker.start(shop.wait.call(2), id="x")
    events = handle.events("got")
    first = asyncio.ensure_future(anext(events))
    await handle.signal("go", "a")
    assert await first == "a"
    await handle.signal("go", "b")
    assert await anext(events) == "b" and await handle.result() == ["a", "b"]
    kinds = [one.kind async for one in handle.steps()]
    assert sorted(kinds) == ["emit", "emit", "end", "signal", "signal", "step", "step"]
    assert repr(handle) == "<bokiflow.Handle 'x'>"
    untyped = worker.handle("x")
    assert await untyped.result() == ["a", "b"]
    await handle.signal("go", "late")
    assert [one.kind async for one in handle.steps()] == kinds, "what has ended receives nothing"


async def test_a_call_for_the_next_value_that_is_cut_after_any_turn_loses_none(shop: Shop, worker: Worker) -> None:
    handle = await worker.start(shop.wait.call(5), id="x")
    for number in range(5):
        await handle.signal("go", number)
    await handle.result()
    assert await cut_everywhere(handle.events("got"), 5) == [0, 1, 2, 3, 4]
    assert await cut_everywhere(handle.events("got", follow=False), 5) == [0, 1, 2, 3, 4]
    steps = [one async for one in handle.steps()]
    assert await cut_everywhere(handle.steps(), len(steps)) == steps


async def test_values_end_when_the_iterator_is_closed_and_fail_when_the_client_is(
    shop: Shop, worker: Worker, cluster: MemoryCluster
) -> None:
    handle = await worker.start(shop.wait.call(1), id="x")
    closed = handle.events("got")
    following = asyncio.ensure_future(anext(closed, None))
    await asyncio.sleep(0)
    await closed.aclose()
    assert await following is None
    client = await cluster.connect()
    following = asyncio.ensure_future(anext(Flow(shop.app, client.book("shop")).handle("x").events("got"), None))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(boki.ClosedError):
        await following


async def test_a_handle_elsewhere_gets_the_result(cluster: MemoryCluster) -> None:
    shop = Shop()
    other = Flow(shop.app, (await cluster.connect()).book("shop"))
    async with other, working(cluster, shop.app) as worker:
        handle = await worker.start(shop.wait.call(1), id="x")
        waiting = [asyncio.ensure_future(other.handle("x", shop.wait).result()) for _ in range(3)]
        await handle.signal("go", 7)
        assert await asyncio.gather(*waiting) == [[7]] * 3


async def test_a_handle_of_another_app_of_the_book_reaches_the_workflow(cluster: MemoryCluster) -> None:
    shop, other = Shop(), App("other")
    async with working(cluster, shop.app) as worker, asyncio.timeout(30):
        await worker.start(shop.wait.call(1), id="x")
        await worker.start(shop.wait.call(1), id="y")
        async with Flow(other, (await cluster.connect()).book("shop")) as elsewhere:
            await elsewhere.handle("x").signal("go", "a")
            assert await worker.handle("x").result() == ["a"]
            await elsewhere.handle("y").cancel("enough")
            with pytest.raises(WorkflowCancelled):
                await worker.handle("y").result()
