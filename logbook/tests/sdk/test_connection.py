"""One engine at a time: refusals, silence, wrong bytes, failing over, giving up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boki
from boki._appends import Appends
from boki._book import Book
from boki._client import Client
from boki._connection import Connection
from boki._dial import dialer_for
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, encode_answers
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_common.records.record_batch import RUN_RESENT
from boki_common.runtime.process import SystemClock, SystemRandom
from boki_common.testing.machine import ManualClock
from boki_common.writer_ids import birth_of

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine, Serve


async def test_records_of_one_turn_leave_in_one_frame_over_all_books(client: boki.Client, engine: FaultyEngine) -> None:
    await asyncio.gather(*(client.book(number % 5 + 1).append(b"x") for number in range(100)))
    assert engine.frames == 1
    assert [(run.book, run.first, run.count) for run in engine.runs] == [(book, 1, 20) for book in range(1, 6)]


async def test_books_that_append_together_get_answers_to_their_own_records(client: boki.Client) -> None:
    books = [client.book(number) for number in range(1, 101)]
    writer = await books[0].writer("w")
    for _ in range(2):
        seqnums = await asyncio.gather(*(book.append(b"%d" % book.id) for book in books), writer.append(b"w"))
        records = [await book.read_at(seqnum) for book, seqnum in zip(books, seqnums[:-1], strict=True)]
        assert [record and record.data for record in records] == [b"%d" % book.id for book in books]
        named = await books[0].read_at(seqnums[-1])
        assert named is not None and named.data == b"w"
        assert all(book.position is not None and book.position >= seqnums[at] for at, book in enumerate(books))
        assert all(book.idle for book in books[1:])


async def test_who_expects_something_says_what_its_session_has_seen(client: boki.Client, engine: FaultyEngine) -> None:
    """An engine that shows less must not tell a conflict early, whichever connection the session has seen it on."""
    first = await client.book(1).append(b"x", tags=["a"])
    later = client.session(client.session_token())
    await asyncio.gather(client.book(2).append(b"y"), client.book(1).append(b"z"))
    assert engine.tokens == [{}, {}], "who expects nothing says nothing"
    await later.book(1).read_next("a")
    seen = dict(later._session.positions)
    await later.book(1).append(b"y", tags=["a"], expect={"a": first})
    assert engine.tokens[2] == seen != {}


async def test_large_records_leave_in_several_frames(client: boki.Client, engine: FaultyEngine) -> None:
    await asyncio.gather(*(client.book(1).append(bytes(100_000)) for _ in range(10)))
    assert [run.count for run in engine.runs] == [3, 3, 3, 1]
    assert [run.first for run in engine.runs] == [1, 4, 7, 10]


async def test_a_refused_frame_is_sent_again(book: Book, engine: FaultyEngine) -> None:
    engine.refusals = [boki.Overloaded("full"), boki.Overloaded("still full")]
    seqnums = await asyncio.gather(*(book.append(bytes([number])) for number in range(5)))
    assert seqnums == sorted(seqnums)
    assert engine.ordered(1) == [bytes([number]) for number in range(5)]
    assert [run.flags for run in engine.runs] == [0, RUN_RESENT, RUN_RESENT]


async def test_an_engine_that_keeps_refusing_the_bytes_ends_the_client(
    client: boki.Client, engine: FaultyEngine
) -> None:
    engine.refusals = [boki.ProtocolError(f"wrong {number}") for number in range(10)]
    ticket = client.book(1).submit(b"x")
    with pytest.raises(boki.OutcomeUnknown, match="refused this client's messages") as caught:
        await ticket
    assert isinstance(caught.value.__cause__, boki.ProtocolError)
    assert caught.value.number == 1
    with pytest.raises(boki.ProtocolError, match="wrong 2"):
        await client.book(1).append(b"y")
    with pytest.raises(boki.ProtocolError, match="wrong 2"):
        await client.book(1).read_next()
    assert len(engine.refusals) == 7


async def test_answers_that_cannot_be_right_end_the_connection_not_the_client(
    client: boki.Client, engine: FaultyEngine
) -> None:
    await client.book(1).append(b"1")
    engine.peers[0].push(wire.OP_ANSWERS, b"\1")
    await client.book(1).append(b"2")
    engine.peers[-1].push(wire.OP_HELLO, b"what?")
    await client.book(1).append(b"3")
    assert engine.ordered(1) == [b"1", b"2", b"3"]
    assert len(engine.peers) >= 2


async def test_answers_for_unknown_writers_are_ignored(client: boki.Client, engine: FaultyEngine) -> None:
    engine.mute = True
    ticket = client.book(1).submit(b"1")
    await client.book(1).read_next(wait=5)
    (run,) = engine.runs
    stray = [
        AnswerRow(1, b"?" * 16, 1, 5, 5, 1, 0),
        AnswerRow(2, run.writer, 1, 5, 5, 1, 0),
    ]
    engine.peers[0].push(wire.OP_ANSWERS, *encode_answers({}, stray))
    await client.book(1).read_next()
    assert not ticket.done()
    engine.mute = False
    engine.peers[0].close()
    assert await ticket == engine.model.newest(1, 0)


async def test_the_next_engine_is_used_when_one_is_down(serve: Serve, tmp_path: Path) -> None:
    engine, url, _ = await serve()
    async with boki.connect(f"unix://{tmp_path}/nobody,{url}") as client:
        await client.book(1).append(b"x")
    assert engine.ordered(1) == [b"x"]


async def test_failing_over_to_the_next_engine(serve: Serve) -> None:
    first, url, server = await serve()
    second, other_url, _ = await serve(first.model)
    async with boki.connect(f"{url},{other_url}") as client:
        book = client.book(1)
        await book.append(b"1")
        first.mute = True
        ticket = book.submit(b"2")
        waiting = asyncio.ensure_future(book.read_next(7, wait=30))
        await book.read_prev()
        await server.close()
        await ticket
        await book.append(b"3", tags=[7])
        assert await waiting is not None
    assert second.ordered(1) == [b"1", b"2", b"3"]
    assert second.runs[0].first == 2


async def test_no_engine(tmp_path: Path) -> None:
    with pytest.raises(boki.Unreachable, match="no engine answers") as caught:
        _ = await boki.connect(f"unix://{tmp_path}/a,unix://{tmp_path}/b")
    assert "/a" in str(caught.value)
    assert "/b" in str(caught.value)


def says_another_version(peer: MessagePeer, opcode: int, request_id: int) -> None:
    peer.respond(request_id, opcode, b"\x82\xa7version\x63\xa6engine\xa1x")


def refuses(peer: MessagePeer, opcode: int, request_id: int) -> None:
    raise boki.VersionMismatch("expected another SDK")


@pytest.mark.parametrize(
    ("hello", "match"), [(says_another_version, "speaks version 99"), (refuses, "expected another SDK")]
)
async def test_another_protocol_version_at_either_end_is_an_error(
    tmp_path: Path, hello: Callable[..., None], match: str
) -> None:
    class Other:
        def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
            hello(peer, opcode, request_id)

        def peer_lost(self, peer: MessagePeer, error: boki.BokiError | None) -> None: ...

    address = Address.parse(f"unix://{tmp_path}/other")
    server = await serve_messages(address, lambda _: Other(), strangers=BEFORE_FIRST_FRAME)
    with pytest.raises(boki.VersionMismatch, match=match):
        _ = await boki.connect(str(server.address))
    await server.close()


async def test_giving_up_on_a_verdict(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.mute = True
    async with boki.connect(url, timeout=0.3) as client:
        book = client.book(1)
        tickets = [book.submit(bytes([number])) for number in range(3)]
        for number, ticket in enumerate(tickets, 1):
            with pytest.raises(boki.OutcomeUnknown, match="no verdict within") as caught:
                await ticket
            assert (caught.value.number, caught.value.book) == (number, 1)
            assert not caught.value.definite
        engine.mute = False
        await book.append(b"after")
    assert engine.ordered(1) == [b"\0", b"\1", b"\2", b"after"]
    assert engine.runs[0].writer != engine.runs[-1].writer


async def test_giving_up_on_an_engine_that_is_gone(serve: Serve) -> None:
    _, url, server = await serve()
    async with boki.connect(url, timeout=0.3) as client:
        book = client.book(1)
        await book.append(b"1")
        await server.close()
        while client._connection is not None and client._connection.peer is not None:
            await asyncio.sleep(0)  # what is sent before it knows may have been done
        with pytest.raises(boki.Unreachable):
            await book.read_next()
        with pytest.raises(boki.Unreachable, match="nothing was sent"):
            await book.append(b"2")
        with pytest.raises(boki.Unreachable) as caught:
            await book.append_many([(b"3", [])] * 600)
        assert (caught.value.committed, caught.value.seqnums) == (0, [])


async def test_a_call_that_an_engine_took_before_it_was_lost_may_have_been_done(serve: Serve) -> None:
    """If the machine stands still for longer than the time-out, it runs out before the engine is lost: then again, with more time."""
    lost = ""
    for timeout_s in (0.2, 2.0, 20.0):
        _, url, server = await serve()
        async with boki.connect(url) as client:
            book = client.book(1)
            asked = asyncio.ensure_future(book.read_next(7, wait=timeout_s, timeout=timeout_s))
            await book.read_prev()
            await server.close()
            (caught,) = await asyncio.gather(asked, return_exceptions=True)
        assert caught is None or (isinstance(caught, boki.CallTimeout) and not caught.definite)
        lost = str(caught)
        if "and is lost" in lost:
            break
    assert "and is lost" in lost


async def test_a_change_whose_client_is_closed_meanwhile_may_have_been_done(serve: Serve) -> None:
    engine, url, _ = await serve()
    client = await boki.connect(url)
    book = client.book(1)
    await book.append(b"x")
    engine.silent = True
    asked = asyncio.ensure_future(book.trim(before=7))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(boki.ConnectionLost, match="may have been done") as caught:
        await asked
    assert not caught.value.definite


async def test_a_silent_engine_is_asked_once_and_dropped(serve: Serve) -> None:
    engine, url, _ = await serve()
    other, other_url, _ = await serve()
    other.model.cluster = engine.model.cluster
    connection = Connection(dialer_for(f"{url},{other_url}"), SystemRandom(), SystemClock(), give_up_s=30, watch_s=0.05)
    client = Client(dialer_for(url), timeout_s=30, rng=SystemRandom())
    client._appends, client._connection = Appends(connection), connection
    await connection.open()
    engine.silent = True
    await client.book(1).append(b"x")
    assert other.ordered(1) == [b"x"]
    assert engine.ordered(1) == []
    await client.close()


async def test_an_engine_that_only_waits_is_kept(serve: Serve) -> None:
    engine, url, _ = await serve()
    connection = Connection(dialer_for(url), SystemRandom(), SystemClock(), give_up_s=30, watch_s=0.02)
    client = Client(dialer_for(url), timeout_s=30, rng=SystemRandom())
    client._appends, client._connection = Appends(connection), connection
    await connection.open()
    assert await client.book(1).read_next(wait=0.3) is None
    assert len(engine.peers) == 1
    await client.close()


async def test_closing_reports_what_is_undecided(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.mute = True
    client = await boki.connect(url)
    ticket = client.book(1).submit(b"x")
    waiting = asyncio.ensure_future(client.book(1).read_next(3, wait=60))
    connection = client._connection
    assert connection is not None
    await connection.close(0.05)
    with pytest.raises(boki.OutcomeUnknown, match="was closed before the verdict came"):
        await ticket
    with pytest.raises(boki.ClosedError):
        await waiting


@pytest.mark.parametrize("sent", [True, False])
async def test_what_is_too_old_when_the_machine_wakes_is_not_sent_again(serve: Serve, sent: bool) -> None:
    engine, url, _ = await serve()
    clock = ManualClock(0, now_s=1_000.0)
    async with Client(dialer_for(url), timeout_s=30, rng=SystemRandom(), clock=clock) as client:
        book = client.book(1)
        await book.append(b"1")
        engine.mute = True
        if not sent:
            engine.peers[0].close()
            while client._connection is None or client._connection.peer is not None:
                await asyncio.sleep(0)
        tickets = [book.submit(b"2"), book.submit(b"3")]
        while sent and len(engine.runs) < 2:
            await asyncio.sleep(0)
        runs = len(engine.runs)
        clock.now_s += 31
        if sent:
            engine.peers[0].close()
        for ticket in tickets:
            with pytest.raises(boki.OutcomeUnknown if sent else boki.Unreachable):
                await ticket
        assert len(engine.runs) == runs
        engine.mute = False
        await book.append(b"4")


async def test_what_was_numbered_just_before_the_machine_slept_is_not_sent(serve: Serve) -> None:
    engine, url, _ = await serve()
    clock = ManualClock(0, now_s=1_000.0)
    async with Client(dialer_for(url), timeout_s=30, rng=SystemRandom(), clock=clock) as client:
        book = client.book(1)
        await book.append(b"1")
        ticket = book.submit(b"2")
        clock.now_s += 31
        with pytest.raises(boki.Unreachable):
            await ticket
        await book.append(b"3")
    assert engine.ordered(1) == [b"1", b"3"]


async def test_writers_are_born_by_the_engines_clock_and_the_time_that_went_by(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine._clock = ManualClock(0, now_s=1_000.0)
    clock = ManualClock(0, now_s=1_000.0)
    async with Client(dialer_for(url), timeout_s=30, rng=SystemRandom(), clock=clock) as client:
        await client.book(1).append(b"1")
        book = client.book(2)
        clock.now_s += 5
        await book.append(b"1")
        clock.now_s += 3_600
        await book.append(b"2")
    assert [birth_of(run.writer) for run in engine.runs] == [0, 5, 3_605]


async def test_an_engine_of_an_earlier_version_gets_writers_without_a_birth(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.says_time = False
    async with boki.connect(url) as client:
        await client.book(1).append(b"1")
    assert birth_of(engine.runs[0].writer) is None


async def test_nothing_is_sent_again_to_another_cluster_at_the_same_address(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url, timeout=60) as client:
        await client.book(1).append(b"first")
        engine.lost_frames = 1
        ticket = client.book(1).submit(b"of that cluster")
        while len(engine.runs) < 2:
            await asyncio.sleep(0)
        engine.model.cluster = "begun anew, on another directory"
        for peer in engine.peers:
            peer.close()
        while client._connection is not None and client._connection.peer is not None:
            await asyncio.sleep(0)
        with pytest.raises(boki.Unreachable, match="belongs to another cluster"):
            await client.book(1).append(b"x")
        with pytest.raises(boki.OutcomeUnknown):
            await ticket
        for call in (client.book(1).append(b"y"), client.book(1).read_next(), client.book(1).trim(before=1)):
            with pytest.raises(boki.WrongCluster, match="open a new client") as caught:
                await call
            assert caught.value.definite and not caught.value.retryable
        assert [run.first for run in engine.runs] == [1, 2]
        assert engine.ordered(1) == [b"first"]


async def test_an_engine_that_does_not_name_its_cluster_gives_tokens_as_before(serve: Serve) -> None:
    engine, url, _ = await serve()
    engine.says_time = False  # an earlier version, which says neither
    async with boki.connect(url) as client:
        await client.book(1).append(b"x")
        token = client.session_token()
        assert token.startswith("boki1.")
        engine.says_time = True
        async with boki.connect(url) as later:
            assert later.session(token).session_token().startswith("boki2.")


async def test_a_silent_engine_is_waited_for_no_longer_than_anything_else(
    serve: Serve,
) -> None:
    engine, url, _ = await serve()
    engine.silent = True
    begun = asyncio.get_running_loop().time()
    with pytest.raises(boki.Unreachable, match="does not answer"):
        _ = await boki.connect(url, timeout=0.05)
    assert asyncio.get_running_loop().time() - begun < limits.CALL_TIMEOUT_S
