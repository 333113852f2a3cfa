"""Rewriting of old records: no record in the log gets old, and members find the same state."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

import boki
from bokilib import Carrier, Contribution, Event, Fenced, Log
from bokilib.errors import AppendUnknown
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.records.events import open_record
from bokilib.testing import crash_everywhere
from bokiqueue import Queue, StaleReceipt, carried
from bokiqueue.model.events import PICKER, Acked
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, alive, all_appended, book_of, round_of, take


async def oldest_ms(queue: Queue[Any], clock: SetClock) -> int:
    """How old the oldest record is that is live."""
    times = [item.time_ms async for item in book_of(queue).read() if isinstance(item, boki.Record)]
    return clock.ms - min(times)


async def days(queue: Queue[Any], clock: SetClock, count: int) -> None:
    """So many pass, with a round each; nothing gets older than a day and a half."""
    for _ in range(count):
        clock.ms += DAY_MS
        await round_of(queue)
        assert await oldest_ms(queue, clock) < DAY_MS * 3 // 2


async def test_messages_of_all_groups_outlive_their_terms_in_order_with_their_attempts(
    another: Another, clock: SetClock
) -> None:
    queue = await another(shards=2)
    await queue.register("audit")
    for number in range(4):
        await queue.push(number, key="k")
    await queue.push("copied", dedup_id="one", priority=3)
    await queue.push("copied", dedup_id="one")
    async with queue.consume(who="a") as messages:
        first = await anext(messages)
        while first.key != "k":
            await first.ack()
            first = await anext(messages)
        await first.ack()
        second = await anext(messages)
        while second.key != "k":
            await second.ack()
            second = await anext(messages)
        await second.nack(600)
    await days(queue, clock, 5)
    assert {str(one.body) for one in await queue.peek()} == {"1", "2", "3"} | ({"copied"} if first.priority else set())
    got: dict[str, list[tuple[Any, int]]] = {"default": [], "audit": []}
    for group, found in got.items():
        depth = (await queue.stats(group)).depth
        async with (await another()).consume(group=group, who="b", member_lease_s=0.1) as messages:
            while len(found) < (3 if group == "default" else 5):
                async with await anext(messages) as message:
                    found.append((message.body, message.attempt))
        assert depth >= len(found)
    assert [one for one in got["default"] if one[0] != "copied"] == [(1, 2), (2, 1), (3, 1)]
    assert sorted(map(str, got["audit"])) == sorted(map(str, [*((number, 1) for number in range(4)), ("copied", 1)]))
    assert [body for body, _ in got["audit"] if body != "copied"] == [0, 1, 2, 3]
    assert (await queue.stats()).depth == (await queue.stats("audit")).depth == 0
    await days(queue, clock, 2)
    kept = [item async for item in book_of(queue).read() if isinstance(item, boki.Record)]
    assert not [one for one in kept if any(str(tag).startswith(("queue/old", "queue/p/")) for tag in one.tags)]


async def test_a_popped_queue_outlives_its_terms(another: Another, clock: SetClock) -> None:
    queue = await another(mode="pop", shards=1)
    for number in range(6):
        await queue.push(number, priority=number // 3)
    assert [await queue.pop() for _ in range(2)] == [3, 4]
    idle = await another(mode="pop")
    assert await idle.pop() == 5
    await days(queue, clock, 4)
    await queue.push("new")
    assert (await queue.stats()).depth == 4
    assert [await (await another(mode="pop")).pop(), await idle.pop(), await queue.pop()] == [0, 1, 2]
    assert await queue.pop() == "new"
    await days(queue, clock, 3)


async def test_an_owner_carries_what_is_his_and_receipts_stay_good(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    await queue.push("long")
    async with queue.consume(lease_s=40_000) as messages:
        message = await anext(messages)
        await all_appended(messages)
        owner = messages._owners[0]
        before, claim = owner.fence.claim, owner.claim
        for _ in range(3):
            clock.ms += DAY_MS * 3 // 5
            await queue.push("tells the time")
            again = await anext(messages)
            await again.ack()
            owner.tend()
            await all_appended(messages)
            await round_of(queue)
            assert await oldest_ms(queue, clock) < DAY_MS * 3 // 2
        assert owner.fence.claim > before and owner.claim == claim, "the carrier left it to him"
        await message.ack()
        with pytest.raises(StaleReceipt):
            message.extend(1)
    assert (await queue.stats()).depth == 0


ORDERS = 2


async def work(book: BookPort) -> None:
    """Pushes, carries, and acks all, as one process; what is a millisecond old is carried, also what is somebody's who is alive."""
    log = Log(book)
    queue = await Queue.open(log, "jobs", object, shards=1, max_deliveries=0)
    for number in range(ORDERS):
        while True:
            try:
                await queue.push(number, key="k", dedup_id=str(number))
                break
            except AppendUnknown:
                pass
    carrier = Carrier(log, [carried(log)], who="me", carry_ms=0)
    with contextlib.suppress(Fenced, AppendUnknown):
        await carrier.round()
    async with queue.consume(who="me", member_lease_s=0.6) as messages:
        while True:
            try:
                async with asyncio.timeout(0.02):
                    await (await anext(messages)).ack()
            except (StaleReceipt, Fenced):
                pass
            except TimeoutError:
                if not (await queue.stats()).depth:
                    break
    with contextlib.suppress(Fenced, AppendUnknown):
        await carrier.round()


async def check(book: boki.Book) -> None:
    """Each message was acked once, and nothing of it is left."""
    acked: Counter[object] = Counter()
    async for item in book.read(tags.queue_consumer("jobs", 0, "default")):
        if isinstance(item, boki.Record):
            for event in PICKER.of(item.seqnum, open_record(item.seqnum, item.data)):
                acked.update(event.ids if isinstance(event, Acked) else ())
    assert set(acked.values()) <= {1}
    assert (await (await Queue.open(Log(book), "jobs", object)).stats()).depth == 0


@pytest.mark.timeout(300)  # machines may be busy
async def test_a_carrier_that_crashes_anywhere_loses_nothing_and_acks_nothing_twice() -> None:
    async def program(book: BookPort) -> None:
        await alive(book, work(book))

    explored = await crash_everywhere(program, program, check)
    assert explored.operations > 20


async def test_what_a_later_version_wrote_keeps_its_term_and_nobody_elses(another: Another, clock: SetClock) -> None:
    class Later(Event, tag="queue.later", frozen=True):
        id: str

    queue = await another(shards=1)
    await queue.push("waits")
    await queue.log.append(Contribution(("queue/later",), {}, (Later("jobs"),)))
    clock.ms += DAY_MS
    await round_of(queue)
    old = [item async for item in book_of(queue).read() if isinstance(item, boki.Record) and item.time_ms < clock.ms]
    assert [one.tags for one in old] == [("queue/later",)]
    assert [one.body for one in await queue.peek()] == ["waits"]


async def test_what_a_dropped_group_did_goes(another: Another, clock: SetClock) -> None:
    queue = await another(shards=2)
    await queue.register("audit")
    await queue.push_many([1, 2])
    async with queue.consume(group="audit") as messages:
        for message in await take(messages, 2):
            await message.ack()
    await queue.drop("audit")
    streams = [make("jobs", shard, "audit") for shard in range(2) for make in (tags.queue_consumer, tags.queue_owner)]
    assert not [tag for tag in streams async for item in book_of(queue).read(tag) if isinstance(item, boki.Record)]
    await days(queue, clock, 2)
    assert [one.body for one in await queue.peek()] == [1, 2]


async def carry_at_once(another: Another) -> None:
    """A round of another process, to which every claim is old."""
    log = (await another()).log
    await Carrier(log, [carried(log)], who="host-7", carry_ms=0).round()


async def test_a_carried_claim_is_nobodys_and_who_is_there_takes_the_shard_at_once(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(who="a", member_lease_s=600) as messages:
        await messages.has(1)
        claim = messages._owners[0].claim
        await carry_at_once(another)
        await queue.push("waits")
        async with await anext(messages) as message:
            assert message.body == "waits"
        assert messages._owners[0].claim > claim


async def test_a_shard_that_is_carried_from_a_member_that_lives_is_no_death(another: Another) -> None:
    """The message was alone with its member each time, and would be a dead letter."""
    queue = await another(shards=1, dead_letter="jobs.dead", max_deliveries=2)
    await queue.push("waits")
    async with queue.consume(who="a", member_lease_s=600) as messages:
        for _ in range(4):
            async with asyncio.timeout(10):
                assert (await anext(messages)).attempt == 1
            await all_appended(messages)
            await carry_at_once(another)
        await (await anext(messages)).ack()


async def test_an_owner_that_is_over_makes_no_checkpoint_under_the_claim_of_the_next(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume(who="a", member_lease_s=600) as messages:
        await messages.has(1)
        before = messages._owners[0]
        await carry_at_once(another)
        await queue.push("waits")
        await (await anext(messages)).ack()
        assert messages._owners[0] is not before
        appends = queue.log.appends
        await before._claim_again()
        assert queue.log.appends == appends
