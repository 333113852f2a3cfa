"""Blocking functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from boki_common.runtime.bodies import ThreadBodies
from boki_common.runtime.ports import Bodies


async def test_it_runs_in_a_thread_and_its_caller_gets_the_result() -> None:
    bodies: Bodies = ThreadBodies()
    assert await bodies.run(threading.get_ident) != threading.get_ident()

    def fails() -> None:
        raise KeyError("what the body raised")

    with pytest.raises(KeyError, match="what the body raised"):
        await bodies.run(fails)


async def test_it_sees_the_context_of_its_caller() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("the caller")
    assert await ThreadBodies().run(who.get) == "the caller"


async def test_the_loop_goes_on_meanwhile_and_the_result_of_an_abandoned_one_is_dropped() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def waits() -> None:
        may_end.wait(10)
        ended.set()

    running = asyncio.ensure_future(ThreadBodies().run(waits))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    may_end.set()
    assert await ThreadBodies().run(lambda: ended.wait(10))


async def test_a_function_that_raises_stop_iteration_ends_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ThreadBodies().run(lambda: next(iter([])))
