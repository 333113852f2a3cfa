"""Delays while the log's time stands still, because a sequencer's clock was ahead and was put right."""

from __future__ import annotations

import asyncio
from typing import Any

from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokiqueue import Consumer, Queue

DAY_MS = 24 * 3_600_000
BEAT_S = 5.0
"""A member's estimate of the log's time is ahead by a heartbeat at most."""


class JumpingClock(LoopClock):
    """A clock that is a day ahead, and is put right later."""

    ahead_ms = DAY_MS

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def _after_s(messages: Consumer[Any], body: object) -> float:
    """Acknowledge the next message, and return the seconds that passed until it was there."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(7_200):
        message = await anext(messages)
    assert message.body == body
    await message.ack()
    return loop.time() - began_s


@in_virtual_time
async def test_a_delay_is_as_long_as_it_was_set_for_while_the_logs_time_stands_still() -> None:
    clock = JumpingClock()
    async with MemoryCluster(clock=clock) as cluster:
        queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1)
        async with queue.consume() as messages:
            await queue.push("before")
            await _after_s(messages, "before")
            clock.ahead_ms = 0
            for stood_s in (0, 20, 1_000, 5_000):
                await let_pass(stood_s)
                await queue.push(stood_s, delay_s=300)
                assert 300 - BEAT_S <= await _after_s(messages, stood_s) <= 300 + BEAT_S
                await queue.push("fails")
                await (await anext(messages)).nack(60)
                assert 60 - BEAT_S <= await _after_s(messages, "fails") <= 60 + BEAT_S


@in_virtual_time
async def test_a_delay_of_an_owner_before_is_no_longer_while_the_logs_time_stands_still() -> None:
    clock = JumpingClock()
    async with MemoryCluster(clock=clock) as cluster:
        queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1)
        async with queue.consume() as messages:
            await queue.push("before")
            await _after_s(messages, "before")
            clock.ahead_ms = 0
            await let_pass(10_000)
            await queue.push("fails")
            await (await anext(messages)).nack(60)
        async with queue.consume() as messages:
            assert await _after_s(messages, "fails") <= 60 + BEAT_S
