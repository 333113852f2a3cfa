"""Blocking functions of users, in threads: the real implementation of the port `Bodies`.

    bodies = ThreadBodies(threads=100)
    result = await bodies.run(lambda: resize(picture), name="resize of picture 7")

- At most `threads` functions run at once whose callers still want their results; further calls wait for a thread.
- A thread cannot be stopped. When a caller gives a function up (it is cancelled, or timed out), the function runs on, but its thread no
  longer counts: another one takes its place. So a function that hangs holds up others only for as long as its caller waits for it.
- A call that is cancelled while it waits for a thread never begins. A thread drops it even if the event loop has not delivered the
  cancellation yet. A place that is given up is taken a moment later (`REPLACED_S`), so it goes to no call that the same cause cancels.
- At most `abandoned` threads are replaced in this way. When all of the others are given up too, calls fail with `ThreadsExhausted`.

The simulator runs the same functions in its event loop: no seed could decide what threads do.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeVar

from boki_common.errors import InvalidArgument, ThreadsExhausted
from boki_common.interruption import interrupted
from boki_common.log_pace import EVERY_S, LogPace
from boki_common.logs import NAMED, get_logger

T = TypeVar("T")
THREADS: Final = 32
"""Threads that compute share the interpreter with the event loop: one turn of the loop took 0.2 s beside 32 of them, and 3.5 s beside
128, which no lease survives. Functions that only wait may have many more: a waiting thread takes some 20 KiB."""
ABANDONED: Final = 1_000
IDLE_S: Final = 10.0
"""A thread without work for so long ends."""
REPLACED_S: Final = 0.02
"""Time until another thread takes the place of one whose function was given up. Cancellations take several turns of the event loop to reach
calls within nested task groups."""
SLACK: Final = 1.25
"""The look at whether a place may be taken comes so much later than it may: timers may be a little early, and one look is enough then."""
WAITED_S: Final = 1.0
"""Calls that wait for a thread for less are not worth a line in the log."""
GIVEN_UP_EVERY_S: Final = 1.0
"""So that those of a worker that ends are named, although others were given up a moment ago."""

_log = get_logger(__name__)


class _Call:
    """A function to run, with the context variables of its caller.

    Attributes:
        begun: called in `loop` when the function begins, unless its caller has its result or gave it up before that.
        timer: the next look at whether it still waits for a thread.
        result: the future that its caller awaits; None until the caller has it, and cannot be cancelled.
    """

    __slots__ = ("begun", "body", "context", "loop", "name", "result", "timer")

    def __init__(self, body: Callable[[], Any], name: str, begun: Callable[[], None] | None) -> None:
        self.body: Final = body
        self.name: Final = name
        self.begun = begun
        self.context: Final = contextvars.copy_context()
        self.loop: Final = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self.result: asyncio.Future[Any] | None = None

    @property
    def wanted(self) -> bool:
        """Return whether its caller has not been cancelled. Any thread may ask.

        Cancelling a task cancels the future that it awaits at once; everything else happens in later turns of the event loop.
        """
        return self.result is None or not self.result.cancelled()

    def __call__(self) -> Any:
        if self.begun is not None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                self.loop.call_soon_threadsafe(self._tell)
        try:
            return self.context.run(self.body)
        except StopIteration as error:  # no future can carry one: its caller would never get an answer
            raise RuntimeError("a function raised StopIteration") from error

    def _tell(self) -> None:
        begun, self.begun = self.begun, None
        if begun is not None:
            begun()


class _Taken(NamedTuple):
    """The threads of a `DaemonThreads` while calls wait. oldest: name of the function that runs longest, since `since_s` seconds."""

    taken: int
    waiting: int
    oldest: str
    since_s: float


class DaemonThreads(Executor):
    """Daemon threads, begun as they are needed; a hanging call does not keep its process from ending.

    Invariant: there are at most `limit` threads, and one for each call that was given up `REPLACED_S` ago and runs on, up to `abandoned`
    of these.
    """

    def __init__(self, limit: int, abandoned: int) -> None:
        self._limit: Final = limit
        self._most_abandoned: Final = abandoned
        self._changed: Final = threading.Condition()
        self._calls: Final[OrderedDict[_Call, Future[Any]]] = OrderedDict()
        """Calls that wait for a thread, the oldest first."""
        self._running: Final[dict[_Call, float]] = {}
        """Calls that threads run, the oldest first, and since when."""
        self._abandoned: Final[dict[_Call, float]] = {}
        """Running calls whose callers gave them up, in the order in which they did, and when."""
        self._threads = 0

    # -- for callers

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        """Run a call in a thread. The future raises ThreadsExhausted if no thread will become free for it."""
        assert isinstance(function, _Call) and not args and not options
        future: Future[Any] = Future()
        with self._changed:
            self._calls[function] = future
            self._changed.notify()
        self.serve()
        return future

    def give_up(self, call: _Call) -> bool:
        """Forget a call whose caller no longer wants its result. Return whether it has begun, and runs on in its thread.

        Then `serve` is to be called when its place may be taken.
        """
        with self._changed:
            self._calls.pop(call, None)
            if call not in self._running:
                return False
            self._abandoned[call] = time.monotonic()
        return True

    def replaced_in_s(self, call: _Call) -> float:
        """Return the seconds until another thread may take the place of a call that was given up, 0 if none has to."""
        with self._changed:
            given_up = self._abandoned.get(call)
            return 0.0 if given_up is None else max(0.0, given_up + REPLACED_S - time.monotonic())

    def waits(self, call: _Call) -> bool:
        """Return whether a call waits, and there are more calls that wait than threads that are about to take one."""
        with self._changed:
            return call in self._calls and len(self._calls) > self._free()

    def taken(self) -> _Taken:
        """Return which threads are taken, without those that run what was given up."""
        with self._changed:
            wanted = [(call.name, since) for call, since in self._running.items() if call not in self._abandoned]
            name, since = wanted[0] if wanted else ("", time.monotonic())
            return _Taken(len(wanted), len(self._calls), name, time.monotonic() - since)

    def running_on(self) -> tuple[int, list[str]]:
        """Return how many functions run on that were given up, and the names of the last ones."""
        with self._changed:
            return len(self._abandoned), [call.name for call in self._abandoned][-NAMED:]

    # -- threads

    def _most(self) -> int:
        """Return how many threads there may be now."""
        return self._limit + min(len(self._abandoned) - self._just_abandoned(), self._most_abandoned)

    def _just_abandoned(self) -> int:
        """Return how many calls were given up so recently that no thread takes their places yet."""
        since = time.monotonic() - REPLACED_S
        return sum(1 for _ in takewhile(lambda given_up: given_up > since, reversed(self._abandoned.values())))

    def _free(self) -> int:
        """Return how many threads run nothing: each looks for a call before it waits."""
        return self._threads - len(self._running)

    def serve(self) -> None:
        """Begin threads for calls that wait, as many as may be; refuse these calls if every thread runs what was given up."""
        cause: RuntimeError | None = None
        with self._changed:
            more = max(0, min(len(self._calls) - self._free(), self._most() - self._threads))
            self._threads += more
        for _ in range(more):
            try:
                threading.Thread(target=self._work, name="boki body", daemon=True).start()
            except RuntimeError as error:  # the system has a limit of its own
                cause = error
                with self._changed:
                    self._threads -= 1
        with self._changed:
            if self._threads > len(self._abandoned) or self._just_abandoned():
                return
            refused = list(self._calls.values())
            self._calls.clear()
            text = f"{len(self._abandoned)} threads run functions that were given up, and no more may begin"
        for future in refused:
            if future.set_running_or_notify_cancel():
                refusal = ThreadsExhausted(
                    f"{text}: restart the process, and find out why these functions do not return"
                )
                refusal.__cause__ = cause
                future.set_exception(refusal)

    def _work(self) -> None:
        call: _Call | None = None
        while True:
            with self._changed:
                if call is not None:
                    del self._running[call]
                    self._abandoned.pop(call, None)
                    call = None
                found = self._next()
            if found is None:
                return
            call, future = found
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - raised where the function was called
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del found, future

    def _next(self) -> tuple[_Call, Future[Any]] | None:
        """Wait for the next call of a thread. None: the thread ends."""
        while self._threads <= self._most():  # else another thread took the place of this one
            while self._calls:
                call, future = self._calls.popitem(last=False)
                if call.wanted and future.set_running_or_notify_cancel():
                    self._running[call] = time.monotonic()
                    return call, future
            if not self._changed.wait(IDLE_S) and not self._calls:
                break
        self._threads -= 1
        return None


class ThreadBodies:
    """Threads of its own for blocking functions. See the module."""

    def __init__(self, *, threads: int = THREADS, abandoned: int = ABANDONED) -> None:
        """
        Args:
            threads: functions that run at once; further calls wait. Functions that compute slow the event loop down when many of them run
                at once; functions that only wait do not.
            abandoned: functions that run on after their callers gave them up, and are not counted as one of `threads`.

        Raises:
            InvalidArgument: `threads` is below 1, or `abandoned` below 0.
        """
        if threads < 1 or abandoned < 0:
            raise InvalidArgument(
                f"threads={threads}, abandoned={abandoned}: expected at least 1 thread, and abandoned=0 or more"
            )
        self._limit: Final = threads
        self._threads: Final = DaemonThreads(threads, abandoned)
        self._full: Final = LogPace(_log.warning, "threads for plain functions all taken: calls wait", every_s=EVERY_S)
        self._given_up: Final = LogPace(
            _log.warning,
            "plain functions given up: they run on in their threads until they return",
            every_s=GIVEN_UP_EVERY_S,
        )
        self._exhausted: Final = LogPace(_log.error, "threads for plain functions exhausted: none of them begins")

    async def run(self, body: Callable[[], T], *, name: str = "", begun: Callable[[], None] | None = None) -> T:
        """Return what the function returns, or raise what it raises. It sees the context variables of its caller.

        See `ports.Bodies`. A StopIteration of the function becomes a RuntimeError, as in a coroutine.
        """
        loop = asyncio.get_running_loop()
        call = _Call(body, name or getattr(body, "__qualname__", repr(body)), begun)
        future: asyncio.Future[T] = loop.run_in_executor(self._threads, call)
        call.result = future
        if self._threads.waits(call):
            call.timer = loop.call_later(WAITED_S, self._warn, call)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and self._threads.give_up(call):  # else the function itself raised it
                loop.call_soon(self._say_given_up)  # once for all that are given up in this turn
                self._replace(call)
            raise
        except ThreadsExhausted:
            self._exhausted.say(running_on=self._threads.running_on()[0])
            raise
        finally:
            call.begun = None
            if call.timer is not None:
                call.timer.cancel()

    def _replace(self, call: _Call) -> None:
        """Let a thread take the place of a call that was given up, as soon as it may.

        A timer of the loop may be early by the length of the turn in which it was set: the loop's time stands still meanwhile.
        """
        left_s = self._threads.replaced_in_s(call)
        self._threads.serve()
        if left_s > 0:
            call.loop.call_later(left_s * SLACK, self._replace, call)

    def flush(self) -> None:
        """Write log lines that are held back, for an owner that ends. The threads are not touched."""
        for pace in (self._full, self._given_up, self._exhausted):
            pace.flush()

    def _warn(self, call: _Call) -> None:
        """Log that calls wait for a thread, for as long as this one does."""
        if self._threads.waits(call):
            taken, waiting, oldest, since_s = self._threads.taken()
            self._full.say(taken=taken, threads=self._limit, waiting=waiting, oldest=oldest, since_s=round(since_s, 1))
            call.timer = call.loop.call_later(EVERY_S + WAITED_S, self._warn, call)

    def _say_given_up(self) -> None:
        count, names = self._threads.running_on()
        if count:
            self._given_up.say(functions=names, running_on=count)


def from_outside(error: BaseException) -> bool:
    """Return whether an error out of a user's function is not its own: others cancelled this task, or a person interrupted the program."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return interrupted(error)
