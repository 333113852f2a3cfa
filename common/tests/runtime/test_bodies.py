"""Blocking functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from functools import partial

import pytest

from boki_common.runtime import bodies as bodies_module
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


async def test_more_functions_than_threads_wait_and_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "THREADS", 2)
    bodies = ThreadBodies()
    found = await asyncio.gather(*(bodies.run(partial(lambda n: (n, threading.get_ident()), n)) for n in range(50)))
    assert [number for number, _ in found] == list(range(50)) and len({thread for _, thread in found}) <= 2


async def test_a_function_that_was_abandoned_before_it_began_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "THREADS", 1)
    bodies, may_end, ran = ThreadBodies(), threading.Event(), []
    first = asyncio.ensure_future(bodies.run(lambda: may_end.wait(10)))
    second = asyncio.ensure_future(bodies.run(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    may_end.set()
    assert await first and await bodies.run(lambda: list(ran)) == []


async def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "IDLE_S", 0.01)
    bodies = ThreadBodies()
    thread = await bodies.run(threading.current_thread)
    assert thread.daemon
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive() and await bodies.run(lambda: 7) == 7


def test_a_function_that_hangs_does_not_keep_its_process() -> None:
    program = """
import asyncio, threading
from boki_common.runtime.bodies import ThreadBodies

async def main():
    began = threading.Event()
    hanging = asyncio.ensure_future(ThreadBodies().run(lambda: (began.set(), threading.Event().wait())))
    while not began.is_set():
        await asyncio.sleep(0.001)
    hanging.cancel()
    print("ends")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "ends\n"), ended.stderr
