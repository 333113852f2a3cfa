"""Point, next, previous, tail and range reads, and their bounds."""

from __future__ import annotations

import asyncio

import pytest

import boki
from itests.support.sdk_client import collect, present


@pytest.fixture
async def seqnums(book: boki.Book) -> list[int]:
    """Ten records: even ones carry "even", odd ones "odd", with another book's records between them."""
    numbers = []
    for number in range(10):
        numbers.append(await book.append(str(number).encode(), tags=["even" if number % 2 == 0 else "odd"]))
    return numbers


def seqnum_of(record: boki.Record | None) -> int | None:
    return None if record is None else record.seqnum


async def test_an_empty_book_has_nothing(book: boki.Book) -> None:
    assert await book.read_next() is None
    assert await book.read_prev() is None
    assert await book.check_tail("a") is None
    assert await book.read_at(2**40) is None
    assert await book.read_prev_many([(None, None), ("a", 5)]) == [None, None]
    assert await collect(book.read()) == []


async def test_read_next(book: boki.Book, seqnums: list[int]) -> None:
    assert seqnum_of(await book.read_next()) == seqnums[0]
    assert seqnum_of(await book.read_next(at_least=seqnums[3])) == seqnums[3]
    assert seqnum_of(await book.read_next(at_least=seqnums[3] + 1)) == seqnums[4]
    assert seqnum_of(await book.read_next("even", at_least=seqnums[3])) == seqnums[4]
    assert seqnum_of(await book.read_next("odd", at_least=0)) == seqnums[1]
    assert await book.read_next(at_least=seqnums[9] + 1) is None
    assert await book.read_next(at_least=2**63 - 1) is None
    assert await book.read_next(at_least=2**64 - 1) is None
    assert await book.read_next("odd", at_least=seqnums[9] + 1) is None


async def test_read_prev(book: boki.Book, seqnums: list[int]) -> None:
    assert seqnum_of(await book.read_prev()) == seqnums[9]
    assert seqnum_of(await book.read_prev(at_most=seqnums[3])) == seqnums[3]
    assert seqnum_of(await book.read_prev(at_most=seqnums[3] - 1)) == seqnums[2]
    assert seqnum_of(await book.read_prev("even", at_most=seqnums[3])) == seqnums[2]
    assert seqnum_of(await book.read_prev("odd", at_most=2**64 - 1)) == seqnums[9]
    assert await book.read_prev(at_most=seqnums[0] - 1) is None
    assert await book.read_prev(at_most=0) is None
    assert await book.read_prev("odd", at_most=seqnums[0]) is None


async def test_check_tail(book: boki.Book, seqnums: list[int]) -> None:
    assert seqnum_of(await book.check_tail()) == seqnums[9]
    assert seqnum_of(await book.check_tail("even")) == seqnums[8]
    assert await book.check_tail("neither") is None


async def test_read_at_finds_exactly_one_place(book: boki.Book, client: boki.Client, seqnums: list[int]) -> None:
    record = present(await book.read_at(seqnums[4]))
    assert (record.seqnum, record.data, record.tags) == (seqnums[4], b"4", ("even",))
    assert await book.read_at(seqnums[9] + 1) is None
    assert await client.book(f"{book.name} but another").read_at(seqnums[4]) is None


async def test_read_prev_many_answers_in_the_order_of_the_queries(book: boki.Book, seqnums: list[int]) -> None:
    found = await book.read_prev_many(
        [("odd", None), ("even", seqnums[3]), ("neither", None), (None, seqnums[5]), (0, None), ("odd", seqnums[0])]
    )
    assert [seqnum_of(record) for record in found] == [
        seqnums[9], seqnums[2], None, seqnums[5], seqnums[9], None,
    ]  # fmt: skip
    assert await book.read_prev_many([]) == []
    many = await book.read_prev_many([("odd", seqnums[1])] * 4096)
    assert {seqnum_of(record) for record in many} == {seqnums[1]}


async def test_a_range_includes_its_start_and_not_its_stop(book: boki.Book, seqnums: list[int]) -> None:
    async def found(tag: str | None = None, *, start: int | None = None, stop: int | None = None) -> list[int]:
        return [record.seqnum for record in await collect(book.read(tag, start=start, stop=stop))]

    assert await found() == seqnums
    assert await found(start=seqnums[2], stop=seqnums[5]) == seqnums[2:5]
    assert await found(start=seqnums[2] + 1, stop=seqnums[5] + 1) == seqnums[3:6]
    assert await found("odd", start=seqnums[2], stop=seqnums[6]) == [seqnums[3], seqnums[5]]
    assert await found(start=seqnums[5], stop=seqnums[5]) == []
    assert await found(start=seqnums[6], stop=seqnums[5]) == []
    assert await found(stop=0) == []
    assert await found(start=0, stop=2**64 - 1) == seqnums


async def test_a_range_longer_than_one_page(book: boki.Book) -> None:
    records = [(str(number).encode(), ["third"] if number % 3 == 0 else []) for number in range(10_000)]
    seqnums = await book.append_many(records)
    found = await collect(book.read())
    assert [(record.seqnum, record.data) for record in found] == [
        (seqnum, data) for seqnum, (data, _) in zip(seqnums, records, strict=True)
    ]
    assert [record.seqnum for record in await collect(book.read("third"))] == seqnums[::3]


async def test_a_read_ends_at_what_was_there_when_it_began(book: boki.Book) -> None:
    await book.append_many([(b"old", [])] * 5_000)
    seen = []
    async for record in book.read():
        seen.append(record.data)
        if len(seen) % 1_000 == 0:
            await book.append_many([(b"new", [])] * 1_000)
    assert seen == [b"old"] * 5_000


async def test_an_iterator_may_be_dropped_in_mid_course(book: boki.Book) -> None:
    await book.append_many([(b"x", [])] * 9_000)
    async for record in book.read():
        assert record.data == b"x"
        break
    assert seqnum_of(await book.check_tail()) is not None


async def test_many_readers_at_once(book: boki.Book, seqnums: list[int]) -> None:
    found = await asyncio.gather(
        *(book.read_next(at_least=seqnums[number % 10]) for number in range(200)),
    )
    assert [seqnum_of(record) for record in found] == [seqnums[number % 10] for number in range(200)]


async def test_any_consistency_reads_what_is_there(book: boki.Book, seqnums: list[int]) -> None:
    assert seqnum_of(await book.read_next(at_least=seqnums[0], consistency="session")) == seqnums[0]
    found = await collect(book.read(consistency="any"))
    assert [record.seqnum for record in found] == seqnums[: len(found)]
    record = await book.read_next(consistency="any", wait=5)
    assert seqnum_of(record) == seqnums[0]
    assert await book.read_prev(at_most=seqnums[0] - 1, consistency="any") is None
    assert await book.read_prev_many([(None, seqnums[0] - 1)], consistency="any") == [None]


async def test_tag_zero_and_none_are_every_record(book: boki.Book, seqnums: list[int]) -> None:
    assert [record.seqnum for record in await collect(book.read(0))] == seqnums
    assert seqnum_of(await book.read_next(0)) == seqnum_of(await book.read_next(None)) == seqnums[0]


async def test_a_read_ends_at_its_limit(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(5)]
    assert [record.seqnum for record in await collect(book.read("a", limit=2))] == seqnums[:2]
    assert [record.seqnum for record in await collect(book.read("a", start=seqnums[3], limit=9))] == seqnums[3:]
    assert [record.seqnum for record in await collect(book.read("a", limit=2, follow=True))] == seqnums[:2]


async def test_an_iterator_has_one_reader_at_a_time_as_a_generator(book: boki.Book) -> None:
    seqnums = await book.append_many([(b"%d" % number, ["t"]) for number in range(20)])
    records = book.read("t")
    found: list[int] = []

    async def drain() -> str:
        try:
            async for record in records:
                assert isinstance(record, boki.Record)
                found.append(record.seqnum)
        except RuntimeError as error:
            return str(error)
        return "to the end"

    said = await asyncio.gather(*(drain() for _ in range(4)))
    assert sorted(said)[-1] == "to the end"
    assert sum(text.startswith("another task or thread waits") for text in said) == 3
    assert found == seqnums  # each once


async def test_a_follower_that_was_cancelled_is_not_busy(book: boki.Book) -> None:
    records = book.read("t", follow=True)
    waiting = asyncio.ensure_future(anext(records))
    await asyncio.sleep(0)
    with pytest.raises(boki.IteratorBusy):
        await anext(records)
    waiting.cancel()
    await asyncio.wait([waiting])
    seqnum = await book.append(b"x", tags=["t"])
    record = await anext(records)
    assert isinstance(record, boki.Record) and record.seqnum == seqnum
