"""Queues as programs use them: messages are pushed, delivered, acked, released and given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Fenced, NotEncodable
from bokilib.testing import FaultyBook
from bokiqueue import (
    Limits,
    NoSuchGroup,
    NoSuchQueue,
    Queue,
    QueueDiffers,
    QueueEmpty,
    StaleReceipt,
    WrongMode,
    settings,
)
from bokiqueue_tools.wording import consumers_line
from libs.tests.queue.conftest import SHORT_S, Another, SetClock, all_appended, queues_of, take


@dataclass
class Email:
    to: str
    size: int = 0


async def test_what_is_pushed_is_handed_out_and_acked(cluster: MemoryCluster) -> None:
    queue = await Queue.open((await cluster.connect()).book("shop"), "emails", Email)
    await queue.push(Email("ann", 3))
    async with queue.consume() as messages:
        message = await anext(messages)
        assert (message.body, message.attempt, message.key) == (Email("ann", 3), 1, None)
        await message.ack()
    async with queue.consume() as messages:
        await queue.push(Email("bob"))
        assert (await anext(messages)).body == Email("bob")


async def test_messages_of_a_key_are_handled_in_order_one_at_a_time(queue: Queue[object]) -> None:
    for number in range(3):
        await queue.push(number, key="ann")
    await queue.push("other", key="bob")
    async with queue.consume() as messages:
        first = await anext(messages)
        other = await anext(messages)
        assert {first.body, other.body} == {0, "other"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(messages)
        await (first if first.body == 0 else other).ack()
        assert (await anext(messages)).body == 1


async def test_left_with_an_error_a_message_is_given_back(queue: Queue[object]) -> None:
    await queue.push("poison")
    async with queue.consume() as messages:
        with pytest.raises(ValueError, match="no"):
            async with await anext(messages):
                raise ValueError("no")
        again = await anext(messages)
        assert (again.body, again.attempt) == ("poison", 2)


async def test_handed_out_too_often_it_becomes_a_dead_letter(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=2, dead_letter="jobs.dead")
    await queue.push("poison", key="k")
    await queue.push("next", key="k")
    async with queue.consume() as messages:
        for _ in range(2):
            await (await anext(messages)).nack()
        assert (await anext(messages)).body == "next"
    dead = await another("jobs.dead")
    async with dead.consume() as letters:
        letter = await anext(letters)
        assert letter.body == "poison"
        assert letter.source is not None
        assert (letter.source.queue, letter.source.attempts) == ("jobs", 2)


async def test_a_handler_may_give_a_message_up(another: Another) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.push("bad")
    async with queue.consume() as messages:
        await (await anext(messages)).give_up("cannot be read")
    async with (await another("jobs.dead")).consume() as letters:
        source = (await anext(letters)).source
        assert source is not None
        assert (source.reason, source.attempts) == ("cannot be read", 1)


async def test_when_its_lease_runs_out_it_comes_again_and_the_old_receipt_is_stale(queue: Queue[object]) -> None:
    await queue.push("slow")
    async with queue.consume() as messages:
        slow = await anext(messages)
        slow.extend(SHORT_S)
        again = await anext(messages)
        assert (again.body, again.attempt) == ("slow", 1), "no attempt failed"
        with pytest.raises(StaleReceipt, match="handed out again"):
            await slow.ack()
        again.extend(60)
        await again.ack()
        with pytest.raises(StaleReceipt, match="decided already"):
            await again.ack()


@in_virtual_time
async def test_a_delayed_message_comes_when_it_is_due() -> None:
    loop = asyncio.get_running_loop()
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await queues_of(cluster)()
        await queue.push("late", delay_s=20)
        await queue.push("soon")
        pushed_s = loop.time()
        async with queue.consume() as messages:
            assert [message.body for message in await take(messages, 2)] == ["soon", "late"]
            assert 19.9 < loop.time() - pushed_s < 20.1


async def test_a_message_given_back_with_a_delay_waits_and_its_key_with_it(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1, key="k")
    await queue.push(2, key="k")
    await queue.push("other")
    async with queue.consume() as messages:
        await (await anext(messages)).nack(0.05)
        assert (await anext(messages)).body == "other"
        assert (await anext(messages)).body == 1


async def test_pushed_twice_under_one_id_it_is_handed_out_once_within_the_window(
    another: Another, clock: SetClock
) -> None:
    queue = await another(shards=2, dedup_s=300)
    for _ in range(2):
        await queue.push("once", dedup_id="e-17")
    clock.ms += 300_001
    await queue.push("a first again", dedup_id="e-17")
    async with queue.consume() as messages:
        assert [message.body for message in await take(messages, 2)] == ["once", "a first again"]


async def test_a_batch_is_one_record_in_order(queue: Queue[object]) -> None:
    before = queue.log.appends
    await queue.push_many(list(range(50)))
    assert queue.log.appends == before + 1
    async with queue.consume() as messages:
        assert [message.body for message in await take(messages, 50)] == list(range(50))


async def test_what_is_no_json_is_refused_before_anything_is_sent(queue: Queue[object]) -> None:
    before = queue.log.appends
    with pytest.raises(NotEncodable):
        await queue.push(float("nan"))
    with pytest.raises(InvalidArgument, match="found both"):
        await queue.push(1, key="k", delay_s=1)
    with pytest.raises(InvalidArgument, match="0 to 900 seconds"):
        await queue.push(1, delay_s=901)
    with pytest.raises(InvalidArgument, match="one message"):
        await queue.push_many([])
    assert queue.log.appends == before


async def test_a_body_of_another_type_raises_when_it_is_read(cluster: MemoryCluster) -> None:
    book = (await cluster.connect()).book("shop")
    await (await Queue.open(book, "emails", object)).push({"to": 5})
    async with (await Queue.open(book, "emails", Email)).consume() as messages:
        message = await anext(messages)
        with pytest.raises(NotEncodable, match="to"):
            _ = message.body


async def test_settings_are_the_same_for_a_queues_whole_life(another: Another) -> None:
    await another(shards=3)
    assert (await another()).groups == ["default"]
    with pytest.raises(QueueDiffers, match="shards=3, asked for 4"):
        await another(shards=4)
    with pytest.raises(WrongMode, match="mode='pop'"):
        await (await another()).pop()
    with pytest.raises(NoSuchGroup, match="register"):
        (await another()).consume(group="audit")
    for wrong in (
        {"shards": 0},
        {"shards": 5, "limits": Limits(in_flight=4)},
        {"mode": "both"},
        {"max_deliveries": -1},
        {"dead_letter": "other"},
        {"max_deliveries": 3},
        {"limits": Limits(per_second=-1)},
    ):
        with pytest.raises(InvalidArgument):
            await another("other", **wrong)


async def test_each_group_gets_what_is_pushed_after_it_was_registered(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push(1)
    await queue.register("audit")
    await queue.register("audit")
    await queue.push(2)
    async with queue.consume(group="audit") as audit, queue.consume() as messages:
        assert (await anext(audit)).body == 2
        assert [message.body for message in await take(messages, 2)] == [1, 2]
    await queue.drop("audit")
    assert queue.groups == ["default"]


async def test_a_queue_that_is_popped_takes_each_message_once(another: Another) -> None:
    queue = await another(mode="pop", shards=2)
    with pytest.raises(QueueEmpty):
        await queue.pop()
    await queue.push_many([1, 2])
    await queue.push(3)
    other = await another(mode="pop")
    popped = await asyncio.gather(queue.pop(), other.pop(), queue.pop())
    assert set(popped) == {1, 2, 3}
    with pytest.raises(QueueEmpty):
        await other.pop()
    with pytest.raises(WrongMode):
        queue.consume()
    with pytest.raises(InvalidArgument, match="neither"):
        await queue.push(1, delay_s=1)


async def test_a_pop_that_waits_gets_what_is_pushed_meanwhile(another: Another) -> None:
    queue = await another(mode="pop", shards=2)
    waiting = asyncio.create_task((await another(mode="pop")).pop(timeout=10))
    await asyncio.sleep(0)
    await queue.push("at last")
    assert await waiting == "at last"


async def test_a_pop_of_one_shard_leaves_the_others(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push("only")
    with pytest.raises(InvalidArgument, match="0 to 0"):
        await queue.pop_from(1)
    assert await queue.pop_from(0) == "only"


async def test_the_higher_priority_is_handed_out_first_to_each_group(another: Another) -> None:
    queue = await another(shards=1)
    await queue.register("audit")
    for number in range(3):
        await queue.push(number, priority=number)
    await queue.push("later", priority=9, delay_s=600)
    for group in ("default", "audit"):
        async with queue.consume(group=group) as messages:
            assert [message.body for message in await take(messages, 3)] == [2, 1, 0]
    assert [(one.body, one.priority) for one in await queue.peek()] == [(0, 0), (1, 1), (2, 2), ("later", 9)]
    with pytest.raises(InvalidArgument, match="priority"):
        await queue.push(1, priority=10)


async def test_without_dead_letters_nothing_is_given_up(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("poison")
    async with queue.consume() as messages:
        for attempt in range(1, 9):
            message = await anext(messages)
            assert message.attempt == attempt
            await message.nack()
    assert (await queue.stats()).depth == 1


async def test_only_a_handler_that_raised_is_a_failed_attempt(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    await queue.push("once")
    async with queue.consume() as messages:
        for error in (
            asyncio.CancelledError(),
            KeyboardInterrupt(),
            boki.Unreachable("the engine is away"),
            boki.Conflict("lost", actual={}, position=1),
            Fenced("taken over", tag="t", claim=1),
        ):
            with pytest.raises(type(error)):
                async with (await anext(messages)).within(0) as message:
                    assert message.attempt == 1
                    raise error
        with pytest.raises(ValueError, match="no"):
            async with await anext(messages):
                raise ValueError("no")
        await all_appended(messages)
    assert (await queue.stats()).depth == 0
    (letter,) = await (await another("jobs.dead")).peek()
    assert letter.source is not None and letter.source.attempts == 1


async def test_a_block_that_exits_fails_its_attempt(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=2, dead_letter="jobs.dead")
    await queue.push("exits")
    async with queue.consume() as messages:
        for attempt in (1, 2):
            with pytest.raises(SystemExit):
                async with (await anext(messages)).within(0) as message:
                    assert message.attempt == attempt
                    raise SystemExit(3)
        await all_appended(messages)
    (letter,) = await (await another("jobs.dead")).peek()
    assert letter.source is not None and (letter.source.attempts, letter.source.error) == (2, "SystemExit(3)")


async def test_a_queue_of_an_older_version_without_dead_letters_drops_nothing_more(another: Another) -> None:
    queue = await another(shards=1)
    await settings.change_existing(queue.log, "jobs", lambda config: msgspec.structs.replace(config, max_deliveries=1))
    again = await another(shards=1, max_deliveries=0)
    await again.push("kept")
    async with again.consume() as messages:
        for _ in range(3):
            await (await anext(messages)).nack()
    assert (await again.stats()).depth == 1


async def test_a_drop_trims_nothing_of_a_group_that_is_registered_again_at_once(cluster: MemoryCluster) -> None:
    """The process that drops is slow between its settings and the trim."""
    drops, includes = asyncio.Event(), asyncio.Event()

    async def pause(_: int) -> None:
        if begun and len(book.operations) > begun[0] + 1 and book.operations[-1].startswith("trim [('queue/cfg"):
            begun.clear()
            drops.set()
            await includes.wait()

    begun: list[int] = []
    book = FaultyBook((await cluster.connect()).book("shop"), pause=pause)
    dropping = await Queue.open(book, "jobs", object, shards=1)
    queue = await Queue.open((await cluster.connect()).book("shop"), "jobs", object)
    await queue.register("audit")
    begun.append(len(book.operations))
    drop = asyncio.create_task(dropping.drop("audit"))
    await drops.wait()
    await queue.register("audit")
    await queue.push_many(["first", "second"])
    async with queue.consume(group="audit") as messages:
        await (await anext(messages)).ack()
        includes.set()
        await drop
    async with (await Queue.open((await cluster.connect()).book("shop"), "jobs", object)).consume(
        group="audit"
    ) as messages:
        assert (await anext(messages)).body == "second"


async def test_a_member_of_a_group_that_is_dropped_is_told(another: Another) -> None:
    queue = await another(shards=1)
    await queue.register("audit")
    await queue.push("waits")
    async with queue.consume(group="audit") as messages:
        message = await anext(messages)
        await (await another()).drop("audit")
        with pytest.raises(NoSuchGroup):
            await anext(messages)
        with pytest.raises(StaleReceipt):
            await message.ack()


async def test_a_group_that_is_registered_while_it_is_dropped_begins_above_the_drop(cluster: MemoryCluster) -> None:
    """What is below is trimmed by the process that drops."""

    async def drop_it(number: int) -> None:
        if begun and number == begun[0] + 1:
            begun.clear()
            await other.drop("audit")

    begun: list[int] = []
    book = FaultyBook((await cluster.connect()).book("shop"), pause=drop_it)
    queue = await Queue.open(book, "jobs", object, shards=1)
    other = await Queue.open((await cluster.connect()).book("shop"), "jobs", object)
    await other.register("audit")
    async with other.consume(group="audit") as messages:
        await messages.has(1)
    for _ in range(2):
        begun.append(len(book.operations))
        await queue.register("audit")
        await queue.push("first")
        fresh = await Queue.open((await cluster.connect()).book("shop"), "jobs", object)
        async with fresh.consume(group="audit") as messages:
            assert (await anext(messages)).body == "first"


async def test_settings_that_may_be_changed_are_and_members_apply_them(another: Another) -> None:
    queue = await another(shards=1)
    with pytest.raises(QueueDiffers, match=r"queue\.change"):
        await another(dead_letter="jobs.dead")
    await queue.push("bad")
    async with queue.consume() as messages:
        await (await anext(messages)).nack()
        with pytest.raises(InvalidArgument, match="dead_letter="):
            await (await another()).change(max_deliveries=2)
        await (await another()).change(dead_letter="jobs.dead", max_deliveries=2, limits=Limits(in_flight=3))
        message = await anext(messages)
        while messages.found.config.dead_letter is None:
            await asyncio.sleep(0)
        await message.nack()
        await all_appended(messages)
        assert messages._owners[0]._share == 3
    (letter,) = await (await another("jobs.dead")).peek()
    assert (letter.body, (await another(dead_letter="jobs.dead", max_deliveries=2)).name) == ("bad", "jobs")
    await queue.change(dead_letter="")
    assert queue._found.config.attempts_most == queue._found.config.max_deliveries == 0


async def test_a_queue_that_is_deleted_is_gone_with_its_messages_and_can_be_made_again(another: Another) -> None:
    queue = await another(shards=2)
    await queue.push_many(["a", "b"])
    async with queue.consume() as messages:
        await messages.has(2)
        await (await another()).delete()
        with pytest.raises(NoSuchQueue):
            while True:
                await anext(messages)
    with pytest.raises(NoSuchQueue):
        await queue.stats()
    with pytest.raises(NoSuchQueue):
        await queue.delete()
    made = await another(shards=3)
    await made.push("new")
    async with made.consume() as messages:
        assert (await anext(messages)).body == "new"
        assert (await made.stats()).depth == 1


async def test_stats_say_who_consumes_and_since_when_nobody_does(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1)
    assert (await queue.stats()).seen_ms is None
    async with queue.consume(who="host-7") as messages:
        await messages.has(1)
        stats = await queue.stats()
        assert (stats.alive, stats.consumed, stats.shards[0].owner) == (["host-7"], True, "host-7")
        at_ms = clock.ms + 16_000
        late = await queue.stats(at_ms=at_ms)
        assert (late.alive, late.consumed, late.seen_ms) == ([], False, clock.ms)
        await messages.drain()
        left = await queue.stats()
        assert (left.alive, left.consumed, left.seen_ms) == ([], False, clock.ms), "it is not alive for a lease still"
    assert "host-7 left, and was seen last" in consumers_line(await queue.stats())
