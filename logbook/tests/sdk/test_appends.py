"""Gaps, forgotten writers, answers before the order, time-outs of single calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import boki
from boki._book import Book
from boki.testing._model import Append
from boki_common import limits
from boki_common.writer_ids import birth_of

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine, Serve


async def close_at_once(client: boki.Client) -> None:
    """Without waiting for verdicts that do not come."""
    assert client._connection is not None
    await client._connection.close(0)


async def test_a_frame_that_vanishes_is_sent_again_after_the_gap(book: Book, engine: FaultyEngine) -> None:
    engine.lost_frames = 1
    first = [book.submit(b"1"), book.submit(b"2")]
    await asyncio.sleep(0)
    seqnum = await book.append(b"3")
    assert [await ticket for ticket in first] < [seqnum]
    assert engine.ordered(1) == [b"1", b"2", b"3"]
    assert [(run.first, run.count) for run in engine.runs] == [(1, 2), (3, 1), (1, 3)]
    assert len(engine.peers) == 1


async def test_several_gaps_are_one_resend(book: Book, engine: FaultyEngine) -> None:
    engine.lost_frames = 1
    tickets = []
    for number in range(20):
        tickets.append(book.submit(bytes([number])))
        await asyncio.sleep(0)
    for ticket in tickets:
        await ticket
    assert engine.ordered(1) == [bytes([number]) for number in range(20)]
    assert engine.frames <= 21, "19 frames that were refused, and one that repeats them all"


async def test_a_conflict_answered_before_it_was_ordered_and_lost(book: Book, engine: FaultyEngine) -> None:
    seqnum = await book.append(b"1", tags=["a"])
    engine.early_conflicts = 1
    with pytest.raises(boki.Conflict):
        await book.append(b"2", expect={"a": None})
    assert await book.append(b"3") > seqnum
    assert await book.append(b"4") > seqnum
    assert engine.ordered(1)[1:] == [b"3", b"4"]
    assert len(engine.peers) == 1


async def test_what_a_forgotten_writer_sent_once_goes_on_under_another_in_its_order(
    book: Book, engine: FaultyEngine
) -> None:
    await book.append(b"1")
    engine.model.forget_writers()
    tickets = [book.submit(b"2"), book.submit(b"3")]
    await asyncio.sleep(0)
    chunk = asyncio.ensure_future(book.append_many([(b"4", []), (b"5", [])]))
    assert [await ticket for ticket in tickets] < await chunk
    await book.append(b"6")
    assert engine.ordered(1) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(engine.peers) == 1


async def test_the_first_number_of_a_writer_too_old_goes_on_under_one_born_later(
    client: boki.Client, book: Book, engine: FaultyEngine
) -> None:
    assert client._connection is not None
    ahead = client._connection.new_writer(10**11)  # by somebody's clock that is 1,000 years ahead
    engine.model.append(Append(1, ahead, 1, 1, (), b"\0\0before"), 0)
    engine.model.forget_writers()
    await book.append(b"1")
    await book.append(b"2")
    assert engine.ordered(1) == [b"before", b"1", b"2"]
    births = [birth_of(run.writer) for run in engine.runs]
    assert births[1:] == [10**11 + 2] * 2
    assert births[0] is not None and births[0] < 10**11


@pytest.mark.parametrize("applied", [False, True])
async def test_what_was_sent_twice_of_a_forgotten_writer_is_unknown_and_not_applied(
    book: Book, engine: FaultyEngine, applied: bool
) -> None:
    await book.append(b"1")
    engine.mute, engine.lost_frames = True, 0 if applied else 1
    ticket = book.submit(b"2")
    while len(engine.runs) < 2:
        await asyncio.sleep(0)
    engine.mute = False
    engine.model.forget_writers()
    engine.peers[0].close()
    with pytest.raises(boki.WriterForgotten, match="may or may not be in the log; read the book") as caught:
        await ticket
    assert not caught.value.definite
    with pytest.raises(boki.WriterForgotten):
        await ticket.outcome()
    await book.append(b"3")
    assert engine.ordered(1) == [b"1", *([b"2"] if applied else []), b"3"]


@pytest.mark.parametrize("settle", [False, True])
async def test_asking_for_its_outcome_decides_no_number_of_a_forgotten_writer_anew(
    book: Book, engine: FaultyEngine, settle: bool
) -> None:
    engine.mute = True
    ticket = book.submit(b"pay 100")
    while not engine.runs:
        await asyncio.sleep(0)
    engine.mute = False
    engine.model.forget_writers()
    book._appends.give_up(book._numbers, "given up")
    with pytest.raises(boki.OutcomeUnknown):
        await ticket
    with pytest.raises(boki.WriterForgotten):
        await ticket.outcome(settle=settle)
    assert engine.ordered(1) == [b"pay 100"]


async def test_a_named_writer_that_was_forgotten_says_so(client: boki.Client, engine: FaultyEngine) -> None:
    writer = await client.book(1).writer("w")
    await writer.append(b"1")
    engine.model.forget_writers()
    with pytest.raises(boki.WriterForgotten):
        await writer.append(b"2")
    assert engine.ordered(1) == [b"1"]


async def test_a_call_that_gives_up_before_its_verdict(book: Book, engine: FaultyEngine) -> None:
    engine.mute = True
    with pytest.raises(boki.OutcomeUnknown, match="append 1 may or may not be in the log") as caught:
        await book.append(b"1", timeout=0.05)
    assert caught.value.number == 1
    ticket = book.submit(b"2")
    engine.mute = False
    engine.peers[0].close()
    await ticket
    assert await book.append(b"3", timeout=5) == engine.model.newest(1, 0)
    assert engine.ordered(1) == [b"1", b"2", b"3"]


async def test_a_call_that_gives_up_before_it_is_sent(serve: Serve) -> None:
    engine, url, server = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
        await book.append(b"1")
        await server.close()
        while client._connection is not None and client._connection.peer is not None:
            await asyncio.sleep(0)  # what is sent before it knows may have been done
        with pytest.raises(boki.Unreachable):
            await book.read_next(timeout=0.05)
        with pytest.raises(boki.Unreachable, match="nothing could be sent") as caught:
            await book.append(b"2", timeout=0.05)
        assert caught.value.definite
        ticket = book.submit(b"3")
        assert ticket.first == 2, "the number of what was never sent is free again"
        await close_at_once(client)
    with pytest.raises(boki.Unreachable):
        await ticket
    assert engine.ordered(1) == [b"1"]


async def test_a_window_that_stays_full(book: Book, engine: FaultyEngine) -> None:
    engine.mute = True
    tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    with pytest.raises(boki.WindowFull, match=r"within 0\.0\d+ s; nothing was sent"):
        await book.append(b"y", timeout=0.05)
    with pytest.raises(boki.WindowFull) as caught:
        await book.append_many([(b"y", [])], timeout=0.05)
    assert caught.value.committed == 0
    ready = asyncio.ensure_future(book.ready())
    engine.mute = False
    engine.peers[0].close()
    await ready
    for ticket in tickets:
        await ticket
    assert len(engine.ordered(1)) == limits.WINDOW_RECORDS


async def test_a_wait_for_a_place_that_is_passed_over_while_it_is_being_cancelled(book: Book) -> None:
    tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
    cancelled, waiting = [asyncio.ensure_future(book.append(b"later")) for _ in range(2)]
    await asyncio.sleep(0)
    cancelled.cancel()
    book._appends.give_up(book._numbers, "in the same turn, which makes places free")
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await waiting
    assert all(ticket.done() for ticket in tickets)


async def test_more_callers_than_two_windows_submit_when_there_is_a_place(book: Book) -> None:

    async def submitted() -> int:
        while True:
            try:
                ticket = book.submit(b"x")
            except boki.WindowFull:
                await book.ready()
            else:
                return await ticket

    count = 3 * limits.WINDOW_RECORDS
    assert len(set(await asyncio.gather(*(submitted() for _ in range(count))))) == count


async def test_all_who_wait_for_a_place_of_a_client_that_is_closed_fail(
    client: boki.Client, book: Book, engine: FaultyEngine
) -> None:
    engine.mute = True
    calls = [asyncio.ensure_future(book.append(b"x")) for _ in range(3 * limits.WINDOW_RECORDS)]
    while not engine.runs:
        await asyncio.sleep(0)
    await close_at_once(client)
    found = Counter(map(type, await asyncio.gather(*calls, return_exceptions=True)))
    window = limits.WINDOW_RECORDS
    assert found == {boki.OutcomeUnknown: window, boki.ClosedError: 2 * window}


async def test_books_that_are_appended_to_in_one_turn_share_its_time(client: boki.Client) -> None:
    books = [client.book(number) for number in range(3)]
    tickets = [book.submit(b"x") for book in books[:2]]
    await asyncio.sleep(0)
    tickets.append(books[2].submit(b"x"))
    first, second, later = [book._numbers.progressed_at for book in books]
    assert first is second is not later
    for ticket in tickets:
        await ticket
