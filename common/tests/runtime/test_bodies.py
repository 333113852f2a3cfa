"""Blocking functions in threads."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from boki_common.errors import InvalidArgument, ThreadsExhausted
from boki_common.runtime import bodies as bodies_module
from boki_common.runtime.bodies import ThreadBodies
from boki_common.testing import bodies_contract
from boki_common.testing.bodies_contract import Check

LIMIT_S = 20.0
"""Until a test fails in which a call gets no thread."""


class Hanging:
    """A function that runs until it is told to return, and its caller."""

    def __init__(self, bodies: ThreadBodies, name: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._may_end = threading.Event()
        self.began = asyncio.Event()
        self.thread: threading.Thread | None = None
        self.caller = asyncio.ensure_future(bodies.run(self._hang, name=name))

    def _hang(self) -> str:
        self.thread = threading.current_thread()
        self._loop.call_soon_threadsafe(self.began.set)
        self._may_end.wait(3 * LIMIT_S)
        return "hung"

    def end(self) -> None:
        self._may_end.set()

    async def result(self) -> str:
        return await self.caller

    async def give_up(self) -> None:
        self.caller.cancel()
        await asyncio.gather(self.caller, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Let threads run until something holds."""
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.parametrize("check", bodies_contract.CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: Check) -> None:
    await check(ThreadBodies())


async def test_it_runs_in_a_thread() -> None:
    assert await ThreadBodies().run(threading.get_ident) != threading.get_ident()


async def test_more_functions_than_threads_wait_and_all_run() -> None:
    bodies = ThreadBodies(threads=2)
    found = await asyncio.gather(*(bodies.run(partial(lambda n: (n, threading.get_ident()), n)) for n in range(50)))
    assert [number for number, _ in found] == list(range(50)) and len({thread for _, thread in found}) <= 2


@pytest.mark.parametrize("options", [{"threads": 0}, {"abandoned": -1}])
async def test_limits_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="at least 1 thread"):
        ThreadBodies(**options)


async def test_a_function_that_was_abandoned_before_it_began_is_not_begun() -> None:
    bodies, ran = ThreadBodies(threads=1), []
    first = Hanging(bodies)
    second = asyncio.ensure_future(bodies.run(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    first.end()
    assert await first.caller == "hung" and await bodies.run(lambda: list(ran)) == []


async def test_of_calls_that_are_cancelled_together_none_begins_that_waited_for_a_thread() -> None:
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=2)
        calls = [Hanging(bodies) for _ in range(8)]
        await asyncio.gather(*(one.began.wait() for one in calls[:2]))
        for one in calls:
            one.caller.cancel()
        await asyncio.gather(*(one.caller for one in calls), return_exceptions=True)
        later = Hanging(bodies)
        await later.began.wait()
        assert [one.thread is not None for one in calls] == [True] * 2 + [False] * 6
        for one in (*calls, later):
            one.end()


async def test_calls_that_are_cancelled_level_by_level_do_not_begin() -> None:
    """Each task group cancels its own tasks a turn of the event loop after it was cancelled itself."""
    async with asyncio.timeout(LIMIT_S):
        bodies, calls = ThreadBodies(threads=1), list[Hanging]()

        async def level(depth: int) -> None:
            async with asyncio.TaskGroup() as group:
                calls.append(Hanging(bodies))
                group.create_task(calls[-1].result())
                if depth:
                    group.create_task(level(depth - 1))

        outermost = asyncio.create_task(level(5))
        await until(lambda: len(calls) == 6)
        await calls[0].began.wait()
        outermost.cancel()
        await asyncio.gather(outermost, return_exceptions=True)
        later = Hanging(bodies)
        await later.began.wait()
        assert [one.thread is not None for one in calls] == [True] + [False] * 5
        for one in (*calls, later):
            one.end()


async def test_a_thread_drops_a_call_whose_cancellation_is_not_delivered_yet() -> None:
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=1)
        first, second = Hanging(bodies), Hanging(bodies)
        await first.began.wait()
        second.caller.cancel()
        first.end()
        while bodies._threads.taken().waiting:  # the event loop stands still until the thread has looked
            pass
        assert await first.caller == "hung"
        await asyncio.gather(second.caller, return_exceptions=True)
        assert await bodies.run(lambda: "next") == "next" and second.thread is None


async def test_begun_is_told_when_a_thread_is_free() -> None:
    bodies = ThreadBodies(threads=1)
    first, told = Hanging(bodies), []
    await first.began.wait()
    second = asyncio.ensure_future(bodies.run(lambda: None, begun=lambda: told.append("begun")))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not told
    first.end()
    await second
    assert told == ["begun"]


async def test_a_function_that_was_given_up_holds_up_no_other() -> None:
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=1)
        first = Hanging(bodies)
        await first.began.wait()
        waits = asyncio.ensure_future(bodies.run(lambda: "waited"))
        await asyncio.sleep(0)
        await first.give_up()
        assert await waits == "waited" and await bodies.run(lambda: "came") == "came"
        first.end()


async def test_a_thread_whose_place_was_taken_ends_with_its_function() -> None:
    """Else each function that is given up and returns would leave one more thread than allowed."""
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=1)
        first = Hanging(bodies)
        await first.began.wait()
        await first.give_up()
        second = Hanging(bodies)
        await second.began.wait()
        third = Hanging(bodies)
        first.end()
        assert first.thread is not None and first.thread is not second.thread
        await asyncio.to_thread(first.thread.join)
        assert not third.began.is_set(), "two ran at once"
        second.end()
        await third.began.wait()
        assert third.thread is second.thread
        third.end()


async def test_more_threads_than_allowed_are_not_abandoned_and_calls_say_so() -> None:
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=1, abandoned=1)
        first = Hanging(bodies)
        await first.began.wait()
        await first.give_up()
        second = Hanging(bodies)
        await second.began.wait()
        waits = asyncio.ensure_future(bodies.run(lambda: "never"))
        await asyncio.sleep(0)
        await second.give_up()
        told: list[str] = []
        for call in (waits, bodies.run(lambda: "never", begun=lambda: told.append("begun"))):
            with pytest.raises(ThreadsExhausted, match="2 threads run functions that were given up") as raised:
                await call
            assert raised.value.retryable and raised.value.definite and not told
        first.end()
        assert first.thread is not None
        await until(lambda: len(bodies._threads._abandoned) == 1)
        assert await bodies.run(lambda: "again") == "again"
        second.end()


class NoMore(threading.Thread):
    """The thread of a system that has no more of them."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


async def test_a_system_without_more_threads_has_calls_wait_or_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=4)
        first = Hanging(bodies)
        await first.began.wait()
        monkeypatch.setattr(threading, "Thread", NoMore)
        waits = asyncio.ensure_future(bodies.run(lambda: "waited"))
        await asyncio.sleep(0)
        first.end()
        assert await waits == "waited", "the one thread there is runs it"
        second = Hanging(bodies)
        await second.began.wait()
        await second.give_up()
        with pytest.raises(ThreadsExhausted) as raised:
            await bodies.run(lambda: "never")
        assert "can't start new thread" in str(raised.value.__cause__)
        second.end()


@pytest.mark.parametrize("seed", range(10))
async def test_in_any_order_of_calls_and_ends_free_places_are_used_and_limits_kept(seed: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        numbers = random.Random(seed)
        limit, abandoned = numbers.randint(1, 4), numbers.randint(30, 40)
        bodies = ThreadBodies(threads=limit, abandoned=abandoned)
        wanted: list[Hanging] = []
        given_up: list[Hanging] = []
        for _ in range(60):
            what = numbers.choice(["call", "call", "give up", "end", "end given up"])
            if what == "call":
                wanted.append(Hanging(bodies))
            elif what == "end given up" and given_up:
                given_up.pop(numbers.randrange(len(given_up))).end()
            elif what == "give up" and wanted:
                one = wanted.pop(numbers.randrange(len(wanted)))
                await one.give_up()
                given_up.append(one)
            elif what == "end" and wanted and wanted[0].began.is_set():
                one = wanted.pop(0)
                one.end()
                assert await one.caller == "hung"
            place = min(limit, len(wanted))
            await until(lambda place=place: sum(one.began.is_set() for one in wanted) == place)  # type: ignore[misc]
            assert bodies._threads._threads <= limit + len(bodies._threads._abandoned)
        for one in (*wanted, *given_up):
            one.end()


async def test_calls_that_wait_are_a_line_that_names_what_runs_longest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bodies_module, "WAITED_S", 0.0)
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=2)
        running = [Hanging(bodies, f"step 'pay' of workflow 'order-{number}'") for number in range(2)]
        await asyncio.gather(*(one.began.wait() for one in running))
        waiting = [Hanging(bodies, "waits") for _ in range(3)]
        said = ""
        while not said:
            await asyncio.sleep(0)
            said = capsys.readouterr().err
        assert (
            "taken=2 threads=2 waiting=3" in said
            and "step 'pay' of workflow 'order-0'" in said
            and "since_s=0." in said
        )
        await asyncio.gather(*(one.give_up() for one in waiting))
        said = capsys.readouterr().err
        assert not said, "one line; and what never began does not run on"
        for one in running:
            one.end()
        await asyncio.gather(*(one.caller for one in running))


async def test_calls_that_wait_on_are_said_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing happens meanwhile: no call comes, and none ends."""
    monkeypatch.setattr(bodies_module, "WAITED_S", 0.0)
    monkeypatch.setattr(bodies_module, "EVERY_S", 0.0)
    async with asyncio.timeout(LIMIT_S):
        bodies = ThreadBodies(threads=1)
        running = Hanging(bodies)
        await running.began.wait()
        waiting = Hanging(bodies)
        lines = 0
        while lines < 3:
            await asyncio.sleep(0)
            lines += capsys.readouterr().err.count("all taken")
        running.end()
        waiting.end()
        await asyncio.gather(running.caller, waiting.caller)


async def test_a_call_that_gets_a_thread_is_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bodies_module, "WAITED_S", 0.0)
    bodies = ThreadBodies(threads=2)
    for _ in range(20):
        await asyncio.gather(bodies.run(lambda: 1), bodies.run(lambda: 2))
    assert not capsys.readouterr().err


async def test_functions_that_run_on_are_one_line_that_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = ThreadBodies()
    running = [Hanging(bodies, f"step 'pay' of workflow 'order-{number}'") for number in range(2)]
    await asyncio.gather(*(one.began.wait() for one in running))
    for one in running:
        one.caller.cancel()
    await asyncio.gather(*(one.caller for one in running), return_exceptions=True)
    await asyncio.sleep(0)
    said = capsys.readouterr().err
    assert said.count("given up") == 1 and "order-0" in said and "order-1" in said and "running_on=2" in said
    for one in running:
        one.end()


async def test_a_function_that_raises_cancellation_was_not_given_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also while its thread has not come to say that it is free."""
    may_end, began = threading.Event(), asyncio.Event()

    def raises() -> None:
        may_end.wait(LIMIT_S)
        raise asyncio.CancelledError

    bodies = ThreadBodies()
    running = asyncio.ensure_future(bodies.run(raises, begun=began.set))
    await began.wait()
    with bodies._threads._changed:
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)
    assert not capsys.readouterr().err


async def test_a_thread_that_waits_keeps_nothing_of_its_last_function() -> None:
    class Large:
        def size(self) -> int:
            return 7

    bodies, one = ThreadBodies(), Large()
    gone = weakref.ref(one)
    assert await bodies.run(one.size) == 7
    del one
    async with asyncio.timeout(LIMIT_S):
        await until(lambda: gone() is None)


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
        await asyncio.sleep(0)
    hanging.cancel()
    print("ends")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "ends\n"), ended.stderr


class EarlyTimers(asyncio.SelectorEventLoop):
    """A loop whose timers come early, as those of uvloop do that are set at the end of a long turn."""

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_later(delay / 2, callback, *args, context=context)


def test_a_place_that_is_given_up_is_taken_although_timers_come_early() -> None:
    async def main() -> str:
        bodies = ThreadBodies(threads=1)
        hanging = Hanging(bodies)
        try:
            await hanging.began.wait()
            await hanging.give_up()
            async with asyncio.timeout(LIMIT_S):
                return await bodies.run(lambda: "done")
        finally:
            hanging.end()

    with asyncio.Runner(loop_factory=EarlyTimers) as runner:
        assert runner.run(main()) == "done"
