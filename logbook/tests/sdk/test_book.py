"""What a book takes care of beside calling others: the conformance suite (`itests/sdk`) has the semantics."""

from __future__ import annotations

import pytest

import boki
import boki.testing
from boki_common.ids import book_id


async def test_names_and_numbers() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        client = await cluster.connect()
        book = client.book("orders")
        assert (book.name, book.id) == ("orders", book_id("orders"))
        assert repr(book) == "<boki.Book 'orders'>"
        assert book.idle
        ticket = book.submit(b"x")
        assert not book.idle
        await ticket
        assert book.idle


async def test_a_refused_read_refuses_before_it_is_sent() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        book = (await cluster.connect()).book(1)
        cluster.disconnect()
        with pytest.raises(boki.InvalidArgument, match="at_most"):
            await book.read_prev(at_most="x")  # type: ignore[arg-type]
        assert await book.read_prev() is None


async def test_what_a_book_never_needed_is_not_there() -> None:
    async with boki.testing.MemoryCluster() as cluster:
        book = (await cluster.connect()).book(1)
        await book.append(b"x")
        assert book._own_reader is None and book._writers is None and not hasattr(book, "__dict__")
        assert (await book.read_next()) is not None
        assert book._own_reader is book._reader
