"""Tasks that nobody awaits one by one, and that end with their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from boki_common.errors import BokiError


async def ended(task: asyncio.Future[Any] | None) -> None:
    """Cancels a task, if there is one, and waits; whatever it raised is its own affair. Idempotent."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def error_taken(task: asyncio.Future[Any]) -> None:
    """A callback of a task: whoever waits for it gets its error; when all of them gave up, nobody needs a warning."""
    if not task.cancelled():
        task.exception()


def leave_behind(task: asyncio.Task[Any]) -> None:
    """Let the program end without a task that does not end although it was cancelled. It runs on for as long as the event loop does.

    `asyncio.run` cancels and awaits the tasks that asyncio knows at its end, however long that takes. It no longer knows this one.
    Idempotent.
    """
    asyncio._unregister_task(task)
    task.add_done_callback(error_taken)
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - asyncio's own mark, as its `gather` sets it: the end of the loop is no fault


def ends_only_with_its_owner(task: asyncio.Task[Any], fail: Callable[[BaseException], None]) -> None:
    """Call `fail` when a task that runs until its owner cancels it ends otherwise: by an error, a group of errors, a cancellation that
    was not asked of the task, or by returning."""

    def task_ended(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if not task.cancelling():
                fail(BokiError(f"the task {task.get_name()!r} was cancelled from inside: a fault of boki"))
        else:
            fail(task.exception() or BokiError(f"the task {task.get_name()!r} ended without an error: a fault of boki"))

    task.add_done_callback(task_ended)


class BackgroundTasks:
    """See the module. Whatever a task raises is its own affair: it logs, or never raises."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        """Begins a task."""
        self.add(asyncio.create_task(work, name=name))

    def add(self, task: asyncio.Task[None]) -> None:
        """Takes a task that runs already."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Waits for all of them, also those that begin meanwhile."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def close(self) -> None:
        """Cancels all of them, and waits. Idempotent."""
        for task in list(self._tasks):
            task.cancel()
        await self.finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
