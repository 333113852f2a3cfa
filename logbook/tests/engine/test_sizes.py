"""What one caller of a client may append ends no connection, so it holds up no other caller: an SDK and an engine over sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.test_server import Served, served, url_of

import boki
from boki_common import limits

__all__ = ["served"]


@pytest.mark.parametrize("served", ["unix"], indirect=True)
async def test_large_calls_of_one_caller_leave_the_connection_to_others(served: Served, cluster: Any) -> None:
    """Names, conditions, data, and then answers: each over the size of a frame."""
    async with boki.connect(url_of(served), timeout=20) as client:
        book, other = client.book("large"), client.book("other")
        (connection,) = served.connections
        named = [(b"x", [f"{number}/{tag}/".ljust(200, "t") for tag in range(60)]) for number in range(350)]
        largest = [(bytes(limits.RECORD_BYTES), [f"{tag}".ljust(255, "t") for tag in range(255)])]
        conditions: dict[str | int, int | None] = {f"none/{tag}": None for tag in range(limits.RECORD_EXPECTATIONS)}
        tickets = [book.submit(b"", expect=conditions) for _ in range(700)]
        seqnums = await asyncio.gather(
            client.book("named").append_many(named), client.book("largest").append_many(largest * 3), other.append(b"1")
        )
        assert [await ticket for ticket in tickets] and seqnums[2]

        books = [client.book(f"taken/{number}") for number in range(2)]
        for one in books:
            await one.append(b"there", tags=[*conditions][:255])
        cluster.log.cut_by_itself = False
        losers = [one.submit(b"", expect=conditions) for one in books for _ in range(640)]
        late = asyncio.ensure_future(other.append(b"2"))
        while served.core.appender.queued_bytes < 1_280 * len(conditions) * 24:
            await asyncio.sleep(0)
        cluster.log.cut_by_itself = True
        while not late.done():
            cluster.log.cut()
            await asyncio.sleep(0)
        for loser in losers:
            with pytest.raises(boki.Conflict):
                await loser
        assert [*served.connections] == [connection], "the one connection that there was"
