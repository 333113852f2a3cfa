"""Tickets and chunks: awaited early, late, often, cancelled."""

from __future__ import annotations

import asyncio

import pytest

from boki._arguments import encode_tags
from boki._ticket import Chunk, Ticket
from boki_common.errors import LogBookError

TAGS = encode_tags(["a"])


async def test_a_decided_ticket_needs_no_future() -> None:
    ticket = Ticket(TAGS, b"x")
    ticket.first = 3
    ticket.committed(1, 10, 100)
    assert ticket.done()
    assert await ticket == 102
    assert "102" in repr(ticket)


async def test_several_wait_and_one_is_cancelled() -> None:
    ticket = Ticket(TAGS, b"x")
    ticket.first = 1

    async def wait() -> int:
        return await ticket

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert "undecided" in repr(ticket)
    ticket.committed(1, 2, 9)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [results[0], type(results[1]), results[2]] == [9, asyncio.CancelledError, 9]


async def test_the_first_verdict_stays() -> None:
    ticket = Ticket(TAGS, b"x")
    ticket.first = 1
    ticket.failed(1, 2, LogBookError("first"))
    ticket.committed(1, 2, 9)
    with pytest.raises(LogBookError, match="first"):
        await ticket


async def test_a_chunk_wakes_when_all_is_decided() -> None:
    chunk = Chunk([(TAGS, b"x")] * 3, 3)
    chunk.first = 5
    waiting = asyncio.create_task(chunk.wait())
    await asyncio.sleep(0)
    chunk.committed(4, 7, 40)
    assert chunk.seqnums == [41, 42, 0]
    assert not chunk.decided
    chunk.committed(7, 9, 60)
    await waiting
    assert chunk.seqnums == [41, 42, 60]
    await chunk.wait()
