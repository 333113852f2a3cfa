"""One lock is asked for after the other, and who is cancelled while he waits for his turn gives it on."""

from __future__ import annotations

import asyncio

from bokiflow.runtime.lock_seats import LockSeats, Seat


async def test_turns_are_given_in_order_and_passed_by_who_is_cancelled() -> None:
    seats = LockSeats(child=False)
    order: list[int] = []

    async def ask(number: int) -> None:
        await seats.turn()
        order.append(number)
        await asyncio.sleep(0)
        seats.done()

    first, second, third = (asyncio.create_task(ask(number)) for number in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    await ask(3)
    assert order == [0, 2, 3]


async def test_a_turn_that_comes_at_the_moment_of_a_cancellation_is_passed_on() -> None:
    seats = LockSeats(child=False)
    await seats.turn()
    second, third = (asyncio.create_task(seats.turn()) for _ in range(2))
    await asyncio.sleep(0)
    seats.done()
    second.cancel()
    await asyncio.wait_for(third, 1)
    assert second.cancelled()


def test_who_has_nothing_and_is_no_child_waits_for_anybody() -> None:
    assert LockSeats(child=False).waits_for_any and not LockSeats(child=True).waits_for_any
    seats = LockSeats(child=False)
    seats.taken["0:1"] = Seat("0:1", "a", 1)
    assert not seats.waits_for_any
