"""The paper's queue over its checkpoints and trims."""

from __future__ import annotations

import asyncio

import pytest

import boki
from bokilib import tags
from bokiqueue import QueueEmpty, settings
from bokiqueue.popper import Popper
from libs.tests.queue.conftest import Another, SetClock, book_of


async def test_checkpoints_let_what_was_taken_go_and_change_nothing(another: Another, clock: SetClock) -> None:
    queue = await another(mode="pop", shards=1)
    found = await settings.existing(queue.log, "jobs")
    poppers = [
        Popper((await another(mode="pop")).log, found.config, 0, pops_between=5, grace_ms=1_000) for _ in range(2)
    ]
    got = []
    for number in range(40):
        await queue.push(number)
        clock.ms += 300
        got.append(await poppers[number % 2].pop(int, 0))
    assert got == list(range(40))
    left = [item async for item in book_of(queue).read(tags.queue_messages("jobs", 0)) if isinstance(item, boki.Record)]
    assert len(left) < 25
    late = Popper((await another(mode="pop")).log, found.config, 0)
    with pytest.raises(QueueEmpty):
        await late.pop(int, 0)
    await queue.push(99)
    assert await late.pop(int, 0) == 99


async def test_an_empty_queue_is_asked_without_an_append_and_a_pop_is_one(another: Another) -> None:
    queue = await another(mode="pop", shards=3)
    before = queue.log.appends
    with pytest.raises(QueueEmpty, match="had no message"):
        await queue.pop()
    assert queue.log.appends == before
    await queue.push(1)
    await queue.pop()
    assert queue.log.appends == before + 2


async def test_of_many_that_pop_at_once_each_message_goes_to_one_and_none_is_lost(another: Another) -> None:
    queue = await another(mode="pop", shards=2)
    for number in range(30):
        await queue.push(number)
    others = [await another(mode="pop") for _ in range(3)]
    got: list[object] = []

    async def pop_all(number: int) -> None:
        while True:
            try:
                got.append(await others[number % 3].pop())
            except QueueEmpty:
                return

    await asyncio.gather(*(pop_all(number) for number in range(6)))
    assert len(got) == len(set(got)) == 30


async def test_two_poppers_on_one_log_keep_what_each_of_them_took_alone(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push_many([1, 2])
    config = (await settings.existing(queue.log, "jobs")).config
    one, other = Popper(queue.log, config, 0), Popper(queue.log, config, 0)
    assert [await one.pop(object, 0), await other.pop(object, 0)] == [1, 2]
    with pytest.raises(QueueEmpty):
        await one.pop(object, 0)
    states = [popper._shards[0]._state for popper in (one, other)]
    assert [state.taken for state in states if state is not None] == [{}, {}]


async def test_the_higher_priority_is_popped_first(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    for number in range(3):
        await queue.push(number, priority=number)
    assert [await queue.pop() for _ in range(3)] == [2, 1, 0]
