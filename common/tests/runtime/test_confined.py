"""Code that must reach nothing outside is told so by its loop, and by nothing else."""

from __future__ import annotations

import asyncio

import pytest

from boki_common.errors import BokiError, UsageError
from boki_common.runtime import confined
from boki_common.runtime.loop_thread import LoopThread

pytestmark = pytest.mark.blocking_allowed


class Confining:
    """A loop whose code must reach nothing outside."""

    def refused(self, what: str) -> BokiError:
        return UsageError(f"{what} is for a step")


def test_threads_of_clients_refuse_such_code_and_no_other() -> None:
    thread, loop = LoopThread("test.loop"), Confining()
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]  # all that is asked of it is that
    confined.running.append(loop)
    try:
        for call in (lambda: thread.do(lambda: None), lambda: LoopThread("test.loop")):
            with pytest.raises(UsageError, match=r"test\.loop is for a step"):
                call()
        asyncio._set_running_loop(None)
        thread.do(lambda: None)
    finally:
        asyncio._set_running_loop(None)
        confined.running.remove(loop)
        thread.stop()
