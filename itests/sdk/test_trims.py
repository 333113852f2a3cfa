"""Trimming: marks of streams and of books, what point reads and range readers get of them, and what outlives a trim."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

import boki
from itests.support.sdk_client import cut, present

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def seen(book: boki.Book, tag: str | int | None = None, *, start: int | None = None) -> list[object]:
    """What a range reader gets: seqnums of records, and gaps as (first, last)."""
    return [
        (item.first, item.last) if isinstance(item, boki.Gap) else item.seqnum
        async for item in book.read(tag, start=start)
    ]


async def test_what_is_below_a_mark_of_the_book_is_gone_from_every_stream(book: boki.Book) -> None:
    seqnums = [
        await book.append(b"%d" % number, tags=["a", "even" if number % 2 == 0 else "odd"]) for number in range(6)
    ]
    await book.trim(before=seqnums[3])
    assert await seen(book) == seqnums[3:]
    assert await seen(book, "a") == seqnums[3:]
    assert await seen(book, "even") == [seqnums[4]]
    assert await seen(book, "odd") == [seqnums[3], seqnums[5]]


async def test_a_record_stays_while_one_of_its_tags_holds_it(book: boki.Book) -> None:
    both = await book.append(b"both", tags=["a", "b"])
    only = await book.append(b"only", tags=["a"])
    none = await book.append(b"none")
    last = await book.append(b"last", tags=["a"])
    await book.trim(before=last, tag="a")
    assert await seen(book, "a") == [last]
    assert await seen(book, "b") == [both]
    assert await seen(book) == [both, none, last], "tag 0 shows what is live, and what has no tags is held by the book"
    assert await book.read_at(only) is None
    await book.trim([("b", last)])
    assert await seen(book) == [none, last]


async def test_many_marks_in_one_trim(book: boki.Book) -> None:
    seqnums = {number: await book.append(b"", tags=[number]) for number in range(1, 101)}
    await book.trim([(number, seqnums[number] + 1) for number in range(1, 100)])
    assert await seen(book) == [seqnums[100]]


async def test_a_range_read_from_below_a_mark_begins_with_one_gap(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(5)]
    await book.trim(before=seqnums[2], tag="a")
    assert await seen(book, "a", start=seqnums[0]) == [(seqnums[0], seqnums[2] - 1), *seqnums[2:]]
    assert await seen(book, "a", start=seqnums[2]) == seqnums[2:]
    assert await seen(book, "a") == seqnums[2:], "whoever names no start begins at what is live"
    items = [item async for item in book.read("a", start=seqnums[1], stop=seqnums[2])]
    assert items == [boki.Gap(boki.GapKind.TRIMMED, seqnums[1], seqnums[2] - 1, book.name)]


async def test_a_gap_taken_for_a_record_raises(book: boki.Book) -> None:
    first = await book.append(b"1")
    last = await book.append(b"2")
    await book.trim(before=last)
    with pytest.raises(boki.Trimmed) as caught:
        _ = [record.data async for record in book.read(start=first)]
    assert caught.value.mark == last


async def test_point_reads_below_a_mark_raise(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(4)]
    await book.trim(before=seqnums[2])
    for read in (
        book.read_at(seqnums[1]),
        book.read_next("a", at_least=seqnums[1]),
        book.read_next(at_least=seqnums[0], wait=5),
        book.read_prev("a", at_most=seqnums[1]),
        book.read_prev_many([("a", None), ("a", seqnums[1])]),
    ):
        with pytest.raises(boki.Trimmed) as caught:
            await read
        assert caught.value.mark == seqnums[2]
        assert not caught.value.retryable
    assert present(await book.read_next("a", at_least=caught.value.mark)).seqnum == seqnums[2]


async def test_point_reads_that_name_nothing_find_what_is_live(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(4)]
    await book.trim(before=seqnums[2])
    first, last = present(await book.read_next("a")), present(await book.check_tail("a"))
    assert (first.seqnum, last.seqnum) == (seqnums[2], seqnums[3])
    assert [record.seqnum if record else None for record in await book.read_prev_many([("a", None)])] == [seqnums[3]]


async def test_a_trim_of_a_tag_that_takes_nothing_leaves_no_mark(book: boki.Book) -> None:
    """A late copy of a trim says nothing of a stream that was made after it."""
    other = await book.append(b"0", tags=["other"])
    first, second = [await book.append(b"%d" % number, tags=["a"]) for number in (1, 2)]
    for before in (other + 1, first):
        await book.trim(before=before, tag="a")
        assert await seen(book, "a", start=1) == [first, second]
        assert present(await book.read_prev("a", at_most=first)).seqnum == first
        assert await book.read_prev("a", at_most=other) is None
    await book.trim(before=second, tag="a")
    assert await seen(book, "a", start=1) == [(1, first), second]


async def test_an_emptied_stream(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    last = await book.append(b"2", tags=["b"])
    await book.trim(before=first + 1, tag="a")
    assert await book.check_tail("a") is None
    assert await book.read_next("a") is None
    assert await book.read_prev("a", at_most=last) is None
    assert await seen(book, "a") == []
    assert await seen(book, "a", start=first) == [(first, first)]


async def test_the_newest_seqnum_of_a_stream_outlives_its_records(book: boki.Book) -> None:
    seqnum = await book.append(b"1", tags=["a"])
    await book.append(b"2", tags=["b"])
    await book.trim(before=seqnum + 1, tag="a", forget=True)  # forget: but it is no hour old
    with pytest.raises(boki.Conflict) as caught:
        await book.append(b"3", tags=["a"], expect={"a": None})
    assert caught.value.actual == {"a": seqnum}
    await book.append(b"4", tags=["a"], expect={"a": seqnum})


async def test_the_future_is_not_trimmed(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    await book.trim(before=2**63 - 1)
    assert await book.check_tail() is None
    later = [await book.append(b"2", tags=["a"]), await book.append(b"3")]
    assert await seen(book) == later
    with pytest.raises(boki.Trimmed):
        await book.read_at(first)


async def test_marks_never_go_back(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number, tags=["a"]) for number in range(4)]
    await book.trim(before=seqnums[3])
    await book.trim(before=seqnums[1])
    await book.trim(before=seqnums[1], tag="a")
    assert await seen(book) == seqnums[3:]
    assert await seen(book, "a", start=seqnums[1]) == [(seqnums[1], seqnums[3] - 1), seqnums[3]]


async def test_a_book_that_nothing_was_appended_to(book: boki.Book) -> None:
    await book.trim(before=2**62)
    seqnum = await book.append(b"1")
    assert await seen(book) == [seqnum]


async def test_other_books_are_not_touched(client: boki.Client, name: str) -> None:
    one, other = client.book(name), client.book(f"{name} other")
    kept = await other.append(b"kept", tags=["a"])
    last = await one.append(b"gone", tags=["a"])
    await one.trim(before=last + 1)
    assert await seen(other, "a") == [kept]
    assert await other.read_at(kept) is not None


async def test_a_follower_gets_gaps_of_what_it_had_not_seen_and_no_others(cluster: Cluster, name: str) -> None:
    items: list[object] = []
    arrived = asyncio.Event()

    async def follow(start: int) -> None:
        async for item in client.book(name).read("a", start=start, follow=True):
            items.append((item.first, item.last) if isinstance(item, boki.Gap) else item.seqnum)
            arrived.set()

    async def until(count: int) -> None:
        while len(items) < count:
            arrived.clear()
            await asyncio.wait_for(arrived.wait(), 30)

    async with await cluster.connect() as client, await cluster.connect() as other:
        book = other.book(name)
        first = await book.append(b"1", tags=["a"])
        following = asyncio.create_task(follow(first))
        await until(1)
        elsewhere = await book.append(b"2", tags=["b"])
        await book.trim(before=elsewhere)
        await book.trim(before=elsewhere, tag="a")
        second = await book.append(b"3", tags=["a"])
        await until(2)
        assert items == [first, second], "what it had seen is no gap"
        following.cancel()


async def test_a_trim_through_a_cut_connection(client: boki.Client, book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % number) for number in range(3)]
    trimming = asyncio.create_task(book.trim(before=seqnums[2]))
    await asyncio.sleep(0)
    cut(client)
    await trimming
    assert await seen(book) == seqnums[2:]


async def test_another_session_sees_a_trim_that_returned(cluster: Cluster, name: str) -> None:
    async with await cluster.connect() as one, await cluster.connect() as other:
        last = [await one.book(name).append(b"x", tags=["a"]) for _ in range(3)][-1]
        await one.book(name).trim(before=last)
        continued = other.session(one.session_token()).book(name)
        assert await seen(continued, "a") == [last]
        assert present(await other.book(name).read_next("a", consistency="linearizable")).seqnum == last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected trim"),
        ({"pairs": [("a", 1)], "before": 1}, "expected trim"),
        ({"pairs": [("a", 1)], "tag": "a"}, "expected trim"),
        ({"pairs": []}, "1 to 4096 pairs"),
        ({"pairs": [("a", 1)] * 4097}, "1 to 4096 pairs"),
        ({"pairs": "ab"}, "a list of"),
        ({"pairs": ["ab", "c"]}, "pairs to trim"),
        ({"before": 0}, "seqnum from 1"),
        ({"before": 2**63}, "seqnum from 1"),
        ({"before": "1"}, "to be a seqnum"),
        ({"before": 1, "tag": ""}, "1 to 255 bytes"),
        ({"before": 1, "forget": 1}, "forget to be"),
    ],
)
async def test_what_is_no_trim(book: boki.Book, arguments: dict[str, object], message: str) -> None:
    seqnum = await book.append(b"x")
    with pytest.raises(boki.InvalidArgument, match=message):
        await book.trim(**arguments)  # type: ignore[arg-type]
    assert await seen(book, start=1) == [seqnum]


@pytest.mark.parametrize("seed", range(3))
async def test_random_trims_against_a_list(book: boki.Book, seed: int) -> None:
    rng = random.Random(seed)
    streams: tuple[str | int | None, ...] = (None, "a", "b", 7)
    names: tuple[str | int, ...] = ("a", "b", 7)
    records: dict[int, tuple[str | int, ...]] = {}
    newest: dict[str | int | None, int] = {}
    marks: dict[str | int | None, int] = {}
    for number in range(120):
        if rng.random() < 0.7 or not records:
            tags = tuple(rng.sample(names, rng.randrange(4)))
            seqnum = await book.append(b"%d" % number, tags=tags)
            records[seqnum] = tags
            newest |= dict.fromkeys(tags, seqnum)
            newest[None] = seqnum
            continue
        pairs = [
            (tag, rng.choice(list(newest.values())) - rng.randrange(9))
            for tag in rng.sample(streams, rng.choice((1, 1, 2)))
        ]
        await book.trim(pairs)
        moved = {tag: min(before, newest.get(tag, -1) + 1) for tag, before in pairs}
        held = {tag: max(marks.get(None, 0), marks.get(tag, 0)) for tag in streams}
        for tag, mark in moved.items():
            if tag is None or any(held[tag] <= seqnum < mark and tag in tags for seqnum, tags in records.items()):
                marks[tag] = max(marks.get(tag, 0), mark)
        records = {
            seqnum: tags
            for seqnum, tags in records.items()
            if seqnum >= marks.get(None, 0) and (not tags or any(seqnum >= marks.get(tag, 0) for tag in tags))
        }
        for tag in streams:
            mark = max(marks.get(None, 0), marks.get(tag, 0))
            alive = [seqnum for seqnum, tags in records.items() if seqnum >= mark and (tag is None or tag in tags)]
            assert await seen(book, tag) == alive
            start = rng.choice(list(newest.values())) - rng.randrange(40)
            gap: list[object] = [(start, mark - 1)] if start < mark else []
            assert await seen(book, tag, start=start) == gap + [seqnum for seqnum in alive if seqnum >= start]
