"""Signals by topic: each is received once, in order, also when a waiting task is cancelled."""

from __future__ import annotations

import asyncio

from bokiflow.runtime.instance import SignalQueue


async def test_what_came_is_received_once_and_in_order() -> None:
    signals, loop = SignalQueue([("a", 1)]), asyncio.get_running_loop()
    assert signals.deliver("a", 2) is None and signals.deliver("b", 3) is None
    assert signals.unreceived == [("a", 1), ("a", 2), ("b", 3)]
    assert [await signals.receive("a", loop), await signals.receive("a", loop), await signals.receive("b", loop)] == [
        1,
        2,
        3,
    ]
    assert signals.unreceived == [] and signals.topics == []


async def test_who_waits_first_is_given_it_and_who_was_cancelled_is_passed() -> None:
    signals, loop = SignalQueue(), asyncio.get_running_loop()
    waiting = [asyncio.ensure_future(signals.receive("a", loop)) for _ in range(3)]
    await asyncio.sleep(0)
    assert signals.topics == ["a"]
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    for value in (1, 2):
        receiver = signals.deliver("a", value)
        assert receiver is not None
        receiver.set_result(value)
    assert await asyncio.gather(*waiting[1:]) == [1, 2]
    assert signals.deliver("a", 3) is None


async def test_what_came_to_who_is_cancelled_at_that_moment_is_the_next_ones() -> None:
    signals, loop = SignalQueue(), asyncio.get_running_loop()
    waiting = asyncio.ensure_future(signals.receive("a", loop))
    await asyncio.sleep(0)
    receiver = signals.deliver("a", 1)
    assert receiver is not None
    receiver.set_result(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert signals.deliver("a", 2) is None
    assert signals.unreceived == [("a", 1), ("a", 2)]
