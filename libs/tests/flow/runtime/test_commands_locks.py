"""A workflow requests one lock at a time, and a task that is cancelled while it waits passes its turn on."""

from __future__ import annotations

import asyncio

from bokiflow.runtime.commands import LockEntries, LockEntry


async def test_turns_are_given_in_order_and_passed_by_who_is_cancelled() -> None:
    entries = LockEntries(child=False)
    order: list[int] = []

    async def ask(number: int) -> None:
        await entries.turn()
        order.append(number)
        await asyncio.sleep(0)
        entries.done()

    first, second, third = (asyncio.create_task(ask(number)) for number in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    await ask(3)
    assert order == [0, 2, 3]


async def test_a_turn_that_comes_at_the_moment_of_a_cancellation_is_passed_on() -> None:
    entries = LockEntries(child=False)
    await entries.turn()
    second, third = (asyncio.create_task(entries.turn()) for _ in range(2))
    await asyncio.sleep(0)
    entries.done()
    second.cancel()
    await asyncio.wait_for(third, 1)
    assert second.cancelled()


def test_who_has_nothing_and_is_no_child_waits_for_anybody() -> None:
    assert LockEntries(child=False).waits_for_any and not LockEntries(child=True).waits_for_any
    entries = LockEntries(child=False)
    entries.queued["0:1"] = LockEntry("0:1", "a", 1)
    assert not entries.waits_for_any
