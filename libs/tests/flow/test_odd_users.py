"""Odd code of users: each order gets what it has to get, also from a second worker, and its history has it."""

from __future__ import annotations

import itertools

import pytest

from boki.testing import MemoryCluster
from bokiflow import Worker
from bokiflow.testing import in_virtual_time
from bokiflow_tools.odd_users import ODDITIES, RudeTracing, oddity_of
from bokiflow_tools.simulated import BOOK, Program, check_recorded, delivered
from bokilib import Log

pytestmark = pytest.mark.blocking_allowed


def order_with(oddity: str) -> str:
    """Return an order that does an odd thing, and is no gift."""
    return next(order for number in itertools.count(1, 2) if oddity_of(order := f"odd/{number}") == oddity)


@pytest.mark.parametrize("oddity", ODDITIES)
@in_virtual_time
async def test_an_order_gets_what_it_has_to_get_from_either_worker(oddity: str) -> None:
    order = order_with(oddity)
    async with MemoryCluster() as cluster:
        log = Log((await cluster.connect()).book(BOOK))
        first = Program(log, new=True)
        async with Worker(first.app, log, tracing=RudeTracing()) as worker:
            await worker.start(first.deliver.call(order), id=f"deliver/{order}")
            await worker.drain(finish_s=60.0)
        other = Log((await cluster.connect()).book(BOOK))
        async with Worker(Program(other, new=True).app, other) as worker:
            handle = worker.handle(f"deliver/{order}")
            await handle.signal("address", "there")
            assert await handle.result() == delivered(order, "there")
            await check_recorded(worker.flow, handle.id)


def test_one_of_four_orders_is_odd_each_in_its_way() -> None:
    drawn = [oddity_of(f"customer-1/{number}") for number in range(4_000)]
    assert {*drawn} == {"", *ODDITIES} and 700 < sum(map(bool, drawn)) < 1_300
