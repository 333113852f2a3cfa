"""Blocking functions of users, in threads: the real implementation of the port `Bodies`.

    result = await ThreadBodies().run(lambda: resize(picture))

The simulator runs the same function at once, in the loop: a thread is nothing that a seed could decide.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ThreadBodies:
    """In threads of the event loop's own pool, which bounds how many run at a time. Cancelled, the caller goes on and the function too:
    its result is dropped."""

    async def run(self, body: Callable[[], T]) -> T:
        """What the function returns or raises. It sees the context variables of its caller."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(None, context.run, body)
