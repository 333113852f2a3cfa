"""Handlers whose effects happen once: the message is acked in the record of their writes.

    @orders.handler(store)
    async def ship(order: Message[Order], tx: Transaction) -> None:
        tx["stock"].inc(order.body.item, -1)
        tx.add(emails.pushed(Email(order.body.to)))

    async with ship: ...                                   # or: await ship.run()

- `store` is any object that runs transactions over the same book. It runs the function again while the transaction
  loses, including everything that the function does outside of `tx`.
- The transaction's record decides about the message: the function cannot ack it, nack it or give it up (`UsageError`).
- After an error the message is redelivered, later each time, up to a minute; dead letters end that if the queue has
  them (`attempts`).
- A handler runs for as long as its message is leased; then it is cancelled, and the attempt failed. Other messages of
  the process are handled meanwhile.
- Every error of a handler, `SystemExit` too, fails an attempt of its message and is logged with its stack. It ends
  nothing else.
- A member whose heartbeats do not arrive stops its handlers before other members have their messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

from boki_common.background_tasks import leave_behind
from boki_common.errors import BokiError, Conflict, InvalidArgument, UsageError
from boki_common.logs import get_logger
from boki_common.runtime.bodies import from_outside
from bokilib.append.log import Log
from bokilib.errors import AppendUnknown
from bokilib.follow.lease_rules import stood_still
from bokilib.records.contribution import Contribution, Origin, check_in_book
from bokilib.stacks import described, stack_of
from bokiqueue.attempts import STUCK, OwnConflicts, backoff_s
from bokiqueue.consume.consumer import FINISH_S, Consumer
from bokiqueue.consume.messages import LEASE_MOST_S, Message, outcome_of
from bokiqueue.errors import HandlerConflict, HandlerExited, HandlerTimeout, StaleReceipt
from bokiqueue.failures import stack_of_waiting
from bokiqueue.own_loop import check_here

T = TypeVar("T")

AT_ONCE: Final = 16
CANCELLED_S: Final = 5.0
"""The time in which a cancelled function has to end; after that it is left behind, so that its process can end."""
SPARE_S: Final = 1.0
"""The time by which the lease of a message is longer than its handler may run."""

log = get_logger(__name__)


class AckTransaction(Protocol):
    """A transaction that the ACK of a message can be added to."""

    def add(self, part: Contribution) -> None: ...


X = TypeVar("X", bound=AckTransaction)
X_co = TypeVar("X_co", covariant=True, bound=AckTransaction)


class TransactionRunner(Protocol[X_co]):
    """An object that runs transactions, such as a `bokistore.BokiStore`."""

    async def transact(self, body: Callable[[X_co], Awaitable[None]]) -> Any: ...


def check_store(store: object, origin: Origin) -> None:
    """Check that a store is in the book of a queue, if it tells its log. Raises WrongBook."""
    found = getattr(store, "log", None)
    if isinstance(found, Log):
        check_in_book("a store", found.identity, origin)


class Handler(Generic[T, X]):
    """A function that handles the messages of a queue in transactions. Made by `queue.handler`; see the module.

    Attributes:
        body: the function.
        consumer: the member of the group, while the handler runs.
    """

    def __init__(
        self,
        consume: Callable[[], Consumer[T]],
        store: TransactionRunner[X],
        body: Callable[[Message[T], X], Awaitable[None]],
        *,
        at_once: int,
        backoff: float,
        lease_s: float,
    ) -> None:
        if type(at_once) is not int or at_once < 1:
            raise InvalidArgument(f"expected one handler at once at least, found {at_once!r}", found=at_once)
        self.body: Final = body
        self.consumer: Consumer[T] | None = None
        self._consume = consume
        self._store = store
        self._at_once = at_once
        self._backoff_s = backoff
        self._lease_s = lease_s
        self._entered = False
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: asyncio.Future[None] | None = None
        """Done when all tasks have ended or are left behind; failed with the first error of a task."""
        self._parent: asyncio.Task[Any] | None = None
        """The task that runs the body of `async with`."""
        self._cancelled_parent = False
        self._bodies: dict[asyncio.Task[Any], Message[T]] = {}
        """Tasks that run the function at the moment, each with its message."""
        self._conflicts = OwnConflicts()

    async def __aenter__(self) -> Handler[T, X]:
        """Become a member of the group and handle messages while the body of `async with` runs.

        If handling ends with an error, as when the queue is deleted, the body is cancelled, and `async with` raises that error.

        Raises:
            UsageError: the handler runs already.
        """
        check_here(None)
        if self._entered:
            raise UsageError(
                f"the handler {self.name!r} runs already: nothing was done; wait until its block or `run` has ended, or make another"
                " handler of the function"
            )
        self._entered = True
        try:
            self.consumer = await self._consume().__aenter__()
        except BaseException:
            self._entered = False
            raise
        loop = asyncio.get_running_loop()
        self._parent, self._cancelled_parent = asyncio.current_task(), False
        self._ended = loop.create_future()
        self._ended.add_done_callback(_retrieve)
        self._bodies = {}
        self._tasks = [
            loop.create_task(self._work(self.consumer), name="bokiqueue handler") for _ in range(self._at_once)
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)
        return self

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        assert self._ended is not None, "it was entered"
        if self._ended.done() or task not in self._tasks:  # a late one of a run before
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ended.set_exception(error)
            if self._parent is not None:
                self._cancelled_parent = self._parent.cancel()
        elif all(one.done() for one in self._tasks):
            self._ended.set_result(None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop handling: unfinished messages are redelivered, to any member.

        Raises:
            BokiError: the error that ended handling. If the body raised an error of its own, that one is raised, with a note of the other.
        """
        check_here(None)
        parent, self._parent = self._parent, None  # the body has ended: it is not cancelled any more
        ended = self._ended
        failed = ended.exception() if ended is not None and ended.done() and not ended.cancelled() else None
        raised = error
        try:
            if failed is not None:
                raised = await self._after_failure(failed, error, parent)
            await self._stop()
        except BaseException as cut_off:  # cancelled while functions end: the member has to end all the same
            await self._leave(cut_off)
            raise
        await self._leave(raised)
        if raised is not None and raised is not error:
            raise raised

    async def _leave(self, error: BaseException | None) -> None:
        """Leave the group, after an error or none."""
        assert self.consumer is not None, "it was entered"
        try:
            await self.consumer.__aexit__(None if error is None else type(error), error, None)
        finally:
            self.consumer = None
            self._entered = False

    async def _after_failure(
        self, failed: BaseException, error: BaseException | None, parent: asyncio.Task[Any] | None
    ) -> BaseException:
        """Take back the cancellation of the body, and return the error that `async with` raises.

        Args:
            failed: the error that ended handling.
            error: the error with which the body ended.
            parent: the task of the body.
        """
        mine = self._cancelled_parent and parent is not None and parent is asyncio.current_task()
        if parent is not None and mine:
            if not isinstance(error, asyncio.CancelledError):
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError as late:  # it was on its way while the body ended by itself
                    error = error or late
            if parent.uncancel() and isinstance(error, asyncio.CancelledError):
                return error  # others cancelled the task as well
        if error is None or (mine and isinstance(error, asyncio.CancelledError)):
            return failed
        error.add_note(f"the handler {self.name!r} ended before: {described(failed)}")
        return error

    async def drain(self, finish_s: float = FINISH_S) -> bool:
        """Take no new messages and let the running functions finish, as `Consumer.drain` does. `run` returns then.

        The drain continues if this call is cancelled.
        """
        check_here(None)
        if self.consumer is None:
            return True
        drain = asyncio.get_running_loop().create_task(self._drained(self.consumer, finish_s), name="bokiqueue drain")
        return await asyncio.shield(drain)

    async def _drained(self, consumer: Consumer[T], finish_s: float) -> bool:
        """Drain the consumer of this run, and cancel the functions that did not finish. Another run may have begun by then."""
        finished = await consumer.drain(finish_s)
        if not finished and self.consumer is consumer:
            await self._stop()
        return finished

    async def _stop(self) -> None:
        """Cancel running functions, and leave behind those that do not end in time: their transactions cannot commit any more.

        Those that are late are left behind also if the caller is cancelled meanwhile.
        """
        for task in self._tasks:
            task.cancel()
        late = self._leave_late_behind(list(self._tasks), self._bodies, self.consumer, self._ended)
        await asyncio.shield(asyncio.get_running_loop().create_task(late, name="bokiqueue handlers end"))

    async def _leave_late_behind(
        self,
        tasks: list[asyncio.Task[None]],
        bodies: dict[asyncio.Task[Any], Message[T]],
        consumer: Consumer[T] | None,
        ended: asyncio.Future[None] | None,
    ) -> None:
        """Leave behind what a run does not end in time. Another run may have begun by then."""
        _, late = await asyncio.wait(tasks, timeout=CANCELLED_S)
        for task in (*late, *bodies) if late else ():
            leave_behind(task)
        if late and consumer is not None:
            consumer.leave_handlers_behind()
        for body, message in list(bodies.items()) if late else ():
            log.warning(
                "handler left behind: it did not end after its cancellation, its message is redelivered elsewhere",
                handler=self.name,
                **message.log_facts,
                stack=stack_of_waiting(body.get_coro()),
            )
        if ended is not None and not ended.done():
            ended.set_result(None)

    async def run(self) -> None:
        """Handle messages until cancelled or drained.

        Raises:
            BokiError: an error that no message causes, such as a deleted queue.
        """
        async with self:
            assert self._ended is not None, "it was entered"
            await self._ended

    async def _work(self, consumer: Consumer[T]) -> None:
        async for message in consumer:
            await consumer.guarded(self.handle(message), message)

    async def handle(self, message: Message[T]) -> None:
        """Handle one message: commit its effects with its ACK in one record, or let it be redelivered."""
        check_here(None)
        try:
            async with message.within(backoff_s(message.attempt, self._backoff_s)):
                await self._transact(message)
        except StaleReceipt as stale:
            log.info("message not handled: another handler has it", **message.log_facts, error=str(stale))
        except Exception as error:  # noqa: BLE001 - no caller gets it: it is logged, and the message is redelivered
            if message.decided and isinstance(error, AppendUnknown):
                return  # its outcome is known: it happened
            retryable = isinstance(error, BokiError) and error.retryable
            log.warning(
                "message not handled: its last attempt failed, it is given up"
                if message.given_up
                else "message not handled: it is redelivered",
                **message.log_facts,
                attempt=message.attempt,
                handler=self.name,
                error=described(error),
                retryable=retryable,
                stack=stack_of(error),
            )

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.body, "__qualname__", type(self.body).__qualname__)

    async def _transact(self, message: Message[T]) -> None:
        """Run the function in a transaction, and report the outcome of the record to the message."""
        raised: BaseException | None = None

        async def run(tx: X) -> None:
            nonlocal raised
            try:
                await self._run(message, tx)
            except BaseException as error:
                raised = error
                raise

        message.held_by = f"the handler {self.name!r}"
        try:
            await self._store.transact(run)
        except BaseException as error:
            if message.parted:
                happened = False if error is raised else await _happened(error)
                await message.part_ended(happened, error=error)
            if error is raised and isinstance(error, Conflict) and self._conflicts.stuck(message.id, error):
                raise HandlerConflict(
                    f"the handler {self.name!r} lost a record of its own {STUCK} times without other writes between: {described(error)}",
                    handler=self.name,
                ) from error
            raise
        finally:
            message.held_by = ""
        self._conflicts.forget(message.id)
        await message.part_ended(True)

    async def _run(self, message: Message[T], tx: X) -> None:
        """Run the function once, for no longer than the message's lease, and add the ACK to the transaction.

        Raises:
            HandlerTimeout: the lease ended first.
            HandlerExited: the function raised an error that ends tasks or programs.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        bodies = self._bodies
        bodies[task] = message
        began_s = loop.time()
        limit = asyncio.timeout(None)
        lease = Lease(loop, self._lease_s, lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                if not message.parted:  # else its lease cannot run out
                    message.extend(
                        min(LEASE_MOST_S, self._lease_s + SPARE_S)
                    )  # it is released before others may have it
                message.extended = lease.extend
                await self.body(message, tx)
        except BaseException as error:
            if limit.expired():
                raise self._timeout(loop.time() - began_s) from error
            if isinstance(error, Exception) or from_outside(error):
                raise
            raise HandlerExited(f"the handler {self.name!r} raised {described(error)}", handler=self.name) from error
        finally:
            del bodies[task]
            message.extended = None
            lease.end()
        if limit.expired():  # the cancelled function did not end
            raise self._timeout(loop.time() - began_s)
        tx.add(message.acked())

    def _timeout(self, ran_s: float) -> HandlerTimeout:
        return HandlerTimeout(
            f"the handler {self.name!r} ran for {ran_s:.1f} s, and its message was leased for {self._lease_s:g} s: it was"
            " cancelled, and the message is redelivered. Give `queue.handler(..., lease_s=...)` more, or call"
            " `message.extend(...)` while it works",
            handler=self.name,
            ran_s=ran_s,
            expected=self._lease_s,
        )


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """The methods of an event loop that a lease needs."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...


class Lease:
    """The time that a handler has for a message. It is granted once more, a single time, after its process stood still."""

    def __init__(self, loop: Timers, lease_s: float, expire: Callable[[], None]) -> None:
        self._loop = loop
        self._lease_s = lease_s
        self._expire = expire
        self._forgives = True
        self._begin(lease_s)

    def _begin(self, lease_s: float) -> None:
        self._deadline_s = self._loop.time() + lease_s
        self._timer = self._loop.call_at(self._deadline_s, self._look)

    def extend(self, lease_s: float) -> None:
        """Replace the remaining time by `lease_s` seconds."""
        self._timer.cancel()
        self._begin(lease_s)

    def end(self) -> None:
        """Cancel the timer, since the handler has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._forgives and stood_still(self._deadline_s, self._loop.time()):
            self._forgives = False
            self._begin(self._lease_s)
        else:
            self._expire()


def _retrieve(ended: asyncio.Future[None]) -> None:
    """Retrieve the error of a future that no caller awaits."""
    if not ended.cancelled():
        ended.exception()


async def _happened(error: BaseException) -> bool | None:
    """Return True if the record of a transaction is in the log; None if that is unknown, as when a timeout ended the wait.

    Args:
        error: the error with which the transaction ended, not one of its body.
    """
    if isinstance(error, AppendUnknown):
        return await outcome_of(error)
    return False if isinstance(error, BokiError) and error.definite else None
