"""The thread behind the blocking SDK."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

import boki
from boki.testing import MemoryCluster


def sdk_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "boki.sync"]


async def test_closing_ends_the_thread(memory: MemoryCluster) -> None:
    def script(url: str) -> None:
        client = boki.sync.connect(url)
        assert len(sdk_threads()) == 1
        book = client.book(1)
        book.append(b"x")
        client.close()
        assert not sdk_threads()
        with pytest.raises(boki.ClosedError):
            book.append(b"y")

    await asyncio.to_thread(script, memory.url)


async def test_a_waiting_call_ends_when_the_client_is_closed_elsewhere(memory: MemoryCluster) -> None:
    def read(book: boki.sync.Book) -> str:
        try:
            return repr(book.read_next(wait=60))
        except boki.ClosedError:
            return "closed"

    client = await asyncio.to_thread(boki.sync.connect, memory.url)
    book = await asyncio.to_thread(client.book, 1)
    reading = asyncio.ensure_future(asyncio.to_thread(read, book))
    await asyncio.to_thread(book.append, b"x", tags=["not waited for"])
    await asyncio.to_thread(client.close)
    assert await reading in ("closed", repr(None)) or (await reading).startswith("Record")


def test_an_engine_that_is_not_there_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(boki.Unreachable):
        boki.sync.connect(f"unix://{tmp_path}/nobody")
    assert not sdk_threads()


async def test_a_ticket_that_takes_too_long(memory: MemoryCluster) -> None:
    def submit(client: boki.sync.Client) -> boki.sync.Ticket:
        ticket = client.book(1).submit(b"x", tags=["a"])
        with pytest.raises(TimeoutError):
            ticket.result(timeout=0.05)
        assert not ticket.done()
        return ticket

    assert memory._engine is not None
    memory._engine.mute = True
    client = await asyncio.to_thread(boki.sync.connect, memory.url)
    ticket = await asyncio.to_thread(submit, client)
    memory._engine.mute = False
    memory.disconnect()
    assert await asyncio.to_thread(ticket.result, 30) > 0
    assert ticket.done()
    await asyncio.to_thread(client.close)


async def test_clients_that_are_dropped_keep_no_thread(memory: MemoryCluster) -> None:
    def script(url: str) -> None:
        for _ in range(20):
            boki.sync.connect(url).book(1).append(b"x")
        kept = boki.sync.connect(url).book(1)  # who has a book still uses the client
        gc.collect()
        last = kept._thread._thread
        for thread in sdk_threads():
            if thread is not last:
                thread.join(10)
        assert sdk_threads() == [last]
        kept.append(b"y")
        del kept
        gc.collect()
        last.join(10)
        assert not sdk_threads()

    with pytest.warns(ResourceWarning, match=r"unclosed boki\.sync"):
        await asyncio.to_thread(script, memory.url)
