"""An asyncio event loop without a machine: virtual time, seeded order, no sockets, threads or signals.

    loop = SimLoop(seed)
    bookie = loop.process("bookie-1", host="10.0.0.1")
    loop.run_until_complete(scenario())          # hours of virtual time in seconds

Rules:
- Time stands still while anything is ready and then jumps to the next timer. `time()` begins at `START_S`.
- The clock of a process whose machine slept is so far behind; `now` is the time of the world.
- Each process has its ready callbacks in the order in which they were made, as asyncio promises; the seed chooses which
  process has the next turn, and how late (up to `LATENESS_S`) each timer is.
- Sets of tasks and futures, which asyncio itself uses, have the same order in every run (`handles`).
- What needs a machine (threads, signals, subprocesses, name look-ups) is refused; connections are `network`'s.
- Many callbacks without any progress of time are a program that spins: `Spinning` says who does.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from asyncio import Future, events
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar, TypeVarTuple

from boki_sim.world.ending import end_task, errors_ignored
from boki_sim.world.errors import Deadlock, Refused, SimulationError, Spinning
from boki_sim.world.handles import SimFuture, SimHandle, SimTimer
from boki_sim.world.inline_bodies import BODIES, run_inline
from boki_sim.world.process import CURRENT, SimProcess, SimTask
from boki_sim.world.randomness import stream

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
COMPACT_ABOVE: Final = 256
"""Cancelled timers that are kept, at least, before the heap is rebuilt without them."""


Timer: TypeAlias = tuple[float, int, SimHandle | SimTimer | asyncio.Future[None], SimProcess]


class Connections(Protocol):
    """The network, as the loop sees it."""

    async def connect(self, factory: Callable[[], Any], address: str, host: str, path: str = "") -> Any:
        """Raises OSError: refused. Waits for ever when nobody answers."""

    def listen(self, factory: Callable[[], Any], host: str, port: int, path: str = "") -> Any: ...


class _Marks:
    """Counts of callbacks: when to look around and to collect garbage next, and when time went on last."""

    __slots__ = ("collection", "look", "progress")

    def __init__(self) -> None:
        self.look = STEPS_A_LOOK
        self.collection = COLLECT_EVERY
        self.progress = 0


class SimLoop(asyncio.BaseEventLoop):
    """See the module.

    Attributes:
        outside: the process of scenario and checks; never paused or killed.
        network: what `create_connection` and `create_server` use; set by `Network`.
        callbacks: how many ran so far.
        timers: all that waits for a time: a heap of when, number, what, whose.
        serial: numbers given to tasks and futures.
        now: virtual time, as `time()` says.
        watch: called, outside of all processes, after every `STEPS_A_LOOK` callbacks, with who ran since the last time.
        faults: exceptions that no code caught, in the order they were met.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now = START_S
        self.timers: list[Timer] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._asleep: dict[SimProcess, tuple[float, list[Timer]]] = {}
        """Since when, and the timers that stand still."""
        self._runnable: list[SimProcess] = []
        self._order = stream(seed, "order")
        self._lateness = stream(seed, "lateness").random
        self._body_times = stream(seed, "bodies")
        self._graveyard: list[Sequence[asyncio.Task[Any]]] = []
        self._ended = False
        self._marks = _Marks()
        self._moved: list[SimProcess] = []
        self.watch: Callable[[list[SimProcess]], None] | None = None
        self.callbacks = 0
        self.serial = 0
        self.faults: list[dict[str, Any]] = []
        self.network: Connections | None = None
        self.outside = SimProcess(self, "outside", "outside")
        self.current: SimProcess = self.outside
        self.set_task_factory(self._make_task)
        self.set_exception_handler(_keep_fault)

    # -- processes

    def process(self, name: str, host: str) -> SimProcess:
        return SimProcess(self, name, host)

    def wake(self, process: SimProcess) -> None:
        """The process may run again."""
        if process.ready and not process.queued:
            process.queued = True
            self._runnable.append(process)

    def fall_asleep(self, process: SimProcess) -> None:
        """The timers of a process stand still, until `wake_up`."""
        mine = [entry for entry in self.timers if entry[3] is process and type(entry[2]) is SimTimer]
        self.timers = [entry for entry in self.timers if entry[3] is not process or type(entry[2]) is not SimTimer]
        heapify(self.timers)
        self._asleep[process] = self.now, mine

    def wake_up(self, process: SimProcess) -> None:
        """They go on, if they stood still."""
        since, timers = self._asleep.pop(process, (self.now, []))
        process.slept_s += self.now - since
        for when, number, timer, _ in timers:
            heappush(self.timers, (when + self.now - since, number, timer, process))

    def bury(self, process: SimProcess) -> None:
        """Keeps the tasks of a dead process from being collected, which would run them. Errors that they would have got in a
        later turn are dropped."""
        self._graveyard.append(self.tasks_of(process))
        for turn in process.ready:
            for one in turn._args:
                if isinstance(one, Future) and one.done() and not one.cancelled():
                    one.exception()

    def tasks_of(self, process: SimProcess) -> list[SimTask[Any]]:
        """Those that are not done."""
        return [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask) and task.process is process]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        task: SimTask[T] = SimTask.__new__(SimTask)
        self.serial += 1
        task.serial = self.serial  # asyncio puts it into a set while it is being made
        SimTask.__init__(task, coro, loop=loop, **options)
        context: contextvars.Context | None = options.get("context")
        process: SimProcess | None = CURRENT.get(None) if context is None else context.get(CURRENT)
        task.process = process or self.outside
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    # -- time and callbacks

    def time(self) -> float:
        """As the process that runs has it."""
        return self.now - self.current.slept_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
            process = self.current
        else:
            process = context.get(CURRENT) or self.outside
        handle = SimHandle(callback, args, context)
        if process.alive and not self._ended:
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
        when = self.time()
        return self.call_at(when + delay if delay > 0.0 else when, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
            process = self.current
        else:
            process = context.get(CURRENT) or self.outside
        timer = SimTimer(when, callback, args, self, context)
        if not self._ended:
            self._timer_number += 1
            when += process.slept_s + self._lateness() * LATENESS_S
            heappush(self.timers, (when, self._timer_number, timer, process))
        return timer

    def deliver_at(self, when: float, process: SimProcess, handle: SimHandle) -> None:
        """Runs a handle exactly then in a process, unless it is dead: for what the machine does. It may be one of many times."""
        if not self._ended:
            self._timer_number += 1
            heappush(self.timers, (when, self._timer_number, handle, process))

    def settled_after(self, process: SimProcess, seconds: float) -> asyncio.Future[None]:
        """As `settled_at`, so many seconds from now."""
        return self.settled_at(self.now + seconds, process)

    def settled_at(self, when: float, process: SimProcess) -> asyncio.Future[None]:
        """A future, done exactly then unless the process is dead, that nobody but one who awaits it may get hold of.

        It is asyncio's own kind, which is awaited faster; but its place in a set would depend on its address.
        """
        future: Future[None] = Future(loop=self)
        if not self._ended:
            self._timer_number += 1
            heappush(self.timers, (when, self._timer_number, future, process))
        return future

    def timer_cancelled(self) -> None:
        """One of those that wait: when most of them are, they are thrown out."""
        self._cancelled_timers += 1
        if self._cancelled_timers > COMPACT_ABOVE and 2 * self._cancelled_timers > len(self.timers):
            self.timers = [timer for timer in self.timers if not timer[2].cancelled()]
            heapify(self.timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Turn after turn, until somebody stops the loop.

        A turn runs what the process had ready when it began.
        """
        runnable, random, outside, marks = self._runnable, self._order.random, self.outside, self._marks
        while not self._stopping:  # type: ignore[attr-defined]  # of BaseEventLoop
            count = len(runnable)
            if count > 1:
                at = int(random() * count)
                process = runnable[at]
                runnable[at] = runnable[-1]
                del runnable[-1]
            elif count:
                process = runnable.pop()
            else:
                process = self._advance()
            process.queued = False
            if not process.running:
                continue
            ready = process.ready
            count = len(ready)
            if not process.moved:
                process.moved = True
                self._moved.append(process)
            if process.doomed >= 0:
                count = min(count, process.doomed)
                process.doomed -= count
            self.callbacks += count
            self.current = process
            while count:
                count -= 1
                handle = ready.popleft()
                callback = handle._callback
                if callback is None:
                    continue
                try:
                    handle._context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does: the handler gets it
                    self._callback_failed(handle, error)
                if not process.running:
                    self.callbacks -= count
                    break
            self.current = outside
            if process.doomed == 0 and process.alive:
                process.kill()
            if self.callbacks >= marks.look:
                self._look_around(process)
            if ready and not process.queued:
                process.queued = True
                runnable.append(process)

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    def _look_around(self, process: SimProcess) -> None:
        """Now and then: what `watch` sees, whether somebody spins, and what the interpreter may collect."""
        marks = self._marks
        marks.look = self.callbacks + STEPS_A_LOOK
        moved, self._moved = self._moved, []
        for one in moved:
            one.moved = False
        if self.watch is not None:
            self.watch(moved)
        if self.callbacks - marks.progress > SPIN_CALLBACKS:
            names = sorted({task.get_name() for task in self.tasks_of(process)})
            raise Spinning(f"{process.name} runs without waiting for anything, at {self.now:.6f} s; its tasks: {names}")
        if self.callbacks >= marks.collection:
            marks.collection = self.callbacks + COLLECT_EVERY
            gc.collect()

    def _advance(self) -> SimProcess:
        """Nothing is ready: time jumps to the next timer, whose process runs next."""
        timers, runnable = self.timers, self._runnable
        while timers:
            when, _, what, process = heappop(timers)
            if not process.alive:
                continue
            if isinstance(what, Future):
                if what.done():
                    continue
            elif type(what) is SimTimer:
                if what._callback is None:
                    self._cancelled_timers -= 1
                    continue
                what._scheduled = False
            if when > self.now:
                self.now = when
                self._marks.progress = self.callbacks
            if not isinstance(what, Future):
                process.ready.append(what)
                return process
            what.set_result(None)  # who awaits it is called soon
            if runnable:
                return runnable.pop()
        raise Deadlock(f"nothing is ready and no timer is set, at {self.now:.6f} s")

    # -- the end

    def end(self) -> None:
        """Ends all tasks where they are and closes the loop. What their `finally` blocks ask for is not done.

        What is left of them goes when `uncollected` is over.
        """
        if self._ended:
            return
        self._ended = True
        self._graveyard.append([task for task in asyncio.all_tasks(self) if not task.done()])
        for process in (self.outside, *self._runnable):
            process.ready.clear()
        self.timers.clear()
        self.set_exception_handler(lambda *_: None)  # tasks that were cut off have nobody to report to
        events._set_running_loop(self)
        try:
            with errors_ignored():
                for tasks in self._graveyard:
                    for task in sorted(tasks, key=hash):
                        if not task.done():
                            end_task(task)
                for task in sorted(asyncio.all_tasks(self), key=hash):  # `finally` blocks may have made some
                    end_task(task)
                self._graveyard.clear()
        finally:
            events._set_running_loop(None)
        self.close()

    # -- what needs a machine

    def _refuse(self, what: str) -> NoReturn:
        raise Refused(f"{what} inside the simulation: reach the machine through the ports only")

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """In this thread, for the port `Bodies`; refused to everybody else."""
        if sys._getframe(1).f_globals.get("__name__") != BODIES:
            self._refuse(f"run_in_executor({func!r})")
        return run_inline(self, self._body_times, func, args)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> NoReturn:
        self._refuse(f"look-up of {host}")

    async def subprocess_exec(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("a subprocess")

    async def subprocess_shell(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("a subprocess")

    # -- connections

    def _connected_network(self) -> Connections:
        if self.network is None:
            raise SimulationError("this loop has no network: make a boki_sim.world.network.Network for it")
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
