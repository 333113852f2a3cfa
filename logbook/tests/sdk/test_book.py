"""What a book takes care of beside calling others: the conformance suite (`itests/sdk`) has the semantics."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.files_entered import FilesEntered

import boki
from boki._ticket import Ticket
from boki.testing import MemoryCluster
from boki_common.ids import book_id


async def test_names_and_numbers(memory: MemoryCluster) -> None:
    client = await memory.connect()
    book = client.book("orders")
    assert (book.name, book.id, book.cluster) == ("orders", book_id("orders"), client.cluster)
    assert book.cluster is not None and client.session().book(book.id).cluster == book.cluster
    assert repr(book) == "<boki.Book 'orders'>"
    assert book.idle
    ticket = book.submit(b"x")
    assert not book.idle
    await ticket
    assert book.idle


async def test_clients_and_books_are_not_pickled(memory: MemoryCluster) -> None:
    client = await memory.connect()
    for what in (client, client.book("orders"), {"a closure": client.session().book(7)}):
        with pytest.raises(boki.UsageError, match="open it in the process that uses it"):
            pickle.dumps(what)


async def test_a_refused_read_refuses_before_it_is_sent(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book(1)
    memory.disconnect()
    with pytest.raises(boki.InvalidArgument, match="at_most"):
        await book.read_prev(at_most="x")  # type: ignore[arg-type]
    assert await book.read_prev() is None


async def test_what_a_book_never_needed_is_not_there(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book(1)
    await book.append(b"x")
    assert book._own_reader is None and book._writers is None and not hasattr(book, "__dict__")
    assert (await book.read_next()) is not None
    assert book._own_reader is book._reader


async def test_tickets_of_appends_end_before_their_callers_run(memory: MemoryCluster) -> None:
    """Else the garbage collector comes by each time that some hundreds wake in one turn, and looks through all of them."""
    data = b"of this test alone"
    book = (await memory.connect()).book(1)
    calls = [asyncio.ensure_future(book.append(data)) for _ in range(10)]
    await asyncio.sleep(0)
    assert not book.idle
    while not book.idle:
        await asyncio.sleep(0)
    assert not any(call.done() for call in calls)
    assert not any(type(one) is Ticket and one.data is data for one in gc.get_objects())
    assert len(set(await asyncio.gather(*calls))) == 10


async def entered_again(call: Coroutine[Any, Any, Any]) -> dict[str, int]:
    """Which files are entered more than once in one turn of the loop. No function has more than four doors."""
    entered = FilesEntered(boki, "testing/", "_watch.py")
    with entered.following():
        await call
    assert 0 < entered.most_doors <= 4
    return entered.again


@pytest.mark.own_interpreter
async def test_an_append_and_a_read_enter_each_file_once_a_turn(memory: MemoryCluster) -> None:
    book = (await memory.connect()).book(1)
    await book.append(b"x", tags=["a"])
    await book.read_next("a")
    verdict = {"_numbers.py -> _ticket.py": 3}  # what is decided, perhaps out of order, and what at the front leaves
    assert await entered_again(book.append(b"y", tags=["a"])) == verdict
    assert await entered_again(book.append(b"z", tags=["a"], expect={"b": None, 0: book.position})) == verdict
    assert await entered_again(book.read_next("a")) == {}
    assert await entered_again(book.read_prev("a")) == {}
