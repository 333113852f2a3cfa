"""Appending: seqnums, order, tags, books, what a record looks like when it comes back."""

from __future__ import annotations

import asyncio

import pytest

import boki
from itests.support.sdk_client import collect, present


async def test_an_append_returns_the_seqnum_under_which_the_record_is_read(book: boki.Book) -> None:
    seqnum = await book.append(b"one")
    record = present(await book.read_next())
    assert (record.seqnum, record.data, record.tags, record.aux_data) == (seqnum, b"one", (), None)


async def test_seqnums_increase_in_the_order_of_the_appends(book: boki.Book) -> None:
    seqnums = [await book.append(str(number).encode()) for number in range(20)]
    assert seqnums == sorted(set(seqnums))
    assert all(0 < seqnum < 2**63 for seqnum in seqnums)
    assert [(record.seqnum, record.data) for record in await collect(book.read())] == [
        (seqnum, str(number).encode()) for number, seqnum in enumerate(seqnums)
    ]


async def test_concurrent_appends_keep_the_order_of_the_calls(book: boki.Book) -> None:
    seqnums = await asyncio.gather(*(book.append(str(number).encode()) for number in range(300)))
    assert seqnums == sorted(set(seqnums))
    assert [record.data for record in await collect(book.read())] == [str(number).encode() for number in range(300)]


async def test_tags_come_back_as_given_and_in_the_order_given(book: boki.Book) -> None:
    given = ("zebra", 42, "user/1", 2**64 - 2, "ä€🐍", 1)
    await book.append(b"", tags=given)
    assert present(await book.check_tail()).tags == given


async def test_a_record_is_in_the_stream_of_each_of_its_tags_and_in_no_other(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a", 7])
    second = await book.append(b"2", tags=["b", 7])
    third = await book.append(b"3")
    streams = {tag: [record.seqnum for record in await collect(book.read(tag))] for tag in ("a", "b", 7, "c", 8, None)}
    assert streams == {"a": [first], "b": [second], 7: [first, second], "c": [], 8: [], None: [first, second, third]}


async def test_a_name_and_its_number_are_one_stream_but_a_read_by_name_wants_the_name(book: boki.Book) -> None:
    number = boki.testing.tag_number("user/1")
    by_name = await book.append(b"name", tags=["user/1"])
    by_number = await book.append(b"number", tags=[number])
    last = await book.append(b"name again", tags=["user/1"])
    assert [record.seqnum for record in await collect(book.read(number))] == [by_name, by_number, last]
    assert [record.seqnum for record in await collect(book.read("user/1"))] == [by_name, last]
    assert present(await book.read_next("user/1", at_least=by_number)).seqnum == last
    assert present(await book.read_prev("user/1", at_most=by_number)).seqnum == by_name
    found = await book.read_prev_many([("user/1", by_number), (number, by_number)])
    assert [record.seqnum if record else None for record in found] == [by_name, by_number]


async def test_books_are_independent(client: boki.Client, name: str) -> None:
    books = [client.book(f"{name}-{number}") for number in range(30)]
    appended = await asyncio.gather(
        *(book.append(f"{index} {turn}".encode(), tags=["t"]) for turn in range(5) for index, book in enumerate(books))
    )
    assert len(set(appended)) == 150
    for index, book in enumerate(books):
        expected = [f"{index} {turn}".encode() for turn in range(5)]
        assert [record.data for record in await collect(book.read("t"))] == expected
        assert [record.data for record in await collect(book.read())] == expected


async def test_a_book_is_the_same_by_name_and_by_number(client: boki.Client, name: str) -> None:
    by_name = client.book(name)
    by_number = client.book(by_name.id)
    seqnum = await by_name.append(b"x")
    found = present(await by_number.read_next())
    assert (found.seqnum, found.book) == (seqnum, by_name.id)
    assert present(await by_name.read_next()).book == name


@pytest.mark.parametrize("number", [0, 2**64 - 1])
async def test_book_numbers_reach_both_ends_of_their_range(client: boki.Client, number: int) -> None:
    book = client.book(number)
    seqnum = await book.append(b"edge")
    assert present(await book.read_at(seqnum)).data == b"edge"


async def test_data_may_be_empty_or_any_bytes(book: boki.Book) -> None:
    given: list[bytes | bytearray | memoryview] = [
        b"",
        bytes(range(256)),
        b"\0",
        bytearray(b"array"),
        memoryview(b"view"),
    ]
    for data in given:
        await book.append(data)
    assert [record.data for record in await collect(book.read())] == [bytes(data) for data in given]


async def test_data_is_taken_at_the_call(book: boki.Book) -> None:
    data = bytearray(b"before")
    ticket = book.submit(data)
    data[:] = b"after!"
    await ticket
    assert present(await book.check_tail()).data == b"before"


async def test_arguments_are_taken_by_the_call_though_it_runs_later(book: boki.Book) -> None:
    """`asyncio.create_task(book.append(buffer))`, and the program fills its buffer anew before the task runs."""
    writer = await book.writer("w")
    data, tags = bytearray(b"before"), ["old"]
    expect: dict[str | int, int | None] = {"old": None}
    records: list[tuple[bytearray | memoryview, list[str]]] = [(data, tags), (memoryview(data), tags)]
    calls = [
        book.append(data, tags=tags, expect=expect),
        book.append(data, tags=tags, writer=("v", 1)),
        book.append_many(records),
        writer.append(data, tags=tags),
        writer.append_many(records),
    ]
    data[:] = b"after!"
    tags[:] = ["new"]
    expect["new"] = 10**6
    records.clear()
    for call in calls:
        await call
    at = writer.append_at(writer.last + 1, data, tags=tags)
    data[:] = b"later!"
    await at
    *before, last = await collect(book.read())
    assert [(record.data, record.tags) for record in before] == [(b"before", ("old",))] * 7
    assert last.data == b"after!"


async def test_time_never_decreases_along_a_book(book: boki.Book) -> None:
    for _ in range(5):
        await book.append(b"")
    times = [record.time_ms for record in await collect(book.read())]
    assert times == sorted(times)
    assert times[0] > 1_577_836_800_000, "milliseconds since 1970, and later than 2020"


async def test_records_cannot_be_changed(book: boki.Book) -> None:
    await book.append(b"x")
    record = await book.check_tail()
    with pytest.raises(AttributeError):
        record.data = b"y"  # type: ignore[misc, union-attr]
