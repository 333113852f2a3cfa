"""A queue is deleted and made again, beside programs that have the former one open: nothing that they push is hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Atomic, Log
from bokilib.ports import BookPort
from bokilib.records import tags
from bokilib.testing import crash_everywhere
from bokiqueue import NoSuchQueue, Queue, QueueEmpty, WrongMode
from bokiqueue.push import strays
from bokiqueue.sharding import shard_of
from libs.tests.queue.conftest import DAY_MS, Another, queues_of, round_of

KEYS = [f"k{number}" for number in range(12)]


def in_a_book(test: Callable[[Another], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time, with what opens queues of one book as processes of their own do."""

    async def run() -> None:
        async with MemoryCluster(clock=LoopClock()) as cluster:
            await test(queues_of(cluster))

    run.__name__ = test.__name__
    return in_virtual_time(run)


async def made_again(
    another: Another, *, before: dict[str, Any], after: dict[str, Any]
) -> tuple[Queue[object], Queue[object]]:
    """Return a queue as a program has it open that does not know that it was made again, and the queue of that name now."""
    former = await another(**before)
    await (await another()).delete()
    return former, await another(**after)


async def add(queue: Queue[object], *bodies: object, **options: Any) -> None:
    """Push by contributions to records, as a transaction does: they expect nothing."""
    for body in bodies:
        async with Atomic(queue.log) as tx:
            tx.add(queue.pushed(body, **options))


async def delivered(queue: Queue[object], count: int, group: str = "default") -> list[object]:
    """Handle messages, and return their bodies."""
    found = []
    async with queue.consume(group=group) as messages:
        for _ in range(count):
            async with await anext(messages) as message:
                found.append(message.body)
    assert (await queue.stats(group)).depth == 0
    return found


@in_a_book
async def test_a_push_follows_the_settings_and_costs_no_append_more(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 2})
    before = former.log.appends
    for number in range(20):
        assert (await former.push(number)).duplicate is False
    assert former.log.appends == before + 20 + 1, "one found out"
    assert {one.shard for one in await queue.peek(100)} == {0, 1}
    assert sorted(map(str, await delivered(queue, 20))) == sorted(map(str, range(20)))


@in_a_book
async def test_pushes_of_a_key_keep_their_order_across_programs(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 3})
    for key in KEYS:
        await former.push([key, 1], key=key)
        await queue.push([key, 2], key=key)
    found: list[Any] = await delivered(queue, 2 * len(KEYS))
    assert all([number for name, number in found if name == key] == [1, 2] for key in KEYS)


@in_a_book
async def test_a_duplicate_is_found_whichever_settings_its_program_knew(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 3})
    for key in KEYS:
        assert not (await queue.push(key, dedup_id=key)).duplicate
        assert (await former.push(key, dedup_id=key)).duplicate
    assert (await queue.stats()).depth == len(KEYS)


@in_a_book
async def test_a_change_of_other_settings_is_followed_too(another: Another) -> None:
    producer = await another(shards=2)
    await (await another()).register("audit")
    await (await another()).pause()
    await producer.push("job")
    assert (await producer.stats("audit")).depth == 1


@in_a_book
async def test_a_push_with_options_that_the_new_mode_lacks_is_refused(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 4}, after={"shards": 1, "mode": "pop"})
    with pytest.raises(boki.BokiError, match="neither dedup_id= nor delay_s="):
        await former.push(1, dedup_id="one")
    await former.push(2)
    assert await queue.pop() == 2


@in_a_book
async def test_contributions_to_shards_that_are_gone_are_moved_and_counted(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 2})
    await queue.register("audit")
    await add(former, *range(16))
    assert ((await queue.stats()).depth, len(await queue.peek(100))) == (16, 16)
    assert sorted(map(str, await delivered(queue, 16))) == sorted(map(str, range(16)))
    assert sorted(map(str, await delivered(queue, 16, "audit"))) == sorted(map(str, range(16)))


@in_a_book
async def test_contributions_while_members_consume_are_moved_in_the_order_of_their_key(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 2})
    async with queue.consume() as messages:
        await messages.has(2)
        for number in range(3):
            for key in KEYS:
                await add(former, [key, number], key=key)
        found: list[Any] = []
        for _ in range(3 * len(KEYS)):
            async with await anext(messages) as message:
                found.append(message.body)
    assert all([number for name, number in found if name == key] == [0, 1, 2] for key in KEYS)
    assert (await queue.stats()).depth == 0


@in_a_book
async def test_what_is_moved_keeps_its_options_and_the_rest_of_its_delay(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 1})
    for _ in range(9):
        await add(former, "same", dedup_id="one", priority=3)
        await add(former, "late", delay_s=600)
    await let_pass(300)
    await strays.move(queue.log, "jobs")
    found = [(one.body, one.priority, one.state) for one in await queue.peek(100)]
    assert sorted(found) == [("late", 0, "delayed")] * 9 + [("same", 3, "waits")]
    await let_pass(310)
    assert sorted(map(str, await delivered(queue, 10))) == ["late"] * 9 + ["same"]


@in_a_book
async def test_movers_at_the_same_time_move_each_message_once(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 1})
    await add(former, *range(200))
    others = [await another() for _ in range(3)]
    await asyncio.gather(*(strays.move(one.log, "jobs") for one in others))
    assert sorted(map(str, await delivered(queue, 200))) == sorted(map(str, range(200)))


@in_a_book
async def test_a_popped_queue_has_what_was_pushed_to_shards_that_are_gone(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8, "mode": "pop"}, after={"shards": 1, "mode": "pop"})
    await add(former, *range(8))
    assert (await queue.stats()).depth == 8
    assert sorted([str(await queue.pop()) for _ in range(8)]) == sorted(map(str, range(8)))
    with pytest.raises(QueueEmpty):
        await queue.pop()


@in_a_book
async def test_a_popper_of_a_deleted_queue_takes_nothing_of_the_next_one(another: Another) -> None:
    former = await another(mode="pop", shards=2)
    await former.push_many([1, 2], key="k")
    assert await former.pop() == 1
    await (await another()).delete()
    with pytest.raises(NoSuchQueue):
        await former.pop()
    queue = await another(mode="consume", shards=2)
    await queue.push("job")
    with pytest.raises(WrongMode):
        await former.pop()
    assert await delivered(queue, 1) == ["job"]


@in_a_book
async def test_a_popper_of_fewer_shards_finds_what_is_in_the_others(another: Another) -> None:
    former = await another(mode="pop", shards=1)
    await former.push("old")
    assert await former.pop() == "old"
    await (await another()).delete()
    queue = await another(mode="pop", shards=8)
    elsewhere = [key for key in map(str, range(50)) if shard_of(8, key, None) != 0]
    for key in elsewhere:
        await queue.push(key, key=key)
    assert sorted([str(await former.pop()) for _ in elsewhere]) == sorted(elsewhere)


@in_a_book
async def test_members_of_a_queue_that_was_made_again_with_other_shards_end(another: Another) -> None:
    for shards in (1, 4):
        former = await another(shards=2)
        async with former.consume() as messages:
            await messages.has(2)
            await (await another()).delete()
            await another(shards=shards)
            with pytest.raises(NoSuchQueue):
                await anext(messages)
        with pytest.raises(NoSuchQueue, match="open it again"):
            async with former.consume() as messages:
                await anext(messages)
        await (await another()).delete()


@in_a_book
async def test_what_was_pushed_to_a_deleted_queue_waits_for_one_with_fewer_shards(another: Another) -> None:
    former = await another(shards=8)
    await (await another()).delete()
    for number in range(8):
        await former.push(number)
    queue = await another(shards=1)
    assert sorted(map(str, await delivered(queue, 8))) == sorted(map(str, range(8)))


@in_a_book
async def test_what_is_pushed_once_the_deletion_is_trimmed_is_found(another: Another) -> None:
    former = await another(shards=8)
    await (await another()).delete()
    for _ in range(3):
        await let_pass(DAY_MS / 1_000)
        await round_of(former)
    await add(former, *range(8))
    queue = await another(shards=1)
    await add(former, *range(8, 16))
    assert sorted(map(str, await delivered(queue, 16))) == sorted(map(str, range(16)))


@in_a_book
async def test_the_widest_of_several_former_queues_counts(another: Another) -> None:
    former = await another(shards=8)
    for shards in (2, 1):
        await (await another()).delete()
        queue = await another(shards=shards)
    await add(former, *range(8))
    assert sorted(map(str, await delivered(queue, 8))) == sorted(map(str, range(8)))


@in_a_book
async def test_a_carrier_moves_what_nobody_consumes(another: Another) -> None:
    former, queue = await made_again(another, before={"shards": 8}, after={"shards": 1})
    await add(former, *range(8))
    for _ in range(3):
        await let_pass(DAY_MS / 1_000)
        await round_of(queue)
    assert [shard.depth for shard in (await queue.stats()).shards] == [8]
    for tag in [tags.queue_moved("jobs"), *(tags.queue_messages("jobs", shard) for shard in range(1, 8))]:
        left = [item async for item in queue.log.book.read(tag) if isinstance(item, boki.Record)]
        assert not left, "storage of what was moved can be reclaimed"
    assert len(await delivered(queue, 8)) == 8


@pytest.mark.timeout(240)
@in_virtual_time
async def test_a_mover_that_dies_at_any_operation_moves_each_message_once() -> None:
    async def before(book: boki.Book) -> None:
        former = await Queue.open(Log(book), "jobs", object, shards=4)
        await (await Queue.open(Log(book), "jobs", object)).delete()
        await Queue.open(Log(book), "jobs", object, shards=1)
        await add(former, *range(4))

    async def move(book: BookPort) -> None:
        await strays.move(Log(book), "jobs")

    async def check(book: boki.Book) -> None:
        queue = await Queue.open(book, "jobs", object)
        assert sorted(str(one.body) for one in await queue.peek(100)) == list(map(str, range(4)))

    await crash_everywhere(move, move, check, before=before, clock=LoopClock(), pairs=True)
