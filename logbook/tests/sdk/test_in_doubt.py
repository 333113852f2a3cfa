"""Asking for what was given up, with engines that lose frames."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki_common.records.record_batch import RUN_RESENT, RUN_VOID

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine


async def test_what_never_arrived_is_sent_again_from_the_lowest_number_on(
    client: boki.Client, engine: FaultyEngine
) -> None:
    book = client.book("b")
    engine.lost_frames = 1
    tickets = [book.submit(b"%d" % number) for number in range(4)]
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "given up")
    assert isinstance(await tickets[2].outcome(), boki.Committed)
    assert engine.ordered(book.id) == [b"0", b"1", b"2"], "what comes after it is nobody's question"
    (run,) = [run for run in engine.runs if run.flags & RUN_RESENT]
    assert (run.first, run.count) == (1, 3)
    assert isinstance(await tickets[0].outcome(settle=True), boki.Committed)
    assert len(engine.runs) == 2, "what is known is not asked for"
    assert await tickets[3].outcome(settle=True) == boki.Never()
    assert engine.runs[-1].flags & RUN_VOID
    assert engine.ordered(book.id) == [b"0", b"1", b"2"]


async def test_an_answer_that_was_lost_is_not_the_record(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    engine.mute = True
    ticket = book.submit(b"x")
    await book.read_next(wait=5)
    book._appends.give_up(book._numbers, "given up")
    engine.mute = False
    outcome = await ticket.outcome(settle=True)
    assert isinstance(outcome, boki.Committed), "the record was ordered before the void"
    assert engine.ordered(book.id) == [b"x"]


async def test_settling_voids_up_to_its_number_and_nothing_behind_it(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    engine.lost_frames = 1
    tickets = [book.submit(b"%d" % number) for number in range(3)]
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "given up")
    assert await tickets[0].outcome(settle=True) == boki.Never()
    assert isinstance(await tickets[2].outcome(), boki.Committed), "nobody settled it"
    assert engine.ordered(book.id) == [b"1", b"2"]


async def test_settling_what_is_being_asked_for(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    engine.lost_frames = 2
    tickets = [book.submit(b"%d" % number) for number in range(2)]
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "given up")
    asking = asyncio.ensure_future(tickets[1].outcome())
    while len(engine.runs) < 2:
        await asyncio.sleep(0)
    assert await tickets[0].outcome(settle=True) == boki.Never()
    assert isinstance(await asking, boki.Committed), "it is behind what was settled"
    assert engine.ordered(book.id) == [b"1"]
    void, record = engine.runs[-2:]
    assert (void.first, void.count, void.flags & RUN_VOID, record.first, record.flags & RUN_VOID) == (
        1,
        1,
        RUN_VOID,
        2,
        0,
    )


async def test_asking_is_given_up_too_and_may_be_repeated(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    engine.lost_frames = 2
    ticket = book.submit(b"x")
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "given up")
    asking = asyncio.ensure_future(ticket.outcome())
    while len(engine.runs) < 2:
        await asyncio.sleep(0)
    connection = client._connection
    assert connection is not None
    book._appends.give_up_all("again", None)
    with pytest.raises(boki.OutcomeUnknown):
        await asking
    assert isinstance(await ticket.outcome(), boki.Committed)
    assert engine.ordered(book.id) == [b"x"]


async def test_a_log_that_forgot_the_writer_knows_nothing(client: boki.Client, engine: FaultyEngine) -> None:
    book = client.book("b")
    await book.append(b"1")
    engine.lost_frames = 1
    ticket = book.submit(b"2")
    await asyncio.sleep(0)
    book._appends.give_up(book._numbers, "given up")
    engine.model.forget_writers()
    with pytest.raises(boki.WriterForgotten):
        await ticket.outcome()
    assert engine.ordered(book.id) == [b"1"]
