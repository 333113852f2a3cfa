"""Members of a group: shards are dealt, released and taken over, no message is lost, and no acked one is redelivered."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

import boki
from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from boki_common.logs import configured
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Contribution, Fenced
from bokilib.records import tags
from bokilib.records.events import Event
from bokiqueue import Consumer, Limits, Queue, StaleReceipt, settings
from bokiqueue.model.events import Acked, Id, consumer_id
from bokistore import BokiStore
from libs.tests.queue.conftest import Another, all_appended, book_of, take

LEASE_S = 0.15


def member(queue: Queue[object], who: str, **options: Any) -> Consumer[object]:
    return queue.consume(who=who, member_lease_s=LEASE_S, **options)


async def test_two_members_share_the_shards_and_the_one_that_stays_gets_all_back(another: Another) -> None:
    queue = await another(shards=4)
    async with member(queue, "a") as first:
        await first.has(4)
        async with member(await another(), "b") as second:
            while len(second.shards) != 2 or sorted([*first.shards, *second.shards]) != [0, 1, 2, 3]:
                await asyncio.sleep(0)
        await first.has(4)


async def test_who_dies_is_replaced_and_what_it_had_comes_again(another: Another) -> None:
    queue = await another(shards=2)
    await queue.push_many(list(range(6)))
    dying = member(await another(), "a")
    await dying.__aenter__()
    held = await take(dying, 6)
    for message in held[:2]:
        await message.ack()
    await _die(dying)
    async with member(queue, "b") as messages:
        got = []
        for _ in range(4):
            async with await anext(messages) as message:
                got.append((message.body, message.attempt))
        assert got == [(2, 1), (3, 1), (4, 1), (5, 1)], "of none it is known that an attempt failed"


async def _die(consumer: Consumer[object]) -> None:
    """A process that is gone: nothing of it runs any more, and nothing is given back."""
    consumer._members._tasks[1].cancel()
    for task in [*consumer._tasks, *consumer._members._tasks]:
        task.cancel()
    for owner in list(consumer._owners.values()):
        await owner.close()


async def test_what_kills_its_process_is_a_dead_letter_after_max_deliveries_deaths(
    another: Another,
) -> None:
    queue = await another(shards=1, max_deliveries=3, dead_letter="jobs.dead")
    await queue.push("poison")
    attempts = []
    for _ in range(3):
        consumer = queue._consumer(who="host-7", member_lease_s=600, backoff_s=0.001)
        await consumer.__aenter__()
        attempts.append((await anext(consumer)).attempt)
        await all_appended(consumer)
        await consumer._follower.__aexit__(None, None, None)
        await _die(consumer)
        queue = await another()
    letters = await another("jobs.dead")
    async with queue.consume(who="host-7", member_lease_s=600) as messages, letters.consume() as dead:
        handling = asyncio.create_task(anext(messages))
        source = (await anext(dead)).source
        handling.cancel()
    assert attempts == [1, 2, 3]
    assert source is not None and (source.attempts, source.error) == (
        3,
        "the process ended while this message was alone with it",
    )


@pytest.mark.parametrize("how", ["drain", "leave", "die"])
@in_virtual_time
async def test_a_lease_that_ran_out_before_its_member_ended_is_no_failed_attempt(how: str) -> None:
    """The message was by itself, or may have killed a process before; its queue is paused, so it waits after its lease."""
    async with MemoryCluster(clock=LoopClock()) as cluster:

        async def another() -> Queue[object]:
            return await Queue.open((await cluster.connect()).book("shop"), "jobs", object, shards=1)

        queue = await another()
        await queue.push_many(["slow", "beside it"])
        dying = await queue.consume(who="host-7").__aenter__()
        await take(dying, 2)
        await _die_at_once(dying)
        for _ in range(3):
            queue = await another()
            messages = await queue.consume(who="host-7", lease_s=30).__aenter__()
            held = await anext(messages)
            assert held.attempt == 1
            await all_appended(messages)
            await queue.pause()
            waiting = asyncio.create_task(anext(messages))
            await let_pass(40)
            with pytest.raises(StaleReceipt):
                await held.ack()
            if how == "die":
                await _die_at_once(messages)
            elif how == "drain":
                assert await messages.drain()
            waiting.cancel()
            if how != "die":
                await messages.__aexit__(None, None, None)
            await queue.resume()
        async with (await another()).consume(who="host-7") as messages:
            assert sorted([(one.body, one.attempt) for one in await _handled(messages, 2)]) == [
                ("beside it", 1),
                ("slow", 1),
            ]


async def _handled(messages: Consumer[object], count: int) -> list[Any]:
    """Messages that are acked, one after the other."""
    got = []
    for _ in range(count):
        async with await anext(messages) as message:
            got.append(message)
    return got


async def _die_at_once(consumer: Consumer[object]) -> None:
    """Its process is gone once all that it decided is in the log."""
    await all_appended(consumer)
    await consumer._follower.__aexit__(None, None, None)
    await _die(consumer)


async def test_a_message_that_comes_due_during_a_look_is_handed_out_by_the_next_one(another: Another) -> None:
    """A look that took it for due only in its second half handed nothing out, and set no timer."""
    queue = await another(shards=1, max_deliveries=3, dead_letter="jobs.dead")
    await queue.push("poison")
    dying = queue._consumer(who="host-7", member_lease_s=600)
    await dying.__aenter__()
    await anext(dying)
    await all_appended(dying)
    await dying._follower.__aexit__(None, None, None)
    await _die(dying)
    consumer = (await another())._consumer(who="host-7", member_lease_s=600, backoff_s=600)
    async with consumer:
        await consumer.has(1)
        owner, now_s = consumer._owners[0], asyncio.get_running_loop().time()
        async with asyncio.timeout(10):
            while (due_s := owner.next_s(now_s)) is None:
                await asyncio.sleep(0)
        early_s = due_s - 0.5
        assert consumer._next(early_s) is None and owner.next_s(early_s) is not None
        assert consumer._next(due_s + 0.5) is None, "its DELIVER is appended first"
        message = await anext(consumer)
        assert (message.body, message.attempt) == ("poison", 2)


async def test_a_member_whose_name_another_process_took_says_so_once(another: Another) -> None:
    stream = io.StringIO()
    queue, other = await another(shards=4), await another()
    with configured(stream=stream):
        async with queue.consume(who="host-7", member_lease_s=600) as first:
            await first.has(4)
            async with other.consume(who="host-7", member_lease_s=600) as second:
                await second.has(4)
                await first.has(0)
                async with asyncio.timeout(10):
                    while "another member has this name" not in stream.getvalue():
                        first._members_changed()
                        await asyncio.sleep(0)
                for _ in range(50):
                    first._members_changed()
                    await asyncio.sleep(0)
    (line,) = [line for line in stream.getvalue().splitlines() if "another member has this name" in line]
    assert "who=host-7" in line and other.log.by in line


async def test_an_owner_that_was_taken_for_dead_can_ack_nothing_any_more(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("once")
    stalled = member(await another(), "stalled")
    async with stalled:
        message = await anext(stalled)
        for task in stalled._members._tasks:
            task.cancel()
        stalled._follower.discard(stalled._claims.fences[0])  # it receives nothing either
        async with member(queue, "b") as others:
            again = await anext(others)
            assert (again.body, again.attempt) == ("once", 2), (
                "its process may have died of it: nothing else was with it"
            )
            with pytest.raises(Fenced):
                await message.ack()
            await again.ack()
            with pytest.raises(StaleReceipt, match="another owner"):
                await message.ack()


async def test_a_member_whose_heartbeats_end_hands_out_nothing_more(another: Another) -> None:
    queue = await another(shards=1)
    async with member(queue, "a") as messages:
        await messages.has(1)
        messages._members._tasks[1].cancel()
        messages._members._acked_sent_s = 0.0
        await queue.push("late")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(messages)


async def test_what_a_member_gives_back_when_it_stops_is_no_failed_attempt(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push_many(list(range(4)))
    async with queue.consume() as messages:
        assert (await anext(messages)).body == 0
    async with queue.consume() as messages:
        assert [(message.body, message.attempt) for message in await take(messages, 4)] == [
            (0, 1),
            (1, 1),
            (2, 1),
            (3, 1),
        ]


async def test_a_prefetch_bounds_what_is_with_handlers(another: Another) -> None:
    queue = await another(shards=2)
    for number in range(6):
        await queue.push(number)
    async with queue.consume(prefetch=3) as messages:
        held = await take(messages, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(messages)
        await held[0].ack()
        await anext(messages)
    for prefetch in (0, 5_000):
        with pytest.raises(InvalidArgument, match="prefetch"):
            queue.consume(prefetch=prefetch)
    with pytest.raises(InvalidArgument, match="lease"):
        queue.consume(lease_s=0)


async def test_a_caller_that_waits_no_longer_for_its_ack_cancels_no_other(another: Another) -> None:
    """Both acks, and the delivery of what comes next, may share a record."""
    queue = await another(shards=1)
    for number in range(3):
        await queue.push(number)
    async with queue.consume(prefetch=2) as messages, asyncio.timeout(10):
        first, second = await take(messages, 2)
        impatient, patient = first.ack(), second.ack()
        impatient.cancel()
        await patient
        third = await anext(messages)
        assert third.body == 2
        await third.ack()
    assert (await queue.stats()).depth == 0


async def test_many_tasks_iterate_and_each_message_goes_to_one(another: Another) -> None:
    queue = await another(shards=4)
    await asyncio.gather(*(queue.push(number, key=f"k{number % 7}") for number in range(100)))
    got: list[object] = []
    done = asyncio.Event()

    async def work(messages: AsyncIterator[Any]) -> None:
        async for message in messages:
            async with message:
                got.append(message.body)
            if len(got) == 100:
                done.set()

    async with queue.consume() as messages:
        tasks = [asyncio.create_task(work(messages)) for _ in range(8)]
        async with asyncio.timeout(10):
            await done.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(got) == list(range(100))  # type: ignore[type-var] # they are ints


async def test_heartbeats_do_not_disturb_a_cluster_without_messages(cluster: MemoryCluster, another: Another) -> None:
    queue = await another(shards=8)
    async with queue.consume(member_lease_s=60) as messages:
        await messages.has(8)
        before = queue.log.appends
        for _ in range(100):
            await asyncio.sleep(0)
        assert queue.log.appends - before <= 1


@in_virtual_time
async def test_a_key_has_one_message_an_interval_and_others_pass_it() -> None:
    loop = asyncio.get_running_loop()
    async with MemoryCluster(clock=LoopClock()) as cluster:
        book, limits = (await cluster.connect()).book("shop"), Limits(key_per_second=5.0)
        queue = await Queue.open(book, "jobs", object, shards=1, limits=limits)
        await queue.push_many(["a1", "a2"], key="a")
        await queue.push("free")
        async with queue.consume() as messages:
            at: dict[object, float] = {}
            for _ in range(3):
                async with await anext(messages) as message:
                    at[message.body] = loop.time()
    assert list(at) == ["free", "a1", "a2"]
    assert at["a2"] - at["a1"] >= 0.19, "so much passed by the owner's clock, since nobody wrote meanwhile"


async def test_a_key_with_a_rate_of_its_own_waits_until_it_is_taken_away(another: Another) -> None:
    queue = await another(shards=1)
    await queue.limit_key("slow", 0.001)
    await queue.push_many(["s1", "s2"], key="slow")
    await queue.push_many(["f1", "f2"], key="fast")
    async with queue.consume() as messages:
        got: list[object] = []
        for _ in range(4):
            if got == ["f1", "f2"]:
                await (await another()).limit_key("slow", None)
            async with await anext(messages) as message:
                got.append(message.body)
    assert got == ["f1", "f2", "s1", "s2"]


async def test_so_many_keys_have_a_rate_of_their_own_and_no_more(another: Another) -> None:
    config = (await settings.existing((await another()).log, "jobs")).config
    for number in range(256):
        config = settings.with_key_rate(config, f"k{number}", 1.0)
    with pytest.raises(InvalidArgument, match="256 keys"):
        settings.with_key_rate(config, "one more", 1.0)
    assert len(settings.with_key_rate(config, "k0", None).key_rates) == 255


async def test_two_members_of_one_name_on_one_log_never_have_one_shard(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("once")
    first, second = member(queue, "a"), member(queue, "a")
    async with first:
        message = await anext(first)
        owner = second._owner_of(0)
        with pytest.raises(Fenced):
            await owner.take(None)
        await message.ack()


async def test_an_owner_has_what_was_acked_under_the_one_before_in_its_process(
    another: Another,
) -> None:
    """Even if its follower has not brought the claim of the one before, which has the same name and the same process."""
    store = BokiStore(book_of(await another()))
    queue = await Queue.open(store.log, "orders", str, shards=1)
    await queue.push_many(["m1", "m2", "m3"])

    async def sell(messages: Consumer[str]) -> None:
        async with await anext(messages) as message, store.transaction() as tx:
            tx["sold"].inc(message.body)
            tx.add(message.acked())

    async with queue.consume(who="w") as messages:
        await sell(messages)
        await sell(messages)
        messages._claims.newest[0] = None
        messages._owners[0].over()
        async with asyncio.timeout(5):
            await sell(messages)
    assert await store.object("sold").value() == {"m1": 1, "m2": 1, "m3": 1}


async def test_a_member_that_can_do_nothing_more_raises_and_others_take_over(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("waits")
    tag = tags.queue_consumer("jobs", 0, "default")
    event = Acked(consumer_id("jobs", 0, "default"), (Id(1 << 20, 0),))
    await book_of(queue).trim([(tag, await queue.log.append(Contribution((tag,), {}, (event,))) + 1)])
    async with member(queue, "a") as messages:
        with pytest.raises(boki.Trimmed, match="no checkpoint"):
            await anext(messages)
        assert all(task.done() for task in messages._members._tasks), "nobody waits for it any more"
        with pytest.raises(boki.Trimmed):
            await messages.has(1)


async def test_a_drain_lets_handlers_finish_and_counts_nothing_that_it_gives_back(another: Another) -> None:
    queue = await another(shards=2, max_deliveries=1, dead_letter="jobs.dead")
    await queue.push_many(list(range(6)))
    async with queue.consume(member_lease_s=600) as messages:
        held = await take(messages, 2)
        draining = asyncio.create_task(messages.drain(30))
        await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert not draining.done()
        for message in held:
            async with message:
                pass
        assert await draining
    async with queue.consume() as messages:
        assert [(message.body, message.attempt) for message in await take(messages, 4)] == [
            (number, 1) for number in range(2, 6)
        ]


@in_virtual_time
async def test_one_hanging_handler_keeps_its_shard_only_while_others_are_taken_at_once() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        old, new = [await Queue.open((await cluster.connect()).book("b"), "jobs", object, shards=8) for _ in range(2)]
        loop = asyncio.get_running_loop()
        async with old.consume(who="old") as messages, new.consume(who="new") as others:
            await asyncio.gather(messages.has(4), others.has(4))
            for number in range(64):
                await old.push(number)
            hangs = await anext(messages)
            began_s = loop.time()
            drains = asyncio.gather(messages.drain(600), messages.drain(600))  # a second SIGTERM
            async with asyncio.timeout(100):
                await others.has(7)
            assert loop.time() - began_s < 1 and messages.shards == [hangs.id[0]] and not drains.done()
            await let_pass(20)
            assert messages.shards == [hangs.id[0]] and len(others.shards) == 7, "its handler has it still"
            ended_s = loop.time()
            await hangs.ack()
            await others.has(8)
            assert list(await drains) == [True, True] and loop.time() - ended_s < 1


@in_virtual_time
async def test_a_member_that_ends_leaves_its_shards_to_the_others_at_once() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        old, new = [await Queue.open((await cluster.connect()).book("b"), "jobs", object, shards=8) for _ in range(2)]
        loop = asyncio.get_running_loop()
        async with new.consume(who="new") as others:
            async with old.consume(who="old") as messages:
                await asyncio.gather(messages.has(4), others.has(4))
                began_s = loop.time()
            await others.has(8)
            assert loop.time() - began_s < 1


async def test_what_is_not_done_in_time_is_given_back_by_a_drain(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("slow")
    async with queue.consume(member_lease_s=600) as messages:
        slow = await anext(messages)
        assert not await messages.drain(0)
        with pytest.raises(StaleReceipt):
            await slow.ack()
    async with queue.consume() as messages:
        again = await anext(messages)
        assert (again.body, again.attempt) == ("slow", 1)


async def test_a_setting_of_a_later_version_keeps_no_message_back(another: Another) -> None:
    class Later(Event, tag="queue.later", frozen=True):
        id: str = "jobs"

    queue = await another(shards=1)
    async with queue.consume(member_lease_s=600) as messages:
        await messages.has(1)
        await queue.log.append(Contribution((tags.queue_config("jobs"),), {}, (Later(),)))
        await queue.push("behind it")
        assert (await anext(messages)).body == "behind it"
