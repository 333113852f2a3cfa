"""An engine that takes no new appends, because the disks of bookies are full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki._book import Book
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.admission import Admission
from boki_common.engine.answers import encode_answers

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine

FULL = Admission(1, 2, 2)
ROOM = Admission(3, 0, 2)


async def tell(engine: FaultyEngine, client: boki.Client, admission: Admission) -> None:
    engine.peers[-1].push(wire.OP_ANSWERS, *encode_answers({}, [admission.row()]))
    async with asyncio.timeout(5):
        while (client.refusal is None) is not admission.taken:
            await asyncio.sleep(0)


async def test_new_appends_are_refused_without_a_number_and_what_has_one_waits_on(
    client: boki.Client, book: Book, engine: FaultyEngine
) -> None:
    engine.mute = True
    numbered = book.submit(b"1")
    await tell(engine, client, FULL)
    writer_numbers = book._numbers.next_number
    with pytest.raises(boki.DiskFull, match=r"2 are up and read-only, .* nothing was sent") as caught:
        _ = book.submit(b"2")
    assert caught.value.definite and caught.value.retryable
    for refused in (book.append(b"2"), book.append(b"2", timeout=5), book.append(b"2", expect={"a": None})):
        with pytest.raises(boki.DiskFull):
            await refused
    with pytest.raises(boki.DiskFull) as many:
        await book.append_many([(b"2", []), (b"3", [])])
    assert (many.value.facts["committed"], many.value.facts["seqnums"]) == (0, [])
    assert book._numbers.next_number == writer_numbers and not numbered.done()
    engine.mute = False
    await tell(engine, client, ROOM)
    seqnum = await book.append(b"4")
    engine.peers[-1].close()
    assert await numbered < seqnum or engine.ordered(1)[0] == b"1"
    assert engine.ordered(1) == [b"1", b"4"]


async def test_who_waits_for_a_place_has_no_number_and_is_refused_too(
    client: boki.Client, book: Book, engine: FaultyEngine
) -> None:
    engine.mute = True
    tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    waiting = [asyncio.ensure_future(book.append(b"y")) for _ in range(3)]
    cancelled = asyncio.ensure_future(book.append(b"z"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await tell(engine, client, FULL)
    errors = await asyncio.gather(*waiting, cancelled, return_exceptions=True)
    assert [type(error) for error in errors] == [*[boki.DiskFull] * 3, asyncio.CancelledError]
    assert len(set(map(id, errors))) == 4, "each has an exception of its own"
    engine.mute = False
    await tell(engine, client, ROOM)
    engine.peers[-1].close()
    assert len([await ticket for ticket in tickets]) == limits.WINDOW_RECORDS
    assert not book._appends.places.lines


async def test_what_was_given_up_is_asked_for_all_the_same(
    client: boki.Client, book: Book, engine: FaultyEngine
) -> None:
    ticket = book.submit(b"1")
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "for a test")
    await tell(engine, client, FULL)
    assert isinstance(await ticket.outcome(), boki.Committed)


async def test_another_engine_says_for_itself(client: boki.Client, engine: FaultyEngine) -> None:
    await client.book(1).append(b"1")
    await tell(engine, client, FULL)
    engine.peers[-1].close()
    async with asyncio.timeout(5):
        while client.refusal is not None:
            await asyncio.sleep(0)
    await client.book(1).append(b"2")
    assert engine.ordered(1) == [b"1", b"2"]
