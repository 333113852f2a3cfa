"""An event loop in a thread of its own: what the blocking faces of the clients stand on.

    thread = LoopThread("boki.sync")
    result = thread.run(client.append(b"..."))        # from any other thread; waits
    thread.stop()

Any number of threads may use one. Ctrl-C while waiting cancels the coroutine that is waited for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from boki_common.errors import ClosedError
from boki_common.runtime.process import loop_factory

T = TypeVar("T")


class LoopThread:
    """See the module. `name` is the face's, for messages and the list of threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, routine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop, from any other thread, and waits for it. Raises what it raises; ClosedError."""
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            routine.close()
            raise ClosedError(
                "the client is closed"
                if self._loop.is_closed()
                else f"{self._name} was called inside of its own event loop: use the asynchronous classes there"
            )
        future = asyncio.run_coroutine_threadsafe(routine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def do(self, call: Callable[[], T]) -> T:
        """Runs a plain function in the loop and waits for it."""

        async def routine() -> T:
            return call()

        return self.run(routine())

    def stop(self) -> None:
        """Ends the loop and its thread. Idempotent."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
