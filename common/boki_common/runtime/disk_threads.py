"""Threads that make blocking calls for a disk, and how what they return comes back to the event loop. For `posix_disk`.

An *executor* is a queue of calls and the threads that make them, in order where it has one thread. Files that are written durably
need an executor of their own, so that no file waits for another's flush; but files come and go (a journal segment every 16 MiB),
and to start a thread blocks the loop for a millisecond. So a file borrows its executor, and gives it back when it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

EXECUTORS_KEPT: Final = 3
"""Borrowed executors that stay with a disk when they come back: as many files as a bookie writes at the same time."""

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]", Callable[[], None], asyncio.AbstractEventLoop]


class Executor:
    """A queue of blocking calls and the threads that make them; results go back to the event loop that asked."""

    def __init__(self, name: str, threads: int) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()
        self._threads = threads

    def submit(self, call: Callable[[], T], finished: Callable[[], None]) -> asyncio.Future[T]:
        """Makes the call in a thread; `finished` runs on the loop afterwards, also when nobody awaits the future."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((call, future, finished, loop))
        return future

    def stop(self) -> None:
        """Ends the threads after what is queued; does not wait."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, future, finished, loop = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as fault:  # noqa: BLE001 - whoever awaits the future gets it
                error = fault
            try:
                loop.call_soon_threadsafe(_resolve, future, finished, result, error)
            except RuntimeError:
                if not loop.is_closed():
                    raise  # a closed loop has no caller left that gets it
            del item, call, future, finished, result, error  # an idle thread keeps no buffers alive


class OwnExecutors:
    """Executors of one thread each, that the files of a disk borrow one after another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = 0
        self._spare: list[Executor] = []

    def borrow(self) -> Executor:
        """An executor that nobody else uses."""
        if self._spare:
            return self._spare.pop()
        self._started += 1
        return Executor(f"{self._name}-{self._started}", 1)

    def give_back(self, executor: Executor) -> None:
        """Nothing is queued there any more."""
        if len(self._spare) < EXECUTORS_KEPT:
            self._spare.append(executor)
        else:
            executor.stop()

    def stop(self) -> None:
        """Ends the threads of those that are not borrowed."""
        while self._spare:
            self._spare.pop().stop()


def _resolve(
    future: asyncio.Future[Any], finished: Callable[[], None], result: Any, error: BaseException | None
) -> None:
    finished()
    if future.done():
        return  # the caller was cancelled; the call itself ran to its end
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
