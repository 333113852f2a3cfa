"""Blocking functions of users, in threads: the real implementation of the port `Bodies`.

    result = await ThreadBodies().run(lambda: resize(picture))

The simulator runs the same function at once, in the loop: a thread is nothing that a seed could decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dis
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

T = TypeVar("T")
THREADS: Final = 32
"""As many as the event loop's own pool has at most."""
IDLE_S: Final = 10.0
"""A thread that has nothing to do for so long ends."""
_RAISE: Final = dis.opmap["RAISE_VARARGS"]


class ThreadBodies:
    """Up to `THREADS` daemon threads, begun as they are needed; functions beyond that wait.

    The threads are daemons, so a function that hangs does not keep its process from ending. A caller that is cancelled goes on, and so does
    its function, whose result is dropped; a function that has not begun yet is not begun.
    """

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        self._calls: Final[deque[Callable[[], None]]] = deque()
        self._threads = 0
        self._waiting = 0
        """Threads that have nothing to do."""

    async def run(self, body: Callable[[], T]) -> T:
        """Return what the function returns, or raise what it raises. It sees the context variables of its caller.

        A StopIteration of it becomes a RuntimeError, as in a coroutine: no future can carry one, and its caller would wait for ever.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def call() -> None:
            if future.cancelled():
                return
            try:
                settle = partial(_settle, future, result=context.run(body))
            except StopIteration as error:
                wrong = RuntimeError("a function raised StopIteration")
                wrong.__cause__ = error
                settle = partial(_settle, future, error=wrong)
            except BaseException as error:  # noqa: BLE001 - raised where the function was called
                settle = partial(_settle, future, error=error)
            with contextlib.suppress(RuntimeError):  # the event loop is closed: its caller is gone
                loop.call_soon_threadsafe(settle)

        self._begin(call)
        return await future

    def _begin(self, call: Callable[[], None]) -> None:
        with self._changed:
            self._calls.append(call)
            if self._waiting >= len(self._calls) or self._threads == THREADS:
                self._changed.notify()
                return
            self._threads += 1
        threading.Thread(target=self._work, name="boki body", daemon=True).start()

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


def _settle(future: asyncio.Future[T], result: T | None = None, error: BaseException | None = None) -> None:
    if future.done():
        return  # its caller was cancelled
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast(T, result))


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
