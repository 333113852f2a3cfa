"""Reads at a snapshot below what a book has forgotten, in the model: engines are held to the same in `engine/test_reader.py`."""

from __future__ import annotations

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.machine import ManualClock

FORGET_MS = 61 * 60_000


async def test_a_snapshot_below_what_was_forgotten_is_trimmed_and_not_empty() -> None:
    """Marks go with the streams they are of: an answer that there was nothing would be a lie."""
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        await book.append(b"x", tags=["gone"])
        snapshot = await book.now()
        await book.trim(tag="gone", before=snapshot + 1)
        clock.ms = FORGET_MS
        kept = await book.append(b"y", tags=["kept"])
        await book.trim(tag="gone", before=snapshot + 1, forget=True)
        for tag in ("gone", "never was"):
            with pytest.raises(boki.Trimmed) as raised:
                await book.read_prev(tag, at_most=snapshot - 1)
            assert raised.value.mark == snapshot
            with pytest.raises(boki.Trimmed):
                await book.read_prev_many([("kept", None), (tag, snapshot - 1)])
            assert await book.read_prev(tag, at_most=snapshot) is None
        assert await book.read_prev("gone", at_most=kept) is None, "at a snapshot taken since, there is nothing"
        assert await book.check_tail("gone") is None


async def forget(clock: ManualClock, book: boki.Book, tag: str, before: int) -> None:
    """An hour later the stream is as if it had never been."""
    await book.trim(tag=tag, before=before)
    clock.ms += FORGET_MS
    await book.append(b"time goes by", tags=["clock"])
    await book.trim(tag=tag, before=before, forget=True)


async def plain(items: boki.Cursor | boki.RecordIterator) -> list[object]:
    return [(item.tag, item.first, item.last) if isinstance(item, boki.Gap) else item.data async for item in items]


async def test_what_was_forgotten_while_a_follower_was_away_is_a_gap() -> None:
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        await book.append(b"0", tags=["a"])
        cursor = book.read(tags=["a", "b"], start=1)
        assert await plain(cursor) == [b"0"]
        position = cursor.position
        missed = await book.append(b"1", tags=["b"])
        await forget(clock, book, "b", missed + 1)
        again = await book.append(b"2", tags=["b"])
        assert await plain(book.read(tags=["a", "b"], start=position + 1)) == [("b", position + 1, missed), b"2"]
        assert await plain(book.read("b", start=position + 1)) == [(None, position + 1, missed), b"2"]
        for start in (None, 1):
            assert await plain(book.read(tags=["a", "b"], start=start)) == [b"0", b"2"], "what was forgotten never was"
            assert await plain(book.read("b", start=start)) == [b"2"]
        assert await plain(book.read(tags=["b"], start=missed + 1)) == [b"2"]
        assert await plain(book.read("b", start=again)) == [b"2"]


async def test_a_range_that_ends_below_what_was_forgotten_is_a_gap_and_not_empty() -> None:
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        await book.append(b"0", tags=["a"])
        snapshot = await book.now()
        newest = await book.append(b"1", tags=["a"])
        await forget(clock, book, "a", newest + 1)
        assert await plain(book.read("a", start=1, stop=snapshot + 1)) == [(None, 1, snapshot)]
        assert await plain(book.read(tags=["a"], start=1, stop=snapshot + 1)) == [("a", 1, snapshot)]
        assert await plain(book.read(tags=["a"], start=1, stop=await book.now() + 1)) == []


async def test_a_stream_that_is_quiet_below_what_others_forgot_is_no_gap() -> None:
    """It shows a mark, or a record from before: so nobody forgot it."""
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        trimmed = await book.append(b"0", tags=["trimmed"])
        lives = await book.append(b"1", tags=["lives"])
        await book.trim(tag="trimmed", before=trimmed + 1)
        other = await book.append(b"2", tags=["other"])
        await forget(clock, book, "other", other + 1)
        for start in (lives + 1, other):
            assert await plain(book.read(tags=["trimmed", "lives"], start=start)) == []
            assert await plain(book.read("trimmed", start=start)) == await plain(book.read("lives", start=start)) == []


async def test_a_stream_with_a_living_record_is_whole_whatever_others_forgot() -> None:
    """Up to that record too: whoever folds an object reads no further."""
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        lives = await book.append(b"0", tags=["lives"])
        other = await book.append(b"1", tags=["other"])
        await forget(clock, book, "other", other + 1)
        for stop in (lives + 1, other, other + 1, None):
            assert await plain(book.read("lives", start=1, stop=stop)) == [b"0"]
            assert await plain(book.read(tags=["lives"], start=1, stop=stop)) == [b"0"]
        assert await plain(book.read("lives", start=1, stop=lives)) == [(None, 1, lives - 1)]
        assert await plain(book.read("lives", start=lives + 1, stop=other)) == []


async def test_a_late_copy_of_a_trim_hides_nothing_of_a_stream_that_was_written_again() -> None:
    """A reader from the beginning gets no gap, and one that was away while the stream was forgotten gets one."""
    clock = ManualClock(0)
    async with MemoryCluster(clock=clock) as cluster:
        book = (await cluster.connect()).book("b")
        first = await book.append(b"0", tags=["a"])
        missed = await book.append(b"1", tags=["a", "kept"])
        await forget(clock, book, "a", missed + 1)
        again = await book.append(b"2", tags=["a"])
        for before in (first + 1, missed + 1):
            await book.trim(tag="a", before=before, forget=True)
            assert await plain(book.read("a", start=1)) == [b"2"]
            assert await plain(book.read("a", start=first + 1)) == [(None, first + 1, missed), b"2"]
        assert await plain(book.read("a", start=again)) == [b"2"]
