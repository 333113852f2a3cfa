"""Aux data: cached beside a record by the engine, returned by every kind of read, never promised."""

from __future__ import annotations

import pytest

import boki
from itests.support.sdk_client import present


async def test_aux_data_comes_back_with_every_kind_of_read(book: boki.Book) -> None:
    seqnum = await book.append(b"data", tags=["a", "b"])
    assert await book.set_aux_data(seqnum, b"view")
    found = [
        await book.read_next("a"),
        await book.read_prev("b"),
        await book.check_tail(),
        await book.read_at(seqnum),
        *await book.read_prev_many([("a", None)]),
        *[record async for record in book.read("a")],
    ]
    assert len(found) == 6
    for record in found:
        assert isinstance(record, boki.Record)
        assert (record.seqnum, record.data, record.aux_data) == (seqnum, b"data", b"view")


async def test_only_the_records_that_have_some_show_it(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(50)]
    for seqnum in seqnums[::7]:
        await book.set_aux_data(seqnum, b"of %d" % seqnum)
    found = {record.seqnum: record.aux_data async for record in book.read("a")}
    assert found == {seqnum: b"of %d" % seqnum if seqnum in seqnums[::7] else None for seqnum in seqnums}


async def test_the_last_call_wins(book: boki.Book) -> None:
    seqnum = await book.append(b"x")
    for data in (b"first", b"", bytearray(b"last")):
        assert await book.set_aux_data(seqnum, data)
        assert present(await book.read_at(seqnum)).aux_data == data


async def test_what_is_no_record_of_the_book_takes_none(client: boki.Client, name: str) -> None:
    book = client.book(name)
    seqnum = await book.append(b"x")
    assert not await client.book(f"{name} other").set_aux_data(seqnum, b"y")
    assert not await book.set_aux_data(seqnum + 1, b"y")
    assert present(await book.read_at(seqnum)).aux_data is None


async def test_a_trimmed_record_takes_none(book: boki.Book) -> None:
    seqnum = await book.append(b"x")
    last = await book.append(b"y")
    await book.set_aux_data(seqnum, b"z")
    await book.trim(before=last)
    assert not await book.set_aux_data(seqnum, b"z")


async def test_large_aux_data_of_many_records_fits_the_answers(book: boki.Book) -> None:
    large = bytes(1024 * 1024)
    seqnums = [await book.append(b"x" * 200_000, tags=["a"]) for _ in range(6)]
    for seqnum in seqnums:
        assert await book.set_aux_data(seqnum, large)
    found = [record.seqnum async for record in book.read("a")]
    assert found == seqnums
    assert present(await book.read_at(seqnums[3])).aux_data == large


async def test_aux_data_has_a_limit(book: boki.Book) -> None:
    seqnum = await book.append(b"x")
    with pytest.raises(boki.RecordTooLarge, match="aux data"):
        await book.set_aux_data(seqnum, bytes(1024 * 1024 + 1))
    with pytest.raises(boki.InvalidArgument, match="as bytes"):
        await book.set_aux_data(seqnum, "text")  # type: ignore[arg-type]
    with pytest.raises(boki.InvalidArgument, match="seqnum"):
        await book.set_aux_data(0, b"x")
