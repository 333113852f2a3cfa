"""Exploration of crashes: a program is run with a fault at each of its operations, or with pairs of faults.

    explored = await crash_everywhere(program, recover, check)

A *program* is a coroutine function that takes a book. It first runs without faults, to count its operations, and then once for each
operation and fault, each time on a fresh `MemoryCluster`. After each run `recover` runs as another process (another session, another
incarnation), and `check` asserts about the result. With `pairs`, the recovery meets each fault at each of its operations too, and
another recovery follows.

The error of a failed run has a note with the faults that led to it and the operations up to there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import boki
from boki_common.errors import ClosedError
from boki_common.runtime.ports import Clock
from bokilib.ports import BookPort
from bokilib.testing._faults import Died, Fault, FaultKind, FaultyBook

BOOK: Final = "explored"
T = TypeVar("T")

Program: TypeAlias = Callable[[BookPort], Awaitable[object]]
Check: TypeAlias = Callable[[boki.Book], Awaitable[object]]

CRASHES: Final[tuple[FaultKind, ...]] = ("before", "after")
UNKNOWNS: Final[tuple[FaultKind, ...]] = ("lost", "never")
UNANSWERED: Final[tuple[FaultKind, ...]] = ("unanswered",)

LATER: Final = (1, 3)
"""Numbers of operations between an unanswered append and the death of its process, by default."""
RUNS_ON_S: Final = 2.0
"""Seconds for which the other tasks of a process run on while one of its operations waits for a whole second process."""


class Explored(NamedTuple):
    """The extent of an exploration.

    Attributes:
        operations: number of operations of the program without faults.
        runs: number of runs with a fault.
    """

    operations: int
    runs: int


async def _nothing(_: object) -> None:
    """Do nothing: the default recovery and check."""


async def while_alive(book: BookPort, work: Coroutine[Any, Any, object]) -> None:
    """Await work, and stop if another task of the process dies meanwhile: for programs with several tasks.

    Raises:
        Died: the process died. Errors of the work are passed on.
    """
    if not isinstance(book, FaultyBook):
        await work
        return
    tasks = [asyncio.ensure_future(one) for one in (work, book.death())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        (worked, _) = await asyncio.gather(*tasks, return_exceptions=True)
    if book.dead:
        raise Died
    if isinstance(worked, BaseException):
        raise worked


def _ignore_death(task: asyncio.Future[Any]) -> None:
    """Mark `Died` and ClosedError of a task as retrieved: a task of a killed process may end with an error that no code awaits."""
    if isinstance(getattr(task, "_exception", None), Died | ClosedError):
        task.exception()


class _Tasks:
    """A task factory whose tasks log no unretrieved error of a killed process, also if they are collected after the test."""

    def __init__(self, before: Any) -> None:
        """Wrap the loop's own task factory, `before`, if it has one."""
        self._before: Final = before

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Generator[Any, None, T] | Coroutine[Any, Any, T],
        /,
        **options: Any,
    ) -> asyncio.Future[T]:
        task: asyncio.Future[T]
        if self._before is not None:
            task = self._before(loop, work, **options)
        else:
            assert isinstance(work, Coroutine)
            task = asyncio.Task(work, loop=loop, **options)
        task.add_done_callback(_ignore_death)
        return task


class _World:
    """A fresh cluster for one run, and the story of its operations."""

    def __init__(self, clock: Clock | None, *, always_replay: bool = False) -> None:
        self.story: list[str] = []
        self.always_replay: Final = always_replay
        self._cluster = boki.testing.MemoryCluster(clock=clock)

    async def __aenter__(self) -> _World:
        loop = asyncio.get_running_loop()
        self._factory = loop.get_task_factory()
        loop.set_task_factory(_Tasks(self._factory))
        await self._cluster.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._cluster.__aexit__(None, None, None)
        asyncio.get_running_loop().set_task_factory(self._factory)

    async def book(self) -> boki.Book:
        """Return the book in a new session."""
        return (await self._cluster.connect()).book(BOOK)

    async def run(self, name: str, program: Program, fault: Fault | None) -> FaultyBook:
        """Run a process until it ends or dies, and cancel the tasks that it leaves."""
        book = FaultyBook(await self.book(), fault, always_replay=self.always_replay)
        before = asyncio.all_tasks()
        try:
            await program(book)
        except Died:
            pass
        finally:
            self.story += [f"{name}: {what}" for what in book.operations]
            if fault is not None:
                self.story.append(f"{name} met {fault}")
            left = [
                task
                for task in asyncio.all_tasks() - before
                if any(name in repr(task) for name in ("bokilib", "bokistore", "bokiqueue", "bokirsm", "bokiflow"))
            ]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await book.settle()
        return book


def _faults(book: FaultyBook, kinds: Sequence[FaultKind], later: Sequence[int]) -> list[Fault]:
    """Return all faults for the operations of a process; those of an outcome only for its appends."""
    appends = set(book.appends)
    return [
        Fault(at, kind, count)
        for at in range(len(book.operations))
        for kind in kinds
        if kind in CRASHES or at in appends
        for count in (later if kind in UNANSWERED else (0,))
    ]


async def _attempt(
    program: Program,
    recover: Program,
    check: Check,
    faults: Sequence[Fault | None],
    clock: Clock | None,
    before: Check,
    always_replay: bool,
) -> list[FaultyBook]:
    """Run the program, one recovery for each further fault, a last one without a fault, and the check."""
    processes = []
    async with _World(clock, always_replay=always_replay) as world:
        try:
            await before(await world.book())
            for number, fault in enumerate([*faults, None] if faults else [None]):
                name = "program" if not number else f"recovery {number}"
                processes.append(await world.run(name, recover if number else program, fault))
            await check(await world.book())
        except BaseException as error:
            error.add_note("operations of this run:\n  " + "\n  ".join(world.story))
            raise
    return processes


async def crash_everywhere(
    program: Program,
    recover: Program = _nothing,
    check: Check = _nothing,
    *,
    kinds: Sequence[FaultKind] = CRASHES,
    later: Sequence[int] = LATER,
    pairs: bool = False,
    clock: Clock | None = None,
    before: Check = _nothing,
    always_replay: bool = False,
) -> Explored:
    """Run a program with a fault at each of its operations, one fault a run.

    Errors of the program, the recovery or the check are passed on, with a note of the operations that led to them.

    Args:
        program: the process under test.
        recover: the process that runs after each death.
        check: asserts about the book after the last recovery.
        kinds: the faults: `CRASHES` by default; or `UNKNOWNS`, which a program must survive without a recovery; or `UNANSWERED`, in virtual
            time: the process continues without the answer of an append, and dies later.
        later: operations of the process after an unanswered append, one run for each number.
        pairs: also let the recovery meet each fault at each of its operations.
        clock: of the log.
        before: prepares the book, without faults.
        always_replay: libraries keep no state in memory that they can compute from the log.
    """
    (plain,) = await _attempt(program, recover, check, (), clock, before, always_replay)
    runs = 0
    for fault in _faults(plain, kinds, later):
        processes = await _attempt(program, recover, check, (fault,), clock, before, always_replay)
        runs += 1
        if pairs:
            for second in _faults(processes[1], kinds, later):
                await _attempt(program, recover, check, (fault, second), clock, before, always_replay)
                runs += 1
    return Explored(len(plain.operations), runs)


async def _second(second: Program, world: _World) -> object:
    return await second(await world.book())


class _Beside:
    """A second process, which runs as a whole before one operation of the first.

    Attributes:
        tasks: the second process, once it was started.
    """

    def __init__(self, at: int, second: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.tasks: Final[list[asyncio.Task[object]]] = []
        self._at: Final = at
        self._second: Final = second
        self._stops_s = 0.0
        """When all of the first process stops."""

    async def pause(self, number: int) -> None:
        """Hold up an operation of the first process while the second one runs: operation `at`, and all once the process has stopped."""
        now_s = asyncio.get_running_loop().time()
        if number == self._at and not self.tasks:
            self.tasks.append(asyncio.create_task(self._second()))
            self._stops_s = now_s + RUNS_ON_S
        elif not self.tasks or now_s < self._stops_s:
            return
        await asyncio.shield(self.tasks[0])  # cancelling the first process must not end the second


async def start_anywhere(
    program: Program,
    second: Program,
    check: Check = _nothing,
    *,
    clock: Clock | None = None,
    before: Check = _nothing,
    always_replay: bool = False,
) -> Explored:
    """Run a program once for each of its operations, with a whole second process before that operation.

    Other tasks of the program run on beside the second process, and stop too after `RUNS_ON_S`: the second process may need what the first
    one holds, and it gets that only once the first one is taken for dead.

    Errors of either process or the check are passed on, with a note of the operations that led to them.

    Args:
        program: the first process.
        second: the second process, which runs from its beginning to its end.
        check: asserts about the book after both.
        clock: of the log.
        before: prepares the book.
        always_replay: libraries keep no state in memory that they can compute from the log.
    """
    at = runs = 0
    while True:
        async with _World(clock) as world:
            beside = _Beside(at, partial(_second, second, world))
            book = FaultyBook(await world.book(), pause=beside.pause, always_replay=always_replay)
            try:
                await before(await world.book())
                await program(book)
                await asyncio.gather(*beside.tasks)
                await check(await world.book())
            except BaseException as error:
                for one in beside.tasks:
                    one.cancel()
                await asyncio.gather(*beside.tasks, return_exceptions=True)
                error.add_note(f"the second process ran before operation {at} of:\n  " + "\n  ".join(book.operations))
                raise
            if not beside.tasks:
                return Explored(len(book.operations), runs)
        runs += 1
        at += 1
