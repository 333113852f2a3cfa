"""Iterators of libraries whose `anext` may be cancelled, by `asyncio.wait_for` for example: that ends an async generator.

    def events(self, topic: str) -> Iteration[Json]:
        return of_records(book.read(tag, start=1, follow=True), self._values_in)

An iterator is made of a coroutine function `more`, which returns the next items: none if there may be others later, None at the end.
`more` changes nothing that it remembers before the last time that it waits. So a call that was cancelled, or that raised, is repeated by
the next `anext`, and nothing is lost or given twice.

An iterator holds nothing while no task waits for its next item, unless it has a `release`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import boki
from boki_common.errors import IteratorBusy
from bokilib.ports import RecordsPort

T = TypeVar("T")


def _nothing() -> None:
    """Release nothing."""


class Iteration(AsyncIterator[T], Generic[T]):
    """An iterator that continues after an `anext` that was cancelled or that raised. One task at a time may wait for its next item."""

    def __init__(
        self, more: Callable[[], Awaitable[Sequence[T] | None]], *, release: Callable[[], None] = _nothing
    ) -> None:
        """Create an iterator.

        Args:
            more: returns the next items, see the module.
            release: called once, when the iterator ends, is closed, or is dropped.
        """
        self._more = more
        self._release = release
        self._items: deque[T] = deque()
        self._ended = False
        self._waiting: asyncio.Timeout | None = None

    def __aiter__(self) -> Iteration[T]:
        return self

    async def __anext__(self) -> T:
        """Wait for the next item.

        Raises:
            IteratorBusy: another task waits for it.
        """
        if not self._items and not self._ended:
            await self._fill()
        if not self._items:
            raise StopAsyncIteration
        return self._items.popleft()

    async def _fill(self) -> None:
        """Wait until there are items, or the iterator has ended."""
        if self._waiting is not None:
            raise IteratorBusy(
                "another task waits for the next item of this iterator: expected one iterator for each task"
            )
        try:
            async with asyncio.timeout(None) as self._waiting:
                while not self._items and not self._ended:
                    found = await self._more()
                    if found is None:
                        self._end()
                    else:
                        self._items.extend(found)
        except TimeoutError:
            if not self._ended:
                raise
        finally:
            self._waiting = None

    async def aclose(self) -> None:
        """End the iteration, also that of a task that waits for the next item. It may be called twice."""
        self._items.clear()
        self._end()
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._release()

    def __del__(self) -> None:
        self._end()


def once(call: Callable[[], Awaitable[Sequence[T]]]) -> Iteration[T]:
    """Return an iterator over the result of one call, which begins with the first `anext`."""
    found = False

    async def more() -> Sequence[T] | None:
        nonlocal found
        if found:
            return None
        items = await call()
        found = True
        return items

    return Iteration(more)


def of_records(
    records: RecordsPort, items_of: Callable[[boki.Record | boki.Gap], Awaitable[Sequence[T]]]
) -> Iteration[T]:
    """Return an iterator over what is made of each record or gap of a read.

    Args:
        records: the read, which continues after a call that was cancelled, as all reads of a book do.
        items_of: returns the items of a record or gap. It is called again with a record if it was cancelled or raised, so it changes
            nothing that it remembers before the last time that it waits.
    """
    taken: boki.Record | boki.Gap | None = None

    async def more() -> Sequence[T] | None:
        nonlocal taken
        if taken is None:
            taken = await anext(records, None)
        if taken is None:
            return None
        items = await items_of(taken)
        taken = None
        return items

    return Iteration(more)
