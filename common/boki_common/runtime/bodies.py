"""Blocking functions of users, in threads: the real implementation of the port `Bodies`.

    result = await ThreadBodies().run(lambda: resize(picture))

The simulator runs the same function at once, in the loop: a thread is nothing that a seed could decide.
"""

from __future__ import annotations

import asyncio
import contextvars
import dis
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

T = TypeVar("T")
THREADS: Final = 32
"""As many as the event loop's own pool has at most."""
IDLE_S: Final = 10.0
"""A thread that has nothing to do for so long ends."""
_RAISE: Final = dis.opmap["RAISE_VARARGS"]


class DaemonThreads(Executor):
    """Up to `THREADS` daemon threads, begun as they are needed; calls beyond that wait.

    The threads are daemons: a call that hangs does not keep its process from ending.
    """

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        self._calls: Final[deque[Callable[[], None]]] = deque()
        self._threads = 0
        self._waiting = 0
        """Threads that have nothing to do."""

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        """Call a function in a thread; one that is cancelled before it begins is not called."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **options)
            except BaseException as error:  # noqa: BLE001 - raised where the function was called
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._changed:
            self._calls.append(call)
            if self._waiting >= len(self._calls) or self._threads == THREADS:
                self._changed.notify()
                return future
            self._threads += 1
        threading.Thread(target=self._work, name="boki body", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._calls:
                    self._waiting += 1
                    told = self._changed.wait(IDLE_S)
                    self._waiting -= 1
                    if not told and not self._calls:
                        self._threads -= 1
                        return
                call = self._calls.popleft()
            call()
            del call


class ThreadBodies:
    """In threads of its own (`DaemonThreads`). A caller that is cancelled goes on, and so does its function, whose result is dropped."""

    def __init__(self) -> None:
        self._threads: Final = DaemonThreads()

    async def run(self, body: Callable[[], T]) -> T:
        """Return what the function returns, or raise what it raises. It sees the context variables of its caller.

        A StopIteration of it becomes a RuntimeError, as in a coroutine: no future can carry one, and its caller would wait for ever.
        """

        def call() -> T:
            try:
                return body()
            except StopIteration as error:
                raise RuntimeError("a function raised StopIteration") from error

        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)


def interrupted(error: BaseException) -> bool:
    """Return whether an error of a user's function is a person's Ctrl-C, and not of the function's own making.

    A signal handler raises KeyboardInterrupt in whatever function runs then; code that raises one by itself has a `raise` there.
    """
    if not isinstance(error, KeyboardInterrupt) or error.__traceback__ is None:
        return False
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    code = innermost.tb_frame.f_code
    by_handler = code.co_name == "_on_sigint" and code.co_filename == asyncio.runners.__file__
    return by_handler or code.co_code[innermost.tb_lasti] != _RAISE
