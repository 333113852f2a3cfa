"""Tests as a user of Boki writes them: one test on many simulated clusters in virtual time, each with the faults of its seed.

    .venv/bin/python -m pytest examples/test_payments.py

The first test has to pass for every seed. The second expects the simulator to find the mistake of `RetriedPayments`, and to
reduce the faults of the seed to the one that shows it. A failing test prints that fault and the option `--sim-seed=…` that
repeats it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from boki.testing import simulated
from examples.payments import ConditionalPayments, RetriedPayments, payments_of

pytestmark = pytest.mark.blocking_allowed  # the simulator has a stricter guard

ORDERS = [f"order-{number}" for number in range(40)]


async def every_order_is_paid_once(cluster: Any, payments: type[RetriedPayments]) -> None:
    async with await cluster.connect() as client:
        book = client.book("payments")
        for order in ORDERS:
            await payments(book).pay(order, 995)
            await asyncio.sleep(0.1)
        for order in ORDERS:
            count = await payments_of(book, order)
            assert count == 1, f"{order} was paid {count} times"


@simulated(seeds=10, faults="network", seconds=6)
async def test_an_order_is_paid_once_whatever_the_network_does(cluster: Any) -> None:
    await every_order_is_paid_once(cluster, ConditionalPayments)


def test_the_simulator_finds_the_mistake_and_the_smallest_faults_that_show_it() -> None:
    @simulated(seeds=40, first_seed=145, faults="network", seconds=6)  # seed 145 disconnects the program
    async def wrong(cluster: Any) -> None:
        await every_order_is_paid_once(cluster, RetriedPayments)

    with pytest.raises(AssertionError, match=r"was paid \d times") as caught:
        wrong()
    notes = "\n".join(caught.value.__notes__)
    assert "--sim-seed=" in notes
    assert re.search(r"(isolate|partition) [^\n]*program", notes), (
        "the smallest fault disconnects the program, and is the only one"
    )
