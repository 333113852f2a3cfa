"""Places among the undecided records of a book: given to who waits longest, and to nobody else."""

from __future__ import annotations

import asyncio

import pytest

from boki import _places
from boki._arguments import NO_TAGS
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._places import Places
from boki._session import Session
from boki._ticket import Ticket
from boki_common import limits
from boki_common.errors import WindowFull


@pytest.fixture
def numbers() -> Numbers:
    """As many as may be undecided."""
    made = Numbers(Session(), 1, Outbox())
    assert made.add(Ticket(NO_TAGS, b""), 0.0, b"w" * 16)
    for _ in range(limits.WINDOW_RECORDS - 1):
        assert made.add(Ticket(NO_TAGS, b""), 0.0)
    return made


def take_back(numbers: Numbers, count: int) -> None:
    for item in numbers.items()[-count:]:
        assert numbers.withdraw(item)


async def waiting(places: Places, numbers: Numbers, order: list[int], name: int) -> None:
    await places.take(numbers, None)
    assert numbers.add(Ticket(NO_TAGS, b""), 0.0)
    order.append(name)


async def test_a_free_place_is_taken_without_waiting(numbers: Numbers) -> None:
    places = Places()
    take_back(numbers, 3)
    assert await places.take(numbers, 0.0) == places.of(numbers) == 3
    assert not places.lines


async def test_places_are_given_in_the_order_of_the_line(numbers: Numbers) -> None:
    places, order = Places(), list[int]()
    tasks = [asyncio.ensure_future(waiting(places, numbers, order, name)) for name in range(3)]
    await asyncio.sleep(0)
    take_back(numbers, 2)
    places.invite(numbers)
    assert places.of(numbers) == 0, "both are promised, and one waits"
    await asyncio.gather(*tasks[:2])
    assert order == [0, 1] and not tasks[2].done()
    take_back(numbers, 2)
    places.invite(numbers)
    assert places.of(numbers) == 1
    await tasks[2]
    assert not places.lines


async def test_who_is_cancelled_when_a_place_was_promised_leaves_it_to_the_next(numbers: Numbers) -> None:
    places, order = Places(), list[int]()
    tasks = [asyncio.ensure_future(waiting(places, numbers, order, name)) for name in range(2)]
    await asyncio.sleep(0)
    take_back(numbers, 1)
    places.invite(numbers)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert order == [1] and tasks[0].cancelled()
    assert not places.lines


async def test_a_line_has_a_bound_and_a_time_limit(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places()
    with pytest.raises(WindowFull, match="within 0 s; nothing was sent"):
        await places.take(numbers, 0)
    assert not places.lines
    monkeypatch.setattr(_places, "WAITING_APPENDS", 1)
    one = asyncio.ensure_future(places.take(numbers, None))
    await asyncio.sleep(0)
    with pytest.raises(WindowFull, match="1 appends to this book wait"):
        await places.take(numbers, None)
    one.cancel()
    await asyncio.wait([one])
    assert not places.lines


async def test_who_waits_to_submit_comes_behind_who_appends_and_has_a_turn(numbers: Numbers) -> None:
    places, order = Places(), list[int]()

    async def submitting(name: int) -> None:
        while not places.of(numbers):
            await places.ready(numbers)
        assert numbers.add(Ticket(NO_TAGS, b""), 0.0)
        order.append(name)

    ready = [asyncio.ensure_future(submitting(name)) for name in range(3)]
    await asyncio.sleep(0)
    taking = asyncio.ensure_future(waiting(places, numbers, order, 3))
    await asyncio.sleep(0)
    for count, found in ((1, [3]), (2, [3, 0, 1]), (1, [3, 0, 1, 2])):
        take_back(numbers, count)
        places.invite(numbers)
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == found
    await asyncio.gather(taking, *ready)
    assert not places.lines


async def test_a_place_that_is_not_taken_in_its_turn_is_for_the_next(numbers: Numbers) -> None:
    places = Places()
    calls = [asyncio.ensure_future(places.ready(numbers)) for _ in range(3)]
    await asyncio.sleep(0)
    take_back(numbers, 1)
    places.invite(numbers)
    await asyncio.gather(*calls)
    await asyncio.sleep(0)
    assert not places.lines and places.of(numbers) == 1
