"""Code of users that keeps a loop from running is interrupted, and nothing else is."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from boki_common.runtime.code_watch import CodeStuck, CodeWatch


@pytest.fixture
def watch() -> Iterator[CodeWatch]:
    made = CodeWatch(after_s=0.05)
    yield made
    made.close()


def spin() -> None:
    while True:
        pass


def sleeps() -> None:
    time.sleep(0.2)


def long_sleep() -> None:
    time.sleep(900)


def receive() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)


def catches_all() -> None:
    caught = 0
    while caught < 2:
        try:
            spin()
        except BaseException:  # noqa: BLE001 - what a user's code may do
            caught += 1


def catches_until(ends: Callable[[], bool]) -> None:
    while not ends():
        try:
            while not ends():
                pass
        except BaseException:  # noqa: BLE001 - what a user's code may do
            pass


@pytest.mark.parametrize("code", [spin, sleeps, catches_all])
def test_code_that_runs_too_long_is_interrupted_and_reported_once_with_its_stack(
    watch: CodeWatch, code: Callable[[], None]
) -> None:
    stacks: list[str] = []
    with pytest.raises(CodeStuck) as caught:
        watch.run(code, stacks.append)
    assert len(stacks) == 1 and f"in {code.__name__}" in stacks[0] and caught.value.stack == stacks[0]


def test_code_that_still_runs_after_it_was_interrupted_is_told_once_more(watch: CodeWatch) -> None:
    reported: list[str] = []
    remained: list[str] = []
    with pytest.raises(CodeStuck):
        watch.run(partial(catches_until, lambda: bool(remained)), reported.append, remained.append)
    assert len(reported) == 1 and remained == reported


def raises(stack: str) -> None:
    raise ValueError(stack)


def test_a_report_that_raises_does_not_end_the_watch(watch: CodeWatch) -> None:
    for _ in range(2):
        with pytest.raises(CodeStuck):
            watch.run(spin, raises)


IN_THE_MAIN_THREAD = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill") or threading.current_thread() is not threading.main_thread(),
    reason="only the main thread of a Unix process handles signals",
)


@IN_THE_MAIN_THREAD
@pytest.mark.parametrize("blocks", [long_sleep, receive])
def test_a_system_call_of_the_main_thread_is_interrupted_while_it_blocks(
    watch: CodeWatch, blocks: Callable[[], None]
) -> None:
    with pytest.raises(CodeStuck):
        watch.run(blocks, lambda _: None)


@IN_THE_MAIN_THREAD
def test_a_handler_of_the_program_for_the_signal_stays_and_is_not_called(watch: CodeWatch) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, _: called.append(number))
    try:
        with pytest.raises(CodeStuck):
            watch.run(sleeps, lambda _: None)
        assert called == []
    finally:
        signal.signal(signal.SIGURG, before)


def test_what_short_code_returns_and_raises_comes_through(watch: CodeWatch) -> None:
    assert [watch.run(partial(sum, range(n)), pytest.fail) for n in range(1_000)] == [
        sum(range(n)) for n in range(1_000)
    ]
    with pytest.raises(ZeroDivisionError):
        watch.run(lambda: 1 // 0, pytest.fail)


def test_nothing_is_interrupted_once_the_code_has_ended() -> None:
    """A thread interrupts whatever piece runs, at any moment of it: the error is raised by `run`, and nowhere else."""
    watch, interrupted, over = CodeWatch(after_s=1_000.0), 0, threading.Event()

    def interrupt_on() -> None:
        while not over.is_set():
            piece = watch._piece
            if piece is not None:
                watch._interrupt(piece)

    thread = threading.Thread(target=interrupt_on)
    thread.start()
    n = 0
    while interrupted < 50:
        n += 1
        try:
            assert watch.run(partial(sum, range(n % 40)), lambda _: None) == sum(range(n % 40))
        except CodeStuck:
            interrupted += 1
        sum(range(40))
    over.set()
    thread.join()
    watch.close()


def test_the_thread_of_a_watch_that_was_dropped_ends() -> None:
    watch = CodeWatch(after_s=0.01)
    assert watch.run(lambda: 1, pytest.fail) == 1
    thread = watch._thread
    assert thread is not None and thread.is_alive()
    del watch
    thread.join(timeout=5)
    assert not thread.is_alive()
