"""`seek`: from a time to where to read from."""

from __future__ import annotations

import asyncio

import pytest

import boki


async def test_reading_from_a_time(book: boki.Book) -> None:
    seqnums = []
    for number in range(12):
        seqnums.append(await book.append(b"%d" % number))
        await book.read_next(at_least=seqnums[-1] + 1, wait=0.003)  # lets the clock go on
    records = [record async for record in book.read()]
    times = [record.time_ms for record in records]
    assert times == sorted(times)
    for time_ms in {times[0], times[5], times[6], times[11], times[3] + 1}:
        start = await book.seek(time_ms)
        expected = [seqnum for seqnum, ordered_ms in zip(seqnums, times, strict=True) if ordered_ms >= time_ms]
        assert [record.seqnum async for record in book.read(start=start)] == expected


async def test_the_past_and_the_future(book: boki.Book) -> None:
    first = await book.append(b"1")
    assert await book.seek(0) <= first
    behind = await book.seek(2**62)
    assert behind > first
    following = asyncio.create_task(book.read_next(at_least=behind, wait=30))
    second = await book.append(b"2")
    record = await following
    assert record is not None
    assert record.seqnum == second


async def test_every_consistency(book: boki.Book) -> None:
    seqnum = await book.append(b"1")
    assert await book.seek(2**62, consistency="session") > seqnum
    assert await book.seek(2**62, consistency="linearizable") > seqnum
    assert await book.seek(2**62, consistency="any") > seqnum


@pytest.mark.parametrize("time_ms", [1.5, "now", None, 2**63])
async def test_what_is_no_time(book: boki.Book, time_ms: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="milliseconds"):
        await book.seek(time_ms)  # type: ignore[arg-type]
