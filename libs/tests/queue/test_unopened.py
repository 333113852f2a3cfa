"""A record of messages that an owner cannot open (its hook is missing) is passed, kept and listed; who can open it handles it, once.

What may be a copy of its messages, or come after one of the same key, waits for it, until it is opened or dropped.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from bokilib import Contribution, Event, Log
from bokilib.records import tags
from bokiqueue import Queue
from bokiqueue.checkpoint import checkpointing
from libs.tests.queue.conftest import DAY_MS, SetClock, all_appended, book_of, round_of


class Turned:
    """A payload hook."""

    name = "turned"

    async def seal(self, events: bytes) -> bytes:
        return events[::-1]

    async def open(self, sealed: bytes) -> bytes:
        return sealed[::-1]


class Later(Event, tag="queue.later", frozen=True):
    """What a later version writes."""

    id: str


async def queue(cluster: MemoryCluster, *, hooked: bool = False) -> Queue[object]:
    log = Log((await cluster.connect()).book("shop"), hook=Turned() if hooked else None)
    return await Queue.open(log, "jobs", object, shards=1)


class Keys:
    """A payload hook that seals some messages, and nothing that consumers write; not everybody has the key."""

    name = "keys"

    def __init__(self, *, has_key: bool) -> None:
        self._has_key = has_key

    async def seal(self, events: bytes) -> bytes:
        return (b"s" if self._has_key and b"queue.push" in events else b"o") + events

    async def open(self, sealed: bytes) -> bytes:
        if sealed.startswith(b"s") and not self._has_key:
            raise KeyError("no key")
        return sealed[1:]


async def keyed(cluster: MemoryCluster, *, has_key: bool) -> Queue[object]:
    log = Log((await cluster.connect()).book("shop"), hook=Keys(has_key=has_key))
    return await Queue.open(log, "jobs", object, shards=1, max_deliveries=0)


async def handled(queue: Queue[Any], count: int) -> list[Any]:
    """Bodies of so many messages, each acked; nothing else is to be had then."""
    got = []
    async with queue.consume() as messages, asyncio.timeout(30):
        for _ in range(count):
            async with await anext(messages) as message:
                got.append(message.body)
        await all_appended(messages)
        assert messages._next() is None
    return got


async def closed_at(queue: Queue[Any]) -> list[int]:
    return [one.seqnum for one in await queue.peek() if one.state == "unopened"]


async def test_it_is_passed_kept_and_reported(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "RECORDS_BETWEEN", 3)
    plain, hooked = await queue(cluster), await queue(cluster, hooked=True)
    await plain.push("before")
    await hooked.push_many(["closed", "closed too"])
    for number in range(10):
        await plain.push(number)
    got = []
    async with plain.consume() as messages:
        for _ in range(11):
            async with await anext(messages) as message:
                got.append(message.body)
            await all_appended(messages)
    assert got == ["before", *range(10)]
    stats = await plain.stats()
    assert (stats.depth, stats.unopened, stats.in_flight) == (1, 1, 0)
    (listed,) = await plain.peek()
    assert listed.state == "unopened" and "turned" in str(listed.body)
    assert [(one.state, one.attempts, one.body) for one in await hooked.peek()] == [
        ("waits", 0, "closed"),
        ("waits", 0, "closed too"),
    ]
    for expected in ("closed", "closed too"):  # a new owner each
        async with hooked.consume() as messages, asyncio.timeout(5), await anext(messages) as message:
            assert (message.body, message.attempt) == (expected, 1)
    assert (await hooked.stats()).depth == 0
    for _ in range(5):
        await hooked.push("more")
    async with hooked.consume() as messages:
        for _ in range(5):
            async with await anext(messages):
                pass
        await all_appended(messages)
        assert messages._owners[0].progress.floor.seqnum > listed.seqnum


async def test_of_copies_one_is_handled_and_a_key_keeps_its_order(cluster: MemoryCluster) -> None:
    plain, hooked = await keyed(cluster, has_key=False), await keyed(cluster, has_key=True)
    await plain.push("early", dedup_id="e")
    await hooked.push("first", dedup_id="a")
    await hooked.push("late", dedup_id="e")
    await hooked.push("one", key="k")
    await plain.push("copy", dedup_id="a")
    await plain.push("two", key="k")
    await plain.push("free")
    assert await handled(plain, 2) == ["early", "free"]
    assert await handled(plain, 0) == []
    assert sorted(await handled(hooked, 3)) == ["first", "one", "two"]
    assert (await hooked.stats()).depth == 0


async def test_who_can_open_it_and_who_cannot_take_turns(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "RECORDS_BETWEEN", 3)
    plain, hooked = await keyed(cluster, has_key=False), await keyed(cluster, has_key=True)
    for number in range(8):
        await hooked.push(number, dedup_id=str(number), key="k")
        await plain.push(number, dedup_id=str(number), key="k")
        await plain.push(f"free {number}")
    got: list[Any] = []
    for _ in range(4):
        async with hooked.consume() as messages:
            while sum(isinstance(one, int) for one in got) % 2 == 0:
                async with await anext(messages) as message:
                    got.append(message.body)
            async with await anext(messages) as message:
                got.append(message.body)
        async with plain.consume() as messages:
            await messages.has(1)
            for _ in range(50):
                await asyncio.sleep(0)
            while (found := messages._next()) is not None:
                async with found:
                    got.append(found.body)
    got += await handled(hooked, (await hooked.stats()).depth)
    numbers = [one for one in got if isinstance(one, int)]
    assert (numbers, sorted(str(one) for one in got if isinstance(one, str))) == (
        list(range(8)),
        [f"free {number}" for number in range(8)],
    )


async def test_a_record_that_nobody_can_open_is_dropped_and_what_waited_goes_on(
    cluster: MemoryCluster, clock: SetClock
) -> None:
    plain, hooked = await queue(cluster), await queue(cluster, hooked=True)
    await hooked.push("first", dedup_id="a")
    await hooked.push("one", key="k")
    for body, key, dedup in (("copy", None, "a"), ("again", None, "a"), ("two", "k", None), ("three", "k", "t")):
        await plain.push(body, key=key, dedup_id=dedup)
    places = await closed_at(plain)
    async with plain.consume() as messages:
        await messages.has(1)
        assert messages._next() is None
        other = await queue(cluster)
        await other.purge_record(places[0])
        assert messages._next() is None, "the other one keeps it back"
        await other.purge_record(places[1])
        for body in ("copy", "two", "three"):
            async with asyncio.timeout(30), await anext(messages) as message:
                assert message.body == body
        await all_appended(messages)
    assert (await plain.stats()).depth == (await hooked.stats()).depth == 0
    await plain.push("waits")
    clock.ms += DAY_MS
    await round_of(plain)
    live = [item async for item in book_of(plain).read(tags.queue_messages("jobs", 0)) if isinstance(item, boki.Record)]
    assert live == [], "all of it was carried, or is over"
    assert await handled(plain, 1) == ["waits"]


async def test_what_a_later_version_pushed_keeps_back_keys_and_is_dropped_like_that(cluster: MemoryCluster) -> None:
    plain = await queue(cluster)
    tag = tags.queue_messages("jobs", 0)
    place = await plain.log.append(Contribution((tag,), {}, (Later("jobs/0"),)))
    await plain.push("of a key", key="k")
    await plain.push("free")
    assert await handled(plain, 1) == ["free"]
    await plain.purge_record(place)
    assert await handled(plain, 1) == ["of a key"]


async def test_only_what_cannot_be_opened_is_dropped_by_its_place(cluster: MemoryCluster) -> None:
    plain = await queue(cluster)
    await plain.push("plain")
    (one,) = await plain.peek()
    with pytest.raises(InvalidArgument, match="can be opened"):
        await plain.purge_record(one.seqnum)
    await plain.log.append(Contribution(("elsewhere",), {}, (Later("x"),)))
    with pytest.raises(InvalidArgument, match="found none"):
        await plain.purge_record(one.seqnum + 1)
    with pytest.raises(InvalidArgument):
        await plain.purge_record(one.seqnum + 1_000)
