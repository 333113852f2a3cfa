"""Threads of a disk: calls in order, results on the loop, lanes that are borrowed again, and an end of all of them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from boki_common.runtime.disk_threads import LANES_KEPT, Lane, OwnLanes


async def made(lane: Lane) -> threading.Thread:
    """The thread that makes the calls of a lane."""
    return await lane.submit(threading.current_thread, lambda: None)


async def test_calls_of_one_thread_are_made_in_order_and_end_on_the_loop() -> None:
    lane = Lane("test", 1)
    done: list[int] = []
    ended: list[threading.Thread] = []
    calls = [
        lane.submit(partial(done.append, number), lambda: ended.append(threading.current_thread()))
        for number in range(20)
    ]
    await asyncio.gather(*calls)
    assert done == list(range(20))
    assert ended == [threading.current_thread()] * 20
    lane.stop()


async def test_an_error_reaches_who_asked_and_the_lane_goes_on() -> None:
    lane = Lane("test", 1)

    def broken() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await lane.submit(broken, lambda: None)
    assert (await made(lane)).name == "test-0"
    lane.stop()


async def test_a_cancelled_call_runs_to_its_end() -> None:
    lane = Lane("test", 1)
    go = threading.Event()
    ended = asyncio.Event()
    call = lane.submit(go.wait, ended.set)
    call.cancel()
    go.set()
    async with asyncio.timeout(10):
        await ended.wait()
    lane.stop()


async def test_a_lane_that_came_back_is_borrowed_again() -> None:
    lanes = OwnLanes("own")
    first, second = lanes.borrow(), lanes.borrow()
    assert await made(first) is not await made(second)
    lanes.give_back(first)
    assert lanes.borrow() is first
    first.stop()
    second.stop()


async def test_no_more_are_kept_than_are_used_and_all_of_them_end() -> None:
    lanes = OwnLanes("own")
    borrowed = [lanes.borrow() for _ in range(LANES_KEPT + 2)]
    threads = [await made(lane) for lane in borrowed]
    for lane in borrowed:
        lanes.give_back(lane)
    for thread in threads[LANES_KEPT:]:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert all(thread.is_alive() for thread in threads[:LANES_KEPT])
    lanes.stop()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
