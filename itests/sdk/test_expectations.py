"""`expect=`: appends that hold a condition on streams, or join nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import collect, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_none_holds_for_a_stream_without_a_record(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"], expect={"a": None})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"2", tags=["a"], expect={"a": None})
    assert caught.value.actual == {"a": first}
    assert caught.value.position >= first
    assert caught.value.definite
    assert not caught.value.retryable


async def test_a_seqnum_holds_while_nothing_newer_is_in_the_stream(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    second = await book.append(b"2", tags=["a"], expect={"a": first})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"3", tags=["a"], expect={"a": first})
    assert caught.value.actual == {"a": second}
    assert await book.append(b"4", tags=["a"], expect={"a": second}) > second


async def test_a_loser_is_in_no_stream(book: boki.Book) -> None:
    first = await book.append(b"winner", tags=["a"])
    with pytest.raises(boki.Conflict):
        await book.append(b"loser", tags=["a", "b"], expect={"a": None})
    last = await book.append(b"after")
    assert [record.seqnum for record in await collect(book.read())] == [first, last]
    assert [record.seqnum for record in await collect(book.read("a"))] == [first]
    assert await book.check_tail("b") is None
    for seqnum in range(first + 1, min(last, first + 100)):
        assert await book.read_at(seqnum) is None


async def test_the_stream_need_not_be_among_the_tags(book: boki.Book) -> None:
    fence = await book.append(b"claim", tags=["fence"])
    await book.append(b"1", tags=["data"], expect={"fence": fence})
    await book.append(b"2", tags=["data"], expect={"fence": fence})
    taken = await book.append(b"claim", tags=["fence"], expect={"fence": fence})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"3", tags=["data"], expect={"fence": fence})
    assert caught.value.actual == {"fence": taken}


async def test_tag_zero_is_the_whole_book(book: boki.Book) -> None:
    first = await book.append(b"1", expect={0: None})
    second = await book.append(b"2", tags=["a"], expect={0: first})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"3", expect={0: first})
    assert caught.value.actual == {0: second}
    with pytest.raises(boki.Conflict):
        await book.append(b"4", expect={0: None})


async def test_several_expectations_must_all_hold(book: boki.Book) -> None:
    a = await book.append(b"1", tags=["a"])
    b = await book.append(b"2", tags=["b"])
    await book.append(b"3", expect={"a": a, "b": b, "c": None})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"4", tags=["c"], expect={"a": a, "b": a, "c": None})
    assert caught.value.actual["b"] == b
    assert set(caught.value.actual) <= {"a", "b", "c"}
    assert await book.check_tail("c") is None


async def test_keys_may_be_numbers(book: boki.Book) -> None:
    first = await book.append(b"1", tags=[42], expect={42: None})
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"2", expect={42: None})
    assert caught.value.actual == {42: first}


async def test_a_name_and_its_number_are_one_stream(book: boki.Book) -> None:
    await book.append(b"1", tags=["a"])
    with pytest.raises(boki.Conflict):
        await book.append(b"2", expect={boki.testing.tag_number("a"): None})
    with pytest.raises(boki.InvalidArgument, match="a stream once"):
        await book.append(b"3", expect={"a": None, boki.testing.tag_number("a"): None})


async def test_the_position_of_a_snapshot(book: boki.Book) -> None:
    await book.append(b"1", tags=["a"])
    await book.append(b"2", tags=["b"])
    snapshot = book.position
    await book.append(b"3", tags=["b"])
    await book.append(b"4", tags=["a"], expect={"a": snapshot})
    with pytest.raises(boki.Conflict):
        await book.append(b"5", tags=["b"], expect={"b": snapshot})


async def test_the_position_before_anything_was_seen_expects_nothing(book: boki.Book, client: boki.Client) -> None:
    assert client.session().book(book.name).position is None
    await book.append(b"1", tags=["a"], expect={"a": None})


async def test_after_a_conflict_the_session_sees_the_winner(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        winner = await one.book(name).append(b"winner", tags=["a"], expect={"a": None})
        mine = other.book(name)
        with pytest.raises(boki.Conflict) as caught:
            await mine.append(b"loser", tags=["a"], expect={"a": None})
        assert mine.position is not None
        assert mine.position >= caught.value.position >= winner
        record = present(await mine.read_prev("a", at_most=caught.value.position))
        assert (record.seqnum, record.data) == (winner, b"winner")


async def test_one_of_many_contenders_wins(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        appends = [
            (one, other)[number % 2].book(name).append(str(number).encode(), tags=["a"], expect={"a": None})
            for number in range(40)
        ]
        results = await asyncio.gather(*appends, return_exceptions=True)
        winners = [result for result in results if isinstance(result, int)]
        assert len(winners) == 1
        assert all(result.actual == {"a": winners[0]} for result in results if isinstance(result, boki.Conflict))
        assert [record.seqnum for record in await collect(one.book(name).read("a"))] == winners


async def test_a_counter_without_lost_updates(cluster: Cluster, name: str) -> None:
    async def increment(book: boki.Book, times: int) -> None:
        for _ in range(times):
            while True:
                newest = await book.check_tail("n")
                value = int(newest.data) if newest else 0
                try:
                    await book.append(
                        str(value + 1).encode(), tags=["n"], expect={"n": newest.seqnum if newest else None}
                    )
                    break
                except boki.Conflict:
                    continue

    async with await cluster.connect() as one, await cluster.connect() as other:
        await asyncio.gather(*(increment(client.book(name), 20) for client in (one, other, one.session())))
        assert present(await one.book(name).check_tail("n")).data == b"60"


async def test_a_conflict_stops_nothing_behind_it(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    tickets = [
        book.submit(b"2", tags=["a"], expect={"a": first}),
        book.submit(b"3", tags=["a"], expect={"a": first}),
        book.submit(b"4", tags=["a"]),
        book.submit(b"5", expect={"b": None}),
        book.submit(b"6", expect={"a": None}),
        book.submit(b"7"),
    ]
    outcomes = await asyncio.gather(*map(_outcome, tickets))
    assert [outcome is None for outcome in outcomes] == [False, True, False, False, True, False]
    seqnums = [outcome for outcome in outcomes if outcome is not None]
    assert seqnums == sorted(seqnums)


async def _outcome(ticket: boki.Ticket) -> int | None:
    try:
        return await ticket
    except boki.Conflict:
        return None


async def test_what_was_outdated_when_it_was_sent_loses_and_its_writer_goes_on(
    cluster: Cluster, book: boki.Book
) -> None:
    old = await book.append(b"1", tags=["a"])
    newest = await book.append(b"2", tags=["a"])
    for size in (0, 1, 100_000):
        with pytest.raises(boki.Conflict) as caught:
            await book.append(bytes(size), tags=["a", "b"], expect={"a": old})
        assert caught.value.actual == {"a": newest}
        assert caught.value.position >= newest
    losers = [book.submit(b"lost", tags=["a"], expect={"a": old, "b": None}) for _ in range(50)]
    behind = [book.submit(b"3", tags=["b"]), book.submit(b"4", tags=["a"], expect={"a": newest})]
    assert [await _outcome(ticket) for ticket in losers] == [None] * 50
    kept = [old, newest, *[await ticket for ticket in behind]]
    for ticket in losers:
        outcome = await ticket.outcome()
        assert isinstance(outcome, boki.Conflict)
        assert outcome.actual["a"] == newest
    assert [record.seqnum for record in await collect(book.read())] == kept
    async with await cluster.connect() as other:  # it says the same through another connection
        assert [record.seqnum for record in await collect(other.book(book.name).read())] == kept
        last = await other.book(book.name).append(b"5", tags=["a"], expect={"a": kept[-1]})
    assert last > kept[-1]


async def test_books_do_not_see_each_others_streams(client: boki.Client, name: str) -> None:
    await client.book(name).append(b"1", tags=["a"])
    await client.book(name + " other").append(b"1", tags=["a"], expect={"a": None, 0: None})


async def test_no_expectation(book: boki.Book) -> None:
    await book.append(b"1", expect={})
    await book.append(b"2", expect=None)


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ({"a": 0}, "seqnum from 1"),
        ({"a": -1}, "seqnum from 1"),
        ({"a": 2**63}, "seqnum from 1"),
        ({"a": "1"}, "to be a seqnum"),
        ({"a": True}, "to be a seqnum"),
        ({"": None}, "1 to 255 bytes"),
        ({2**64 - 1: None}, "from 1 to"),
        ({None: None}, "expect names a stream once"),
        ({True: None}, "not bool"),
        (["a"], "expect={tag"),
        ("a", "expect={tag"),
    ],
)
async def test_what_is_no_expectation(book: boki.Book, expect: object, message: str) -> None:
    with pytest.raises(boki.InvalidArgument, match=message):
        await book.append(b"x", expect=expect)  # type: ignore[arg-type]
    assert await book.check_tail() is None


async def test_the_future_cannot_be_expected(book: boki.Book) -> None:
    seqnum = await book.append(b"1", tags=["a"])
    with pytest.raises(boki.InvalidArgument, match="in what this session has seen") as caught:
        await book.append(b"2", expect={"a": 2**62})
    assert caught.value.found == 2**62
    with pytest.raises(ValueError, match="read first"):
        _ = book.submit(b"2", expect={"a": 2**62})
    await book.append(b"2", expect={"a": seqnum})


async def test_a_seqnum_from_elsewhere_is_seen_by_asking(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        seqnum = await one.book(name).append(b"1", tags=["a"])
        continued = other.session(one.session_token())
        assert await continued.book(name).append(b"2", tags=["a"], expect={"a": seqnum}) > seqnum
