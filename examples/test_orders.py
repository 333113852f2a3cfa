"""Tests of the shop: one record per order, bad orders beside good ones, the checks, and trials under kill -9.

    .venv/bin/python -m pytest examples/test_orders.py -m "not processes"       # without the trials

The test of bad orders runs in virtual time, so that it proves in a moment that good orders do not wait for them. The trials measure real
time: on a machine with other work good orders may exceed their bound.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from boki.testing import MemoryCluster
from bokiflow import Worker
from bokiflow.testing import LoopClock, in_virtual_time
from examples.orders.app import HANDLER_S, ITEMS, PICK_S, STOCK, Order, Shop, workflow_of
from examples.orders.checks import OWN_S, OrderEnd, ShopState, check, ends, unfinished
from examples.orders.trial import Customers, settled, trial
from examples.orders.wrong import SLOW_S, WRONG


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


@in_virtual_time
async def test_good_orders_do_not_wait_for_those_that_go_wrong_beside_them() -> None:
    """Run all kinds but poison in one process; time is virtual, so a wait for a bad order would show."""
    clock = LoopClock()
    async with MemoryCluster(clock=clock) as cluster:
        shop = await Shop.open((await cluster.connect()).book("shop"))
        await shop.fill()
        planned = [wrong for wrong in WRONG if not wrong.startswith("poison")]
        customers, closing = Customers(shop, 1, wrong=planned, clock=clock), asyncio.Event()
        async with Worker(shop.app, shop.log) as worker, shop.handler(worker.flow, "me"):
            buying = asyncio.create_task(customers.run(closing))
            await asyncio.sleep(4)
            closing.set()
            await buying
            state = await settled(shop, customers)
    assert check(customers.orders, customers.acknowledged, state) == []
    assert len(ends(customers.orders, state)) == len(planned)
    good = [state.took_s[order.id] for order in customers.orders if not order.wrong]
    assert len(good) > 80 and max(good) < min(SLOW_S, HANDLER_S, PICK_S) / 3


def faultless() -> tuple[list[Order], list[str], ShopState]:
    full = dict.fromkeys(ITEMS, STOCK)
    state = ShopState(
        full | {"apples": STOCK - 2},
        {"apples": 2},
        {"1": "sent 2 apples", "2": "no pears left"},
        {"1": ("sent 2 apples", 1), "2": ("no pears left", 1)},
        ["1", "2"],
        0,
    )
    return [Order("1", "apples", 2), Order("2", "pears", 1), Order("3", "plums", 1)], ["1"], state


def test_a_faultless_state_has_no_faults() -> None:
    assert check(*faultless()) == []


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda s: s._replace(waiting=2), "2 orders still wait"),
        (lambda s: s._replace(receipts=["1", "2", "2"]), "order 2 was handled 2 times"),
        (lambda s: s._replace(receipts=["1", "2", "x"]), "order x was never pushed"),
        (lambda s: s._replace(receipts=["2"]), "order 1 was acknowledged, but not handled"),
        (lambda s: s._replace(results={"1": None}), "order 1 has no result"),
        (lambda s: s._replace(texts=s.texts | {"1": ("sent 2 apples", 2)}), "its object has"),
        (lambda s: s._replace(texts=s.texts | {"3": ("sent 1 plums", 1)}), "order 3 has a result, but was not handled"),
        (lambda s: s._replace(stock=s.stock | {"plums": STOCK - 1}), "150 plums: 149 left"),
        (lambda s: s._replace(sold={"apples": 4}), "4 sold"),
    ],
)
def test_each_fault_is_found(change: Callable[[ShopState], Any], fault_text: str) -> None:
    orders, acknowledged, state = faultless()
    found = check(orders, acknowledged, change(state))
    assert any(fault_text in fault for fault in found), found


def ended() -> tuple[list[Order], list[str], ShopState]:
    """Return a shop without faults that has a bad order of each end: dead letter, late success, failed workflow."""
    orders, acknowledged, state = faultless()
    wrong = [
        Order(kind.replace(" ", "-"), "apples", 0, kind) for kind in ("hanging handler", "slow step", "raising step")
    ]
    done = {"slow-step": "sent 0 apples"}
    return (
        [*orders, *wrong],
        [*acknowledged, *(order.id for order in wrong)],
        state._replace(
            results={**state.results, **done, "raising-step": None},
            texts={**state.texts, "slow-step": ("sent 0 apples", 1)},
            receipts=[*state.receipts, "slow-step", "raising-step"],
            given_up={"hanging-handler": "3 attempts, HandlerTimeout(...)"},
            failed={"raising-step": "KeyError: 'no price'"},
            took_s={"1": 0.5, "2": OWN_S, "slow-step": 4.25},
        ),
    )


def test_each_order_that_went_wrong_has_an_end_and_a_command_that_shows_more() -> None:
    orders, acknowledged, state = ended()
    assert check(orders, acknowledged, state) == []
    assert ends(orders, state) == [
        OrderEnd(
            "hanging-handler",
            "dead letter: 3 attempts, HandlerTimeout(...)",
            "boki queue peek orders.dead --book shop",
        ),
        OrderEnd("slow-step", "sent 0 apples, after 4.2 s", "boki flow steps order-slow-step --book shop"),
        OrderEnd("raising-step", "failed: KeyError: 'no price'", "boki flow show order-raising-step --book shop"),
    ]


@pytest.mark.parametrize(
    ("change", "fault_text"),
    [
        (lambda s: s._replace(took_s={"1": OWN_S + 1}), "order 1 is good, but took 21.0 s"),
        (lambda s: s._replace(failed=s.failed | {"1": "KeyError: 1"}), "order 1 is good, but ended with 'failed: Key"),
        (
            lambda s: s._replace(given_up=s.given_up | {"3": "why"}),
            "order 3 is good, but ended with 'dead letter: why'",
        ),
        (lambda s: s._replace(given_up=s.given_up | {"2": "why"}), "order 2 is a dead letter, but was handled"),
        (
            lambda s: s._replace(given_up={}),
            "order hanging-handler should end with 'HandlerTimeout', but ended with ''",
        ),
        (lambda s: s._replace(given_up={}), "order hanging-handler was acknowledged, but not handled"),
        (lambda s: s._replace(failed={"raising-step": "TypeError"}), "should end with \"KeyError: 'no price'\""),
        (
            lambda s: s._replace(results=s.results | {"slow-step": None}),
            "order slow-step should end with 'sent 0 apples'",
        ),
    ],
)
def test_an_order_that_ended_otherwise_than_planned_is_found(
    change: Callable[[ShopState], ShopState], fault_text: str
) -> None:
    orders, acknowledged, state = ended()
    found = check(orders, acknowledged, change(state))
    assert any(fault_text in fault for fault in found), found


def test_an_order_is_unfinished_until_it_has_a_result_an_error_or_is_a_dead_letter() -> None:
    orders, _, state = ended()
    assert unfinished(orders, state) == ["3"]
    assert unfinished(orders, state._replace(failed={}, given_up={}, results={"1": None, "3": "no plums left"})) == [
        "1",
        "2",
        "hanging-handler",
        "slow-step",
        "raising-step",
    ]


@pytest.mark.processes
@pytest.mark.alone
@pytest.mark.timeout(200)
async def test_a_short_trial_of_orders(tmp_path: Path) -> None:
    """Runs alone, since it bounds the time of good orders."""
    found = await trial(tmp_path, seconds=5, seed=2)
    assert found.faults == []
    assert found.killed.total() >= 1 and len(found.state.receipts) > 0
    assert len(ends(found.orders, found.state)) == len(WRONG)


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.alone
@pytest.mark.timeout(400)
async def test_a_minute_of_orders(tmp_path: Path) -> None:
    """Run the commands that the report names while the cluster still runs."""
    shown: dict[str, str] = {}

    async def look(url: str, found: Sequence[OrderEnd]) -> None:
        for end in found:
            arguments = [*end.look.split()[1:], "--url", url]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "boki_cli.main", *arguments), stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
            shown[end.order] = out.decode() if process.returncode == 0 else ""

    found = await trial(tmp_path, seconds=60, seed=5, look=look)
    assert found.faults == []
    assert sorted(shown) == sorted(order.id for order in found.orders if order.wrong)
    for end in ends(found.orders, found.state):
        assert ("pick" if end.order == "slow-step" else end.order) in shown[end.order], end
