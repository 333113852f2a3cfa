"""Every place at which a program may die, one after the other; and pairs of them.

    explored = await crash_everywhere(program, recover, check)

A *program* is a coroutine function that takes a book. It runs once without faults, so that its operations are counted; then once
for each operation and fault, against a fresh `MemoryCluster` each. What is left is then recovered by `recover`, which is another
process (another session, another incarnation), and `check` looks at the result. With `pairs`, recovery dies too, at each of its
operations, and another recovery follows.

A run that fails says which faults led to it, and what had been done up to then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
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


class Explored(NamedTuple):
    """What was tried.

    Attributes:
        operations: of the program, without faults. runs: in which a fault was met.
    """

    operations: int
    runs: int


async def _nothing(_: object) -> None:
    """A recovery, or a check, of which there is none."""


async def while_alive(book: BookPort, work: Coroutine[Any, Any, object]) -> None:
    """Works, unless the process dies in one of its other tasks: for programs that have some. Raises Died; what the work raises."""
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
    """Tasks of a process that was killed may end with errors that nobody gets: that is no fault."""
    if isinstance(getattr(task, "_exception", None), Died | ClosedError):
        task.exception()


class _Tasks:
    """Makes tasks of a loop that do not complain of having been killed, however long after the test they are collected."""

    def __init__(self, before: Any) -> None:
        """`before`: the loop's own way of making tasks, if it has one."""
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
    """One run."""

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
        """The book in a session of its own."""
        return (await self._cluster.connect()).book(BOOK)

    async def run(self, name: str, program: Program, fault: Fault | None) -> FaultyBook:
        """Runs a process to its end, or death."""
        book = FaultyBook(await self.book(), fault, always_replay=self.always_replay)
        before = asyncio.all_tasks()
        try:
            await program(book)
        except Died:
            pass
        finally:
            self.story += [f"{name}: {what}" for what in book.operations]
            if fault is not None:
                self.story.append(f"{name} met {fault.kind} at operation {fault.at}")
            left = [
                task
                for task in asyncio.all_tasks() - before
                if any(name in repr(task) for name in ("bokilib", "bokistore", "bokiqueue", "bokiflow"))
            ]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await book.settle()
        return book


def _faults(book: FaultyBook, kinds: Sequence[FaultKind]) -> list[Fault]:
    """All faults that a process can meet which did what this one did."""
    appends = set(book.appends)
    return [
        Fault(at, kind) for at in range(len(book.operations)) for kind in kinds if kind not in UNKNOWNS or at in appends
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
    """One run: the program, then recoveries, each with its fault, then one without, then the check."""
    processes = []
    async with _World(clock, always_replay=always_replay) as world:
        try:
            await before(await world.book())
            for number, fault in enumerate([*faults, None] if faults else [None]):
                name = "program" if not number else f"recovery {number}"
                processes.append(await world.run(name, recover if number else program, fault))
            await check(await world.book())
        except BaseException as error:
            error.add_note("it came to this:\n  " + "\n  ".join(world.story))
            raise
    return processes


async def crash_everywhere(
    program: Program,
    recover: Program = _nothing,
    check: Check = _nothing,
    *,
    kinds: Sequence[FaultKind] = CRASHES,
    pairs: bool = False,
    clock: Clock | None = None,
    before: Check = _nothing,
    always_replay: bool = False,
) -> Explored:
    """Runs a program with a fault at every operation; see the module.

    Args:
        kinds: of faults: crashes, by default; also `UNKNOWNS`, which a program must survive by itself.
        pairs: each recovery meets each fault too.
        clock: of the log.
        before: makes what the program finds; without faults.
        always_replay: libraries keep nothing in memory that they can compute from the log.

    Raises:
        What the program, the recovery or the check raised, with a note of how it came to that.
    """
    (plain,) = await _attempt(program, recover, check, (), clock, before, always_replay)
    runs = 0
    for fault in _faults(plain, kinds):
        processes = await _attempt(program, recover, check, (fault,), clock, before, always_replay)
        runs += 1
        if pairs:
            for second in _faults(processes[1], kinds):
                await _attempt(program, recover, check, (fault, second), clock, before, always_replay)
                runs += 1
    return Explored(len(plain.operations), runs)


async def start_anywhere(
    program: Program,
    second: Program,
    check: Check = _nothing,
    *,
    clock: Clock | None = None,
    before: Check = _nothing,
    always_replay: bool = False,
) -> Explored:
    """Runs a program, and a second process from its beginning to its end before each operation of the first.

    Raises:
        What one of them or the check raised, with a note of how it came to that.
    """
    at = runs = 0
    while True:
        async with _World(clock) as world:
            others: list[asyncio.Future[object]] = []

            async def other(world: _World = world) -> object:
                return await second(await world.book())

            async def pause(number: int, at: int = at, others: list[asyncio.Future[object]] = others) -> None:
                if number == at and not others:
                    others.append(asyncio.ensure_future(other()))
                    await asyncio.shield(others[0])  # it is another process: what the first gives up does not end it

            book = FaultyBook(await world.book(), pause=pause, always_replay=always_replay)
            try:
                await before(await world.book())
                await program(book)
                await asyncio.gather(*others)
                await check(await world.book())
            except BaseException as error:
                for one in others:
                    one.cancel()
                await asyncio.gather(*others, return_exceptions=True)
                error.add_note(f"the second process ran before operation {at} of:\n  " + "\n  ".join(book.operations))
                raise
            if not others:
                return Explored(len(book.operations), runs)
        runs += 1
        at += 1
