"""Tasks that send what is batched (`batches`), and a batcher of contributions that callers append at the same time."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from boki_common.errors import BokiError, Conflict
from boki_common.limits import RECORD_TAGS
from boki_common.logs import get_logger
from boki_common.runtime import confined
from bokilib.append.batches import Batches
from bokilib.append.log import Log
from bokilib.errors import AtomicTooLarge, PayloadHookFailed
from bokilib.records.contribution import Contribution, joined
from bokilib.records.events import encodable
from bokilib.stacks import described, stack_of

log = get_logger(__name__)

SHARED_BYTES: Final = 256 * 1024
"""The most bytes that share a record; the log refuses a single contribution that is too large."""


class Driver:
    """Tasks that work off a queue, at most `in_flight` at once: each sends one record after the other, or reads for one batch of callers.

    The function `drive` sends until it finds nothing to send, and then returns without another `await`. So a running task sends what is
    queued before that, and `wake` starts a task for what is queued later.
    """

    def __init__(
        self,
        drive: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        in_flight: int = 1,
        context: contextvars.Context | None = None,
    ) -> None:
        """Start nothing yet. Tasks have copies of `context`, or the context of the caller that wakes them."""
        self._drive: Final = drive
        self._name: Final = name
        self._in_flight: Final = in_flight
        self._context: Final = context
        self._tasks: Final[dict[asyncio.Task[None], None]] = {}

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if not task.done()]

    @property
    def busy(self) -> bool:
        """True while a task runs."""
        return bool(self._running())

    def wake(self) -> None:
        """Have what is queued sent."""
        free = self._in_flight
        for task in self._tasks:  # no list: this is called for each item
            free -= not task.done()
        if free:
            context = None if self._context is None else self._context.copy()
            task = asyncio.get_running_loop().create_task(self._drive(), name=self._name, context=context)
            self._tasks[task] = None
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Forget a task, and log the error of one that failed: no caller awaits it."""
        self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "sender ended by an error: the next item starts a new one",
                task=self._name,
                error=described(error),
                stack=stack_of(error),
            )

    async def ended(self) -> None:
        """Wait until the tasks that run now have ended. Others may have begun by then."""
        if running := self._running():
            await asyncio.wait(running)

    async def close(self) -> None:
        """Cancel the tasks, and wait until they have ended."""
        running = self._running()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Placed(NamedTuple):
    """The seqnum of the record that has a contribution, and the contributions before it in that record."""

    seqnum: int
    before: Sequence[Contribution]


class _Waiter(NamedTuple):
    part: Contribution
    seen: int
    done: asyncio.Future[Placed]

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class AppendBatcher:
    """A batcher of contributions that share records: `seqnum, before = await batcher.append(part, size=100)`.

    - If a record cannot happen because of one contribution (its expectation, size or events), that caller gets the error and the others are
      sent again: a record that lost or was refused is not in the log, and never will be.
    - Only contributions to one queue, or the like, may share records: a record's storage is reclaimed when it is trimmed from all of its
      streams.
    """

    def __init__(self, log: Log, name: str, *, in_flight: int = 1, settle: bool = False) -> None:
        """Prepare the batcher. `name` is that of its tasks, and `settle` that of `Log.append`, for all contributions."""
        self._log: Final = log
        self._settle: Final = settle
        self._waiting: Final[Batches[_Waiter, None]] = Batches(SHARED_BYTES, RECORD_TAGS, RECORD_TAGS)
        self._driver: Final = Driver(self._send_all, name, in_flight=in_flight)

    @property
    def waits(self) -> bool:
        """True if a contribution waits for its turn."""
        return bool(self._waiting)

    def append(self, part: Contribution, *, size: int, seen: int = 0) -> asyncio.Future[Placed]:
        """Append a contribution of about `size` bytes together with those of other callers; `seen` and errors are those of `Log.append`.

        Cancelling the future withdraws a contribution that was not sent yet.
        """
        confined.check(confined.A_CLIENT)  # a record that is being sent for another caller would contain it
        done: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        self._waiting.add(_Waiter(part, seen, done), size, len(part.tags), len(part.expect))
        self._driver.wake()
        return done

    async def _send_all(self) -> None:
        while self._waiting:
            items = self._waiting.take().items
            try:
                await self._send(items)
            except Exception as error:
                for one in items:
                    one.fail(error)  # a defect: none of them waits without end
                raise

    async def _send(self, several: Sequence[_Waiter]) -> None:
        several = [
            one for one in several if not one.done.done()
        ]  # others were cancelled before this was sent, or have lost
        if not several:
            return
        parts = [one.part for one in several]
        try:
            whole = joined(parts) if len(parts) > 1 else parts[0]
            seqnum = await self._log.append(whole, seen=max(one.seen for one in several), settle=self._settle)
        except (Conflict, AtomicTooLarge, PayloadHookFailed) as error:
            await self._apart(several, error)
        except Exception as error:  # noqa: BLE001 - its callers get it
            await self._failed(several, error)
        except BaseException:
            for one in several:
                one.done.cancel()
            raise
        else:
            for number, one in enumerate(several):
                if not one.done.done():
                    one.done.set_result(Placed(seqnum, parts[:number]))

    async def _failed(self, several: Sequence[_Waiter], error: Exception) -> None:
        """Raise an error to all callers; to those alone whose events cannot be encoded, if there are any, since nothing was sent then."""
        refused = [] if isinstance(error, BokiError) else [one for one in several if not encodable(one.part.events)]
        for one in refused or several:
            one.fail(error)
        if refused:
            await self._send(several)

    async def _apart(self, several: Sequence[_Waiter], error: Conflict | AtomicTooLarge | PayloadHookFailed) -> None:
        """Raise the error to callers whose expectation failed, and send the others again: each in its own record, if none failed."""
        failed = [one for one in several if isinstance(error, Conflict) and self._log.moved(one.part.expect, error)]
        for one in several if len(several) == 1 else failed:
            one.fail(error)
        for some in [several] if failed else [[one] for one in several]:
            await self._send(some)
