"""What waits for days is carried forward: nothing in the log gets old, and members find everything as it was."""

from __future__ import annotations

from typing import Any

import pytest

import boki
from bokiqueue import Queue, StaleReceipt
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, book_of, round_of, settled


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


async def test_messages_of_all_groups_outlive_their_terms_in_order_and_with_their_attempts(
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
        await settled(messages)
        owner = messages._owners[0]
        before, claim = owner.fence.claim, owner.claim
        for _ in range(3):
            clock.ms += DAY_MS * 3 // 5
            await queue.push("tells the time")
            again = await anext(messages)
            await again.ack()
            owner.tend()
            await settled(messages)
            await round_of(queue)
            assert await oldest_ms(queue, clock) < DAY_MS * 3 // 2
        assert owner.fence.claim > before and owner.claim == claim, "the carrier left it to him"
        await message.ack()
        with pytest.raises(StaleReceipt):
            message.extend(1)
    assert (await queue.stats()).depth == 0
