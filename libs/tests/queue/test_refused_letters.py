"""Dead letters that cannot be appended: their callers get the error, their messages stay, and no other decision waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from boki.testing import MemoryCluster
from boki_common.errors import InvalidArgument
from boki_common.testing.virtual_time import let_pass
from bokiflow.testing import LoopClock, in_virtual_time
from bokilib import AtomicTooLarge
from bokilib.errors import PayloadHookFailed
from bokilib.records.contribution import ATOMIC_BYTES
from bokiqueue import Message, Queue
from bokiqueue.model.items import REASON_CHARS
from libs.tests.queue.conftest import Another, take


class Refusing:
    """A payload hook that refuses records with a word."""

    name = "refusing"

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.refuses = True

    async def seal(self, events: bytes) -> bytes:
        if self.refuses and self.word in events:
            raise ValueError("refused")
        return events

    async def open(self, sealed: bytes) -> bytes:
        return sealed


@pytest.mark.parametrize("reason", ["\ud800", 5, None, b"x", ["a"], "x" * (REASON_CHARS + 1)])
async def test_a_reason_that_is_no_short_text_is_refused_at_once(another: Another, reason: Any) -> None:
    queue = await another(shards=1, dead_letter="jobs.dead")
    await queue.push_many([1, 2])
    async with queue.consume(member_lease_s=600) as messages:
        given, beside = await take(messages, 2)
        acked = beside.ack()
        with pytest.raises(InvalidArgument, match="a reason"):
            given.give_up(reason)
        await acked
        await given.give_up("x" * REASON_CHARS)
    (letter,) = await (await another("jobs.dead")).peek()
    assert letter.source is not None and len(letter.source.reason) == REASON_CHARS


async def _decided_beside(messages: Any, reason: str, refused: type[Exception]) -> None:
    """Give up the second of four messages, which is refused. Decisions before and behind it are in the log."""
    first, bad, good, later = await take(messages, 4)
    decisions = [first.ack(), bad.give_up(reason), good.give_up("good"), later.nack()]
    found = await asyncio.gather(*decisions, return_exceptions=True)
    assert [type(one) for one in found] == [type(None), refused, type(None), type(None)]
    assert isinstance(bad, Message) and messages.shards == [0], "its owner has the shard on"


async def _come_again(messages: Any, bad: object) -> None:
    """The nacked message comes again, and the one that was not given up."""
    async with asyncio.timeout(300):
        again = [await anext(messages), await anext(messages)]
    assert [(message.body == bad, message.attempt) for message in again] == [(False, 2), (True, 2)]
    for message in again:
        await message.ack()


@in_virtual_time
async def test_a_letter_that_fits_no_record_holds_up_no_other_decision() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await Queue.open(
            (await cluster.connect()).book("shop"), "jobs", object, shards=1, dead_letter="jobs.dead"
        )
        large = "x" * (ATOMIC_BYTES - 4_096)
        for body in (1, large, 3, 4):
            await queue.push(body)
        async with queue.consume(lease_s=3_600) as messages:
            await _decided_beside(messages, "r" * REASON_CHARS, AtomicTooLarge)
            await _come_again(messages, large)
        assert (await queue.stats()).depth == 0


@in_virtual_time
async def test_a_letter_that_a_payload_hook_refuses_holds_up_no_other_decision() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        hook = Refusing(b"poison")
        queue = await Queue.open(
            (await cluster.connect()).book("shop"), "jobs", object, shards=1, dead_letter="jobs.dead", hook=hook
        )
        await queue.push_many([1, 2, 3, 4])
        async with queue.consume(lease_s=3_600) as messages:
            await _decided_beside(messages, "poison", PayloadHookFailed)
            await _come_again(messages, 2)


@in_virtual_time
async def test_a_letter_that_cannot_be_encoded_holds_up_no_other_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiqueue.consume.messages.check_reason", lambda reason: reason)
    async with MemoryCluster(clock=LoopClock()) as cluster:
        queue = await Queue.open(
            (await cluster.connect()).book("shop"), "jobs", object, shards=1, dead_letter="jobs.dead"
        )
        await queue.push_many([1, 2, 3, 4])
        async with queue.consume(lease_s=3_600) as messages:
            await _decided_beside(messages, "\ud800", UnicodeEncodeError)
            await _come_again(messages, 2)


@in_virtual_time
async def test_a_letter_of_a_last_attempt_is_tried_again_until_it_can_be_appended() -> None:
    async with MemoryCluster(clock=LoopClock()) as cluster:
        hook, book = Refusing(b"poison"), (await cluster.connect()).book("shop")
        queue = await Queue.open(book, "jobs", object, shards=1, dead_letter="jobs.dead", hook=hook, max_deliveries=1)
        hook.refuses = False
        await queue.push_many(["poison", 2])
        hook.refuses = True
        async with queue.consume(lease_s=3_600) as messages:
            bad, good = await take(messages, 2)
            with pytest.raises(ValueError, match="bad"):
                async with bad:
                    raise ValueError("bad")
            await good.ack()
            waiting = asyncio.ensure_future(anext(messages))
            await let_pass(300)
            assert (await queue.stats()).depth == 1 and messages.shards == [0]
            hook.refuses = False
            await let_pass(120)
            assert (await queue.stats()).depth == 0 and not waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])
        dead = await Queue.open(queue.log, "jobs.dead", object)
        (letter,) = await dead.peek()
        assert letter.source is not None and letter.source.attempts == 1


async def test_what_a_batcher_refuses_fails_its_caller_alone(another: Another) -> None:
    hook = Refusing(b"poison")
    queue = await another(shards=1, hook=hook)
    pushed = [queue.push(body) for body in ("first", "a", "poison", "b")]
    found = await asyncio.gather(*pushed, return_exceptions=True)
    assert [isinstance(one, PayloadHookFailed) for one in found] == [False, False, True, False]
