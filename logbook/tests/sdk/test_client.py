"""Clients keep a bounded number of books, and sessions share their connection."""

from __future__ import annotations

import pytest

import boki
from boki import _client
from boki.testing import MemoryCluster


async def test_a_book_is_made_once(memory: MemoryCluster) -> None:
    client = await memory.connect()
    assert client.book("a") is client.book("a")
    assert client.book("a") is not client.session().book("a")
    assert client.book(1) is client.book(1)


async def test_unused_books_are_dropped_and_busy_ones_kept(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "SESSION_BOOKS", 10)
    client = await memory.connect()
    busy = client.book("busy")
    ticket = busy.submit(b"x")
    for number in range(30):
        client.book(number)
    assert len(client._books) == 10
    assert client.book("busy") is busy
    await ticket


@pytest.mark.parametrize("timeout", [-1, float("nan"), 541, "5"])
def test_the_time_out_of_a_client(timeout: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="timeout"):
        _ = boki.connect("boki://a", timeout=timeout)  # type: ignore[arg-type]


async def test_a_client_is_opened_by_with_or_await(memory: MemoryCluster) -> None:
    async with boki.connect(memory.url) as client:
        assert await client.book(1).append(b"x")
    opened = await boki.connect(memory.url)
    async with opened as same:
        assert same is opened
        assert await same.book(1).append(b"y")
