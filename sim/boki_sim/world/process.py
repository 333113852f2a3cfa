"""Simulated processes: what runs together, is paused together, and dies together.

A process is whatever runs in a context in which `current` names it: tasks, callbacks, timers and connections inherit the
context of who made them, so nothing in a role has to know. Each process has a ready queue of its own, first in, first out,
as a real event loop has; which process runs next is the seed's choice.

A process is *paused* alone, as by SIGSTOP: the clock of its loop runs on, and what was due meanwhile runs when it is resumed. Or
it *sleeps*, with its machine: the clock of its loop stands still, as CLOCK_MONOTONIC does; wall clock and boot time run on.

A killed process runs nothing any more, not even its `finally` blocks: its tasks are kept, unfinished, until the simulation
has ended, because collecting them would run them.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from boki_sim.world.handles import SimHandle, SimTimer

T = TypeVar("T")

CURRENT: Final[contextvars.ContextVar[SimProcess]] = contextvars.ContextVar("boki_sim_process")
"""The process that runs in a context; unset: outside of all of them, where scenario and checks live."""


class State(enum.Enum):
    """Of a process. DEAD is for ever: a restart is a new process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class WallClock(Protocol):
    """Of a machine."""

    def now_ms(self) -> int: ...


class Scheduler(Protocol):
    """The loop, as its processes see it."""

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str, context: contextvars.Context
    ) -> asyncio.Task[T]: ...
    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context
    ) -> asyncio.Handle: ...
    def wake(self, process: SimProcess) -> None:
        """The process may run again."""

    def fall_asleep(self, process: SimProcess) -> None:
        """The timers of a process stand still, until `wake_up`."""

    def wake_up(self, process: SimProcess) -> None: ...
    def tasks_of(self, process: SimProcess) -> Sequence[asyncio.Task[Any]]:
        """Those that are not done."""

    def bury(self, process: SimProcess) -> None:
        """Keeps the tasks of a dead process from being collected, which would run them."""


class SimProcess:
    """See the module. Made by `SimLoop.process`.

    Attributes:
        name: for people and the trace; unique to each incarnation ("bookie-1#2").
        host: the machine it runs on: its network address.
        ready: callbacks that wait for their turn; the loop's.
        state: what became of it; `alive` and `running` say it faster.
        queued: whether the loop knows that it has something to run.
        moved: whether it ran since the loop's last look around.
        doomed: callbacks it may still run before `kill_after` takes effect; -1: not doomed.
        clock: the wall clock of its machine, where faults may change it; None: that of the simulation.
        slept_s: how long it has slept so far: its loop's clock is so far behind.
        on_death: called once when it dies, by whoever holds something of it (connections, sessions, disks).
    """

    __slots__ = (
        "__weakref__",
        "_loop",
        "alive",
        "clock",
        "context",
        "doomed",
        "host",
        "moved",
        "name",
        "on_death",
        "queued",
        "ready",
        "running",
        "slept_s",
        "state",
    )

    def __init__(self, loop: Scheduler, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.state = State.RUNNING
        self.alive = True
        self.running = True
        self.ready: deque[SimHandle | SimTimer] = deque()
        self.queued = False
        self.moved = False
        self.doomed = -1
        self.slept_s = 0.0
        self.clock: WallClock | None = None
        self.on_death: list[Callable[[], None]] = []
        self._loop = loop
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.value}>"

    def start(self, main: Coroutine[Any, Any, T], *, name: str = "main") -> asyncio.Task[T]:
        return self._loop.create_task(main, name=name, context=self.context)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Calls back in this process; nothing happens when it is dead."""
        self._loop.call_soon(callback, *args, context=self.context)

    def tasks(self) -> Sequence[asyncio.Task[Any]]:
        """Those that are not done."""
        return self._loop.tasks_of(self)

    def pause(self) -> None:
        """Stops running, as SIGSTOP does: its connections stay, what arrives waits."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED
            self.running = False

    def sleep(self) -> None:
        """As its machine does. Ends with `resume`; nothing happens when it is paused or dead."""
        if self.state is State.RUNNING:
            self.pause()
            self._loop.fall_asleep(self)

    def resume(self) -> None:
        """Ends `pause` and `sleep`."""
        if self.state is State.PAUSED:
            self._loop.wake_up(self)
            self.state = State.RUNNING
            self.running = True
            self._loop.wake(self)

    def kill(self) -> None:
        """Ends it at once, between two callbacks. Idempotent."""
        if not self.alive:
            return
        self.state = State.DEAD
        self.alive = self.running = False
        self._loop.bury(self)  # before its turns are dropped: some tasks are known to nothing but their next turn
        self.ready.clear()
        waiting, self.on_death = self.on_death, []
        for callback in waiting:
            callback()

    def kill_after(self, callbacks: int) -> None:
        """Ends it when it has run so many more callbacks: in the middle of whatever it does then."""
        if self.doomed < 0:
            self.doomed = callbacks


class SimTask(asyncio.Task[T]):
    """A task whose place in sets does not depend on its address."""

    __slots__ = ("process", "serial")
    process: SimProcess
    serial: int

    def __hash__(self) -> int:
        return self.serial
