"""A push that was dropped as a duplicate says so, by the verdict of the shard's owner."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from bokilib.records import tags
from bokiqueue import PushResult, Queue
from libs.tests.queue.conftest import Another, SetClock, book_of


async def handled(queue: Queue[object], count: int) -> list[object]:
    got = []
    async with queue.consume(member_lease_s=600) as messages:
        for _ in range(count):
            async with await anext(messages) as message:
                got.append(message.body)
    return got


async def test_a_second_push_under_an_id_is_a_duplicate_also_of_another_process(another: Another) -> None:
    queue, other = await another(shards=2), await another()
    first = await queue.push("a", dedup_id="e-17")
    again = await queue.push("b", dedup_id="e-17")
    elsewhere = await other.push("c", dedup_id="e-17")
    assert [one.duplicate for one in (first, again, elsewhere)] == [False, True, True]
    assert first < again < elsewhere
    assert (await other.push("d", dedup_id="e-18")).duplicate is False
    assert (await queue.push("e", dedup_id="e-18")).duplicate is True
    assert (await queue.push("f")).duplicate is False
    assert (await queue.push_many(["g", "h"])).duplicate is False


async def test_of_pushes_in_one_record_the_first_is_none(queue: Queue[object]) -> None:
    before = queue.log.appends
    results = await asyncio.gather(
        *(queue.push(number, key="k", dedup_id=f"e-{number % 4}") for number in range(40)),
        *(queue.push(number, key="k") for number in range(4)),
    )
    assert queue.log.appends - before < 10, "they went together"
    assert [one.duplicate for one in results] == [False] * 4 + [True] * 36 + [False] * 4


async def test_after_the_window_an_id_is_a_first_again(another: Another, clock: SetClock) -> None:
    queue = await another(shards=1, dedup_s=300)
    assert not (await queue.push("once", dedup_id="e")).duplicate
    clock.ms += 200_000
    assert (await queue.push("a copy", dedup_id="e")).duplicate
    clock.ms += 100_001
    assert not (await queue.push("a first again", dedup_id="e")).duplicate, "the window is that of the first"
    assert not (await (await another()).push("x", dedup_id="other")).duplicate
    assert await handled(queue, 3) == ["once", "a first again", "x"]


async def test_what_was_handled_and_trimmed_is_known_from_the_checkpoint(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bokiqueue.checkpoint.checkpointing.RECORDS_BETWEEN", 6)
    queue, late = await another(shards=1), await another()
    await late.push("warm", dedup_id="warm")
    for number in range(60):
        await queue.push(number, dedup_id=f"e-{number}")
    assert len(await handled(queue, 61)) == 61
    left = [item async for item in book_of(queue).read(tags.queue_messages("jobs", 0), start=1)]
    assert len(left) < 30, "most are trimmed"
    for one in (queue, late, await another()):
        assert (await one.push("again", dedup_id="e-3")).duplicate is True
        assert (await one.push("again", dedup_id="e-59")).duplicate is True


async def test_a_verdict_that_needs_too_many_reads_is_none(another: Another, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bokiqueue.push.copies.LOOK_RECORDS", 4)
    queue, other = await another(shards=1), await another()
    for number in range(6):
        await queue.push(number)
    assert (await other.push("x", dedup_id="e")).duplicate is None, "the seventh record"
    assert (await other.push("x", dedup_id="e")).duplicate is True


async def test_a_result_is_a_number_that_travels(queue: Queue[object]) -> None:
    result = await queue.push("a", dedup_id="e")
    for travelled in (copy.copy(result), pickle.loads(pickle.dumps(PushResult(int(result), True)))):
        assert travelled == result
        assert isinstance(travelled, PushResult)
    assert pickle.loads(pickle.dumps(PushResult(7, True))).duplicate is True
