"""The largest and smallest that is allowed comes back whole; one more is refused, by name, before anything is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
from boki_common import limits
from itests.support.sdk_client import collect, present

LARGEST_TAGS = [f"{number:03}" + "n" * 252 for number in range(255)]


@pytest.mark.parametrize("tags", [[], [1, 2], LARGEST_TAGS], ids=["none", "numbers", "all names"])
async def test_a_mebibyte_of_data_fits_whatever_its_tags(book: boki.Book, tags: list[str | int]) -> None:
    data = bytes(range(256)) * 4096
    assert len(data) == 1024 * 1024
    seqnums = [await book.append(data, tags=tags), *await book.append_many([(data, tags), (b"x", ["t"])])]
    for seqnum in seqnums[:2]:
        record = present(await book.read_at(seqnum))
        assert (record.data, list(record.tags)) == (data, tags)
        assert await book.set_aux_data(seqnum, data)
    found = await book.read_prev_many([(None, seqnum) for seqnum in seqnums[1:]])
    assert [len(record.data) for record in found if record] == [len(data), 1]
    assert [len(item.data) async for item in book.read() if isinstance(item, boki.Record)] == [len(data), len(data), 1]


async def test_a_byte_more_is_refused(book: boki.Book) -> None:
    data = bytes(limits.RECORD_BYTES + 1)
    for append in (lambda: book.append(data), lambda: book.append_many([(b"x", []), (data, [])])):
        with pytest.raises(
            boki.RecordTooLarge, match="at most 1048576 bytes of data in a record, found 1048577"
        ) as caught:
            await append()
        assert caught.value.found == limits.RECORD_BYTES + 1
    assert await book.check_tail() is None


async def test_pages_of_large_records(book: boki.Book) -> None:
    datas = [bytes([number]) * 700_000 for number in range(6)]
    await asyncio.gather(*(book.append(data, tags=["large"]) for data in datas))
    assert [record.data for record in await collect(book.read("large"))] == datas
    many = await book.append_many([(data, ["again"]) for data in datas])
    found = await book.read_prev_many([("again", seqnum) for seqnum in many])
    assert [record.data if record else None for record in found] == datas


async def test_255_tags(book: boki.Book) -> None:
    tags = [f"tag {number}" for number in range(155)] + list(range(1, 101))
    seqnum = await book.append(b"x", tags=tags)
    for tag in (tags[0], tags[154], tags[155], tags[254]):
        assert [record.seqnum for record in await collect(book.read(tag))] == [seqnum]
    assert list(present(await book.read_at(seqnum)).tags) == tags
    with pytest.raises(boki.InvalidTag, match="at most 255 tags, found 256"):
        await book.append(b"x", tags=[*tags, "one more"])


async def test_256_expectations(book: boki.Book) -> None:
    expect: dict[str | int, int | None] = {f"t{number}": None for number in range(256)}
    await book.append(b"x", expect=expect, tags=["t255"])
    with pytest.raises(boki.Conflict):
        await book.append(b"x", expect=expect)
    with pytest.raises(boki.InvalidArgument, match="at most 256 expectations"):
        await book.append(b"x", expect={**expect, "one more": None})


async def test_names_of_255_bytes(book: boki.Book) -> None:
    longest = "é" * 127 + "x"
    await book.append(b"x", tags=[longest])
    assert present(await book.read_next(longest)).tags == (longest,)
    with pytest.raises(boki.InvalidTag, match="found 256"):
        await book.append(b"x", tags=["é" * 128])


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        (2**64 - 1, "from 1 to 2\\*\\*64-2"),
        (0, "from 1 to 2\\*\\*64-2"),
        (-1, "from 1 to 2\\*\\*64-2"),
        (2**64, "from 1 to 2\\*\\*64-2"),
        ("", "1 to 255 bytes"),
        (None, "not NoneType"),
        (True, "not bool"),
        (1.0, "not float"),
        (b"a", "not bytes"),
        (["a"], "not list"),
        ("\ud800", "UTF-8"),
    ],
)
async def test_what_is_no_tag(book: boki.Book, tag: object, message: str) -> None:
    with pytest.raises(boki.InvalidTag, match=message):
        await book.append(b"x", tags=["ok", tag])  # type: ignore[list-item]
    assert await book.check_tail() is None


async def test_a_tag_twice(book: boki.Book) -> None:
    with pytest.raises(boki.InvalidTag, match="given twice"):
        await book.append(b"x", tags=["a", "b", "a"])
    with pytest.raises(boki.InvalidTag, match="given twice"):
        await book.append(b"x", tags=["a", boki.testing.tag_number("a")])


@pytest.mark.parametrize("tags", ["name", b"name", {"a"}, 7, iter(["a"]), None])
async def test_tags_are_a_list_or_tuple(book: boki.Book, tags: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="tags as a list or tuple"):
        await book.append(b"x", tags=tags)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", ["text", None, 7, ["x"]])
async def test_data_is_bytes(book: boki.Book, data: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="as bytes, found"):
        await book.append(data)  # type: ignore[arg-type]
    with pytest.raises(boki.InvalidArgument, match="as bytes, found"):
        _ = book.submit(data)  # type: ignore[arg-type]


async def test_a_refused_record_leaves_no_hole(book: boki.Book) -> None:
    tickets = [book.submit(b"1")]
    with pytest.raises(boki.RecordTooLarge):
        _ = book.submit(bytes(limits.RECORD_BYTES + 1))
    with pytest.raises(boki.InvalidTag):
        _ = book.submit(b"", tags=[0])
    tickets.append(book.submit(b"2"))
    first, second = [await ticket for ticket in tickets]
    assert first < second


@pytest.mark.parametrize("name", ["", "x" * 1025, -1, 2**64, None, True, 1.5, b"book", "\ud800"])
async def test_what_is_no_book(client: boki.Client, name: object) -> None:
    with pytest.raises(boki.InvalidArgument, match="book"):
        client.book(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at_least": -1}, "at_least from 0"),
        ({"at_least": 2**64}, "at_least from 0"),
        ({"at_least": "1"}, "at_least to be a seqnum"),
        ({"at_least": True}, "at_least to be a seqnum"),
        ({"wait": -1}, "wait to be 0 or more seconds"),
        ({"wait": float("nan")}, "wait to be 0 or more seconds"),
        ({"wait": "1"}, "wait in seconds"),
        ({"timeout": -0.1}, "timeout to be 0 or more"),
        ({"consistency": "linear"}, r"one of \['any', 'linearizable', 'session'\], found 'linear'"),
        ({"consistency": None}, r"one of \['any', 'linearizable', 'session'\]"),
        ({"tag": 2**64 - 1}, "from 1 to 2"),
        ({"tag": ""}, "1 to 255 bytes"),
        ({"tag": False}, "not bool"),
    ],
)
async def test_wrong_arguments_of_a_read(book: boki.Book, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(boki.InvalidArgument, match=message):
        await book.read_next(**arguments)


async def test_wrong_arguments_of_the_other_reads(book: boki.Book) -> None:
    with pytest.raises(boki.InvalidArgument, match="at_most"):
        await book.read_prev(at_most=-1)
    with pytest.raises(boki.InvalidArgument, match="seqnum from 1"):
        await book.read_at(0)
    with pytest.raises(boki.InvalidArgument, match="seqnum from 1"):
        await book.read_at(2**63)
    with pytest.raises(boki.InvalidArgument, match="follow"):
        book.read(follow=1)  # type: ignore[call-overload]
    with pytest.raises(boki.InvalidArgument, match="start"):
        book.read(start="x")  # type: ignore[call-overload]
    with pytest.raises(boki.InvalidArgument, match="stop"):
        book.read(stop=-5)
    with pytest.raises(boki.InvalidArgument, match="consistency"):
        book.read(consistency="strong")  # type: ignore[call-overload]
    with pytest.raises(boki.InvalidArgument, match="at most 4096 queries"):
        await book.read_prev_many([("a", None)] * 4097)
    with pytest.raises(boki.InvalidArgument, match="pairs"):
        await book.read_prev_many(["a"])  # type: ignore[list-item]
