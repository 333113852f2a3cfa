"""`read(tags=[…])`, sentence by sentence: one cursor over the records of several tags. What was forgotten is in
`logbook/tests`: it takes an hour of the log's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

import boki
from boki import Gap, GapKind
from itests.support.sdk_client import cut

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster

Item = boki.Record | boki.Gap


async def take(cursor: boki.Cursor, count: int) -> list[Item]:
    """The next items, so many."""
    return [await asyncio.wait_for(anext(cursor), 30) for _ in range(count)]


async def all_of(cursor: boki.Cursor) -> list[Item]:
    return [item async for item in cursor]


def plain(items: Sequence[Item]) -> list[Any]:
    """Records as their data, gaps as (tag, first, last)."""
    return [(item.tag, item.first, item.last) if isinstance(item, Gap) else item.data.decode() for item in items]


async def asked(book: boki.Book) -> None:
    """What was asked before is at the engine, and what it asked in turn: three answers came on the same connection."""
    for _ in range(3):
        await book.now()


async def quiet(cursor: boki.Cursor) -> bool:
    """Whether nothing comes for a moment."""
    waiting = asyncio.ensure_future(anext(cursor))
    await asyncio.wait({waiting}, timeout=0.3)
    return waiting.cancel()


# -- the union


async def test_the_union_comes_in_the_order_of_the_book(book: boki.Book) -> None:
    for number in range(12):
        await book.append(b"%d" % number, tags=["abc"[number % 3]])
    found = await all_of(book.read(tags=["b", "a"]))
    assert plain(found) == ["0", "1", "3", "4", "6", "7", "9", "10"]
    cursor = book.read(tags=["c", "b"], follow=True)
    assert plain(await take(cursor, 8)) == ["1", "2", "4", "5", "7", "8", "10", "11"]


async def test_a_record_comes_once_however_many_of_its_tags_are_named(book: boki.Book) -> None:
    cursor = book.read(tags=["a", "b", "c"], follow=True)
    await book.append(b"all", tags=["a", "b", "c"])
    await book.append(b"none")
    await book.append(b"two", tags=["c", "a", "z"])
    assert plain(await take(cursor, 2)) == ["all", "two"]
    assert plain(await all_of(book.read(tags=["b", "c", "a"]))) == ["all", "two"]


async def test_many_pages_of_many_tags(book: boki.Book) -> None:
    tags = [f"t{number}" for number in range(255)]
    await book.append_many([(b"%d" % n, [tags[n % 5], tags[5 + n * 7 % 250]]) for n in range(3_000)])
    found = [item async for item in book.read(tags=tags)]
    assert [item.data for item in found] == [b"%d" % n for n in range(3_000)]
    limited = await all_of(book.read(tags=tags[:5], limit=100))
    assert plain(limited) == [str(n) for n in range(100)]


async def test_names_are_compared(book: boki.Book) -> None:
    cursor = book.read(tags=["name", "other"], follow=True)
    await book.append(b"number", tags=[boki.testing.tag_number("name")])
    await book.append(b"name", tags=["name"])
    assert plain(await take(cursor, 1)) == ["name"]
    by_number = book.read(tags=[boki.testing.tag_number("name"), "nothing"])
    assert plain(await all_of(by_number)) == ["number", "name"]


async def test_without_follow_it_ends_at_what_is_there(book: boki.Book) -> None:
    await book.append(b"1", tags=["a"])
    cursor = book.read(tags=["a", "b"])
    assert plain(await take(cursor, 1)) == ["1"]
    await book.append(b"2", tags=["b"])
    assert await all_of(cursor) == []
    assert await all_of(book.read(tags=[])) == []


async def test_a_range_and_its_bounds(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["ab"[n % 2]]) for n in range(6)]
    ranged = book.read(tags=["a", "b"], start=seqnums[1], stop=seqnums[4])
    assert plain(await all_of(ranged)) == ["1", "2", "3"]
    assert seqnums[3] <= ranged.position < seqnums[4]
    followed = book.read(tags=["a", "b"], start=seqnums[4], stop=seqnums[5] + 1, follow=True)
    assert plain(await all_of(followed)) == ["4", "5"]


# -- waiting


async def test_it_wakes_on_its_own_tags_and_not_on_others(book: boki.Book) -> None:
    cursor = book.read(tags=["a", "b"], follow=True)
    waiting = asyncio.ensure_future(anext(cursor))
    await book.append(b"other", tags=["z"])
    await book.append(b"plain")
    await asked(book)
    assert not waiting.done()
    await book.append(b"mine", tags=["b"])
    item = await asyncio.wait_for(waiting, 30)
    assert item.data == b"mine"


async def test_two_that_wait_for_the_same_tag_are_both_answered(client: boki.Client, book: boki.Book) -> None:
    cursors = [client.session().book(book.name).read(tags=["a", f"own{n}"], follow=True) for n in range(3)]
    waiting = [asyncio.ensure_future(anext(cursor)) for cursor in cursors]
    await asked(book)
    await book.append(b"1", tags=["own1"])
    await book.append(b"2", tags=["a"])
    found = [await asyncio.wait_for(one, 30) for one in waiting]
    assert [item.data for item in found] == [b"2", b"1", b"2"]


async def test_a_second_one_who_asks_at_once_is_refused(book: boki.Book) -> None:
    cursor = book.read(tags=["a"], follow=True)
    first = asyncio.ensure_future(anext(cursor))
    await asked(book)
    with pytest.raises(boki.IteratorBusy):
        await anext(cursor)
    await book.append(b"1", tags=["a"])
    assert (await asyncio.wait_for(first, 30)).data == b"1"


async def test_a_cancelled_wait_loses_nothing(book: boki.Book) -> None:
    cursor, seen = book.read(tags=["a", "b"], follow=True), []
    for number in range(8):
        waiting = asyncio.ensure_future(anext(cursor))
        appending = asyncio.ensure_future(book.append(b"%d" % number, tags=["ab"[number % 2]]))
        for _ in range(20 * number):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting, appending})
        seen += [] if waiting.cancelled() else [waiting.result()]
    seen += await take(cursor, 8 - len(seen))
    assert plain(seen) == [str(n) for n in range(8)]


# -- the position


async def test_the_position_says_up_to_where_all_was_given(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["a"]) for n in range(4)]
    cursor = book.read(tags=["a", "b"], start=1, follow=True)
    assert cursor.position == 0
    for seqnum in seqnums:
        (item,) = await take(cursor, 1)
        assert item.seqnum == seqnum
        assert seqnum <= cursor.position, "what was given lies at or below it"
        later = [one for one in seqnums if one > seqnum]
        assert not later or cursor.position < later[0], "what was not given lies above it"
    before = cursor.position
    await book.append(b"foreign", tags=["z"])
    own = await book.append(b"4", tags=["b"])
    await take(cursor, 1)
    assert cursor.position >= own > before


async def test_from_its_position_on_another_goes_on(book: boki.Book) -> None:
    for number in range(6):
        await book.append(b"%d" % number, tags=["ab"[number % 2]])
    cursor = book.read(tags=["a", "b"], start=1, follow=True)
    seen = plain(await take(cursor, 3))
    rest = book.read(tags=["a", "b"], start=cursor.position + 1)
    assert seen + plain(await all_of(rest)) == [str(n) for n in range(6)]


@pytest.mark.parametrize("consistency", ["session", "linearizable", "any"])
async def test_the_position_never_falls_and_nothing_is_lost_over_cuts(
    client: boki.Client, book: boki.Book, consistency: Any
) -> None:
    cursor = book.read(tags=["a", "b"], start=1, follow=True, consistency=consistency)
    positions, seen = [cursor.position], []
    for number in range(20):
        await book.append(b"%d" % number, tags=["ab"[number % 2], "z"])
        if number % 5 == 3:
            waiting = asyncio.ensure_future(anext(cursor))
            cut(client)
            seen += plain([await asyncio.wait_for(waiting, 30)])
        else:
            seen += plain(await take(cursor, 1))
        positions.append(cursor.position)
    assert seen == [str(n) for n in range(20)]
    assert positions == sorted(positions)


# -- whether it knows what a read would tell


def still(cursor: boki.Cursor) -> bool:
    return cursor.current(within_s=60)


async def becomes_current(cursor: boki.Cursor) -> asyncio.Future[Item]:
    """Waits for its next record, which does not come, until it is current."""
    waiting = asyncio.ensure_future(anext(cursor))
    async with asyncio.timeout(30):
        while not still(cursor):
            cursor.refresh()
            await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_who_was_given_all_is_current_and_not_before_he_took_it(book: boki.Book) -> None:
    last = [await book.append(b"%d" % n, tags=["ab"[n % 2]]) for n in range(4)][-1]
    cursor = book.read(tags=["a", "b"], start=1, follow=True)
    assert not still(cursor), "nothing was asked"
    for _ in range(3):
        await take(cursor, 1)
        assert not still(cursor), "there is one more"
    await take(cursor, 1)
    waiting = await becomes_current(cursor)
    assert cursor.position >= last
    async with asyncio.timeout(30):
        while cursor.current(within_s=0.05):
            await asyncio.sleep(0)
    assert still(cursor), "it was asked for longer ago, and not so long"
    waiting.cancel()


async def test_what_the_session_appends_reads_or_is_answered_has_to_be_in_it(
    client: boki.Client, cluster: Cluster, book: boki.Book
) -> None:
    await book.append(b"0", tags=["a"])
    cursor = book.read(tags=["a"], follow=True)
    await take(cursor, 1)
    waiting = await becomes_current(cursor)
    await book.append(b"own, elsewhere", tags=["z"])
    assert not still(cursor)
    cursor.refresh()
    waiting.cancel()
    waiting = await becomes_current(cursor)
    await client.book(f"{book.name}/another").append(b"another book")
    assert not still(cursor), "what was appended to another book may tell of this one"
    waiting.cancel()
    waiting = await becomes_current(cursor)
    async with await cluster.connect() as other:
        foreign = await other.book(book.name).append(b"1", tags=["a"])
        client.merge(other.session_token())
    assert not still(cursor) or waiting.done(), "a token tells of what others did"
    cursor.refresh()
    item = await asyncio.wait_for(waiting, 30)
    assert item.seqnum == foreign


async def test_a_tag_that_is_added_makes_it_current_when_its_backlog_was_given(book: boki.Book) -> None:
    for number in range(4):
        await book.append(b"%d" % number, tags=["ab"[number % 2]])
    cursor = book.read(tags=["a"], start=1, follow=True)
    assert plain(await take(cursor, 2)) == ["0", "2"]
    (await becomes_current(cursor)).cancel()
    cursor.add("b", 1)
    assert not still(cursor)
    cursor.refresh()
    assert plain(await take(cursor, 2)) == ["1", "3"]
    (await becomes_current(cursor)).cancel()


async def test_a_range_that_ends_before_what_there_is_is_never_current(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["a"]) for n in range(4)]
    cursor = book.read(tags=["a"], start=1, stop=seqnums[2])
    assert plain(await all_of(cursor)) == ["0", "1"]
    assert not still(cursor)


async def test_a_cut_connection_leaves_it_as_current_as_it_was_asked_for(client: boki.Client, book: boki.Book) -> None:
    await book.append(b"0", tags=["a"])
    cursor = book.read(tags=["a"], follow=True)
    await take(cursor, 1)
    waiting = await becomes_current(cursor)
    cut(client)
    await book.append(b"1", tags=["a"])
    assert not still(cursor) or waiting.done()
    assert (await asyncio.wait_for(waiting, 30)).data == b"1"
    (await becomes_current(cursor)).cancel()


# -- gaps


async def test_a_gap_comes_once_for_each_tag_and_live_records_of_others_inside_it_come(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["ab"[n % 2]]) for n in range(8)]
    await book.trim([("a", seqnums[6])])
    found = await all_of(book.read(tags=["a", "b"], start=seqnums[0]))
    assert plain(found) == [("a", seqnums[0], seqnums[6] - 1), "1", "3", "5", "6", "7"]
    assert all(item.kind is GapKind.TRIMMED for item in found if isinstance(item, Gap))
    await book.trim([("b", seqnums[3])])
    both = await all_of(book.read(tags=["a", "b"], start=seqnums[0], limit=3))
    assert plain(both) == [("b", seqnums[0], seqnums[3] - 1), ("a", seqnums[0], seqnums[6] - 1), "3", "5", "6"]


async def test_a_gap_comes_once_over_many_pages(book: boki.Book) -> None:
    seqnums = await book.append_many([(b"%d" % n, ["ab"[n % 2]]) for n in range(9_000)])
    await book.trim([("a", seqnums[-2])])
    found = await all_of(book.read(tags=["a", "b"], start=seqnums[0]))
    assert [plain([item])[0] for item in found if isinstance(item, Gap)] == [("a", seqnums[0], seqnums[-2] - 1)]
    assert len(found) == 1 + 4_500 + 1


async def test_who_names_no_start_begins_at_what_lives(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["ab"[n % 2]]) for n in range(4)]
    await book.trim([("a", seqnums[2])])
    for start in (None, 0):
        assert plain(await all_of(book.read(tags=["a", "b"], start=start))) == ["1", "2", "3"]
    begun = await all_of(book.read(tags=["a", "b"], start=1))
    assert plain(begun) == [("a", 1, seqnums[2] - 1), "1", "2", "3"]


async def test_there_is_no_gap_for_what_was_looked_at(book: boki.Book) -> None:
    cursor = book.read(tags=["a", "b"], start=1, follow=True)
    first = await book.append(b"1", tags=["a"])
    assert plain(await take(cursor, 1)) == ["1"]
    waiting = asyncio.ensure_future(anext(cursor))
    await asked(book)
    others = [await book.append(b"other", tags=["z"]) for _ in range(3)]
    await book.trim([("a", first + 1)])
    await book.trim(before=others[-1])
    await asked(book)
    assert not waiting.done(), "what went had been given, or was of others"
    await book.append(b"2", tags=["b"])
    assert plain([await asyncio.wait_for(waiting, 30)]) == ["2"]
    assert await quiet(cursor)


async def test_what_was_trimmed_while_nobody_read_is_a_gap(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    cursor = book.read(tags=["a", "b"], start=1, follow=True)
    assert plain(await take(cursor, 1)) == ["1"]
    position = cursor.position
    second = await book.append(b"2", tags=["a"])
    await book.append(b"3", tags=["b"])
    await book.trim([("a", second + 1)])
    assert plain(await take(cursor, 2)) == [("a", position + 1, second), "3"]
    assert position >= first


# -- other tags on the way


async def test_a_tag_that_is_added_gives_its_backlog_first(book: boki.Book) -> None:
    cursor = book.read(tags=["a"], start=1, follow=True)
    for number in range(6):
        await book.append(b"%d" % number, tags=["ab"[number % 2]])
    assert plain(await take(cursor, 3)) == ["0", "2", "4"]
    position = cursor.position
    last = await book.append(b"6", tags=["a"])
    cursor.add("b", 1)
    assert cursor.tags == ("a", "b")
    assert cursor.behind == ("b",)
    assert plain(await take(cursor, 3)) == ["1", "3", "5"]
    assert cursor.position >= position
    assert plain(await take(cursor, 1)) == ["6"]
    assert not cursor.behind and cursor.position >= last


async def test_a_tag_is_added_and_discarded_while_the_cursor_waits(book: boki.Book) -> None:
    old = await book.append(b"old", tags=["b"])
    cursor = book.read(tags=["a"], follow=True)
    waiting = asyncio.ensure_future(anext(cursor))
    await asked(book)
    cursor.add("b", old)
    assert (await asyncio.wait_for(waiting, 30)).data == b"old"
    waiting = asyncio.ensure_future(anext(cursor))
    await asked(book)
    cursor.discard("a")
    cursor.discard("never")
    await book.append(b"not any more", tags=["a"])
    await book.append(b"new", tags=["b"])
    assert (await asyncio.wait_for(waiting, 30)).data == b"new"
    assert cursor.tags == ("b",)


async def test_what_is_discarded_is_not_given_though_it_was_read(book: boki.Book) -> None:
    for number in range(6):
        await book.append(b"%d" % number, tags=["ab"[number % 2]])
    await book.append(b"both", tags=["a", "b"])
    cursor = book.read(tags=["a", "b"])
    assert plain(await take(cursor, 1)) == ["0"]
    cursor.discard("b")
    assert plain(await all_of(cursor)) == ["2", "4", "both"]


async def test_the_gap_of_a_tag_that_is_added(book: boki.Book) -> None:
    seqnums = [await book.append(b"%d" % n, tags=["ab"[n % 2]]) for n in range(6)]
    await book.trim([("b", seqnums[3])])
    cursor = book.read(tags=["a"], follow=True)
    assert plain(await take(cursor, 3)) == ["0", "2", "4"]
    cursor.add("b", seqnums[0])
    assert plain(await take(cursor, 3)) == [("b", seqnums[0], seqnums[3] - 1), "3", "5"]
    cursor.discard("b")
    cursor.add("b")
    assert plain(await take(cursor, 2)) == ["3", "5"]
    assert await quiet(cursor)


async def test_a_cursor_may_begin_without_tags(book: boki.Book) -> None:
    await book.append(b"1", tags=["a"])
    cursor = book.read(tags=[], follow=True)
    waiting = asyncio.ensure_future(anext(cursor))
    await asked(book)
    cursor.add("a")
    assert (await asyncio.wait_for(waiting, 30)).data == b"1"


async def test_many_changes_while_records_come(book: boki.Book) -> None:
    cursor = book.read(tags=["t0"], start=1, follow=True)
    seen: list[str] = []

    async def follow() -> None:
        async for item in cursor:
            seen.extend(plain([item]))
            if seen[-1] == "end":
                return

    following = asyncio.create_task(follow())
    for number in range(1, 40):
        await book.append(b"%d" % number, tags=["t0", f"t{number}"])
        cursor.add(f"t{number}", None if number % 2 else 1)
        if number % 3 == 0:
            cursor.discard(f"t{number - 1}")
    await book.append(b"end", tags=["t0"])
    await asyncio.wait_for(following, 30)
    assert sorted(set(seen), key=lambda one: 99 if one == "end" else int(one)) == [*map(str, range(1, 40)), "end"]


# -- arguments, and the blocking face


async def test_what_is_refused(book: boki.Book) -> None:
    refused: list[Any] = ["a", ["a", "a"], ["a", boki.testing.tag_number("a")], [f"{n}" for n in range(256)], 7]
    for tags in refused:
        with pytest.raises(boki.InvalidArgument):
            book.read(tags=tags)
    no_tags: list[Any] = [[None], [0], [""], [b"a"]]
    for tags in no_tags:
        with pytest.raises(boki.InvalidTag):
            book.read(tags=tags)
    with pytest.raises(boki.InvalidArgument, match="one of the two"):
        book.read("a", tags=["b"])  # type: ignore[call-overload]
    cursor = book.read(tags=[f"{n}" for n in range(255)])
    with pytest.raises(boki.InvalidArgument, match="255"):
        cursor.add("one more")
    cursor.discard("0")
    cursor.discard("1")
    cursor.add("one more")
    with pytest.raises(boki.InvalidArgument, match="twice"):
        cursor.add("one more", 5)


async def test_the_blocking_face_has_it(cluster: Cluster, name: str) -> None:
    def script() -> None:
        with boki.sync.connect(cluster.url) as client:
            book = client.book(name)
            for number in range(6):
                book.append(b"%d" % number, tags=["ab"[number % 2]])
            assert plain(list(book.read(tags=["a", "b"]))) == [str(n) for n in range(6)]
            cursor = book.read(tags=["a"], start=1, follow=True)
            assert plain([next(cursor) for _ in range(3)]) == ["0", "2", "4"]
            cursor.add("b", 1)
            assert (cursor.tags, cursor.behind) == (("a", "b"), ("b",))
            assert plain(cursor.next_batch()) == ["1", "3", "5"]
            assert cursor.position >= book.now() > 0
            cursor.discard("a")
            assert cursor.tags == ("b",)
            with pytest.raises(boki.InvalidArgument):
                book.read(tags="ab")

    await asyncio.to_thread(script)
