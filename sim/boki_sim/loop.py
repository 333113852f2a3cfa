"""An asyncio event loop without a machine: virtual time, seeded order, no sockets, threads or signals.

    loop = SimLoop(seed)
    bookie = loop.process("bookie-1", host="10.0.0.1")
    loop.run_until_complete(scenario())          # hours of virtual time in seconds

Rules:
- Time stands still while anything is ready and then jumps to the next timer. `time()` begins at `START_S`.
- Each process has its ready callbacks in the order in which they were made, as asyncio promises; the seed chooses which
  process has the next turn, and how late (up to `LATENESS_S`) each timer is.
- Tasks and futures have the order of their making as their hash, so sets of them, which asyncio itself uses, have the
  same order in every run.
- What needs a machine (threads, signals, subprocesses, name look-ups) is refused; connections are `network`'s.
- Many callbacks without any progress of time are a program that spins: `Spinning` says who does.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, TypeVarTuple

from boki_sim.process import CURRENT, SimProcess, State
from boki_sim.randomness import stream

if TYPE_CHECKING:
    from boki_sim.network import Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_S: Final = 1_000.0
LATENESS_S: Final = 0.000_5
"""A real loop's timers are late by up to this; never early."""
SPIN_CALLBACKS: Final = 2_000_000
"""So many callbacks at one moment of virtual time are a spin."""
COLLECT_EVERY: Final = 400_000
"""Callbacks between two garbage collections, which happen at these moments only: collecting may run code."""
STEPS_A_LOOK: Final = 16
"""Callbacks between two looks of `watch`; a spin and the next collection are noticed there too."""
COMPACT_ABOVE: Final = 4_096
"""Cancelled timers that are kept, at least, before the heap is rebuilt without them."""

UNWINDING_STEPS: Final = 50
"""How often a coroutine that waits again while it is ended is ended again."""


class SimulationError(Exception):
    """The simulation itself cannot go on: the scenario, or code under it, did what it must not."""


class Spinning(SimulationError):
    """Code runs for ever without waiting for anything."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set, but the scenario has not ended."""


class Refused(SimulationError):
    """Code under the simulation reached for the machine: wall clock, randomness, thread, socket, file."""


class SimFuture(asyncio.Future[T]):
    """A future whose place in sets does not depend on its address."""

    _serial = 0

    def __hash__(self) -> int:
        return self._serial or _numbered(self)


class SimTask(asyncio.Task[T]):
    """A task whose place in sets does not depend on its address."""

    _serial = 0

    def __hash__(self) -> int:
        return self._serial or _numbered(self)


class SimHandle(events.Handle):
    """A callback that waits for its turn: asyncio's own, made with less ado, which is a tenth of a simulation's time."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False


def _numbered(future: SimFuture[Any] | SimTask[Any]) -> int:
    """A number at the first use as a member of a set: asyncio does so for a task while it is being made."""
    loop = future.get_loop()
    assert isinstance(loop, SimLoop)
    loop.serial += 1
    future._serial = loop.serial
    return loop.serial


class SimLoop(asyncio.BaseEventLoop):
    """See the module.

    Attributes:
        outside: the process of scenario and checks; never paused or killed.
        network: what `create_connection` and `create_server` use; set by `Network`.
        callbacks: how many ran so far.
        serial: numbers given to tasks and futures.
        watch: called, outside of all processes, after every `STEPS_A_LOOK` callbacks.
        faults: exceptions that no code caught, in the order they were met.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._now = START_S
        self._timers: list[tuple[float, int, asyncio.Handle, SimProcess]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._runnable: list[SimProcess] = []
        self._order = stream(seed, "order")
        self._lateness = stream(seed, "lateness").random
        self._graveyard: list[list[asyncio.Task[Any]]] = []
        self._ended = False
        self._last_progress = 0
        self._next_look = STEPS_A_LOOK
        self.watch: Callable[[], None] | None = None
        self._next_collection = COLLECT_EVERY
        self.callbacks = 0
        self.serial = 0
        self.faults: list[dict[str, Any]] = []
        self.network: Network | None = None
        self.outside = SimProcess(self, "outside", "outside")
        self.current: SimProcess = self.outside
        self.set_task_factory(self._make_task)
        self.set_exception_handler(_keep_fault)

    # -- processes

    def process(self, name: str, host: str) -> SimProcess:
        """A new process on a machine."""
        return SimProcess(self, name, host)

    def wake(self, process: SimProcess) -> None:
        """The process may run again."""
        if process.ready and not process.queued:
            process.queued = True
            self._runnable.append(process)

    def bury(self, process: SimProcess) -> None:
        """Keeps the tasks of a dead process from being collected, which would run them."""
        self._graveyard.append(list(process.tasks))

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        task: SimTask[T] = SimTask(coro, loop=loop, **options)
        context = options.get("context")
        process = (CURRENT.get(None) if context is None else context.get(CURRENT)) or self.outside
        process.tasks.add(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    # -- time and callbacks

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        if context is None:
            process = self.current
        else:
            process = context.get(CURRENT) or self.outside
        if process.state is not State.DEAD and not self._ended:
            process.ready.append(handle)
            if not process.queued:
                process.queued = True
                self._runnable.append(process)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = self.current if context is None else (context.get(CURRENT) or self.outside)
        handle = events.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]  # asyncio's own mark
        self._push(when + self._lateness() * LATENESS_S, handle, process)
        return handle

    def deliver_at(self, when: float, process: SimProcess, callback: Callable[..., object], *args: Any) -> None:
        """Calls back exactly then in a process, unless it is dead: for what the machine does."""
        self._push(when, SimHandle(callback, args, self, process.context), process)

    def _push(self, when: float, handle: asyncio.Handle, process: SimProcess) -> None:
        if not self._ended:
            self._timer_number += 1
            heapq.heappush(self._timers, (when, self._timer_number, handle, process))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > COMPACT_ABOVE and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Turn after turn, until somebody stops the loop."""
        runnable, random = self._runnable, self._order.random
        while not self._stopping:  # type: ignore[attr-defined]  # of BaseEventLoop
            if not runnable:
                self._advance()
                continue
            last = len(runnable) - 1
            if last:
                at = int(random() * (last + 1))
                runnable[at], runnable[last] = runnable[last], runnable[at]
            process = runnable.pop()
            process.queued = False
            if process.state is State.RUNNING:
                self._turn(process)
                if process.ready and not process.queued:
                    process.queued = True
                    runnable.append(process)

    def _turn(self, process: SimProcess) -> None:
        """Runs what the process had ready when its turn began."""
        self.current = process
        ready = process.ready
        count = len(ready)
        if process.doomed >= 0:
            count = min(count, process.doomed)
            process.doomed -= count
        ran = 0
        while ran < count and ready:
            handle = ready.popleft()
            ran += 1
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # a Handle's own
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio does: the handler is told
                self._callback_failed(handle, error)
            if process.state is not State.RUNNING:
                break
        self.current = self.outside
        self.callbacks += ran
        if process.doomed == 0 and process.alive:
            process.kill()
        if self.callbacks >= self._next_look:
            self._look_around(process)

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    def _look_around(self, process: SimProcess) -> None:
        """Now and then: what `watch` sees, whether somebody spins, and what the interpreter may collect."""
        self._next_look = self.callbacks + STEPS_A_LOOK
        if self.watch is not None:
            self.watch()
        if self.callbacks - self._last_progress > SPIN_CALLBACKS:
            names = sorted({task.get_name() for task in process.tasks if not task.done()})
            raise Spinning(
                f"{process.name} runs without waiting for anything, at {self._now:.6f} s; its tasks: {names}"
            )
        if self.callbacks >= self._next_collection:
            self._next_collection = self.callbacks + COLLECT_EVERY
            gc.collect()

    def _advance(self) -> None:
        """Nothing is ready: time jumps to the next timer."""
        timers = self._timers
        while timers:
            when, _, handle, process = heapq.heappop(timers)
            if handle._cancelled:
                self._cancelled_timers = max(0, self._cancelled_timers - 1)
                continue
            if process.state is State.DEAD:
                continue
            if when > self._now:
                self._now = when
                self._last_progress = self.callbacks
            if type(handle) is events.TimerHandle:
                handle._scheduled = False  # type: ignore[attr-defined]  # asyncio's own mark
            process.ready.append(handle)
            if not process.queued:
                process.queued = True
                self._runnable.append(process)
            return
        raise Deadlock(f"nothing is ready and no timer is set, at {self._now:.6f} s")

    # -- the end

    def end(self) -> None:
        """Ends all tasks where they are and closes the loop. What their `finally` blocks ask for is not done."""
        if self._ended:
            return
        self._ended = True
        self._graveyard.append([task for task in asyncio.all_tasks(self) if not task.done()])
        for process in (self.outside, *self._runnable):
            process.ready.clear()
        self._timers.clear()
        self.set_exception_handler(_forget_fault)
        before, sys.unraisablehook = sys.unraisablehook, _forget_unraisable
        events._set_running_loop(self)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # coroutines that had not begun yet
                for tasks in self._graveyard:
                    for task in sorted(tasks, key=hash):
                        if not task.done():
                            _end_task(task)
                self._graveyard.clear()
                gc.collect()
        finally:
            events._set_running_loop(None)
            sys.unraisablehook = before
        self.close()

    # -- what needs a machine

    def _refuse(self, what: str) -> NoReturn:
        raise Refused(f"{what} inside the simulation: reach the machine through the ports only")

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        self._refuse(f"run_in_executor({func!r})")

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> NoReturn:
        self._refuse(f"look-up of {host}")

    async def subprocess_exec(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("a subprocess")

    async def subprocess_shell(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("a subprocess")

    # -- connections

    def _connected_network(self) -> Network:
        if self.network is None:
            raise SimulationError("this loop has no network: make a boki_sim.network.Network for it")
        return self.network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if host is None or port is None or options:
            self._refuse(f"create_connection with {sorted(options) or 'a socket'}")
        return await self._connected_network().connect(protocol_factory, f"{host}:{port}", str(host))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        options.pop("backlog", None)
        if not isinstance(host, str) or port is None or options:
            self._refuse(f"create_server on {host!r} with {sorted(options)}")
        return self._connected_network().listen(protocol_factory, host, int(port))

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        if path is None or options:
            self._refuse(f"create_unix_connection with {sorted(options)}")
        network, host = self._connected_network(), (CURRENT.get(None) or self.outside).host
        return await network.connect(protocol_factory, f"{host}:{path}", host, path=str(path))

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **options: Any) -> Any:
        options.pop("backlog", None)
        if path is None or options:
            self._refuse(f"create_unix_server with {sorted(options)}")
        return self._connected_network().listen(
            protocol_factory, (CURRENT.get(None) or self.outside).host, 0, str(path)
        )


def _keep_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimLoop)
    loop.faults.append({"process": loop.current.name, **context})


def _forget_fault(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """After the end: tasks that were cut off have nobody to tell."""


def _forget_unraisable(_unraisable: sys.UnraisableHookArgs) -> None:
    """As `_forget_fault`."""


def _end_task(task: asyncio.Task[Any]) -> None:
    """Unwinds a coroutine without running what it would await."""
    coroutine = task.get_coro()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
    for _ in range(UNWINDING_STEPS):
        try:
            if coroutine is not None:
                coroutine.close()
            return
        except BaseException:  # noqa: BLE001 - it is being thrown away; what it says concerns nobody
            continue
