"""Gaps, forgotten writers, answers before the order, time-outs of single calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki._appender import WRITER_IDLE_S
from boki_common import limits

if TYPE_CHECKING:
    from tests.sdk.conftest import Serve


async def close_at_once(client: boki.Client) -> None:
    """Without waiting for verdicts that do not come."""
    assert client._connection is not None
    await client._connection.close(0)


async def test_a_frame_that_vanishes_is_sent_again_after_the_gap(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.lost_frames = 1
    async with boki.connect(url) as client:
        book = client.book(1)
        first = [book.submit(b"1"), book.submit(b"2")]
        await asyncio.sleep(0)
        seqnum = await book.append(b"3")
        assert [await ticket for ticket in first] < [seqnum]
    assert engine.ordered(1) == [b"1", b"2", b"3"]
    assert [(run.first, run.count) for run in engine.runs] == [(1, 2), (3, 1), (1, 3)]
    assert len(engine.peers) == 1


async def test_several_gaps_are_one_resend(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.lost_frames = 1
    async with boki.connect(url) as client:
        book = client.book(1)
        tickets = []
        for number in range(20):
            tickets.append(book.submit(bytes([number])))
            await asyncio.sleep(0)
        for ticket in tickets:
            await ticket
    assert engine.ordered(1) == [bytes([number]) for number in range(20)]
    assert engine.frames <= 21, "19 frames that were refused, and one that repeats them all"


async def test_a_conflict_answered_before_it_was_ordered_and_lost(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
        seqnum = await book.append(b"1", tags=["a"])
        engine.early_conflicts = 1
        with pytest.raises(boki.Conflict):
            await book.append(b"2", expect={"a": None})
        assert await book.append(b"3") > seqnum
        assert await book.append(b"4") > seqnum
    assert engine.ordered(1)[1:] == [b"3", b"4"]
    assert len(engine.peers) == 1


async def test_a_forgotten_writer(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
        await book.append(b"1")
        engine.model.forget_writers()
        with pytest.raises(boki.WriterForgotten, match="forgot the writer of append 2"):
            await book.append(b"2")
        await book.append(b"3")
    assert engine.ordered(1) == [b"1", b"3"]


async def test_a_writer_is_not_used_again_after_a_long_pause(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
        await book.append(b"1")
        await book.append(b"2")
        book._appender.progressed_at -= WRITER_IDLE_S + 1
        engine.model.forget_writers()
        await book.append(b"3")
    assert [(run.first, run.low) for run in engine.runs] == [(1, 1), (2, 2), (1, 1)]
    assert len({run.writer for run in engine.runs}) == 2


async def test_a_call_that_gives_up_before_its_verdict(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
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


async def test_a_window_that_stays_full(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.mute = True
    async with boki.connect(url) as client:
        book = client.book(1)
        tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
        with pytest.raises(boki.WindowFull, match=r"within 0\.05 s; nothing was sent"):
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


async def test_a_wait_for_a_place_that_is_passed_over_while_it_is_being_cancelled(serve: Serve) -> None:
    _, url, _ = await serve()
    async with boki.connect(url) as client:
        book = client.book(1)
        tickets = [book.submit(b"x") for _ in range(limits.WINDOW_RECORDS)]
        cancelled, waiting = [asyncio.ensure_future(book.append(b"later")) for _ in range(2)]
        await asyncio.sleep(0)
        cancelled.cancel()
        book._appender.give_up("in the same turn, which makes places free")
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await waiting
        assert all(ticket.done() for ticket in tickets)


async def test_books_that_are_appended_to_in_one_turn_share_its_time(serve: Serve) -> None:
    _, url, _ = await serve()
    async with boki.connect(url) as client:
        books = [client.book(number) for number in range(3)]
        tickets = [book.submit(b"x") for book in books[:2]]
        await asyncio.sleep(0)
        tickets.append(books[2].submit(b"x"))
        first, second, later = [book._appender.progressed_at for book in books]
        assert first is second is not later
        for ticket in tickets:
            await ticket
