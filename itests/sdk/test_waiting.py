"""Blocking reads and following: they wake when a record is ordered, and not before."""

from __future__ import annotations

import asyncio

import pytest

import boki
from itests.support.sdk_client import present


async def test_a_waiting_read_wakes_on_the_record(book: boki.Book) -> None:
    waiting = asyncio.create_task(book.read_next("a", wait=30))
    await book.append(b"other", tags=["b"])
    assert not waiting.done()
    seqnum = await book.append(b"wanted", tags=["a"])
    record = present(await waiting)
    assert (record.seqnum, record.data) == (seqnum, b"wanted")


async def test_a_waiting_read_takes_what_is_there(book: boki.Book) -> None:
    seqnum = await book.append(b"x")
    assert present(await book.read_next(wait=30)).seqnum == seqnum


async def test_a_waiting_read_ends_in_time(book: boki.Book) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await book.read_next("never", wait=0.2) is None
    assert 0.19 < loop.time() - began < 5


async def test_a_waiting_read_waits_for_its_bound(book: boki.Book) -> None:
    first = await book.append(b"1")
    waiting = asyncio.create_task(book.read_next(at_least=first + 1, wait=30))
    second = await book.append(b"2")
    assert present(await waiting).seqnum == second


async def test_a_cancelled_wait_disturbs_nobody(book: boki.Book) -> None:
    one, other = (asyncio.create_task(book.read_next(wait=30)) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    seqnum = await book.append(b"x")
    assert present(await other).seqnum == seqnum


async def test_waiting_by_name_passes_over_records_without_the_name(book: boki.Book) -> None:
    waiting = asyncio.create_task(book.read_next("name", wait=30))
    await book.append(b"number", tags=[boki.testing.tag_number("name")])
    seqnum = await book.append(b"name", tags=["name"])
    assert present(await waiting).seqnum == seqnum


async def test_following_sees_old_and_new_records_in_order(book: boki.Book) -> None:
    await book.append_many([(str(number).encode(), ["t"]) for number in range(5)])
    seen: list[int] = []

    async def follow() -> None:
        async for record in book.read("t", follow=True):
            seen.append(int(record.data))
            if len(seen) == 60:
                return

    following = asyncio.create_task(follow())
    for number in range(5, 60):
        await book.append(str(number).encode(), tags=["t"])
        await book.append(b"noise")
    await asyncio.wait_for(following, 30)
    assert seen == list(range(60))


async def test_following_ends_at_its_stop(book: boki.Book) -> None:
    first = await book.append(b"1", tags=["t"])
    stop = first + 3

    async def follow() -> list[bytes]:
        return [record.data async for record in book.read("t", stop=stop, follow=True)]

    following = asyncio.create_task(follow())
    seqnum = first
    expected = [b"1"]
    while seqnum < stop:
        seqnum = await book.append(b"more", tags=["t"])
        expected += [b"more"] * (seqnum < stop)
    assert await asyncio.wait_for(following, 30) == expected


async def test_several_followers(client: boki.Client, name: str) -> None:
    async def follow(count: int) -> list[bytes]:
        found: list[bytes] = []
        async for record in client.session().book(name).read(follow=True):
            found.append(record.data)
            if len(found) == count:
                break
        return found

    followers = [asyncio.create_task(follow(count)) for count in (1, 10, 100)]
    datas = [str(number).encode() for number in range(100)]
    await client.book(name).append_many([(data, []) for data in datas])
    assert [await asyncio.wait_for(one, 30) for one in followers] == [datas[:1], datas[:10], datas]
