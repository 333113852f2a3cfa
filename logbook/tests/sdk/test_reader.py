"""Pages and read-ahead, as the engine sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import boki
from boki._book import Book

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine


async def test_one_batch_is_read_ahead(book: Book, engine: FaultyEngine) -> None:
    queries = engine.queries
    seqnums = await book.append_many([(b"x", [])] * 10_000)
    records = book.read()
    assert (await anext(records)).seqnum == seqnums[0]
    await book.read_at(seqnums[0])
    assert len(queries) == 3, "the first page, the second one ahead of time, and ours"
    assert [record.seqnum async for record in records] == seqnums[1:]
    pages = [query for query in queries if query.max_records > 1]
    assert len(pages) == 3
    assert all(query.stop == seqnums[-1] + 1 for query in pages[1:]), "what comes later is not part of the reading"


async def test_a_lost_read_ahead_is_asked_again(book: Book, engine: FaultyEngine) -> None:
    seqnums = await book.append_many([(b"x", [])] * 10_000)
    found = []
    async for record in book.read():
        found.append(record.seqnum)
        if len(found) in (1, 5_000):
            engine.peers[-1].close()
    assert found == seqnums


async def test_answers_that_do_not_fit_are_asked_in_parts(book: Book) -> None:
    seqnums = await book.append_many([(bytes([number]) * 900_000, []) for number in range(12)])
    found = await book.read_prev_many([(None, seqnum) for seqnum in seqnums])
    assert [record.seqnum if record else None for record in found] == seqnums


async def test_a_small_page_costs_no_more_than_it_holds(book: Book, engine: FaultyEngine) -> None:
    seqnums = await book.append_many([(b"x", [])] * 5_000)
    engine.queries.clear()
    assert [record.seqnum async for record in book.read(limit=3)] == seqnums[:3]
    assert [query.max_records for query in engine.queries] == [3], "nothing is read ahead of what is wanted"
    assert [record.seqnum async for record in book.read(limit=4_100)] == seqnums[:4_100]
    assert [query.max_records for query in engine.queries] == [3, 4_096, 4]
    with pytest.raises(boki.InvalidArgument, match="limit"):
        book.read(limit=0)
