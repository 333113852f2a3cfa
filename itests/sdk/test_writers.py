"""Named writers: numbers that survive restarts, and one answer for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import collect, cut

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def test_numbers_go_on_after_a_restart(cluster: Cluster, name: str) -> None:
    seqnums = []
    for process in range(3):
        async with await cluster.connect() as client:
            writer = await client.book(name).writer("w1")
            assert writer.last == 2 * process
            seqnums.append(await writer.append(b"%d" % process, tags=["t"]))
            seqnums += await writer.append_many([(b"more", ["t"])])
            assert writer.last == 2 * process + 2
    async with await cluster.connect() as client:
        assert [record.seqnum for record in await collect(client.book(name).read("t"))] == seqnums


async def test_a_batch_that_must_begin_at_a_number_begins_nowhere_else(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        writer = await one.book(name).writer("w")
        assert len(await writer.append_many([(b"1", []), (b"2", [])], first=1)) == 2
        for first in (2, 4):
            with pytest.raises(
                boki.InvalidArgument, match=f"expected {first} as the next number of writer 'w', found 3"
            ):
                await writer.append_many([(b"x", [])], first=first)
        assert len(await writer.append_many([(b"3", [])], first=3)) == 1
        theirs = await other.book(name).writer("w")
        assert theirs.last == 3
        assert await theirs.append_many([], first=4) == []


async def test_a_number_is_applied_once_whoever_sends_it(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        first = await one.book(name).append(b"1", tags=["t"], writer=("w1", 1))
        second = await one.book(name).append(b"2", writer=("w1", 2))
        for client in (one, other, other):
            assert await client.book(name).append(b"1", tags=["t"], writer=("w1", 1)) == first
            assert await client.book(name).append(b"2", writer=("w1", 2)) == second
        third = await other.book(name).append(b"3", writer=("w1", 3))
        assert await one.book(name).append(b"3", writer=("w1", 3)) == third
        assert [record.data for record in await collect(one.book(name).read())] == [b"1", b"2", b"3"]


async def test_another_record_under_a_number_is_refused(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        seqnum = await one.book(name).append(b"1", tags=["t"], writer=("w1", 1))
        for client in (one, other):
            for data, tags in ((b"2", ["t"]), (b"1", ["u"]), (b"1", []), (b"1", ["t", "u"])):
                with pytest.raises(boki.NumberReused) as caught:
                    await client.book(name).append(data, tags=tags, writer=("w1", 1))
                assert caught.value.number == 1
                assert caught.value.definite
        await one.book(name).append(b"2", writer=("w1", 2))
        assert [record.seqnum for record in await collect(one.book(name).read("t"))] == [seqnum]


async def test_two_users_of_one_name_get_an_error(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        mine, theirs = await one.book(name).writer("w"), await other.book(name).writer("w")
        await mine.append(b"mine")
        with pytest.raises(boki.NumberReused):
            await theirs.append(b"theirs")
        await theirs.append(b"theirs, under the next number")
        await theirs.refresh()
        assert theirs.last == 2


async def test_a_conflict_is_remembered_too(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        winner = await one.book(name).append(b"x", tags=["a"])
        for client in (one, other, one):
            with pytest.raises(boki.Conflict) as caught:
                await client.book(name).append(b"y", tags=["a"], expect={"a": None}, writer=("w", 1))
            assert caught.value.actual == {"a": winner}
        assert (await other.book(name).writer("w")).last == 1


async def test_numbers_have_no_holes(book: boki.Book) -> None:
    with pytest.raises(boki.InvalidArgument, match="at most 1 as the next number"):
        await book.append(b"x", writer=("w", 2))
    await book.append(b"x", writer=("w", 1))
    with pytest.raises(boki.InvalidArgument, match="found 4"):
        await book.append(b"x", writer=("w", 4))


async def test_old_answers_are_forgotten(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as client:
        writer = await client.book(name).writer("w")
        seqnums = await writer.append_many([(b"%d" % number, []) for number in range(1, 1_101)])
    async with await cluster.connect() as client:
        book = client.book(name)
        assert await book.append(b"1100", writer=("w", 1_100)) == seqnums[-1]
        assert await book.append(b"200", writer=("w", 200)) == seqnums[199]
        with pytest.raises(boki.AnswerForgotten) as caught:
            await book.append(b"1", writer=("w", 1))
        assert not caught.value.definite


async def test_writers_of_a_book_and_of_books_are_apart(client: boki.Client, name: str) -> None:
    one, other = client.book(name), client.book(f"{name} other")
    writers = [await one.writer("a"), await one.writer("b"), await other.writer("a")]
    await asyncio.gather(*(writer.append(b"%d" % turn) for turn in range(20) for writer in writers))
    assert [writer.last for writer in writers] == [20, 20, 20]
    assert await one.writer("a") is writers[0]


async def test_a_pipeline_of_a_named_writer_through_a_cut(client: boki.Client, book: boki.Book) -> None:
    writer = await book.writer("w")
    tickets = [writer.submit(b"%d" % number) for number in range(100)]
    await asyncio.sleep(0)
    cut(client)
    seqnums = [await ticket for ticket in tickets]
    found = await collect(book.read())
    assert [(record.seqnum, record.data) for record in found] == [
        (seqnum, b"%d" % number) for number, seqnum in enumerate(seqnums)
    ]
    assert writer.last == 100


@pytest.mark.parametrize(
    ("writer", "message"),
    [("w", "writer="), (("w",), "writer="), (("", 1), "1 to 255"), (("w", 0), "from 1"), (("w", "1"), "from 1")],
)
async def test_what_is_no_writer(book: boki.Book, writer: object, message: str) -> None:
    with pytest.raises(boki.InvalidArgument, match=message):
        await book.append(b"x", writer=writer)  # type: ignore[arg-type]
    assert await book.check_tail() is None


async def test_two_users_of_one_name_with_equal_records_can_distinguish(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        mine, theirs = await one.book(name).writer("w"), await other.book(name).writer("w")
        first = await mine.append(b"equal", tags=["t"])
        second = await theirs.append(b"equal", tags=["t"])
        assert first == second
        assert not isinstance(first, boki.Duplicate)
        assert isinstance(second, boki.Duplicate)
        many = await mine.append_many([(b"%d" % number, []) for number in range(100)])
        again = await theirs.append_many([(b"%d" % number, []) for number in range(120)])
        assert again[:100] == many
        assert [isinstance(seqnum, boki.Duplicate) for seqnum in again] == [True] * 100 + [False] * 20
        assert not any(isinstance(seqnum, boki.Duplicate) for seqnum in many)
        ticket = mine.submit(b"100")
        found = await ticket.outcome()
        assert isinstance(found, boki.Committed) and isinstance(found.seqnum, boki.Duplicate)
        assert len(await collect(one.book(name).read())) == 121


async def test_a_number_that_was_decided_before_is_answered_as_a_duplicate(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        fresh = await one.book(name).append(b"1", writer=("w", 1))
        assert type(fresh) is int
        for client in (one, other):
            again = await client.book(name).append(b"1", writer=("w", 1))
            assert isinstance(again, boki.Duplicate) and again == fresh


async def test_who_sent_a_record_twice_is_not_answered_that_it_was_another_users(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as client:
        writer = await client.book(name).writer("w")
        tickets = [writer.submit(b"%d" % number) for number in range(500)]
        await asyncio.sleep(0)
        cut(client)
        assert not any([isinstance(await ticket, boki.Duplicate) for ticket in tickets])
