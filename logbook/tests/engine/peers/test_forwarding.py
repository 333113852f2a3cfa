"""Engines that index some slots only: whoever asks one of them gets what the whole cluster knows."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
from tests.engine.silent import Silent

import boki
from boki_common import ids, limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Consistency
from boki_common.engine.read_reply import decode_read_reply
from boki_common.engine.reads_together import asked_row
from boki_common.errors import BokiError, ConnectionLost, Overloaded, ProtocolError, SlotNotInTerm, Unreachable
from boki_common.ids import Position
from boki_common.net.messages import MessagePeer, connect_messages, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_logbook.engine import Engine
from boki_logbook.peers import forwarding
from boki_logbook.peers.forwarding import FORWARDED, Neighbours, book_of
from boki_logbook.settings import EngineSettings
from boki_logbook.state.snapshots import SnapshotStore
from boki_logbook.state.some_slots import indexed
from boki_logbook.testing.cluster import RunSpec, make_batch, plain_records, query
from boki_logbook.testing.engines import ANYWHERE, EngineCluster, url_of
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.terms.index_slots import EngineMember, parse_index_slots

SETTINGS = EngineSettings(retry_first_s=0.005, retry_limit_s=0.01, housekeeping_s=0.02, leftover_scan_s=0.02)
LOW, HIGH = "0-511", "512-1023"
ALICE = bytes(15) + b"a"


def book_in(slots: str, *, after: int = 0) -> int:
    """A book whose slot is one of these."""
    mask = parse_index_slots(slots)
    return next(book for book in range(after + 1, after + 10_000) if indexed(book, mask))


async def started(engines: EngineCluster, index_slots: str = "all", **settings: Any) -> Engine:
    return await engines.start_engine(dataclasses.replace(SETTINGS, index_slots=index_slots, **settings))


async def data_in(book: boki.Book) -> list[bytes]:
    return [item.data async for item in book.read() if isinstance(item, boki.Record)]


async def test_every_call_through_an_engine_that_does_not_index_the_book(engines: EngineCluster) -> None:
    low, high = await started(engines, LOW), await started(engines, HIGH)
    own, other = book_in(LOW), book_in(HIGH)
    async with boki.connect(url_of(low)) as client:
        for number in (own, other):
            book = client.book(number)
            first = await book.append(b"a", tags=["t"])
            second = await book.append(b"b", tags=["t"], expect={"t": first})
            with pytest.raises(boki.Conflict):
                await book.append(b"c", expect={"t": first})
            assert [record.data async for record in book.read("t")] == [b"a", b"b"]
            record = await book.read_at(first)
            assert record is not None and record.data == b"a"
            tail = await book.check_tail("t", consistency="linearizable")
            assert tail is not None and tail.seqnum == second
            assert [one and one.seqnum for one in await book.read_prev_many([("t", first), ("u", None)])] == [
                first,
                None,
            ]
            assert await book.set_aux_data(second, b"aux")
            tail = await book.check_tail("t")
            assert tail is not None and tail.aux_data == b"aux"
            writer = await book.writer("w")
            assert writer.last == 0 and await writer.append(b"w") > second
            assert (await book.writer("w")).last == 1
            assert await book.seek(0) <= first
            await book.trim(before=second)
            with pytest.raises(boki.Trimmed):
                await book.read_at(first)
            waiting = asyncio.ensure_future(book.read_next(tag="later", wait=10.0))
            assert await book.append(b"later", tags=["later"])
            record = await waiting
            assert record is not None and record.data == b"later"
    for engine, slots in ((low, LOW), (high, HIGH)):
        books = {book for book, _ in engine.core.state.index.streams()}
        assert books == {book for book in (own, other) if indexed(book, parse_index_slots(slots))}
        assert {book for book, _ in engine.core.state.verdicts.writers} == books
        assert engine.status()["index_slots"] == slots


@pytest.mark.parametrize("slots", [LOW, HIGH], ids=["indexed here", "forwarded"])
async def test_rounds_of_linearizable_reads_of_which_some_are_given_up(engines: EngineCluster, slots: str) -> None:
    """What is given up leaves the others alone, though all of a round are answered together and ask together again."""
    low, high = await started(engines, LOW), await started(engines, HIGH)
    number, rounds, readers = book_in(slots), 4, 48
    async with boki.connect(url_of(low)) as client, boki.connect(url_of(high)) as other:
        book = client.book(number)
        await other.book(number).append(bytes(1024))
        before = high.core.frontier.positions[0].entry
        newest = [0]

        async def reads(reader: int) -> None:
            for at in range(rounds):
                if reader % 3 == 0:
                    with pytest.raises((TimeoutError, boki.CallTimeout)):
                        await book.check_tail(consistency="linearizable", timeout=0.0001)
                known = newest[0]
                tail = await book.check_tail(consistency="linearizable")
                assert tail is not None and tail.seqnum >= known
                if reader == at:
                    newest[0] = await other.book(number).append(bytes(1024))
                elif reader % 3 == 1:
                    gone = asyncio.ensure_future(book.check_tail(consistency="linearizable"))
                    await asyncio.sleep(0)
                    gone.cancel()

        async with asyncio.timeout(20):
            await asyncio.gather(*(reads(reader) for reader in range(readers)))
        assert high.core.frontier.positions[0].entry - before < rounds * readers / 2, "they shared entries"
        assert await book.append(b"the connection goes on") > newest[0]
        await engines.until(lambda: not (low.core.reader.parked or high.core.reader.parked))


async def test_one_frame_with_books_of_both_kinds_is_split(engines: EngineCluster) -> None:
    engine, _ = await started(engines, LOW), await started(engines, HIGH)
    books = [book_in(LOW), book_in(HIGH), book_in(LOW, after=100), book_in(HIGH, after=100)]
    async with boki.connect(url_of(engine)) as client:
        tickets = [client.book(book).submit(b"%d %d" % (book, number)) for number in range(20) for book in books]
        seqnums = [await ticket for ticket in tickets]
        assert len(set(seqnums)) == len(seqnums)
        for book in books:
            assert await data_in(client.book(book)) == [b"%d %d" % (book, number) for number in range(20)]


@pytest.mark.parametrize("gone", ["closed", "dead"])
async def test_appends_under_way_when_the_other_engine_ends_are_applied_once(engines: EngineCluster, gone: str) -> None:
    """The connection to it breaks while appends are on their way; another engine takes them under the same numbers."""
    engine = await started(engines, LOW)
    others = [await started(engines, HIGH), await started(engines, HIGH)]
    number = book_in(HIGH)
    async with boki.connect(url_of(engine)) as client:
        book = client.book(number)
        first = await book.append(b"first")
        taken = next(other for other in others if other.status()["connections"])
        tickets = [book.submit(b"%d" % at) for at in range(200)]
        await asyncio.sleep(0)
        if gone == "dead":
            for connection in list(taken._connections):
                connection._peer.connection.abort(ConnectionLost("the machine is gone"))
        else:
            await taken.close()
        more = [book.submit(b"%d" % at) for at in range(200, 400)]
        seqnums = [await ticket for ticket in tickets + more]
        assert sorted({first, *seqnums}) == [first, *seqnums]
        found = [item async for item in book.read() if isinstance(item, boki.Record)]
        assert [record.data for record in found] == [b"first", *(b"%d" % at for at in range(400))]
        assert [record.seqnum for record in found[1:]] == seqnums


async def test_a_read_that_waits_elsewhere_goes_on_when_that_engine_ends(engines: EngineCluster) -> None:
    engine = await started(engines, LOW)
    others = [await started(engines, HIGH), await started(engines, HIGH)]
    async with boki.connect(url_of(engine)) as client:
        book = client.book(book_in(HIGH))
        waiting = asyncio.ensure_future(book.read_next(tag="t", wait=20.0))
        await engines.until(lambda: any(other.core.reader.parked for other in others))
        await next(other for other in others if other.core.reader.parked).close()
        await engines.until(lambda: any(other.core.reader.parked for other in others if not other._closing))
        seqnum = await book.append(b"x", tags=["t"])
        record = await waiting
        assert record is not None and record.seqnum == seqnum


async def test_calls_wait_for_an_engine_that_indexes_the_slot_and_then_are_refused(
    engines: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "FORWARD_WAIT_S", 0.05)
    engine = await started(engines, LOW)
    asked = wire.encode_position({}, book_in(HIGH))
    peer = await greeted(engine)
    with pytest.raises(Unreachable, match=r"no engine that indexes slot \d+ .*none is listed"):
        await peer.call(wire.OP_POSITION, *asked)
    monkeypatch.setattr(forwarding, "FORWARD_WAIT_S", 20.0)
    async with boki.connect(url_of(engine)) as client:
        ticket = client.book(book_in(HIGH)).submit(b"x")
        waiting = asyncio.ensure_future(peer.call(wire.OP_POSITION, *asked, timeout_s=20))
        await asyncio.sleep(0)
        await started(engines, HIGH)
        assert await ticket
        assert wire.decode_position(await waiting)[1] >= 0
    peer.close()


async def greeted(engine: Engine, *features: str, handler: Silent | None = None) -> MessagePeer:
    peer = await connect_messages(engine.addresses[0], handler or Silent())
    await peer.call(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1], "features": list(features)}))
    return peer


async def test_what_was_forwarded_is_not_forwarded_again(engines: EngineCluster) -> None:
    """Each believes that the other indexes the book: nothing goes in circles."""
    engine, _ = await started(engines, LOW), await started(engines, HIGH)
    other = book_in(HIGH)
    peer = await greeted(engine, FORWARDED)
    with pytest.raises(SlotNotInTerm, match=rf"does not index slot {ids.slot_of(other)}"):
        await peer.call(wire.OP_POSITION, *wire.encode_position({}, other))
    wire.decode_position(await peer.call(wire.OP_POSITION, *wire.encode_position({}, book_in(LOW))))
    peer.close()
    handler = Silent()
    peer = await greeted(engine, FORWARDED, handler=handler)
    peer.push(wire.OP_APPEND, wire.encode_token({}), make_batch(RunSpec(other, ALICE, 1, plain_records("x")))._view)
    assert isinstance(await handler.lost, SlotNotInTerm)


async def test_of_reads_that_came_together_each_goes_where_its_book_is(engines: EngineCluster) -> None:
    low, _ = await started(engines, LOW), await started(engines, HIGH)
    own, other = book_in(LOW), book_in(HIGH)
    async with boki.connect(url_of(low)) as client:
        for number in (own, other):
            await client.book(number).append(b"%d" % number)
        books = [client.book(number) for number in (own, other, other, own)]
        found = await asyncio.gather(*(book.check_tail(consistency="linearizable") for book in books))
        assert [record and record.data for record in found] == [b"%d" % book.id for book in books]
    peer = await greeted(low, FORWARDED)
    asked = [peer.expect() for _ in range(2)]
    queries = (query(book=book, consistency=Consistency.LINEARIZABLE) for book in (other, own))
    rows = [asked_row(wire.encode_query(*one), number) for one, (number, _) in zip(queries, asked, strict=True)]
    peer.push(wire.OP_READS, wire.NO_TOKEN, *rows)
    with pytest.raises(SlotNotInTerm):
        await asked[0][1]
    assert len(decode_read_reply(await asked[1][1]).records.seqnums) == 1
    peer.close()


async def test_an_engine_that_is_listed_no_more_is_left(engines: EngineCluster) -> None:
    """Stopped, its session over: its connection looks alive, and nothing comes from it."""
    engine, other = await started(engines, LOW), await started(engines, HIGH)
    async with boki.connect(url_of(engine)) as client:
        book = client.book(book_in(HIGH))
        await book.append(b"a")
        other._connections.copy().popitem()[0]._peer.connection.pause_reading()
        ticket = book.submit(b"b")
        for _ in range(50):
            await asyncio.sleep(0)
        assert not ticket.done()
        taken_over = await started(engines, HIGH)
        assert other._membership is not None
        await other._membership.leave()
        await ticket
        assert taken_over.status()["connections"] == 1
        assert await data_in(book) == [b"a", b"b"]


async def test_logs_that_never_had_a_needed_slot_are_not_followed_and_not_waited_for(engines: EngineCluster) -> None:
    await engines.start_sequencer()
    whole = await started(engines)
    store, client = engines.ledgers.stores[-1], await engines.ledgers.other_client()
    changes = LogChanges(store, client, engines.rng, retry_for_s=10.0, retry_first_s=0.005)
    await changes.add(1)
    await changes.move(range(512, 1024), to=1)
    low, high = await started(engines, "0-100"), await started(engines, "600-700")
    own, other = book_in("0-100"), book_in("600-700")
    async with boki.connect(url_of(whole)) as first, boki.connect(url_of(low)) as second:
        for book in (own, other):
            await first.book(book).append(b"before")
        await engines.until(lambda: 1 in low.core.logs or not low.core.parts.terms.foreign(0))
        session = second.session(first.session_token())
        assert await data_in(session.book(own)) == [b"before"]
        assert await data_in(session.book(other)) == [b"before"]
        assert sorted(low.core.logs) == [0], "log 1 never had slots 0-100"
        assert sorted(high.core.logs) == [0, 1], "log 0 had slots 600-700 before"
        await changes.move(range(10), to=1)
        await changes.move(range(10, 512), to=1)
        await first.book(own).append(b"after")
        session = second.session(first.session_token())
        assert await data_in(session.book(own)) == [
            b"before",
            b"after",
        ]
        assert sorted(low.core.logs) == [0, 1]


async def test_one_of_some_slots_begins_with_the_whole_snapshot_and_never_writes_one(engines: EngineCluster) -> None:
    low = await started(engines, LOW, snapshot_records=1)
    own, other = book_in(LOW), book_in(HIGH)
    whole = await started(engines, snapshot_records=1)
    assert low.incarnation < whole.incarnation, "it would be its turn"
    async with boki.connect(url_of(whole)) as client:
        for book in (own, other):
            await client.book(book).append(b"x", tags=[5])
    store = SnapshotStore(
        metadata=engines.ledgers.store,
        ledgers=await engines.ledgers.other_client(),
        incarnation="f" * 32,
        replicas=1,
        acks=1,
    )
    async with asyncio.timeout(10):
        while not (await store.newest())[0].ledgers:
            await asyncio.sleep(0)
    assert (await store.newest())[0].writer == whole.incarnation
    late = await started(engines, LOW)
    assert {book for book, _ in late.core.state.index.streams()} == {own}
    assert late.core.snapshots.points, "it began with the snapshot"
    assert {book for book, _ in late.core.state.verdicts.writers} == {own}
    async with boki.connect(url_of(late)) as client:
        for book in (own, other):
            assert await data_in(client.book(book)) == [b"x"]


class Nobody:
    """Port `Requester`."""

    def __init__(self) -> None:
        self.refusals: list[BokiError] = []

    def answers_forwarded(self, body: memoryview) -> None:
        """Nothing comes."""

    def refused(self, request_id: int, error: BokiError) -> None:
        self.refusals.append(error)


async def test_appends_on_their_way_are_bounded() -> None:
    neighbours = Neighbours(0, lambda: "0" * 32)
    requester = Nobody()
    forwarder = neighbours.forwarder(requester)
    batch = make_batch(RunSpec(1, ALICE, 1, plain_records("x" * 1_000_000)))
    assert forwarder.append(b"\0\0", batch, 7) is None
    assert not forwarder.crowded
    for _ in range(limits.CONNECTION_UNSENT_BYTES // 1_000_000):
        forwarder.append(b"\0\0", batch, 7)
    assert forwarder.crowded
    with pytest.raises(Overloaded):
        forwarder.append(b"\0\0", batch, 7)
    room = asyncio.Event()
    forwarder.when_room(room.set)
    await asyncio.sleep(0)
    assert not room.is_set()
    await forwarder.close()
    assert requester.refusals == []


async def test_wrong_addresses_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale, unreachable, of another engine, no engine at all: what is listed is a hint."""
    monkeypatch.setattr(forwarding, "FORWARD_WAIT_S", 0.2)
    greetings: list[bytes] = [msgspec.msgpack.encode({"engine": "another"}), b"\xc1"]

    class Strange:
        def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
            peer.respond(request_id, opcode, greetings[0])
            greetings.append(greetings.pop(0))

        def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
            """It tries again."""

    server = await serve_messages(ANYWHERE, lambda _: Strange(), strangers=BEFORE_FIRST_FRAME)
    neighbours = Neighbours(0, lambda: "0" * 32)
    addresses = ("?", "0.0.0.0:1", "127.0.0.1:1", str(server.address))
    neighbours.update([EngineMember("e" * 32, addresses, parse_index_slots("all"))])
    requester = Nobody()
    forwarder = neighbours.forwarder(requester)
    forwarder.append(b"\0\0", make_batch(RunSpec(1, ALICE, 1, plain_records("x"))), 7)
    with pytest.raises(Unreachable):
        await forwarder.call(wire.OP_POSITION, memoryview(b"".join(wire.encode_position({}, 1))), 1)
    assert [type(error) for error in requester.refusals] == [Unreachable]
    await forwarder.close()
    await server.close()


def test_the_book_of_each_call() -> None:
    token = {0: Position(1, 2)}
    for opcode, body in (
        (wire.OP_POSITION, wire.encode_position(token, 77)),
        (wire.OP_READ_PREV_MANY, wire.encode_prev_many(token, 77, [(1, 2)])),
        (wire.OP_TRIM, wire.encode_trim(token, 77, [(1, 2)], forget=False)),
        (wire.OP_WRITER, wire.encode_writer(token, 77, ALICE)),
        (wire.OP_SEEK, wire.encode_seek(token, 77, 5, wire.Consistency.SESSION)),
        (wire.OP_SET_AUX, wire.encode_set_aux(77, 3, b"aux")),
    ):
        assert book_of(opcode, memoryview(b"".join(body))) == 77
    with pytest.raises(ProtocolError):
        book_of(wire.OP_READ, memoryview(b"\0\0123"))


async def test_engines_spread_over_those_that_index_a_slot() -> None:
    engines = [EngineMember(f"{at}" * 32, (), slots) for at, slots in enumerate((3, 1, 2, 3))]
    tried = []
    for me in ("0" * 32, "1" * 32, "2" * 32):
        neighbours = Neighbours(0, lambda me=me: me)  # type: ignore[misc]
        neighbours.update(engines)
        tried.append([engine.incarnation[0] for engine in neighbours.indexing(1)])
        assert [engine.incarnation[0] for engine in neighbours.indexing(3)][:1] in (["3"], ["0"])
    assert all(len(one) in (2, 3) for one in tried)
    assert len({one[0] for one in tried}) > 1
