"""Places among the undecided records of a book: given to who waits longest, and to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boki
import boki.testing
from boki import _places
from boki._arguments import NO_TAGS
from boki._numbers import Numbers
from boki._outbox import Outbox
from boki._places import Places, Take
from boki._session import Session
from boki._ticket import Ticket
from boki_common import limits
from boki_common.errors import ClosedError, WindowFull


@pytest.fixture
def numbers() -> Numbers:
    """As many as may be undecided."""
    made = Numbers(Session(), 1, Outbox())
    assert made.add(Ticket(NO_TAGS, b""), 0.0, b"w" * 16)
    for _ in range(limits.WINDOW_RECORDS - 1):
        assert made.add(Ticket(NO_TAGS, b""), 0.0)
    return made


def take_back(numbers: Numbers, count: int) -> None:
    items = numbers.items()
    for item in items[len(items) - count :]:
        assert numbers.withdraw(item)


def taking(numbers: Numbers, order: list[int], name: int) -> Take:
    def take(_: int) -> None:
        assert numbers.add(Ticket(NO_TAGS, b""), 0.0)
        order.append(name)

    return take


async def test_a_free_place_is_taken_without_waiting(numbers: Numbers) -> None:
    places, found = Places(), list[int]()
    take_back(numbers, 3)
    assert places.of(numbers) == 3
    await places.take(numbers, 0.0, found.append)
    assert found == [3] and not places.lines


async def test_a_free_place_is_taken_at_once_in_the_order_of_the_line(numbers: Numbers) -> None:
    places, order = Places(), list[int]()
    calls = [asyncio.ensure_future(places.take(numbers, None, taking(numbers, order, name))) for name in range(3)]
    await asyncio.sleep(0)
    take_back(numbers, 2)
    places.invite(numbers)
    assert order == [0, 1] and places.of(numbers) == 0
    take_back(numbers, 2)
    places.invite(numbers)
    assert order == [0, 1, 2] and places.of(numbers) == 1 and not places.lines
    await asyncio.gather(*calls)


async def test_who_fails_in_its_turn_leaves_the_place_to_the_next(numbers: Numbers) -> None:
    places, order = Places(), list[int]()

    def refuse(_: int) -> None:
        raise ClosedError("not any more")

    calls = [
        asyncio.ensure_future(places.take(numbers, None, take)) for take in (refuse, taking(numbers, order, 1), refuse)
    ]
    await asyncio.sleep(0)
    calls[2].cancel()
    take_back(numbers, 1)
    places.invite(numbers)
    assert order == [1]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert list(map(type, outcomes)) == [ClosedError, type(None), asyncio.CancelledError]
    assert not places.lines


async def test_who_is_cancelled_before_its_turn_is_passed_over(numbers: Numbers) -> None:
    places, order = Places(), list[int]()
    calls = [asyncio.ensure_future(places.take(numbers, None, taking(numbers, order, name))) for name in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    take_back(numbers, 1)
    places.invite(numbers)
    await asyncio.wait(calls)
    assert order == [1] and calls[0].cancelled() and not places.lines


@given(st.lists(st.tuples(st.sampled_from(["append", "submit", "ready", "cancel"]), st.integers(0, 3)), max_size=40))
async def test_records_are_numbered_in_the_order_of_the_calls(calls: list[tuple[str, int]]) -> None:
    called, seqnums = itertools.count(), dict[int, int]()

    async def calling(book: boki.Book, call: str) -> None:
        """Also once more, in the turn in which its first record is decided and places become free."""
        for _ in range(2):
            if call == "ready":
                await book.ready()
            number = next(called)
            with contextlib.suppress(WindowFull):
                seqnums[number] = await (book.append(b"x") if call == "append" else book.submit(b"x"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "WINDOW_RECORDS", 3)
        async with boki.testing.MemoryCluster() as cluster:
            book, tasks = (await cluster.connect()).book(1), list[asyncio.Task[None]]()
            for call, turns in calls:
                if call != "cancel":
                    tasks.append(asyncio.ensure_future(calling(book, call)))
                elif tasks:
                    tasks[-1].cancel()
                for _ in range(turns):
                    await asyncio.sleep(0)
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
            assert book.idle and not book._appends.places.lines
    in_order = [seqnum for _, seqnum in sorted(seqnums.items())]
    assert in_order == sorted(in_order)


async def test_who_had_its_turn_just_before_its_time_was_over_has_its_place(numbers: Numbers) -> None:
    places, order = Places(), list[int]()
    call = asyncio.ensure_future(places.take(numbers, 0, taking(numbers, order, 0)))
    await asyncio.sleep(0)
    take_back(numbers, 1)
    places.invite(numbers)
    await call
    assert order == [0] and not places.lines


async def test_a_line_has_a_bound_and_a_time_limit(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    places, never = Places(), taking(numbers, [], 0)
    with pytest.raises(WindowFull, match="within 0 s; nothing was sent"):
        await places.take(numbers, 0, never)
    assert not places.lines
    monkeypatch.setattr(_places, "WAITING_APPENDS", 1)
    one = asyncio.ensure_future(places.take(numbers, None, never))
    await asyncio.sleep(0)
    with pytest.raises(WindowFull, match="1 appends to this book wait"):
        await places.take(numbers, None, never)
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
    call = asyncio.ensure_future(places.take(numbers, None, taking(numbers, order, 3)))
    await asyncio.sleep(0)
    for count, found in ((1, [3]), (2, [3, 0, 1]), (1, [3, 0, 1, 2])):
        take_back(numbers, count)
        places.invite(numbers)
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == found
    await asyncio.gather(call, *ready)
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
