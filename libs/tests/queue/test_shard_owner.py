"""Appends of a shard: how many for what, one at a time, and what they are."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib import tags
from bokilib.events import open_record
from bokiqueue import Queue
from bokiqueue.events import PICKER, Acked, AnyEvent, Dead, Delivered, Nacked, Pushed
from libs.tests.queue.conftest import Another, all_appended, book_of, take


async def written(queue: Queue[object], tag: str) -> list[list[AnyEvent]]:
    """The events of a stream's records."""
    found = []
    async for item in book_of(queue).read(tag):
        assert isinstance(item, boki.Record)
        found.append(list(PICKER.of(item.seqnum, open_record(item.seqnum, item.data))))
    return found


async def test_a_lone_message_costs_a_push_a_deliver_and_an_ack(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push(1)
        message = await anext(messages)
        await all_appended(messages)
        await message.ack()
        assert queue.log.appends - before == 3


async def test_what_is_done_at_once_is_acked_with_its_deliver(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push(1)
        await (await anext(messages)).ack()
        assert queue.log.appends - before == 2


async def test_a_batch_costs_one_deliver_and_one_ack(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        before = queue.log.appends
        await queue.push_many(list(range(64)))
        batch = await take(messages, 64)
        await all_appended(messages)
        await asyncio.gather(*(message.ack() for message in batch))
        assert queue.log.appends - before == 3


async def test_busy_acks_and_the_next_deliver_are_one_record(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push_many(list(range(256)))
    async with queue.consume(member_lease_s=600, prefetch=64) as messages:
        await messages.has(1)
        before = queue.log.appends
        last = None
        for _ in range(256):
            last = (await anext(messages)).ack()
        assert last is not None
        await last
        spent = queue.log.appends - before
        assert spent <= 256 / 64 + 1, "1/b and the first DELIVER"
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    together = [row for row in rows if {type(event) for event in row} == {Delivered, Acked}]
    assert len(together) >= 2


async def test_a_dead_letter_and_its_push_are_one_record(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    await queue.push("bad", key="k")
    async with queue.consume() as messages:
        message = await anext(messages)
        await all_appended(messages)
        await message.nack()
        await queue.push("next", key="k")
        assert (await anext(messages)).body == "next"
    rows = await written(queue, tags.queue_messages("jobs.dead", 0))
    assert [[type(event) for event in row] for row in rows] == [[Dead, Pushed]]


async def test_records_of_the_owner_expect_its_claim_and_join_their_own_stream_only(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    async with queue.consume() as messages:
        message = await anext(messages)
        await message.nack()
        await (await anext(messages)).ack()
    rows = await written(queue, tags.queue_consumer("jobs", 0, "default"))
    kinds = [type(event) for row in rows for event in row]
    assert kinds == [Delivered, Nacked, Delivered, Acked]
    record = await book_of(queue).check_tail(tags.queue_consumer("jobs", 0, "default"))
    assert record is not None
    assert record.tags == (tags.queue_consumer("jobs", 0, "default"),)


async def test_reading_ahead_is_bounded_and_goes_on(another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiqueue.arrivals.READ_AHEAD", 8)
    queue = await another(shards=1)
    for number in range(40):
        await queue.push(number)
    async with queue.consume(prefetch=4) as messages:
        await messages.has(1)
        got = []
        for _ in range(40):
            async with await anext(messages) as message:
                got.append(message.body)
            (owner,) = messages._owners.values()
            assert len(owner._owned()) <= 8
    assert got == list(range(40))
