"""Values for threads whose waits may be cut off: Ctrl-C, an alarm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from boki_common.runtime.loop_thread import Handover, LoopThread
from boki_common.testing.cut_off import cut_off


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("a test")
    yield made
    made.stop()


def test_a_wait_that_a_signal_cuts_off_is_cancelled(thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def wait() -> list[int]:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return []

    with cut_off(thread.run):
        Handover[int](thread.run).next(wait)
    assert cancelled.wait(60)


def test_a_value_that_is_taken_when_its_thread_waits_no_more_is_for_the_next(thread: LoopThread) -> None:
    handover = Handover[int](thread.run)
    values = iter([[1, 2], [3], []])

    async def stubborn() -> list[int]:
        """Take values whatever happens, as a coroutine that has its result at the moment it is cancelled."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return next(values)

    async def take() -> list[int]:
        return next(values)

    with cut_off(thread.run):
        handover.next(stubborn)
    assert handover.next(take) == 1
    assert handover.first == 2
    assert handover.batch(take) == [2]
    assert [handover.next(take), handover.next(take)] == [3, None]


def test_a_thread_that_waits_gets_the_value_of_one_that_was_cut_off(thread: LoopThread) -> None:
    waiting, got = threading.Event(), list[int | None]()
    handover = Handover[int](thread.run)

    async def stubborn() -> list[int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.to_thread(waiting.wait)
        return [1]

    async def never() -> list[int]:
        raise AssertionError("there is a value already")

    def other() -> None:
        got.append(handover.next(never))

    with cut_off(thread.run):
        handover.next(stubborn)
    second = threading.Thread(target=other)
    second.start()
    waiting.set()
    second.join(60)
    assert got == [1]
