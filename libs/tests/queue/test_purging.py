"""A purge drops messages, and forgets no deduplication id: of what is pushed behind it, copies are dropped and the rest is delivered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import boki
from bokilib.records import tags
from bokiqueue import Consumer, Queue, settings
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, all_appended, book_of, round_of, take

GROUP = "audit"
LEASE_S = 600


async def next_of(queue: Queue[object], count: int, group: str = "default") -> list[object]:
    """The next messages of a group, for a member that ends then."""
    async with queue.consume(group=group, member_lease_s=LEASE_S) as messages, asyncio.timeout(30):
        got = await take(messages, count)
        for message in got:
            await message.ack()
        await all_appended(messages)
    return [message.body for message in got]


async def messages_of(queue: Queue[object]) -> int:
    """The number of records of messages that are not trimmed."""
    read = book_of(queue).read(tags.queue_messages("jobs", 0), start=1)
    return len([item async for item in read if isinstance(item, boki.Record)])


async def heard(messages: Consumer[Any], queue: Queue[object]) -> None:
    """Wait until a member has read the newest settings."""
    newest = await settings.existing(queue.log, "jobs")
    while messages.found.seqnum < newest.seqnum:
        await asyncio.sleep(0)


async def test_a_copy_of_what_was_purged_before_any_member_came_is_dropped(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1, dedup_s=300)
    await queue.push("first", dedup_id="x")
    await queue.purge()
    clock.ms += 300_000
    copies = [await one.push("copy", dedup_id="x") for one in (queue, await another())]
    assert [copy.duplicate for copy in copies] == [True, True]
    assert (await queue.stats()).depth == 0
    clock.ms += 1
    assert not (await queue.push("first again", dedup_id="x")).duplicate
    await queue.push("other", dedup_id="y")
    assert [one.body for one in await queue.peek()] == ["first again", "other"]
    assert await next_of(await another(), 2) == ["first again", "other"]


async def test_what_was_purged_since_the_checkpoint_is_known_to_the_next_owner(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("handled", dedup_id="a")
    assert await next_of(queue, 1) == ["handled"]
    await queue.push("purged", dedup_id="b")
    await queue.purge()
    await queue.push("purged too", dedup_id="c")
    await queue.purge()
    for dedup in "abc":
        assert (await queue.push("copy", dedup_id=dedup)).duplicate
    await queue.push("new")
    assert await next_of(await another(), 1) == ["new"]


async def test_what_was_purged_is_not_trimmed_by_a_group_that_has_read_it(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiqueue.checkpoint.checkpointing.RECORDS_BETWEEN", 1)
    queue = await another(shards=1)
    await queue.register(GROUP)
    await queue.push("first", dedup_id="x")
    await queue.push("second")
    await queue.purge(GROUP)
    assert await next_of(queue, 2) == ["first", "second"]
    await queue.push("third")
    assert await next_of(queue, 1) == ["third"]
    await queue.push("copy", dedup_id="x")
    assert await next_of(await another(), 1, GROUP) == ["third"]
    await queue.push("last")
    assert await next_of(queue, 1) == ["last"]
    assert await next_of(queue, 1, GROUP) == ["last"]
    assert await messages_of(queue) <= 2, "what all groups have read is trimmed"


@pytest.mark.parametrize("purged_again", [False, True])
async def test_a_carrier_keeps_the_ids_of_what_was_purged_and_not_the_messages(
    another: Another, clock: SetClock, purged_again: bool
) -> None:
    queue = await another(shards=1, dedup_s=30 * DAY_MS / 1_000)
    await queue.push("first", dedup_id="x")
    await queue.purge()
    clock.ms += DAY_MS
    await round_of(queue)
    rows = [item async for item in book_of(queue).read(start=1) if isinstance(item, boki.Record)]
    assert not [row for row in rows if {str(tag).split("/")[1] for tag in row.tags} & {"p", "old"}]
    if purged_again:
        await queue.purge()
    assert [(await one.push("copy", dedup_id="x")).duplicate for one in (queue, await another())] == [True, True]
    await queue.push("new")
    clock.ms += DAY_MS
    await round_of(queue)
    assert await next_of(await another(), 1) == ["new"]


async def test_an_id_in_a_rewritten_message_is_known_to_who_pushes_a_copy(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1, dedup_s=30 * DAY_MS / 1_000)
    await queue.push("first", dedup_id="x")
    for _ in range(2):
        clock.ms += DAY_MS
        await round_of(queue)
    assert (await (await another()).push("copy", dedup_id="x")).duplicate
    assert [one.body for one in await queue.peek()] == ["first"]
    await queue.purge()
    assert (await (await another()).push("copy", dedup_id="x")).duplicate
    await queue.push("new")
    assert await next_of(await another(), 1) == ["new"]


async def test_what_its_handler_gives_back_behind_a_purge_is_dropped(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("purged")
    async with queue.consume(member_lease_s=LEASE_S) as messages, asyncio.timeout(30):
        (message,) = await take(messages, 1)
        await queue.purge()
        await heard(messages, queue)
        await message.nack()
        await queue.push("new")
        (message,) = await take(messages, 1)
        assert message.body == "new"
        await message.ack()
    assert (await queue.stats()).depth == 0


async def test_an_owner_that_had_not_read_what_is_purged_reads_its_ids(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is full, of messages that its handlers do not take."""
    for module in ("bokiqueue.shard.arrivals", "bokiqueue.model.delivery_rules"):
        monkeypatch.setattr(f"{module}.READ_AHEAD", 4)
    queue = await another(shards=1)
    for number in range(20):
        await queue.push(number, dedup_id=f"e-{number}")
    async with queue.consume(prefetch=1, member_lease_s=LEASE_S) as messages:
        held = await anext(messages)
        await (await another()).purge()
        await heard(messages, queue)
        await queue.push("copy", dedup_id="e-19")
        await queue.push("new")
        await held.ack()
        async with asyncio.timeout(30), await anext(messages) as message:
            assert message.body == "new"
    await queue.push("copy", dedup_id="e-18")
    await queue.push("last")
    assert await next_of(await another(), 1) == ["last"]


async def test_a_group_that_is_registered_again_and_purged_has_ids_since_then(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("before it", dedup_id="x")
    await queue.register(GROUP)
    await queue.push("purged", dedup_id="y")
    await queue.purge(GROUP)
    await queue.push("first for it", dedup_id="x")
    await queue.push("copy", dedup_id="y")
    await queue.push("new")
    assert await next_of(await another(), 2, GROUP) == ["first for it", "new"]
    await queue.drop(GROUP)
    await queue.register(GROUP)
    await queue.push("first again", dedup_id="y")
    assert await next_of(await another(), 1, GROUP) == ["first again"]


async def test_a_verdict_is_that_of_the_group_that_was_registered_first(another: Another) -> None:
    """A purge makes a group no younger."""
    queue = await another(shards=1)
    await queue.push("first", dedup_id="x")
    await queue.register(GROUP)
    await queue.purge()
    assert (await (await another()).push("copy", dedup_id="x")).duplicate
    await queue.push("new")
    assert await next_of(queue, 1) == ["new"]
    assert await next_of(queue, 2, GROUP) == ["copy", "new"], "it was registered after the first one"
