"""The event loop of workflow code: plain asyncio that runs the same way in every replay.

`asyncio.gather`, `TaskGroup`, `wait`, `timeout`, `wait_for`, `shield`, `sleep`, `Event`, `Queue` work as usual, and so do task groups and
cancel scopes of anyio. The loop has no sockets, processes or threads; a call that needs them raises `OnlyInSteps` at once. It runs only
when it is driven:

    loop.run(call)       # calls, then runs until nothing is ready; from a callback of the outer loop, never from a task

- Events are delivered one at a time, and the code runs until it waits for the next. So the order of deliveries, which is recorded, decides
  which task is first, which is cancelled and which is compensated.
- Time stands still between deliveries: `time()` is that of the last one. `Timers` calls `fire` when a timer is due.
- Tasks and futures hash by their number, so that sets of them have the same order in every replay. (In asyncio such sets decide which
  sibling a TaskGroup cancels first, and what `wait` returns.)
- A task is named by the task that made it (`TaskPath`).
- An async generator that the code leaves half-way is closed by a task of its own, as in asyncio. While the code runs, cycles of objects
  are not collected, so a generator is left where its last reference ends: at the same place in every replay. One that is found in a cycle
  between two deliveries is closed without effect, and blocks the workflow if it calls a step.
- Code that never waits is stopped with `WorkflowStuck`: by a bound on turns of the loop, which is the same in every replay, and by the
  `guard` of a worker, which watches the clock.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, Unpack

from boki_common.interruption import interrupted
from boki_common.runtime import confined
from bokiflow.errors import NonDeterminism, OnlyInSteps, WorkflowStuck
from bokilib.stacks import frames_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_TASKS_FILE: Final = asyncio.tasks.__file__
_MACHINERY: Final = tuple(file.rpartition("/")[0] + "/" for file in (_TASKS_FILE, __file__))
"""Folders of asyncio and of this file, whose frames are not workflow code."""
_FUTURES_FILE: Final = asyncio.futures.__file__
_FRAMES: Final = 6
"""Frames above `create_task` within which the function of asyncio that called it is found."""
IDLE_TURNS: Final = 100_000
"""Turns without a new future, task or call, after one delivery."""
TURNS_OF_A_FUTURE: Final = 20
"""Further turns for each future and task that the code ever made: each takes a few to end and to call back."""
TURNS: Final = 5_000_000
"""Turns after one delivery, in all."""
NEVER_S: Final = 2.0**43
"""A time that never comes, in seconds since 1970. A timer for it, such as that of `asyncio.sleep(math.inf)`, is not recorded."""
STACK_FRAMES: Final = 16
FRAMES: Final = 256
"""Frames of a task that are read."""


class Timers(Protocol):
    """The timers of the workflow, which its instance passes to the executor."""

    def set_timer(self, key: str, due_ms: int) -> None:
        """Have `loop.fire(key)` called, not before `due_ms`."""

    def cancel_timer(self, key: str) -> None: ...

    def misused(self, error: Exception) -> None:
        """Report that the code cannot continue, though nothing is delivered to it. Runs in the outer loop.

        A thread called the loop, and code that waits for the thread would wait without end; or an async generator in a cycle of objects
        called a step when it was collected.
        """


class TaskPath:
    """The name of a task, and counters that name what it does: the same in every replay, on every version of Python.

        - The root task is `0`. The k-th task that task `p` makes is `p/k`, counted from 1.
        - The task that closes the k-th async generator which task `p` left half-way is `p/closek`.
    - The n-th call in a task (a step, child, timer, receipt of a signal) has the key `path:n`.
    - The n-th unique or random number in a task has the key `path:u<n>`, whatever calls are before it.
    - The n-th change of a row of a table in a task has the key `path:c<n>`, whatever calls are before it.
        - A task that stands for its maker (that of `asyncio.wait_for` in Python 3.11) shares the name and the counters of its maker.
        - After a restart names begin with `r<run>/`, so no run repeats a name of an earlier one.
    """

    __slots__ = ("calls", "changes", "left", "path", "tasks", "uniques")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.tasks = 0
        self.calls = 0
        self.left = 0
        self.uniques = 0
        self.changes = 0

    @classmethod
    def root(cls, run: int = 0) -> TaskPath:
        """Return the name of the root task of a run."""
        return cls(f"r{run}/0" if run else "0")

    def child(self) -> TaskPath:
        """Return the name of the next task that this one makes."""
        self.tasks += 1
        return TaskPath(f"{self.path}/{self.tasks}")

    def closing(self) -> TaskPath:
        """Return the name of the task that closes the next async generator which this one leaves half-way."""
        self.left += 1
        return TaskPath(f"{self.path}/close{self.left}")

    def key(self) -> str:
        """Return the key of the next call in this task."""
        self.calls += 1
        return f"{self.path}:{self.calls}"

    def unique_key(self) -> str:
        """Return the key of the next unique number in this task."""
        self.uniques += 1
        return f"{self.path}:u{self.uniques}"

    def change_key(self) -> str:
        """Return the key of the next change of a row in this task."""
        self.changes += 1
        return f"{self.path}:c{self.changes}"


class FlowFuture(asyncio.Future[T]):
    def __init__(self, loop: FlowLoop) -> None:
        super().__init__(loop=loop)
        self._flow_number = loop.next_number()

    def __hash__(self) -> int:
        return self._flow_number


class FlowTask(asyncio.Task[T]):
    def __init__(self, coro: Coroutine[Any, Any, T], loop: FlowLoop, path: TaskPath, **options: Any) -> None:
        self._flow_number = loop.next_number()
        self.flow_path = path
        super().__init__(coro, loop=loop, **options)
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._flow_number


class _Timer(asyncio.TimerHandle):
    def __init__(self, key: str, when: float, callback: Any, args: Any, loop: FlowLoop, context: Any) -> None:
        super().__init__(when, callback, args, loop, context)
        self.key: Final = key


class FlowLoop(asyncio.AbstractEventLoop):
    """The event loop of one workflow; see the module.

    Attributes:
        owner: the instance.
        now_ms: the time that the code sees.
    """

    def __init__(self, owner: object, timers: Timers, now_ms: int, *, run: int = 0) -> None:
        """`run`: the number of restarts so far."""
        self.owner: Final = owner
        self.now_ms = now_ms
        self.failed: Exception | None = None
        """The error that ends the run, even if the code catches it."""
        self._timers: Final = timers
        self._ready: deque[asyncio.Handle] = deque()
        self._waiting: dict[str, _Timer] = {}
        self._tasks: dict[int, FlowTask[Any]] = {}
        self._failed_tasks: list[FlowTask[Any]] = []
        """Tasks that ended with an error in this run of the loop."""
        self._number = 0
        self._turns_in_vain = 0
        """The turns of code that did not wait for anything; 0 while it does."""
        self._root: Final = TaskPath.root(run)
        self._outside: Final = TaskPath(f"{self._root.path}-")
        self._closed = False
        self._outer: asyncio.AbstractEventLoop | None = None
        self.guard: Callable[[Callable[[], None]], None] | None = None
        """Runs a call of the code, and interrupts it if it takes too long; None if nothing watches the code."""

    # -- for the instance

    def run(self, call: Callable[[], object]) -> None:
        """Call, and run until nothing is ready.

        Raises:
            NonDeterminism: the code did something that a replay cannot repeat.
            WorkflowStuck: it does not wait for anything. `guard` may raise other errors.
        """
        self._outer = asyncio._get_running_loop()
        with self._entered():
            if self.guard is None:
                self._run(call)
            else:
                self.guard(lambda: self._run(call))
        if (
            self._turns_in_vain and self.failed is None
        ):  # not in `_run`: `guard` may interrupt that, also while it reads sources
            self.failed = self._stuck(self._turns_in_vain)
        if self.failed is not None:
            raise self.failed

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Make this the running loop, whose code leaves async generators to it and does not collect cycles."""
        outer, hooks, collects = asyncio._get_running_loop(), sys.get_asyncgen_hooks(), gc.isenabled()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._left)
        gc.disable()
        confined.running.append(self)
        try:
            yield
        finally:
            confined.running.remove(self)
            if collects:
                gc.enable()
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(outer)

    def _run(self, call: Callable[[], object]) -> None:
        """Call, and run until nothing is ready, or for as many turns as code that waits for something may take."""
        call()
        number, idle, turns = self._number, 0, 0
        while self._ready and self.failed is None:
            handle = self._ready.popleft()
            if not handle.cancelled():
                self._turn(handle)
            turns, idle = turns + 1, idle + 1
            if number != self._number:
                number, idle = self._number, 0
            if idle > IDLE_TURNS + TURNS_OF_A_FUTURE * number or turns > TURNS + TURNS_OF_A_FUTURE * number:
                self._turns_in_vain = turns
                return

    def _stuck(self, turns: int) -> WorkflowStuck:
        return WorkflowStuck(
            f"expected code that waits for a step, a timer or a signal, found {turns} turns without: does it poll with "
            "asyncio.sleep(0)? Wait for what it polls, or sleep for a time; then resume the workflow",
            stack=self.stacks(),
        )

    def stacks(self) -> str:
        """Return the stacks of all tasks. Other threads may call it while the code runs."""
        return "".join(line for task in list(self._tasks.values()) for line in _stack_of(task))

    def place_of(self, key: str) -> str:
        """Return the line of code, as `file.py:7`, at which the task of a key or its nearest ancestor waits; "" if there is none."""
        path = key.rpartition(":")[0]
        while path:
            lines = [line for task in self._tasks.values() if task.flow_path.path == path for line in _frames_of(task)]
            own = [line for line in lines if not line.filename.startswith(_MACHINERY)]
            if own:
                return f"{own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}"
            path = path.rpartition("/")[0]
        return ""

    def stack_of(self, stopped: str) -> str:
        """Return the stack of interrupted code, or the stacks of its tasks if it was interrupted between two of them."""
        files = [line.split('"')[1] for line in stopped.split("\n") if line.startswith('  File "')]
        stopped_in_code = any(not file.startswith(_MACHINERY) for file in files)
        return stopped if stopped_in_code else self.stacks() or stopped

    def _turn(self, handle: asyncio.Handle) -> None:
        try:
            handle._run()
        except (SystemExit, KeyboardInterrupt) as error:
            if interrupted(error):
                raise
            # The error is the outcome of the task that raised it already; asyncio raises it here as well.

    def unnoticed(self) -> list[BaseException]:
        """Return, and forget, the errors of tasks since the last call that no code has taken."""
        failed, self._failed_tasks = self._failed_tasks, []
        # Not by `exception()`, which would count as taken.
        return [error for task in failed if task._log_traceback and (error := task._exception) is not None]

    def start(self, coro: Coroutine[Any, Any, T]) -> FlowTask[T]:
        """Start the root task; called inside `run`."""
        return self._task(coro, self._root, {})

    def fire(self, key: str) -> bool:
        """Fire a timer that is due; called inside `run`. Return False if the code does not wait for it."""
        timer = self._waiting.pop(key, None)
        if timer is None:
            return False
        self._ready.append(timer)
        return True

    @property
    def timers(self) -> list[str]:
        """The keys of timers that the code waits for."""
        return list(self._waiting)

    def drop(self) -> None:
        """Close all tasks. Their `finally` blocks run without effect."""
        self._closed = True
        self._ready.clear()
        self._waiting.clear()
        with self._entered():
            for task in list(self._tasks.values()):
                coro = task.get_coro()
                if coro is not None:
                    _close_quietly(coro)
        self._tasks.clear()

    # -- async generators that are left half-way

    def _left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an async generator whose last reference ended. Any thread may call it, since any thread may collect cycles."""
        if asyncio._get_running_loop() is not self:
            outer = self._outer
            if outer is not None and not outer.is_closed():
                outer.call_soon_threadsafe(self._found_in_cycle, generator)
        elif self._closed:
            _close_without_effect(generator)
        else:
            task = asyncio.current_task(self)
            path = task.flow_path if isinstance(task, FlowTask) else self._outside
            _ = self._task(generator.aclose(), path.closing(), {})

    def _found_in_cycle(self, generator: AsyncGenerator[Any, Any]) -> None:
        with self._entered():
            _close_without_effect(generator)
        if self.failed is not None and not self._closed:
            self._timers.misused(self.failed)

    def next_key(self) -> str:
        """Return the key of a call that the current task makes."""
        return self._task_path().key()

    def next_unique_key(self) -> str:
        """Return the key of a unique number that the current task asks for."""
        return self._task_path().unique_key()

    def next_change_key(self) -> str:
        """Return the key of a change of a row that the current task makes."""
        return self._task_path().change_key()

    def _task_path(self) -> TaskPath:
        task = asyncio.current_task(self)
        if not isinstance(task, FlowTask):
            raise self.fail(
                NonDeterminism(
                    "a step was called outside of a task (in a callback, or by an async generator that was left in a cycle of objects): "
                    "call it in a coroutine that is awaited, and close generators with contextlib.aclosing"
                )
            )
        return task.flow_path

    def fail(self, error: NonDeterminism) -> NonDeterminism:
        """Note that the code cannot continue, and return the error, which the caller raises."""
        if self.failed is None and not self._closed:
            self.failed = error
        return error

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def refused(self, what: str) -> OnlyInSteps:
        return _only_in_steps(what)

    # -- AbstractEventLoop

    def time(self) -> float:
        return self.now_ms / 1_000

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        task = asyncio.current_task(self)
        path = task.flow_path if isinstance(task, FlowTask) else self._outside
        timer = _Timer(path.key(), when, callback, args, self, context)
        if self._closed or when >= NEVER_S:
            return timer
        due_ms = -(-int(when * 1_000_000) // 1_000)
        if due_ms <= self.now_ms:
            self._ready.append(timer)
            return timer
        setattr(timer, "_scheduled", True)  # noqa: B010 - asyncio's own mark: the loop hears of the timer's cancellation
        self._waiting[timer.key] = timer
        self._timers.set_timer(timer.key, due_ms)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _Timer) and self._waiting.pop(handle.key, None) is not None:
            self._timers.cancel_timer(handle.key)

    def create_future(self) -> asyncio.Future[Any]:
        caller = sys._getframe(1).f_code
        if caller.co_name == "wrap_future" and caller.co_filename == _FUTURES_FILE:
            raise _only_in_steps("asyncio.wrap_future(...)")
        return FlowFuture(self)

    def get_task_factory(self) -> None:
        return None

    def create_task(self, coro: Any, **options: Any) -> Any:
        task = asyncio.current_task(self)
        maker = _asyncio_function(sys._getframe(1))
        if maker == "as_completed":
            _close(coro)
            raise self.fail(
                NonDeterminism(
                    "asyncio.as_completed over coroutines begins them in an order that changes from run to run; "
                    "use bokiflow.as_completed, or give it tasks"
                )
            )
        if not isinstance(task, FlowTask):
            _close(coro)
            raise self.fail(NonDeterminism("a task was made outside of a task: make it in a coroutine that is awaited"))
        path = task.flow_path if maker == "wait_for" else task.flow_path.child()
        return self._task(coro, path, options)

    def _task(self, coro: Coroutine[Any, Any, T], path: TaskPath, options: dict[str, Any]) -> FlowTask[T]:
        options.pop("eager_start", None)
        made = FlowTask(coro, self, path, **options)
        number = made._flow_number
        self._tasks[number] = made
        made.add_done_callback(self._task_ended)
        return made

    def _task_ended(self, task: FlowTask[Any]) -> None:
        self._tasks.pop(task._flow_number, None)
        if task._log_traceback:  # until some code takes the error
            self._failed_tasks.append(task)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors of tasks that are not awaited; they end nothing."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        error = _only_in_steps("a thread's result (loop.call_soon_threadsafe)")
        outer = self._outer
        if outer is not None and not self._closed and not outer.is_closed():
            outer.call_soon_threadsafe(self._timers.misused, error)
        raise error

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators belong to the code."""


def _only_in_steps(what: str) -> OnlyInSteps:
    return OnlyInSteps(
        f"code of a workflow used {what}: a replay could not do it again. Put it into a step, and call that", found=what
    )


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise _only_in_steps(_CALLERS.get(name, f"loop.{name}(...)"))

    return refuse


_CALLERS: Final = {
    "run_in_executor": "a thread (asyncio.to_thread, loop.run_in_executor)",
    "create_connection": "a socket (asyncio.open_connection, loop.create_connection)",
    "subprocess_exec": "a subprocess (asyncio.create_subprocess_exec)",
    "subprocess_shell": "a subprocess (asyncio.create_subprocess_shell)",
    "run_until_complete": "loop.run_until_complete(...), which is for programs: `await` it",
}
for _name, _method in vars(asyncio.AbstractEventLoop).items():
    if not _name.startswith("_") and callable(_method) and _name not in vars(FlowLoop):
        setattr(FlowLoop, _name, _refusal(_name))


def _stack_of(task: asyncio.Task[Any]) -> list[str]:
    return traceback.format_list(_frames_of(task)[:STACK_FRAMES])


def _frames_of(task: asyncio.Task[Any]) -> list[traceback.FrameSummary]:
    """Return the frames of a task, innermost last."""
    return frames_of(task.get_coro(), FRAMES)


def current() -> FlowLoop | None:
    """Return the loop of the workflow whose code calls this; None outside of workflows, and in bodies of steps."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, FlowLoop) else None


def _asyncio_function(frame: FrameType | None) -> str:
    """Return the function of asyncio that makes a task, if replays depend on it: "wait_for", "as_completed" or ""."""
    for _ in range(_FRAMES):
        if frame is None:
            return ""
        code = frame.f_code
        if code.co_filename != _TASKS_FILE:
            if "asyncio" not in code.co_filename:
                return ""
        elif code.co_name == "wait_for":
            return "wait_for"
        elif code.co_name == "as_completed" or "_AsCompletedIterator" in code.co_qualname:
            return "as_completed"
        frame = frame.f_back
    return ""


def _close_without_effect(generator: AsyncGenerator[Any, Any]) -> None:
    """Run the `finally` blocks of an async generator up to the first that awaits something."""
    closing = generator.aclose()
    try:
        closing.send(None)
    except BaseException:  # noqa: BLE001 - as in `_close_quietly`
        return
    _close_quietly(closing)


def _close_quietly(coro: Coroutine[Any, Any, Any] | Generator[Any, Any, Any]) -> None:
    try:
        coro.close()
    except BaseException:  # noqa: BLE001 - no caller could handle an error of a finally in dropped code
        return


def _close(coro: Coroutine[Any, Any, Any] | Generator[Any, Any, Any]) -> None:
    close = getattr(coro, "close", None)
    if close is not None:
        close()
