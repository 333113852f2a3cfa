"""Blocking functions of users, in threads: the real implementation of the port `Bodies`.

    result = await ThreadBodies().run(lambda: resize(picture))

The simulator runs the same function at once, in the loop: a thread is nothing that a seed could decide.
"""

from __future__ import annotations

import asyncio
import contextvars
import dis
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
_RAISE: Final = dis.opmap["RAISE_VARARGS"]


class ThreadBodies:
    """In threads of the event loop's own pool, which bounds how many run at a time. Cancelled, the caller goes on and the function too:
    its result is dropped."""

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
        return await asyncio.get_running_loop().run_in_executor(None, context.run, call)


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
