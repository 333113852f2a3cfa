"""An event loop in a thread of its own: what the blocking faces of the clients stand on.

    thread = LoopThread("boki.sync")
    result = thread.run(client.append(b"..."))        # from any other thread; waits
    thread.closes(client.close)                       # what ends in the loop with the thread
    thread.stop()

    class Book:                                       # a face: its methods have the names, arguments and docs of the other's
        def __init__(self, thread, book): self._thread, self._inner = thread, book
        append = waiting(boki.Book.append)

Any number of threads may use one. Whatever ends a wait from outside (Ctrl-C, an error that a signal handler raises) cancels the coroutine
that is waited for. It may have ended just then, so what a coroutine takes for good, as iterators do, goes through a `Handover`. A coroutine
may have plain functions run by the thread that waits for it (`serve`): bodies of users, which may be slow, and which find the thread's own
data there.

One that is dropped without `stop` is ended with a ResourceWarning, as any file or loop: the thread refers to
its loop only, so it keeps no owner alive. In a forked child there is no thread: whatever is called there is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar

from boki_common.errors import BokiError, ClosedError
from boki_common.runtime import confined, forks
from boki_common.runtime.process import loop_factory

P = ParamSpec("P")
T = TypeVar("T")


class _Running:
    """What thread and face share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = loop_factory()()
        self.closing: Callable[[], Awaitable[object]] | None = None
        self.elsewhere = False
        """This is the copy of a forked child."""

    def main(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            if self.closing is not None:
                loop.run_until_complete(self.closing())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def dropped(self) -> None:
        """Nobody can use the thread any more. It may be called in any thread, this one too, so it waits for nothing."""
        if not self.elsewhere and not self.loop.is_closed():
            warnings.warn(f"unclosed {self.name}: call close(), or use `with`", ResourceWarning, stacklevel=2)
            self.loop.call_soon_threadsafe(self.loop.stop)


class Caller:
    """A thread that waits for a coroutine, as that coroutine sees it: it runs plain functions meanwhile."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """What the thread is asked to run; None: the coroutine has ended."""

    async def call(self, function: Callable[[], T]) -> T:
        """Has a function run by the thread, and returns what it returns. An error that ends programs cancels the coroutine."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Callable[[], T]] = loop.create_future()

        def end(outcome: Callable[[], T]) -> None:
            if not ended.done():  # else the coroutine was cancelled
                ended.set_result(outcome)

        def run() -> None:
            outcome: Callable[[], T]
            try:
                result = function()
                outcome = partial(_same, result)
            except Exception as error:  # noqa: BLE001 - the coroutine raises it
                outcome = partial(_raise, error)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(end, outcome)

        self._asked.put(run)
        return (await ended)()

    def serve(self, coroutine: concurrent.futures.Future[T]) -> T:
        """Runs what the coroutine asks for until it ends; returns what it returns."""
        coroutine.add_done_callback(lambda _: self._asked.put(None))
        try:
            while (run := self._asked.get()) is not None:
                run()
        except BaseException:
            coroutine.cancel()
            raise
        return coroutine.result()


def _raise(error: Exception) -> NoReturn:
    raise error


def _same(result: T) -> T:
    return result


class LoopThread:
    """See the module. `name` is the face's, for messages and the list of threads."""

    def __init__(self, name: str) -> None:
        confined.check(f"a client of {name}")
        self._running = _Running(name)
        self._thread = threading.Thread(target=self._running.main, name=name, daemon=True)
        self._thread.start()
        self._dropped = weakref.finalize(self, self._running.dropped)
        self._dropped.atexit = False  # a program that ends needs no warning
        forks.watch(self)

    def forked(self) -> None:
        """See `forks`."""
        self._running.elsewhere = True

    @property
    def elsewhere(self) -> bool:
        """Whether this is the copy of a forked child, which has nothing to close."""
        return self._running.elsewhere

    def closes(self, routine: Callable[[], Awaitable[object]]) -> None:
        """Runs a coroutine in the loop when the thread ends, if what is closed there may be closed twice."""
        self._running.closing = routine

    def run(self, routine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop, from any other thread, and waits for it. Raises what it raises; ClosedError."""
        future = self._begin(routine)
        try:
            return future.result()
        finally:
            future.cancel()  # without effect on one that ended; else a signal's handler raised an error here

    def serve(self, routine: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine in the loop and waits for it, as `run` does, and runs the functions that the coroutine gives to this thread."""
        caller = Caller()
        return caller.serve(self._begin(routine(caller)))

    def _begin(self, routine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begins a coroutine, in the context of the thread that calls."""
        running = self._running
        try:
            confined.check(f"a client of {running.name}")
        except BokiError:
            routine.close()
            raise
        if running.elsewhere or running.loop.is_closed() or threading.current_thread() is self._thread:
            routine.close()
            if running.elsewhere:
                raise forks.opened_elsewhere(f"this {running.name}")
            raise ClosedError(
                "the client is closed"
                if running.loop.is_closed()
                else f"{running.name} was called inside of its own event loop: use the asynchronous classes there"
            )
        return asyncio.run_coroutine_threadsafe(routine, running.loop)

    def do(self, call: Callable[[], T]) -> T:
        """Runs a plain function in the loop and waits for it."""

        async def routine() -> T:
            return call()

        return self.run(routine())

    def stop(self) -> None:
        """Ends the loop and its thread. Idempotent."""
        self._dropped.detach()
        if not self._running.elsewhere and not self._running.loop.is_closed():
            self._running.loop.call_soon_threadsafe(self._running.loop.stop)
            self._thread.join()


class Handover(Generic[T]):
    """Values that coroutines take for threads: those that are taken when no thread waits any more are for the next that asks.

        self._items = Handover[Record](thread.run)
        record = self._items.next(self._records.next_batch)      # None: there are no more

    A method's `take` is a coroutine function that returns the next values, none if there are no more; its errors are raised.

    Args:
        run: runs a coroutine in the loop and waits for it.
        single: let one coroutine take at a time, as iterators need: a cancelled one may not have ended when the next begins.
    """

    def __init__(self, run: Callable[[Coroutine[Any, Any, bool]], bool], *, single: bool = True) -> None:
        self._run = run
        self._single = asyncio.Lock() if single else None
        self._taken: deque[T] = deque()

    @property
    def first(self) -> T | None:
        """The value that the next call returns, if one is here."""
        return self._taken[0] if self._taken else None

    def get(self) -> T | None:
        """Return the next value if one is here."""
        try:
            return self._taken.popleft()
        except IndexError:
            return None

    def next(self, take: Callable[[], Coroutine[Any, Any, Sequence[T]]]) -> T | None:
        """Return the next value: one that is here, or one that is taken now."""
        while (value := self.get()) is None:
            if not self._run(self._take(take)):
                return self.get()
        return value

    def batch(self, take: Callable[[], Coroutine[Any, Any, Sequence[T]]]) -> list[T]:
        """Return all values that are here; if there are none, those that are taken now."""
        values = []
        value = self.next(take)
        while value is not None:
            values.append(value)
            value = self.get()
        return values

    async def _take(self, take: Callable[[], Coroutine[Any, Any, Sequence[T]]]) -> bool:
        async with self._single or nullcontext():
            if self._taken and self._single is not None:
                return True  # of a call whose thread has gone
            values = await take()
            self._taken.extend(values)
            return bool(values)


def waiting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of a blocking face (which has a `_thread` and an `_inner`) that runs its namesake of `_inner` and waits."""

    @wraps(method)
    def wait(face: Any, /, *args: P.args, **options: P.kwargs) -> T:
        thread: LoopThread = face._thread
        return thread.run(method(face._inner, *args, **options))

    return wait


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """As `waiting`, for what is no coroutine, and has to run in the loop's thread."""

    @wraps(method)
    def do(face: Any, /, *args: P.args, **options: P.kwargs) -> T:
        thread: LoopThread = face._thread
        return thread.do(lambda: method(face._inner, *args, **options))

    return do
