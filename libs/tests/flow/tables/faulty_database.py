"""Faults around every operation of a database: the process dies, or the answer is lost; then the result is checked."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import boki
from boki.testing import MemoryCluster
from bokiflow.tables import MemoryTables, WriteUnknown
from bokilib.ports import BookPort
from bokilib.testing import Died, FaultyBook


class World(Protocol):
    """Processes that share a database, one after the other."""

    @property
    def port(self) -> MemoryTables: ...

    async def work(self, book: BookPort) -> None:
        """Run one process, which may die."""

    async def check(self, book: boki.Book) -> None:
        """Check the database and the log after the last process."""


W = TypeVar("W", bound=World)


class DatabaseFault:
    """A fault before or after one operation of the database: the process dies, or the answer is lost. `met` says that it happened."""

    def __init__(self, at: int, book: FaultyBook, *, dies: bool) -> None:
        self.met = False
        self._left = at
        self._book = book
        self._dies = dies

    def __call__(self, what: str) -> None:
        self._left -= 1
        if self._left >= 0 or (self.met and not self._dies):
            return
        self.met = True
        if not self._dies:
            raise WriteUnknown(f"for once, {what}")
        self._book.die()
        raise Died


async def fail_everywhere(make: Callable[[], W], again: Callable[[W, BookPort], Awaitable[None]], *, dies: bool) -> int:
    """Run a world with a fault at each operation of the database; return how many there are. `again` is the process after the fault."""
    for at in itertools.count():
        async with MemoryCluster() as cluster:
            world = make()
            book = FaultyBook((await cluster.connect()).book("shop"))
            world.port.fault = fault = DatabaseFault(at, book, dies=dies)
            try:
                await world.work(book)
            except (Died, WriteUnknown):
                pass
            world.port.fault = lambda _: None
            await again(world, (await cluster.connect()).book("shop"))
            await world.check((await cluster.connect()).book("shop"))
        if not fault.met:
            return at
    raise AssertionError("every run ends")
