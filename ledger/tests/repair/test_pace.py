"""Copies keep to a rate together, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from boki_ledger.repair.pace import AHEAD_S, RatePace

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.mark.parametrize("senders", [1, 4])
async def test_all_senders_together_keep_to_the_rate(senders: int) -> None:
    pace, loop = RatePace(1_000), asyncio.get_running_loop()
    begun = loop.time()

    async def send() -> None:
        for _ in range(100 // senders):
            await pace(100)

    await asyncio.gather(*(send() for _ in range(senders)))
    assert loop.time() - begun == pytest.approx(10.0 - AHEAD_S)


async def test_without_a_bound_nobody_waits() -> None:
    pace, loop = RatePace(0), asyncio.get_running_loop()
    begun = loop.time()
    for _ in range(10):
        await pace(10**9)
    assert loop.time() == begun


async def test_an_idle_time_is_not_made_up_for() -> None:
    pace, loop = RatePace(1_000), asyncio.get_running_loop()
    await pace(100)
    later: asyncio.Future[None] = loop.create_future()
    loop.call_later(50.0, later.set_result, None)
    await later
    begun = loop.time()
    for _ in range(20):
        await pace(100)
    assert loop.time() - begun == pytest.approx(2.0 - AHEAD_S)
