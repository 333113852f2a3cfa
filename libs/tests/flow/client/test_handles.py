"""Handles of workflows."""

from __future__ import annotations

import asyncio

import pytest

import boki
from boki.testing import MemoryCluster
from bokiflow import Flow, NoSuchWorkflow, Worker
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


async def test_a_handle_elsewhere_gets_the_result(cluster: MemoryCluster) -> None:
    shop = Shop()
    other = Flow(shop.app, (await cluster.connect()).book("shop"))
    async with other, working(cluster, shop.app) as worker:
        handle = await worker.start(shop.wait.call(1), id="x")
        waiting = [asyncio.ensure_future(other.handle("x", shop.wait).result()) for _ in range(3)]
        await handle.signal("go", 7)
        assert await asyncio.gather(*waiting) == [[7]] * 3
