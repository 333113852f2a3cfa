"""Sets of rewritten messages: the newest complete set counts, even if another carrier began a newer one."""

from __future__ import annotations

import asyncio

import msgspec

from bokilib.records import tags
from bokilib.records.contribution import Contribution
from bokiqueue.checkpoint import old_messages
from bokiqueue.model.events import Item, Old, shard_id
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, round_of, take


async def test_a_set_without_an_end_is_nobodys(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    await queue.push("waits")
    clock.ms += DAY_MS
    await round_of(queue)
    tag = tags.queue_old("jobs", 0)
    whole = await old_messages.newest(queue.log, "jobs", 0, await queue.log.book.now())
    part = Old(shard_id("jobs", 0), 1 << 40, 0, False, ((1 << 39, 0, 5, Item(msgspec.Raw(b"\xc0"))),))
    await queue.log.append(Contribution((tag,), {tag: whole.last}, (part,)))
    found = await old_messages.newest(queue.log, "jobs", 0, await queue.log.book.now())
    assert (found.covers, found.last, found.end > found.last) == (whole.covers, whole.last, True)
    clock.ms += DAY_MS
    await round_of(queue)
    async with queue.consume() as messages:
        assert [message.body for message in await take(messages, 1)] == ["waits"]


async def test_two_who_carry_at_once_leave_one_whole_set(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    for number in range(5):
        await queue.push(number)
    clock.ms += DAY_MS
    others = [await another() for _ in range(3)]
    await asyncio.gather(*(round_of(one) for one in others), return_exceptions=True)
    async with queue.consume() as messages:
        assert [message.body for message in await take(messages, 5)] == list(range(5))
