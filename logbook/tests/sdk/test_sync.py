"""The thread behind the blocking SDK."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import boki
import boki.testing


def sdk_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "boki.sync"]


async def test_closing_ends_the_thread() -> None:
    def script(url: str) -> None:
        client = boki.sync.connect(url)
        assert len(sdk_threads()) == 1
        book = client.book(1)
        book.append(b"x")
        client.close()
        assert not sdk_threads()
        with pytest.raises(boki.ClosedError):
            book.append(b"y")

    async with boki.testing.MemoryCluster() as cluster:
        await asyncio.to_thread(script, cluster.url)


async def test_a_waiting_call_ends_when_the_client_is_closed_elsewhere() -> None:
    def read(book: boki.sync.Book) -> str:
        try:
            return repr(book.read_next(wait=60))
        except boki.ClosedError:
            return "closed"

    async with boki.testing.MemoryCluster() as cluster:
        client = await asyncio.to_thread(boki.sync.connect, cluster.url)
        book = await asyncio.to_thread(client.book, 1)
        reading = asyncio.ensure_future(asyncio.to_thread(read, book))
        await asyncio.to_thread(book.append, b"x", tags=["not waited for"])
        await asyncio.to_thread(client.close)
        assert await reading in ("closed", repr(None)) or (await reading).startswith("Record")


def test_an_engine_that_is_not_there_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(boki.Unreachable):
        boki.sync.connect(f"unix://{tmp_path}/nobody")
    assert not sdk_threads()


async def test_a_ticket_that_takes_too_long() -> None:
    def submit(client: boki.sync.Client) -> boki.sync.Ticket:
        ticket = client.book(1).submit(b"x", tags=["a"])
        with pytest.raises(TimeoutError):
            ticket.result(timeout=0.05)
        assert not ticket.done()
        return ticket

    async with boki.testing.MemoryCluster() as cluster:
        assert cluster._engine is not None
        cluster._engine.mute = True
        client = await asyncio.to_thread(boki.sync.connect, cluster.url)
        ticket = await asyncio.to_thread(submit, client)
        cluster._engine.mute = False
        cluster.disconnect()
        assert await asyncio.to_thread(ticket.result, 30) > 0
        assert ticket.done()
        await asyncio.to_thread(client.close)
