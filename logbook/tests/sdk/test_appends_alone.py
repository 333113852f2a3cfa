"""One record of a book at a time, and what comes beside it: more of them, expectations, lost connections, other verdicts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki._book import Book
from boki._bounds import WRITER_IDLE_S
from boki._special import NOTHING
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, encode_answers
from boki_common.engine.engine_protocol import Verdict
from boki_common.ids import Position
from boki_common.records.record_batch import RUN_RESENT

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine


def numbers(engine: FaultyEngine) -> list[tuple[int, int, int]]:
    return [(run.first, run.count, run.low) for run in engine.runs]


def at_rest(book: Book) -> bool:
    """Nothing is undecided, and nothing special is kept of its writer."""
    return book._numbers.oldest is None and book._numbers.special is NOTHING


async def under_way(engine: FaultyEngine, book: Book, data: bytes = b"x") -> boki.Ticket:
    """A record that the engine has, and does not answer."""
    engine.mute, frames = True, engine.frames
    ticket = book.submit(data)
    while engine.frames == frames:
        await asyncio.sleep(0)
    engine.mute = False
    return ticket


async def test_one_record_at_a_time(client: boki.Client, book: Book, engine: FaultyEngine) -> None:
    for number in range(3):
        ticket = book.submit(b"%d" % number)
        assert book._numbers.oldest is ticket
        assert not book.idle
        seqnum = await ticket
        assert at_rest(book)
        assert book.idle
        assert book.position == seqnum
        assert client._session.positions == engine._token()
    assert numbers(engine) == [(1, 1, 1), (2, 1, 2), (3, 1, 3)]
    assert len({run.writer for run in engine.runs}) == 1
    assert engine.ordered(1) == [b"0", b"1", b"2"]


async def test_records_of_many_books_leave_in_one_frame(client: boki.Client, engine: FaultyEngine) -> None:
    books = [client.book(number) for number in range(100)]
    for tags in ((), ("a", 7)):
        seqnums = await asyncio.gather(*(book.append(b"%d" % book.id, tags=tags) for book in books))
        assert all(map(at_rest, books))
        assert all((book.position or 0) >= seqnum for book, seqnum in zip(books, seqnums, strict=True))
    records = [await book.read_next("a") for book in books]
    assert engine.frames == 2
    assert len({run.writer for run in engine.runs}) == 100
    assert [record and (record.data, record.tags, record.seqnum) for record in records] == [
        (b"%d" % number, ("a", 7), seqnum) for number, seqnum in enumerate(seqnums)
    ]


async def test_a_second_record_while_one_is_undecided(book: Book, engine: FaultyEngine) -> None:
    await asyncio.gather(book.append(b"1"), book.append(b"2"))
    assert at_rest(book)
    third = await under_way(engine, book, b"3")
    fourth = book.submit(b"4")
    assert book._numbers.items() == [third, fourth]
    assert not book.idle
    engine.peers[0].push(wire.OP_ANSWERS, *encode_answers({}, []))
    assert await fourth > engine.model.newest(1, 0) - 1
    engine.peers[0].close()
    await third
    assert at_rest(book)
    await book.append(b"5")
    assert engine.ordered(1) == [b"1", b"2", b"3", b"4", b"5"]
    assert numbers(engine)[:3] == [(1, 2, 1), (3, 1, 3), (4, 1, 3)]
    assert numbers(engine)[-1] == (5, 1, 5)


async def test_who_expects_something_appends_as_others_do(book: Book, engine: FaultyEngine) -> None:
    await book.append(b"1")
    seqnum = await book.append(b"2", tags=("a",), expect={"a": None})
    assert book.idle
    await book.append(b"3", tags=("a",), expect={"a": seqnum})
    await book.append(b"4")
    assert at_rest(book)
    assert numbers(engine) == [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 1, 4)]
    assert len({run.writer for run in engine.runs}) == 1


async def test_a_full_frame_leaves_at_once(client: boki.Client, engine: FaultyEngine) -> None:
    small, large = client.book(1).submit(b"x"), client.book(2).submit(bytes(300_000))
    assert [(book._numbers.sent, book._numbers.queued) for book in map(client.book, (1, 2))] == [(1, None)] * 2
    await asyncio.gather(small.wait(), large.wait())
    assert engine.frames == 1


async def test_numbers_that_were_queued_twice_send_once(client: boki.Client, book: Book, engine: FaultyEngine) -> None:
    never = book.submit(b"never")
    book._appends.give_up(book._numbers, "for a test")
    other, ticket = client.book(2).submit(b"other"), book.submit(b"x")
    with pytest.raises(boki.Unreachable):
        await never
    await asyncio.gather(other.wait(), ticket.wait())
    assert [(run.book, run.first, run.count) for run in engine.runs] == [(1, 1, 1), (2, 1, 1)]


async def test_what_was_sent_is_sent_again_under_its_number(book: Book, engine: FaultyEngine) -> None:
    await book.append(b"1")
    ticket = await under_way(engine, book, b"2")
    engine.peers[0].close()
    await ticket
    assert at_rest(book)
    await book.append(b"3")
    assert engine.ordered(1) == [b"1", b"2", b"3"]
    assert [(run.first, run.flags) for run in engine.runs] == [(1, 0), (2, 0), (2, RUN_RESENT), (3, 0)]


async def test_what_is_appended_without_a_connection_leaves_with_the_next(
    client: boki.Client, engine: FaultyEngine
) -> None:
    book, other = client.book(1), client.book(2)
    await book.append(b"1")
    engine.peers[0].close()
    while book.home.peer is not None:
        await asyncio.sleep(0)
    tickets = [book.submit(b"2"), other.submit(b"a")]
    await asyncio.sleep(0)
    await asyncio.gather(*(ticket.wait() for ticket in tickets))
    assert (engine.ordered(1), engine.ordered(2)) == ([b"1", b"2"], [b"a"])
    assert [(run.book, run.first, run.flags) for run in engine.runs] == [(1, 1, 0), (1, 2, 0), (2, 1, 0)]


async def test_a_row_about_another_number_does_not_decide_it(book: Book, engine: FaultyEngine) -> None:
    first = await book.append(b"1")
    ticket = await under_way(engine, book, b"2")
    connection, (run, _) = book.home, engine.runs
    assert connection.peer is not None
    again = AnswerRow(1, run.writer, 1, first, first, 1, Verdict.COMMITTED)
    body = b"".join(encode_answers({0: Position(1, 1)}, [again]))
    connection.message_received(connection.peer, wire.OP_ANSWERS, 0, memoryview(body))
    assert not ticket.done()
    engine.peers[0].close()
    assert await ticket > first


async def test_a_number_that_was_not_sent_cannot_be_decided(book: Book) -> None:
    ticket = book.submit(b"1")
    connection = book.home
    assert connection.peer is not None
    row = AnswerRow(1, book._numbers.writer, 1, 5, 5, 1, Verdict.COMMITTED)
    body = b"".join(encode_answers({}, [row]))
    with pytest.raises(boki.ProtocolError):
        connection.message_received(connection.peer, wire.OP_ANSWERS, 0, memoryview(body))
    await ticket


async def test_a_number_that_may_not_be_ordered_yet_is_remembered(book: Book, engine: FaultyEngine) -> None:
    """A conflict is answered early; when its record is lost, the number has to be filled."""
    await book.append(b"1", tags=["a"])
    engine.early_conflicts = 1
    losers = await asyncio.gather(book.append(b"2"), book.append(b"3"), return_exceptions=True)
    assert [type(loser) for loser in losers] == [boki.Conflict] * 2
    assert book.idle
    assert book._numbers.ordered == 1 < book._numbers.next_number - 1
    await book.append(b"4")
    assert at_rest(book)
    await book.append(b"5")
    assert engine.ordered(1)[1:] == [b"4", b"5"]


async def test_a_book_that_rested_for_long_takes_another_writer(book: Book, engine: FaultyEngine) -> None:
    await book.append(b"1")
    await book.append(b"2")
    book._numbers.progressed_at -= WRITER_IDLE_S + 1
    await book.append(b"3")
    assert numbers(engine) == [(1, 1, 1), (2, 1, 2), (1, 1, 1)]
    assert len({run.writer for run in engine.runs}) == 2


async def test_what_was_given_up_leaves_a_book_with_another_writer(book: Book, engine: FaultyEngine) -> None:
    ticket = await under_way(engine, book, b"1")
    book._appends.give_up(book._numbers, "for a test")
    assert at_rest(book)
    with pytest.raises(boki.OutcomeUnknown, match="append 1 may or may not be in the log"):
        await ticket
    await book.append(b"2")
    assert isinstance(await ticket.outcome(), boki.Committed)
    assert engine.ordered(1) == [b"1", b"2"]
    assert len({run.writer for run in engine.runs}) == 2


async def test_who_waits_for_a_place_goes_on_under_the_same_writer_and_first(book: Book, engine: FaultyEngine) -> None:
    tickets = [book.submit(b"%d" % number) for number in range(1_024)]
    waiting = asyncio.gather(*(book.append(b"%d" % number) for number in range(1_024, 1_030)))
    await asyncio.sleep(0)
    assert len([await ticket for ticket in tickets]) == 1_024
    later = book.submit(b"later")
    await waiting
    await later
    assert at_rest(book)
    assert engine.ordered(1) == [*(b"%d" % number for number in range(1_030)), b"later"]
    assert len({run.writer for run in engine.runs}) == 1


async def test_one_record_says_what_it_waits_for(book: Book, engine: FaultyEngine) -> None:
    ticket = await under_way(engine, book)
    assert (await ticket.why()).waits_for == "order"
    engine.peers[0].close()
    await ticket
    assert (await ticket.why()).waits_for == "nothing"


async def test_a_closed_client_numbers_nothing(client: boki.Client, book: Book) -> None:
    await book.append(b"1")
    await client.close()
    with pytest.raises(boki.ClosedError):
        await book.append(b"2")
    assert (at_rest(book), book._numbers.next_number) == (True, 2)
