"""Dead letters move back once; queues are paused and purged."""

from __future__ import annotations

import asyncio

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument, Unreachable
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import Atomic, Log, PartlyApplied
from bokiqueue import Queue, WrongMode
from bokiqueue import queue as queue_module
from libs.tests.queue.conftest import Another, queues_of, take


async def test_dead_letters_go_back_where_they_came_from(another: Another) -> None:
    queue = await another(shards=2, max_deliveries=1, dead_letter="jobs.dead")
    for number in range(5):
        await queue.push(number, key=f"k{number}")
    async with queue.consume() as messages:
        for message in await take(messages, 5):
            await message.nack()
        while (await queue.stats()).depth:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(messages)
    dead = await another("jobs.dead")
    assert (await dead.stats()).depth == 5
    assert await dead.redrive(2) == 2
    assert await dead.redrive() == 3
    assert await dead.redrive() == 0
    async with queue.consume() as messages:
        again = await take(messages, 5)
        assert {(message.body, message.key) for message in again} == {(number, f"k{number}") for number in range(5)}
        assert {message.attempt for message in again} == {1}


async def test_an_error_after_some_were_moved_says_so(another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    for number in range(3):
        await queue.push(number)
    async with queue.consume() as messages:
        for message in await take(messages, 3):
            await message.nack()
    dead = await another("jobs.dead")
    refused = Unreachable("no engine")
    moved = 0

    def second_is_refused(log: Log) -> Atomic:
        nonlocal moved
        moved += 1
        if moved == 2:
            raise refused
        return Atomic(log)

    with monkeypatch.context() as patched:
        patched.setattr(queue_module, "Atomic", second_is_refused)
        with pytest.raises(PartlyApplied, match="1 messages were moved; call again") as caught:
            await dead.redrive()
        assert caught.value.__cause__ is refused and not caught.value.definite
    assert await dead.redrive() == 2
    async with queue.consume() as messages:
        assert sorted(message.body for message in await take(messages, 3)) == [0, 1, 2]


async def test_what_is_no_dead_letter_is_left(another: Another) -> None:
    dead = await another("jobs.dead", shards=1)
    await dead.push("of somebody else")
    assert await dead.redrive(quiet_s=0.02) == 0
    assert (await dead.stats()).depth == 1


async def test_while_it_is_paused_nothing_is_handed_out(another: Another) -> None:
    queue = await another(shards=1)
    async with queue.consume() as messages:
        await messages.has(1)
        other = await another()
        await other.pause()
        await queue.push(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await anext(messages)
        assert (await queue.stats()).paused
        await other.resume()
        assert (await anext(messages)).body == 1


async def test_what_is_purged_is_not_handed_out_by_this_owner_or_the_next(another: Another) -> None:
    queue = await another(shards=1)
    await queue.push("has a handler", key="k")
    await queue.push("waits", key="k")
    await queue.push("waits too")
    async with queue.consume(prefetch=1) as messages:
        held = await anext(messages)
        await (await another()).purge()
        await queue.push("later", key="k")
        await held.ack()
        assert (await anext(messages)).body == "later"
    await queue.purge()
    await queue.push("last")
    assert (await queue.stats()).depth == 1
    async with (await another()).consume() as messages:
        assert (await anext(messages)).body == "last"


async def test_dead_letters_keep_their_priority_on_both_ways(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    await queue.push("first", priority=9)
    async with queue.consume() as messages:
        await (await anext(messages)).give_up("bad")
    dead = await another("jobs.dead")
    assert [letter.priority for letter in await dead.peek()] == [9]
    await queue.push("usual")
    assert await dead.redrive() == 1
    async with queue.consume() as messages:
        assert [(message.body, message.priority) for message in await take(messages, 2)] == [("first", 9), ("usual", 0)]


async def test_letters_behind_more_than_a_prefetch_of_other_messages_are_moved(another: Another) -> None:
    queue = await another(shards=1, max_deliveries=1, dead_letter="jobs.dead")
    dead = await another("jobs.dead")
    await dead.push_many([f"pushed {number}" for number in range(70)], key="k")
    await queue.push("job", key="k")
    async with queue.consume() as messages:
        await (await anext(messages)).give_up("broken")
    assert await dead.redrive(1) == 1
    assert ((await queue.stats()).depth, (await dead.stats()).depth) == (1, 70)
    async with dead.consume() as others, await anext(others) as message:
        assert (message.body, message.attempt) == ("pushed 0", 1)


async def _given_up(queue: Queue[object], *bodies: object) -> None:
    """Push messages and give them up."""
    await queue.push_many(bodies)
    async with queue.consume() as messages:
        for message in await take(messages, len(bodies)):
            await message.give_up("broken")


@in_virtual_time
async def test_letters_of_deleted_queues_are_passed_over_and_named() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        another = queues_of(cluster)
        for name in ("gone", "here", "gone too"):
            await another(name, shards=1, dead_letter="dead")
        await _given_up(await another("gone"), 1)
        await _given_up(await another("here"), 2)
        await _given_up(await another("gone too"), 3, 4)
        await _given_up(await another("here"), 5)
        for name in ("gone", "gone too"):
            await (await another(name)).delete()
        dead = await another("dead")
        assert await dead.redrive(1) == 1, "as many as were asked for"
        moved = await dead.redrive()
        assert (moved, moved.left) == (1, {"gone": 1, "gone too": 2})
        assert (str(moved), repr(moved)) == ("1", "Redriven(1, left={'gone': 1, 'gone too': 2})")
        again = await dead.redrive()
        assert (again, again.left) == (0, moved.left), "a program that redrives each hour gets no error for them"
        assert (await (await another("here")).stats()).depth == 2
        assert sorted((one.body, one.attempts) for one in await dead.peek()) == [(1, 0), (3, 0), (4, 0)]
        await another("gone", shards=1)
        await another("gone too", shards=1)
        assert await dead.redrive() == 3


@in_virtual_time
async def test_more_letters_of_a_deleted_queue_than_a_prefetch_hold_none_back() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        another = queues_of(cluster)
        gone = await another("gone", shards=1, dead_letter="dead")
        await _given_up(gone, *range(64))
        await _given_up(gone, *range(64, 70))
        queue = await another("jobs", shards=1, dead_letter="dead")
        await _given_up(queue, "job")
        await gone.delete()
        moved = await (await another("dead")).redrive()
        assert (moved, moved.left) == (1, {"gone": 70})
        assert (await queue.stats()).depth == 1


async def test_a_letter_that_dies_among_the_letters_goes_back_to_its_first_queue(another: Another) -> None:
    first = await another("first", shards=1, dead_letter="second")
    second = await another("second")
    await second.change(dead_letter="third")
    await _given_up(first, "job")
    (before,) = await second.peek()
    async with second.consume() as messages:
        await (await anext(messages)).give_up("broken here too")
    third = await another("third")
    (letter,) = await third.peek()
    assert before.source is not None and letter.source is not None
    assert (letter.source.queue, letter.source.seqnum, letter.source.reason) == (
        "first",
        before.source.seqnum,
        "broken here too",
    )
    assert await third.redrive() == 1
    assert ((await first.stats()).depth, (await second.stats()).depth) == (1, 0)


async def test_a_popped_queue_is_refused_for_dead_letters(another: Another) -> None:
    await another("popped", mode="pop")
    with pytest.raises(WrongMode, match="dead_letter="):
        await another("jobs", dead_letter="popped")
    assert (await another("jobs")).name == "jobs", "it was not made before"
    with pytest.raises(WrongMode, match="dead_letter="):
        await (await another("jobs")).change(dead_letter="popped")


async def test_letters_that_would_come_back_to_their_queue_are_refused(another: Another) -> None:
    """They went round at the speed of the log where each queue gives a message up after one attempt."""
    last = await another("c")
    await another("b", dead_letter="c", max_deliveries=1)
    first = await another("a", dead_letter="b", max_deliveries=1)
    for name in ("a", "b"):
        with pytest.raises(InvalidArgument, match=f"'c' -> '{name}' -> .*'c': what fails in each goes round"):
            await last.change(dead_letter=name)
    with pytest.raises(InvalidArgument, match="another queue for dead letters"):
        await another("new", dead_letter="new")
    await first.change(dead_letter="c")
    with pytest.raises(InvalidArgument, match="'c' -> 'a' -> 'c'"):
        await last.change(dead_letter="a")
    await first.change(dead_letter="")
    await last.change(dead_letter="a")
    await last.push("job")
    async with last.consume() as messages:
        await (await anext(messages)).give_up("broken")
    assert [letter.body for letter in await first.peek()] == ["job"]


async def test_of_changes_that_would_close_a_circle_together_one_is_refused(another: Another) -> None:
    names = ["a", "b", "c"]
    queues = [await another(name) for name in names]
    behind = [*names[1:], names[0]]
    changes = [queue.change(dead_letter=name) for queue, name in zip(queues, behind, strict=True)]
    answers = await asyncio.gather(*changes, return_exceptions=True)
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 1 and isinstance(refused[0], InvalidArgument) and "goes round" in str(refused[0])


async def test_a_deleted_queue_cannot_be_made_again_so_that_letters_go_round(another: Another) -> None:
    await another("a", dead_letter="b")
    await (await another("b")).delete()
    with pytest.raises(InvalidArgument, match="'b' -> 'a' -> 'b'"):
        await another("b", dead_letter="a")
    assert (await another("b")).name == "b", "it was not made before"


async def test_queues_of_dead_letters_of_one_another_have_a_bound(another: Another) -> None:
    for number in reversed(range(16)):
        await another(str(number), shards=1, dead_letter=str(number + 1))
    with pytest.raises(InvalidArgument, match="up to 16 queues of dead letters"):
        await another("first", dead_letter="0")
