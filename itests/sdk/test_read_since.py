"""`read_since`, sentence by sentence: what is new to who has seen streams up to somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import boki

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


def plain(since: boki.Since) -> list[str]:
    return [record.data.decode() for record in since.records]


async def test_each_stream_is_read_from_where_it_was_seen(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["ab"[number % 2]]) for number in range(6)]
    found = await book.read_since({"a": seqnums[2], "b": seqnums[1]})
    assert plain(found) == ["3", "4", "5"]
    assert found.position >= seqnums[5]
    assert plain(await book.read_since({"a": 0, "b": seqnums[5]})) == ["0", "2", "4"]
    assert [record.tags for record in found.records] == [("b",), ("a",), ("b",)]


async def test_nothing_new_is_a_snapshot_that_can_be_expected(book: boki.Book) -> None:
    seen = await book.append(b"1", tags=["a"])
    await book.append(b"2", tags=["b"])
    position, records = await book.read_since({"a": seen})
    assert records == []
    await book.append(b"3", tags=["a"], expect={"a": position})
    with pytest.raises(boki.Conflict):
        await book.append(b"4", tags=["a"], expect={"a": position})


async def test_without_tags_it_is_a_snapshot(book: boki.Book) -> None:
    seqnum = await book.append(b"1", tags=["a"])
    position, records = await book.read_since({})
    assert position >= seqnum and records == []


async def test_a_book_that_has_nothing_has_a_position(book: boki.Book) -> None:
    position, records = await book.read_since({"a": 0})
    assert position >= 1 and records == []
    assert await book.append(b"1", tags=["a"], expect={"a": position}) > position


async def test_a_record_of_several_tags_is_given_once_and_if_one_of_them_has_not_seen_it(book: boki.Book) -> None:
    both = await book.append(b"both", tags=["a", "b"])
    assert plain(await book.read_since({"a": 0, "b": 0})) == ["both"]
    assert plain(await book.read_since({"a": both, "b": 0})) == ["both"]
    assert plain(await book.read_since({"a": both, "b": both})) == []


async def test_as_of_a_place_of_the_past(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(4)]
    found = await book.read_since({"a": seqnums[0]}, at_most=seqnums[2])
    assert (plain(found), found.position) == (["1", "2"], seqnums[2])
    assert plain(await book.read_since({"a": seqnums[3]}, at_most=seqnums[1])) == [], "what was seen is not given again"
    with pytest.raises(boki.InvalidArgument):
        await book.read_since({"a": 0}, at_most=(book.position or 0) + 1_000)


async def test_a_session_sees_its_own_and_linearizable_sees_all_that_returned(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as mine, await cluster.connect() as other:
        for number in range(3):
            own = await mine.book(name).append(b"mine %d" % number, tags=["a"])
            assert plain(await mine.book(name).read_since({"a": own - 1}))[-1] == f"mine {number}"
            foreign = await other.book(name).append(b"other %d" % number, tags=["a"])
            found = await mine.book(name).read_since({"a": own}, consistency="linearizable")
            assert plain(found) == [f"other {number}"] and found.position >= foreign


async def test_what_was_trimmed_above_what_was_seen_is_reported(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a", "b"]) for number in range(4)]
    await book.trim(before=seqnums[2], tag="a")
    with pytest.raises(boki.Trimmed) as trimmed:
        await book.read_since({"b": 0, "a": seqnums[0]})
    assert trimmed.value.tag == "a"
    assert plain(await book.read_since({"a": seqnums[1], "b": seqnums[2]})) == ["2", "3"]


async def test_more_than_a_page_is_of_one_moment(book: boki.Book) -> None:
    seqnums = await book.append_many([(b"x" * 1_000, ["ab"[number % 2]]) for number in range(5_000)])
    found = await book.read_since({"a": 0, "b": seqnums[99]})
    assert [record.seqnum for record in found.records] == [*seqnums[0:100:2], *seqnums[100:]]
    assert found.position >= seqnums[-1]


async def test_what_cannot_be_asked_is_refused(book: boki.Book) -> None:
    for wrong in ({"a": -1}, {"": 1}, {f"t{number}": 1 for number in range(256)}, [("a", 1)], {"a": "1"}):
        with pytest.raises(boki.InvalidArgument):
            await book.read_since(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
