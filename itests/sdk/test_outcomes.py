"""`ticket.outcome()` and `ticket.why()`: what certainly became of an append, whatever failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import boki
from boki_common.net.messages import MessagePeer
from itests.support.sdk_client import collect, cut

if TYPE_CHECKING:
    from itests.sdk.conftest import Cluster


async def given_up(client: boki.Client, book: boki.Book, tickets: list[boki.Ticket], *, sent: bool) -> None:
    """Gives the tickets up, as after nine minutes without a verdict; their frame has left, or has not arrived."""
    connection = client._connection
    assert connection is not None
    if sent:
        book._appends.flush()  # at once: a turn of the loop may bring the verdict already
    elif isinstance(connection.peer, MessagePeer):
        cut(client)
        book._appends.flush()  # into a socket that is closed
    else:
        book._appends.flush()
        cut(client)
    book._appends.give_up(book._numbers, "nobody answered in time")
    for ticket in tickets:
        with pytest.raises(boki.OutcomeUnknown):
            await ticket


async def test_of_what_is_decided(book: boki.Book) -> None:
    ticket = book.submit(b"x", tags=["a"])
    seqnum = await ticket
    assert await ticket.outcome() == boki.Committed(seqnum)
    loser = book.submit(b"y", expect={"a": None})
    outcome = await loser.outcome()
    assert isinstance(outcome, boki.Conflict)
    assert outcome.actual == {"a": seqnum}
    assert await loser.outcome(settle=True) is outcome


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("settle", [True, False])
async def test_of_what_was_given_up(client: boki.Client, book: boki.Book, sent: bool, settle: bool) -> None:
    await book.append(b"before")
    tickets = [book.submit(b"%d" % number, tags=["t"]) for number in range(5)]
    await given_up(client, book, tickets, sent=sent)
    outcomes = [await ticket.outcome(settle=settle) for ticket in tickets]
    found = {record.data: record.seqnum for record in await collect(book.read("t"))}
    for number, outcome in enumerate(outcomes):
        data = b"%d" % number
        assert outcome == (boki.Committed(found[data]) if data in found else boki.Never())
    if not settle:
        assert all(isinstance(outcome, boki.Committed) for outcome in outcomes)
    again = [await ticket.outcome(settle=not settle) for ticket in reversed(tickets)]
    assert again[::-1] == outcomes, "an outcome is an outcome"
    await book.append(b"behind", tags=["t"])
    assert [record.data for record in await collect(book.read("t"))] == [*found, b"behind"]


async def test_of_a_lost_condition_that_was_given_up(client: boki.Client, book: boki.Book) -> None:
    first = await book.append(b"1", tags=["a"])
    won = book.submit(b"2", tags=["a"], expect={"a": first})
    lost = book.submit(b"3", tags=["a"], expect={"a": first})
    await given_up(client, book, [won, lost], sent=True)
    outcome = await won.outcome()
    assert isinstance(outcome, boki.Committed)
    conflict = await lost.outcome()
    assert isinstance(conflict, boki.Conflict)
    assert conflict.actual == {"a": outcome.seqnum}


async def test_only_what_comes_before_is_asked_for(client: boki.Client, book: boki.Book) -> None:
    tickets = [book.submit(b"%d" % number) for number in range(4)]
    await given_up(client, book, tickets, sent=False)
    second = await tickets[1].outcome()
    assert isinstance(second, boki.Committed)
    datas = [record.data for record in await collect(book.read())]
    assert datas[:2] == [b"0", b"1"]
    assert await tickets[3].outcome(settle=True) in (boki.Never(), boki.Committed(second.seqnum + 2))
    assert await tickets[0].outcome() == boki.Committed((await collect(book.read()))[0].seqnum)


async def test_outcomes_through_a_cut(client: boki.Client, book: boki.Book) -> None:
    tickets = [book.submit(b"%d" % number) for number in range(50)]
    await given_up(client, book, tickets, sent=True)
    asking = [asyncio.ensure_future(ticket.outcome()) for ticket in tickets]
    await asyncio.sleep(0)
    cut(client)
    outcomes = await asyncio.gather(*asking)
    found = await collect(book.read())
    assert [record.data for record in found] == [b"%d" % number for number in range(50)]
    assert outcomes == [boki.Committed(record.seqnum) for record in found]


async def test_of_a_named_writer(client: boki.Client, book: boki.Book) -> None:
    writer = await book.writer("w")
    await writer.append(b"1")
    ticket = writer.submit(b"2")
    assert client._connection is not None
    writer._appends.flush()
    writer._appends.give_up(writer._numbers, "nobody answered in time")
    with pytest.raises(boki.OutcomeUnknown):
        await ticket
    with pytest.raises(boki.WindowFull, match="ready"):
        _ = writer.submit(b"3")
    assert isinstance(await ticket.outcome(), boki.Committed)
    await writer.append(b"3")
    assert writer.last == 3


async def test_too_late_to_ask(client: boki.Client, book: boki.Book) -> None:
    ticket = book.submit(b"x")
    book._numbers.progressed_at -= 1_801
    await given_up(client, book, [ticket], sent=True)
    with pytest.raises(boki.WriterForgotten, match="1800 s ago"):
        await ticket.outcome()


async def test_a_closed_client_can_ask_nobody(cluster: Cluster, name: str) -> None:
    client = await cluster.connect()
    book = client.book(name)
    ticket = book.submit(b"x")
    await given_up(client, book, [ticket], sent=True)
    await client.close()
    with pytest.raises(boki.ClosedError):
        await ticket.outcome()


async def test_why(client: boki.Client, book: boki.Book) -> None:
    ticket = book.submit(b"x")
    why = await ticket.why()
    assert why.waits_for in {"nothing", "order", "sequencer", "bookies", "engine", "window"}
    assert str(why) == why.message
    await ticket
    assert (await ticket.why()).waits_for == "nothing"
    late = book.submit(b"y")
    cut(client)
    assert (await late.why()).waits_for == "connection"
    await late
