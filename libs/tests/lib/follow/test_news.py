"""Batched queries for new records."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib.follow.news import News
from bokilib.testing import Fault, FaultyBook


async def test_callers_of_one_turn_share_one_query(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a", "b"])
    second = await book.append(b"2", tags=["b"])
    news = News(book)
    one, two, three = await asyncio.gather(news.since({"a": 0}), news.since({"a": first, "b": first}), news.since({}))
    assert news.queries == 1
    assert one.place == two.place == three.place >= second
    assert [record.seqnum for record in one.of["a"]] == [first]
    assert [record.seqnum for record in two.of["b"] if record.seqnum > first] == [second]
    await news.since({"a": second})
    assert news.queries == 2


async def test_a_later_call_returns_what_came_meanwhile(book: boki.Book) -> None:
    news = News(book)
    early = asyncio.ensure_future(news.since({"a": 0}))
    seqnum = await book.append(b"1", tags=["a"])
    late = await news.since({"a": 0})
    assert [record.seqnum for record in late.of["a"]] == [seqnum]
    await early


async def test_more_streams_than_a_query_takes_are_several_queries(book: boki.Book) -> None:
    seqnum = await book.append(b"1", tags=["t399"])
    news = News(book)
    found = await asyncio.gather(*(news.since({f"t{number}": 0, f"t{number + 1}": 0}) for number in range(399)))
    assert news.queries == 2
    assert [record.seqnum for record in found[-1].of["t399"]] == [seqnum]


async def test_what_is_gone_is_reported_to_its_waiter(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["ab"[number % 2]]) for number in range(6)]
    await book.trim(before=seqnums[4], tag="a")
    news = News(book)
    gone, other = await asyncio.gather(
        news.since({"a": seqnums[0]}), news.since({"b": seqnums[3]}), return_exceptions=True
    )
    assert isinstance(gone, boki.Trimmed) and gone.tag == "a"
    assert not isinstance(other, BaseException) and [record.seqnum for record in other.of["b"]] == [seqnums[5]]


async def test_an_error_is_raised_to_all_waiters_and_ends_nothing(book: boki.Book) -> None:
    class Down(FaultyBook):
        down = True

        async def read_since(self, seen, **options):  # type: ignore[no-untyped-def]  # the port's arguments
            if self.down:
                raise boki.Unreachable("down")
            return await super().read_since(seen, **options)

    down = Down(book, fault=Fault(99, "before"))
    news = News(down)
    found = await asyncio.gather(news.since({"a": 0}), news.since({"b": 0}), return_exceptions=True)
    assert [type(one) for one in found] == [boki.Unreachable] * 2
    down.down = False
    assert (await news.since({"a": 0})).place >= 1


async def test_a_cancelled_caller_leaves_the_others_waiting(book: boki.Book) -> None:
    news = News(book)
    gone, stays = asyncio.ensure_future(news.since({"a": 0})), asyncio.ensure_future(news.since({"b": 0}))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).place >= 1
    with pytest.raises(asyncio.CancelledError):
        await gone
