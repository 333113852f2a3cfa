"""Threads of a disk: calls in order, results on the loop, executors that are borrowed again, and an end of all of them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from boki_common.runtime.disk_threads import EXECUTORS_KEPT, Executor, OwnExecutors


async def made(executor: Executor) -> threading.Thread:
    """The thread that makes the calls of an executor."""
    return await executor.submit(threading.current_thread, lambda: None)


async def test_calls_of_one_thread_are_made_in_order_and_end_on_the_loop() -> None:
    executor = Executor("test", 1)
    done: list[int] = []
    ended: list[threading.Thread] = []
    calls = [
        executor.submit(partial(done.append, number), lambda: ended.append(threading.current_thread()))
        for number in range(20)
    ]
    await asyncio.gather(*calls)
    assert done == list(range(20))
    assert ended == [threading.current_thread()] * 20
    executor.stop()


async def test_an_error_reaches_who_asked_and_the_executor_goes_on() -> None:
    executor = Executor("test", 1)

    def broken() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await executor.submit(broken, lambda: None)
    assert (await made(executor)).name == "test-0"
    executor.stop()


async def test_a_cancelled_call_runs_to_its_end() -> None:
    executor = Executor("test", 1)
    go = threading.Event()
    ended = asyncio.Event()
    call = executor.submit(go.wait, ended.set)
    call.cancel()
    go.set()
    async with asyncio.timeout(10):
        await ended.wait()
    executor.stop()


async def test_a_executor_that_came_back_is_borrowed_again() -> None:
    executors = OwnExecutors("own")
    first, second = executors.borrow(), executors.borrow()
    assert await made(first) is not await made(second)
    executors.give_back(first)
    assert executors.borrow() is first
    first.stop()
    second.stop()


async def test_no_more_are_kept_than_are_used_and_all_of_them_end() -> None:
    executors = OwnExecutors("own")
    borrowed = [executors.borrow() for _ in range(EXECUTORS_KEPT + 2)]
    threads = [await made(executor) for executor in borrowed]
    for executor in borrowed:
        executors.give_back(executor)
    for thread in threads[EXECUTORS_KEPT:]:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert all(thread.is_alive() for thread in threads[:EXECUTORS_KEPT])
    executors.stop()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
