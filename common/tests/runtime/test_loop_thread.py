"""A loop in a thread: what runs there, what it refuses, how it ends."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from boki_common.errors import ClosedError
from boki_common.runtime.loop_thread import LoopThread

pytestmark = pytest.mark.blocking_allowed


def test_results_and_errors_come_back() -> None:
    thread = LoopThread("test.loop")

    async def answer() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert thread.run(answer()) == thread.do(lambda: threading.current_thread().name) == "test.loop"
    with pytest.raises(ValueError, match="no"):
        thread.run(fail())
    thread.stop()


def test_it_refuses_calls_from_its_own_loop_and_after_its_end() -> None:
    thread = LoopThread("test.loop")
    with pytest.raises(ClosedError, match=r"test\.loop was called inside of its own event loop"):
        thread.do(lambda: thread.do(lambda: None))
    thread.stop()
    thread.stop()
    with pytest.raises(ClosedError, match="closed"):
        thread.do(lambda: None)


def test_stopping_cancels_what_runs() -> None:
    thread = LoopThread("test.loop")
    ended: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks = thread.do(lambda: [asyncio.ensure_future(work())])
    thread.do(lambda: None)
    thread.stop()
    assert ended == [True] and tasks[0].cancelled()
    assert "test.loop" not in [one.name for one in threading.enumerate()]


def test_one_that_is_dropped_ends_with_its_thread_and_says_so() -> None:
    def names() -> list[str]:
        return [one.name for one in threading.enumerate()]

    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    threads = [LoopThread("test.loop")]
    threads[0].closes(close)
    (running,) = [one for one in threading.enumerate() if one.name == "test.loop"]
    with pytest.warns(ResourceWarning, match=r"unclosed test\.loop: call close\(\), or use `with`"):
        threads.clear()
    running.join(10)
    assert "test.loop" not in names() and closed == [True]


def test_one_that_was_stopped_is_dropped_without_a_word() -> None:
    thread = LoopThread("test.loop")
    thread.stop()
    del thread
    gc.collect()


def test_the_copy_of_a_child_refuses_and_ends_nothing() -> None:
    thread = LoopThread("test.loop")
    assert not thread.elsewhere
    thread.forked()  # as `forks` does in a child
    with pytest.raises(ClosedError, match=r"this test\.loop was opened in another process"):
        thread.do(lambda: None)
    thread.stop()
    running = thread._running
    assert thread.elsewhere and not running.loop.is_closed()
    running.elsewhere = False
    thread.stop()
