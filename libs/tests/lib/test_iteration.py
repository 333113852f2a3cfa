"""Iterators that continue after an `anext` that was cancelled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import aclosing

import pytest

import boki
from boki_common.errors import Unreachable
from bokilib.iteration import Iteration, of_records, once
from libs.tests.cutting import cut_everywhere

GIVEN = [[1, 2], [], [3], [4, 5, 6]]


class _Source:
    """Batches of numbers, each of which takes turns of the loop, before and after a part that may be repeated."""

    def __init__(self) -> None:
        self.next = 0
        self.released = 0

    async def more(self) -> list[int] | None:
        batch = self.next
        for _ in range(3):
            await asyncio.sleep(0)
        if batch == len(GIVEN):
            return None
        self.next = batch + 1
        return GIVEN[batch]

    def release(self) -> None:
        self.released += 1


async def test_cut_after_any_turn_it_loses_nothing_and_gives_nothing_twice() -> None:
    source = _Source()
    numbers = Iteration(source.more, release=source.release)
    assert await cut_everywhere(numbers, 6) == [1, 2, 3, 4, 5, 6]
    assert source.released == 0
    assert [number async for number in numbers] == [] and source.released == 1
    assert [number async for number in numbers] == [] and source.released == 1


async def test_a_call_that_raised_is_repeated() -> None:
    failing = [Unreachable("no engine")]

    async def more() -> list[int]:
        if failing:
            raise failing.pop()
        return [7]

    numbers = once(more)
    with pytest.raises(Unreachable):
        await anext(numbers)
    assert [number async for number in numbers] == [7]


async def test_one_task_at_a_time_waits() -> None:
    never = asyncio.Event()
    numbers: Iteration[int] = Iteration(lambda: _wait(never))
    waiting = asyncio.ensure_future(anext(numbers))
    await asyncio.sleep(0)
    with pytest.raises(boki.IteratorBusy, match="expected one iterator for each task"):
        await anext(numbers)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def test_closed_it_ends_also_for_a_task_that_waits() -> None:
    source, never = _Source(), asyncio.Event()
    async with aclosing(Iteration(source.more, release=source.release)) as numbers:
        assert await anext(numbers) == 1
    assert [number async for number in numbers] == [] and source.released == 1, "what it had is not given any more"
    waited: Iteration[int] = Iteration(lambda: _wait(never))
    waiting = asyncio.ensure_future(anext(waited, 0))
    await asyncio.sleep(0)
    await waited.aclose()
    await waited.aclose()
    assert await waiting == 0


async def test_a_time_out_of_the_source_is_not_taken_for_the_end() -> None:
    async def more() -> list[int]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await anext(Iteration(more))


async def test_dropped_it_releases_what_it_holds() -> None:
    source = _Source()
    numbers = Iteration(source.more, release=source.release)
    await anext(numbers)
    dropped = weakref.ref(numbers)
    del numbers
    gc.collect()
    assert dropped() is None and source.released == 1


async def test_each_record_and_gap_of_a_read_gives_its_items(book: boki.Book) -> None:
    first = await book.append(b"gone", tags=["a"])
    await book.append(b"1", tags=["a"])
    await book.append(b"2", tags=["a"])
    await book.trim(before=first + 1)

    async def items_of(item: boki.Record | boki.Gap) -> list[str]:
        await asyncio.sleep(0)
        return [] if isinstance(item, boki.Record) and item.data == b"1" else [type(item).__name__] * 2

    assert await cut_everywhere(of_records(book.read("a", start=1, follow=True), items_of), 4) == [
        *["Gap"] * 2,
        *["Record"] * 2,
    ]
