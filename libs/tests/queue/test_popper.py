"""The queue of the paper, with checkpoints and trims."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import pytest

import boki
from bokilib.append.log import Log
from bokilib.errors import NotEncodable
from bokilib.records import tags
from bokilib.testing import Fault, FaultyBook
from bokiqueue import Queue, QueueEmpty, UnfitMessage, settings
from bokiqueue.errors import ResultTrimmed
from bokiqueue.model.pop_state import PopState
from bokiqueue.popper import Popper, ShardPopper
from bokiqueue.sharding import shard_of
from libs.tests.queue.conftest import DAY_MS, Another, SetClock, book_of, round_of


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


async def lives(queue: Queue[object], tag: str) -> int:
    return len([item async for item in book_of(queue).read(tag) if isinstance(item, boki.Record)])


async def test_what_was_taken_goes_though_checkpoints_are_closer_than_the_grace(
    another: Another, clock: SetClock
) -> None:
    queue = await another(mode="pop", shards=1)
    config = (await settings.existing(queue.log, "jobs")).config
    popper = Popper(queue.log, config, 0, pops_between=5, grace_ms=1_000)
    for number in range(200):  # a checkpoint in 250 ms
        await queue.push(number)
        clock.ms += 50
        assert await popper.pop(int, 0) == number
    assert await lives(queue, tags.queue_messages("jobs", 0)) <= 30
    assert await lives(queue, tags.queue_consumer("jobs", 0, "")) <= 30
    assert await lives(queue, tags.queue_owner("jobs", 0, "")) <= 6


async def test_who_was_away_for_long_has_what_he_pops_though_others_pop_on(another: Another, clock: SetClock) -> None:
    """What he had folded is trimmed, and when he looks what his pop took, a checkpoint covers it already."""
    queue = await another(mode="pop", shards=1)
    config = (await settings.existing(queue.log, "jobs")).config
    await queue.push_many(list(range(100)))
    other = Popper(queue.log, config, 0, pops_between=5, grace_ms=1_000)
    got: list[int] = []

    async def others_pop(number: int) -> None:
        if number and book.operations[number - 1].startswith("append") and got:
            got.extend([await other.pop(int, 0) for _ in range(12)])

    book = FaultyBook(book_of(await another(mode="pop")), pause=others_pop)
    away = Popper(Log(book), config, 0, pops_between=5, grace_ms=1_000)
    taken = [await away.pop(int, 0)]
    for _ in range(30):
        clock.ms += 300
        got.append(await other.pop(int, 0))
    taken += await asyncio.gather(away.pop(int, 0), away.pop(int, 0))
    assert sorted([*taken, *got]) == list(range(len(taken) + len(got)))
    assert await away.pop(int, 0) not in got
    states = [one._shards[0]._state for one in (away, other)]
    assert [state.taken for state in states if state is not None] == [{}, {}]


@dataclass
class Beside:
    """Lets another popper take messages, make checkpoints and trim when a popper begins an operation.

    Attributes:
        at: the number of the operation.
        rewritten: it rewrites the messages that wait instead, and trims the old ones.
        got: what the other popper took.
    """

    other: Popper
    queue: Queue[object]
    clock: SetClock
    at: int
    rewritten: bool
    got: list[int]

    async def __call__(self, number: int) -> None:
        if number == self.at:
            await self.take()

    async def take(self) -> None:
        if self.rewritten:
            self.clock.ms += 2 * DAY_MS
            await round_of(self.queue)
            return
        for _ in range(6):
            self.clock.ms += 1_500
            await self.queue.push(self.got[-1] + 100)
            self.got.append(await self.other.pop(int, 0))


@pytest.mark.parametrize("popped", [1, 3])
@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("refused", [False, True])
async def test_a_popper_that_begins_while_others_trim_takes_nothing_twice(
    another: Another, clock: SetClock, refused: bool, rewritten: bool, popped: int
) -> None:
    """Others do so between two of its operations, or after one that was refused.

    Args:
        popped: how many messages were popped before: two make a checkpoint.
    """
    begun = True
    at = 0
    while begun:
        name = f"jobs-{at}"
        queue = await another(name, mode="pop", shards=1)
        config = (await settings.existing(queue.log, name)).config
        other = Popper((await another(name, mode="pop")).log, config, 0, pops_between=2, grace_ms=1_000)
        for number in range(6):
            await queue.push(number)
        beside = Beside(other, queue, clock, at, rewritten, [await other.pop(int, 0) for _ in range(popped)])
        faulty = FaultyBook(
            book_of(queue),
            Fault(at, "refused") if refused else None,
            pause=None if refused else beside,
        )
        late = Popper(Log(faulty), config, 0)
        got: list[int] = []
        lost = 0
        while True:
            try:
                got.append(await late.pop(int, 0))
            except boki.Unreachable:
                await beside.take()
            except ResultTrimmed:
                lost += 1  # others went on for longer than their grace between the pop and its fold
            except QueueEmpty:
                break
        begun = len(faulty.operations) > at
        taken = beside.got + got
        assert len(taken) == len(set(taken)), f"popped twice, at operation {at}"
        assert len(taken) + lost == 6 + 6 * (len(beside.got) > popped), f"not all were popped, at operation {at}"
        assert lost <= 1
        at += 1
    assert at > 4


async def test_an_empty_queue_is_read_without_an_append_and_a_pop_is_one(another: Another) -> None:
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


async def test_two_poppers_on_one_log_keep_apart_what_each_of_them_took(another: Another) -> None:
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


async def test_a_pop_waits_for_all_shards_though_a_cursor_has_fewer(another: Another) -> None:
    queue = await another(mode="pop", shards=300)
    key = next(str(number) for number in range(10**4) if (shard_of(300, str(number), None) or 0) > 255)
    waiting = asyncio.create_task(queue.pop(timeout=30))
    pusher = await another()
    async with asyncio.timeout(10):
        while not any(task.get_name() == "bokiqueue pop waits" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)  # until it waits: before that it looks at all shards anyway
        await pusher.push("late", key=key)
        assert await waiting == "late"


async def test_what_a_pop_took_is_returned_though_its_checkpoint_fails(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push_many(list(range(12)))
    config = (await settings.existing(queue.log, "jobs")).config
    popper = Popper(queue.log, config, 0, pops_between=5)

    async def fails(self: ShardPopper, state: PopState) -> None:
        raise boki.Unreachable("the engine is away")

    monkeypatch.setattr(ShardPopper, "_checkpoint", fails)
    assert [await popper.pop(int, 0) for _ in range(12)] == list(range(12))


async def test_what_a_pop_took_whose_caller_was_cancelled_is_the_next_ones(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push_many(list(range(8)))
    got: list[object] = []
    for steps in range(1, 20):
        popping = asyncio.create_task(queue.pop())
        for _ in range(steps):
            await asyncio.sleep(0)
        popping.cancel()
        got += [one for one in await asyncio.gather(popping, return_exceptions=True) if isinstance(one, int)]
    while len(got) < 8:
        try:
            got.append(await queue.pop())
        except QueueEmpty:
            pass  # a pop is on its way still
    assert sorted(got) == list(range(8))  # type: ignore[type-var] # they are ints


async def test_a_popped_message_of_another_type_is_in_the_error(another: Another) -> None:
    queue = await another(mode="pop", shards=1)
    await queue.push({"to": "ann"})
    await queue.push(7)
    popper = Popper(queue.log, (await settings.existing(queue.log, "jobs")).config, 0)
    with pytest.raises(UnfitMessage, match="is taken") as caught:
        await popper.pop(int, 0)
    assert caught.value.body == {"to": "ann"}
    assert not caught.value.definite
    assert await popper.pop(int, 0) == 7


class Raises:
    """Raised by the type of a message; None if it fits."""

    error: BaseException | None = None


@dataclass
class Order:
    n: int

    def __post_init__(self) -> None:
        if Raises.error is not None:
            raise Raises.error


class Unshowable(Exception):
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [KeyError(2), AssertionError("no"), ValueError("no"), SystemExit(1), asyncio.CancelledError(), Unshowable()],
)
async def test_a_popped_message_whose_type_raises_is_in_the_error(
    another: Another, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    raw = await another(mode="pop", shards=1)
    queue = await Queue.open(raw.log, "jobs", Order)
    await raw.push_many([{"n": 1}, {"n": 2}])
    monkeypatch.setattr(Raises, "error", error)
    with pytest.raises(UnfitMessage, match="is taken") as caught:
        await queue.pop()
    assert caught.value.body == {"n": 1} and not caught.value.definite
    monkeypatch.setattr(Raises, "error", None)
    assert await queue.pop() == Order(2)


@dataclass
class Interrupted:
    """The first one is interrupted, as by a person's Ctrl-C: its task is cancelled, and the error is not of the type."""

    n: int
    interrupts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if Interrupted.interrupts:
            Interrupted.interrupts = False
            task = asyncio.current_task()
            assert task is not None and task.cancel()
            raise asyncio.CancelledError


async def test_a_pop_that_is_interrupted_within_the_type_of_its_message_loses_none(another: Another) -> None:
    raw = await another(mode="pop", shards=2)
    queue = await Queue.open(raw.log, "jobs", Interrupted)
    await raw.push({"n": 1})
    popping = asyncio.create_task(queue.pop())
    await asyncio.wait([popping])
    assert popping.cancelled() and not Interrupted.interrupts
    assert await queue.pop() == Interrupted(1)


async def test_a_message_whose_type_raises_is_one_that_does_not_fit(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = await another(shards=1)
    await raw.push({"n": 1})
    monkeypatch.setattr(Raises, "error", KeyError(2))
    async with (await Queue.open(raw.log, "jobs", Order)).consume() as messages, await anext(messages) as message:
        with pytest.raises(NotEncodable, match=r"no Order: KeyError\(2\)"):
            _ = message.body
