"""MemoryCluster: opened, closed, cut, and reached from other loops."""

from __future__ import annotations

import asyncio

import pytest

import boki
import boki.testing


async def test_it_forgets_everything_when_it_closes() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        client = await cluster.connect()
        await client.book(1).append(b"x")
        url = cluster.url
    with pytest.raises(boki.ClosedError):
        await client.book(1).append(b"y")
    with pytest.raises(boki.Unreachable):
        _ = boki.connect(url)
    with pytest.raises(boki.ClosedError, match="make a new one"):
        await cluster.__aenter__()


async def test_clusters_are_apart() -> None:
    async with boki.testing.MemoryCluster() as one, boki.testing.MemoryCluster() as other:
        await (await one.connect()).book(1).append(b"x")
        assert await (await other.connect()).book(1).check_tail() is None


async def test_cutting_loses_answers_but_no_record() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        book = (await cluster.connect()).book(1)
        tickets = [book.submit(bytes([number])) for number in range(10)]
        await asyncio.sleep(0)
        cluster.disconnect()
        seqnums = [await ticket for ticket in tickets]
        assert [record.seqnum async for record in book.read()] == seqnums


async def test_the_time_of_records_is_the_clocks() -> None:
    class Clock:
        def now_ms(self) -> int:
            return 1_234

    async with boki.testing.MemoryCluster(clock=Clock()) as cluster:
        book = (await cluster.connect()).book(1)
        await book.append(b"x")
        record = await book.check_tail()
        assert record is not None
        assert record.time_ms == 1_234
