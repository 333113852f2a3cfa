"""Virtual time for tests of workflows."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

import boki
from bokiflow.testing import LoopClock, in_virtual_time


@in_virtual_time
async def test_a_day_passes_at_once_on_all_clocks() -> None:
    clock = LoopClock()
    began_ms, began_s = clock.now_ms(), clock.elapsed_s()
    await asyncio.sleep(86_400)
    assert (clock.now_ms() - began_ms, clock.elapsed_s() - began_s) == (86_400_000, 86_400)


def test_what_the_test_gives_is_given() -> None:
    @in_virtual_time
    async def add(a: int, *, b: int) -> int:
        return a + b

    assert add(1, b=2) == 3


@in_virtual_time
async def test_time_begins_when_a_test_says() -> None:
    start = datetime(2027, 3, 28, 2, tzinfo=timezone(timedelta(hours=1)))
    await asyncio.sleep(7)
    clock = LoopClock(start=start)
    assert clock.now_ms() == start.timestamp() * 1_000
    await asyncio.sleep(86_400)
    assert clock.now_ms() == (start.timestamp() + 86_400) * 1_000
    with pytest.raises(boki.InvalidArgument, match="with a time zone"):
        LoopClock(start=datetime(2027, 3, 28))  # noqa: DTZ001 - the point of it
