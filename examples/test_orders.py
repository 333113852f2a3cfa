"""The shop does what it should; what is wrong in the end is found; and a short trial under kill -9 leaves one result an order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokiflow import Worker
from examples.orders.app import ITEMS, STOCK, Order, Shop, workflow_of
from examples.orders.checks import State, check
from examples.orders.trial import trial


async def test_an_order_is_handled_in_one_record_and_has_a_result() -> None:
    async with MemoryCluster() as cluster:
        shop = await Shop.open((await cluster.connect()).book("shop"))
        await shop.fill()
        await shop.fill()
        async with Worker(shop.app, shop.log) as worker, shop.handler(worker.flow, "me"):
            for id, item, count in (("1", "apples", 3), ("2", "pears", STOCK + 1)):
                await shop.orders.push(Order(id, item, count))
            async with shop.receipts.consume() as receipts:
                received = []
                for _ in range(2):
                    async with await anext(receipts) as receipt:
                        received.append(receipt.body)
            results = [await worker.flow.handle(workflow_of(id), shop.fulfil).result() for id in ("1", "2")]
        assert results == ["sent 3 apples", "no pears left"]
        assert await shop.store.object("stock").get("apples") == STOCK - 3
        assert sorted(received) == ["1", "2"]


def right() -> tuple[list[Order], list[str], State]:
    full = dict.fromkeys(ITEMS, STOCK)
    state = State(
        full | {"apples": STOCK - 2},
        {"apples": 2},
        {"1": "sent 2 apples", "2": "no pears left"},
        {"1": ("sent 2 apples", 1), "2": ("no pears left", 1)},
        ["1", "2"],
        0,
    )
    return [Order("1", "apples", 2), Order("2", "pears", 1), Order("3", "plums", 1)], ["1"], state


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert check(*right()) == []


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda s: s._replace(waiting=2), "2 orders wait"),
        (lambda s: s._replace(receipts=["1", "2", "2"]), "order 2 was handled 2 times"),
        (lambda s: s._replace(receipts=["1", "2", "x"]), "nobody ordered x"),
        (lambda s: s._replace(receipts=["2"]), "order 1 was acknowledged, and not handled"),
        (lambda s: s._replace(results={"1": None}), "order 1 has no result"),
        (lambda s: s._replace(texts=s.texts | {"1": ("sent 2 apples", 2)}), "its object has"),
        (lambda s: s._replace(texts=s.texts | {"3": ("sent 1 plums", 1)}), "order 3 has a result, and was not handled"),
        (lambda s: s._replace(stock=s.stock | {"plums": STOCK - 1}), "of 150 plums 149 are left"),
        (lambda s: s._replace(sold={"apples": 4}), "4 were sold"),
    ],
)
def test_what_is_wrong_is_found(change: Callable[[State], Any], fault_text: str) -> None:
    orders, acknowledged, state = right()
    found = check(orders, acknowledged, change(state))
    assert any(fault_text in fault for fault in found), found


@pytest.mark.processes
async def test_a_short_trial_of_orders(tmp_path: Path) -> None:
    found = await trial(tmp_path, seconds=5, seed=2)
    assert found.faults == []
    assert found.killed.total() >= 1 and len(found.state.receipts) > 0


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(400)
async def test_a_minute_of_orders(tmp_path: Path) -> None:
    found = await trial(tmp_path, seconds=60, seed=5)
    assert found.faults == []
