"""Connections of SDKs over real sockets: what they may say, and what happens when they say something else."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.engine.core_as_engine import CoreAsEngine

import boki
from boki_common import limits
from boki_common.engine import engine_protocol as wire
from boki_common.engine.answers import AnswerRow, decode_answers
from boki_common.engine.engine_protocol import Consistency, Direction, Query, Verdict
from boki_common.engine.read_reply import decode_read_reply
from boki_common.engine.reads_together import asked_row, decode_read_answers
from boki_common.errors import (
    BokiError,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    RecordTooLarge,
    RemoteError,
    VersionMismatch,
)
from boki_common.ids import Position
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, connect_messages, serve_messages
from boki_common.records.record_batch import join
from boki_logbook import server
from boki_logbook.append.router import AppendRouter
from boki_logbook.connection_ports import EngineState
from boki_logbook.core import EngineCore
from boki_logbook.read.barrier_reads import FIRST_SLICE_READS
from boki_logbook.read.compression import compressor
from boki_logbook.server import COPIED_BYTES, SdkConnection
from boki_logbook.testing.cluster import RecordSpec, RunSpec, make_batch

ALICE = bytes(15) + b"a"
NO_TOKEN = wire.encode_token({})


class Sdk:
    """The client's end: keeps the pushes."""

    def __init__(self) -> None:
        self.peer: MessagePeer
        self.rows: list[AnswerRow] = []
        self.answered: dict[int, memoryview] = {}
        """Answers to READS, by request id."""
        self.slices: list[tuple[int, bool]] = []
        """How many of them came together, and whether others were to follow."""
        self.pushed = asyncio.Event()
        self.lost: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        assert request_id == 0
        if opcode == wire.OP_READS:
            answers, more = decode_read_answers(body)
            self.answered.update(answers)
            self.slices.append((len(answers), more))
            peer.take_answers(answers)
        else:
            assert opcode == wire.OP_ANSWERS
            self.rows.extend(decode_answers(body)[1])
        self.pushed.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set_result(error)

    async def hello(self, *features: str) -> None:
        await self.peer.call(wire.OP_HELLO, msgspec.msgpack.encode({"versions": [1], "features": features}))

    def read(self, *queries: Query) -> list[asyncio.Future[memoryview]]:
        """Linearizable reads that leave together."""
        asked = [self.peer.expect() for _ in queries]
        rows = [
            asked_row(wire.encode_query(*one._replace(consistency=Consistency.LINEARIZABLE)), number)
            for one, (number, _) in zip(queries, asked, strict=True)
        ]
        self.peer.push(wire.OP_READS, NO_TOKEN, *rows)
        return [future for _, future in asked]

    async def answers(self, count: int) -> list[AnswerRow]:
        while len(self.rows) < count:
            self.pushed.clear()
            await self.pushed.wait()
        return self.rows

    def append(self, *runs: RunSpec) -> None:
        self.peer.push(wire.OP_APPEND, NO_TOKEN, make_batch(*runs)._view)


class Served:
    """An engine core behind a real server."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.engine = CoreAsEngine(core)
        self.connections: dict[SdkConnection, None] = {}
        self.server: FrameServer
        self.sdks: list[Sdk] = []

    def connected(self, peer: MessagePeer) -> SdkConnection:
        connection = SdkConnection(
            peer,
            engine=cast(EngineState, self.engine),
            engines=list,
            appender=self.core.appender,
            reader=self.core.reader,
            headers=self.core.headers,
            lost=lambda one: self.connections.pop(one, None),
        )
        self.connections[connection] = None
        return connection

    async def sdk(self, *features: str, greet: bool = True) -> Sdk:
        made = Sdk()
        made.peer = await connect_messages(self.server.address, made)
        self.sdks.append(made)
        if greet:
            await made.hello(*features)
        return made

    async def close(self) -> None:
        for sdk in self.sdks:
            sdk.peer.close()
        for connection in list(self.connections):
            await connection.close()
        await self.server.close()


@pytest.fixture(params=["tcp", "unix"])
async def served(cluster: Any, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(await cluster.engine())
    address = Address("127.0.0.1", 0) if request.param == "tcp" else Address("", 0, str(tmp_path / "engine.sock"))
    made.server = await serve_messages(address, made.connected)
    yield made
    await made.close()


def url_of(served: Served) -> str:
    address = served.server.address
    return str(address) if address.path else f"boki://{address}"


def run(first: int, *data: bytes, tags: tuple[int, ...] = (), book: int = 1) -> RunSpec:
    return RunSpec(book, ALICE, first, tuple(RecordSpec(tags=tags, data=one) for one in data))


def query(tag: int = 0, *, wait_ms: int = 0, max_records: int = 100) -> Query:
    return Query(1, tag, 0, 2**63, max_records, 1_000_000, wait_ms, Direction.NEXT, Consistency.SESSION)


async def test_append_answers_read(served: Served) -> None:
    sdk = await served.sdk()
    sdk.append(run(1, b"x", b"y", tags=(5,)), run(1, b"z", book=2))
    rows = await sdk.answers(2)
    assert [(row.book, row.first, row.count, row.verdict) for row in rows] == [
        (1, 1, 2, Verdict.COMMITTED),
        (2, 1, 1, Verdict.COMMITTED),
    ]
    body = await sdk.peer.call(wire.OP_READ, *wire.encode_read({}, query(5)))
    reply = decode_read_reply(body)
    assert reply.records.seqnums.tolist() == [rows[0].first_seqnum, rows[0].first_seqnum + 1]
    assert reply.records.tags.tolist() == [5, 5]
    assert bytes(reply.records.payloads) == b"\0\0x\0\0y"


async def test_prev_many_position_and_status(served: Served) -> None:
    sdk = await served.sdk()
    sdk.append(run(1, b"x", tags=(5,)))
    (row,) = await sdk.answers(1)
    body = await sdk.peer.call(wire.OP_READ_PREV_MANY, *wire.encode_prev_many({}, 1, [(5, 2**63 - 1), (6, 2**63 - 1)]))
    assert decode_read_reply(body).records.seqnums.tolist() == [row.first_seqnum, 0]
    token, position = wire.decode_position(await sdk.peer.call(wire.OP_POSITION, *wire.encode_position({}, 1)))
    assert position == row.first_seqnum
    assert token == served.core.frontier.positions
    status = msgspec.json.decode(await sdk.peer.call(wire.OP_STATUS))
    assert status["records"] == 1


async def test_a_blocked_read_is_answered_when_the_record_comes(served: Served) -> None:
    reader, writer = await served.sdk(), await served.sdk()
    waiting = reader.peer.request(wire.OP_READ, *wire.encode_read({}, query(wait_ms=5_000)))
    await reader.peer.call(wire.OP_STATUS)
    writer.append(run(1, b"x"))
    assert len(decode_read_reply(await waiting).records.seqnums) == 1


async def test_reads_that_came_together_are_answered_together(served: Served) -> None:
    sdk = await served.sdk(wire.READS)
    sdk.append(run(1, b"x", b"y", tags=(5,)), run(1, b"z", book=2))
    rows = await sdk.answers(2)
    asked = [query(5), query(5, max_records=1), query()._replace(book=2), query(6)] * 5
    first, one, other, none = (decode_read_reply(body) for body in (await asyncio.gather(*sdk.read(*asked)))[:4])
    assert first.records.seqnums.tolist() == [rows[0].first_seqnum, rows[0].first_seqnum + 1]
    assert one.records.seqnums.tolist() == [rows[0].first_seqnum]
    assert other.records.seqnums.tolist() == [rows[1].first_seqnum]
    assert none.records.seqnums.tolist() == []
    assert [more for _, more in sdk.slices] == [*[True] * (len(sdk.slices) - 1), False]
    assert sum(count for count, _ in sdk.slices) == len(sdk.answered) == 20
    assert served.core.reader.parked == 0


async def test_an_answer_without_company_is_one_as_any_other(served: Served) -> None:
    sdk = await served.sdk(wire.READS)
    sdk.append(run(1, b"x"))
    await sdk.answers(1)
    for _ in range(2):
        (asked,) = sdk.read(query())
        assert len(decode_read_reply(await asked).records.seqnums) == 1
        await asyncio.gather(*sdk.read(*[query()] * FIRST_SLICE_READS))
    assert sdk.slices == [(FIRST_SLICE_READS, True), (0, False)] * 2, "but for word that no other follows"


async def test_large_answers_leave_by_themselves_and_others_say_that_none_follows(served: Served) -> None:
    sdk = await served.sdk(wire.READS)
    sdk.append(run(1, bytes(COPIED_BYTES)), run(1, b"x", book=2))
    await sdk.answers(2)
    large, small = query(max_records=1), query(max_records=1)._replace(book=2)
    found = await asyncio.gather(*sdk.read(small, *[large] * 20))
    assert [len(decode_read_reply(body).records.payloads) > COPIED_BYTES for body in found] == [False, *[True] * 20]
    assert sdk.slices == [(1, True), (0, False)]


async def test_who_does_not_take_answers_together_gets_each_by_itself(served: Served) -> None:
    sdk = await served.sdk()
    sdk.append(run(1, b"x"))
    await sdk.answers(1)
    for body in await asyncio.gather(*sdk.read(query(), query())):
        assert len(decode_read_reply(body).records.seqnums) == 1
    assert not sdk.slices


async def test_too_many_reads_that_came_together_are_refused_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PENDING_READS", 3)
    sdk = await served.sdk(wire.READS)
    asked = [*sdk.read(query(), query()), *sdk.read(query(), query())]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(one, Overloaded) for one in found] == [False, False, True, True]
    assert isinstance(decode_read_reply(await sdk.read(query())[0]).records.seqnums, memoryview), "there is room again"


async def test_a_lost_connection_leaves_no_waiting_reads(served: Served, cluster: Any) -> None:
    sdk = await served.sdk()
    reading = sdk.peer.request(wire.OP_READ, *wire.encode_read({}, query(wait_ms=5_000)))
    await cluster.until(lambda: served.core.reader.parked == 1)
    sdk.peer.close()
    await cluster.until(lambda: served.core.reader.parked == 0 and not served.connections)
    with pytest.raises(ConnectionLost):
        await reading


async def test_a_connection_lost_in_the_turn_of_a_read_leaves_none_that_never_began(
    served: Served, recwarn: pytest.WarningsRecorder
) -> None:
    await served.sdk()
    (connection,) = served.connections
    body = b"".join(wire.encode_read({}, query(wait_ms=5_000)))
    connection.message_received(connection._peer, wire.OP_READ, 1, memoryview(body))
    assert connection._waiting
    await connection.close()
    assert not connection._waiting
    assert not recwarn.list, "a coroutine that was never awaited"


async def test_answers_go_to_the_connection_that_sent(served: Served) -> None:
    one, two = await served.sdk(), await served.sdk()
    one.append(run(1, b"x", book=1))
    two.append(run(1, b"y", book=2))
    assert [row.book for row in await one.answers(1)] == [1]
    assert [row.book for row in await two.answers(1)] == [2]


async def test_a_resend_on_a_new_connection_is_answered_there(served: Served, cluster: Any) -> None:
    cluster.log.cut_by_itself = False
    first = await served.sdk()
    first.append(run(1, b"x"))
    await cluster.until(lambda: served.core.appender.queued_bytes)
    first.peer.close()
    again = await served.sdk()
    again.append(run(1, b"x"))
    shard = served.core.logs[0].appender.shard
    await cluster.until(lambda: shard is not None and shard.acked_entries == 2)
    cluster.log.cut()
    (row,) = await again.answers(1)
    assert row.verdict == Verdict.COMMITTED
    assert len(served.core.state.index) == 1


# -- what SDKs may not say


async def refused(sdk: Sdk, opcode: int, body: bytes) -> BokiError:
    with pytest.raises(BokiError) as raised:
        await sdk.peer.call(opcode, body)
    return raised.value


async def test_hello_comes_first(served: Served) -> None:
    sdk = await served.sdk(greet=False)
    assert isinstance(await refused(sdk, wire.OP_STATUS, b""), ProtocolError)
    await sdk.lost


async def test_an_unknown_version_is_refused_with_the_known_one(served: Served) -> None:
    sdk = await served.sdk(greet=False)
    error = await refused(sdk, wire.OP_HELLO, msgspec.msgpack.encode({"versions": [7]}))
    assert isinstance(error, VersionMismatch)
    assert error.found == [7]
    await sdk.lost


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81\xa1\xff\x01",
        msgspec.msgpack.encode({"versions": "1"}),
        msgspec.msgpack.encode([1]),
        b"\x81\xa4auth" + b"\x91" * 20_000,
    ],
)
async def test_a_hello_that_is_none(served: Served, body: bytes) -> None:
    sdk = await served.sdk(greet=False)
    assert isinstance(await refused(sdk, wire.OP_HELLO, body), ProtocolError)


GOOD = bytes(make_batch(run(1, b"x", tags=(5,)))._view)


def damaged(offset: int, *values: int) -> bytes:
    body = bytearray(GOOD)
    body[offset : offset + len(values)] = bytes(values)
    return NO_TOKEN + bytes(body)


BAD_APPENDS = {
    "empty": b"",
    "no batch": NO_TOKEN,
    "token cut short": b"\x09\x00",
    "half a batch": NO_TOKEN + GOOD[:-3],
    "bytes after the end": NO_TOKEN + GOOD + b"!",
    "unknown version": damaged(0, 9),
    "huge record count": damaged(8, 255, 255, 255, 255),
    "huge run count": damaged(4, 255, 255, 255, 255),
    "huge data": damaged(28, 255, 255, 255, 255),
    "tag 2**64-1": damaged(64 + 56, *[255] * 8),
    "tag 0": damaged(64 + 56, *[0] * 8),
    "number 0": damaged(64 + 24, *[0] * 8),
    "unknown run flags": damaged(64 + 52, 0, 1),
}


@pytest.mark.parametrize("name", BAD_APPENDS)
async def test_malformed_appends_end_the_connection_and_nothing_else(served: Served, name: str) -> None:
    bad, good = await served.sdk(), await served.sdk()
    assert isinstance(await refused(bad, wire.OP_APPEND, BAD_APPENDS[name]), ProtocolError)
    await bad.lost
    good.append(run(1, b"x"))
    assert len(await good.answers(1)) == 1
    assert len(served.core.state.index) == 1


async def test_a_record_that_nobody_could_open_is_refused_before_it_is_stored(served: Served) -> None:
    """Its columns are right: it would be ordered, and every reader would end there."""
    sdk, other = await served.sdk(), await served.sdk()
    batch = make_batch(run(1, b"x"))
    sdk.peer.push(wire.OP_APPEND, NO_TOKEN, batch.header, b"\xff\x00x")
    assert isinstance(await sdk.lost, ProtocolError)
    other.append(run(1, b"y"))
    await other.answers(1)
    assert served.core.state.records == 1


async def test_a_stored_record_that_nobody_can_open_is_a_gap_with_evidence(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine of an earlier version took it."""
    monkeypatch.setattr(server, "check_payloads", lambda batch: None)
    sdk = await served.sdk()
    book = 7
    sdk.append(run(1, b"1", book=book))
    batch = make_batch(run(2, b"x", tags=(5,), book=book))
    sdk.peer.push(wire.OP_APPEND, NO_TOKEN, batch.header, b"\xff\x00x")
    sdk.append(run(3, b"3", book=book))
    bad = (await sdk.answers(3))[1].first_seqnum
    async with boki.connect(url_of(served)) as client:
        found = [item async for item in client.book(book).read()]
        assert [item.data for item in found if isinstance(item, boki.Record)] == [b"1", b"3"]
        (gap,) = (item for item in found if isinstance(item, boki.Gap))
        assert (gap.kind, gap.first, gap.last) == (boki.GapKind.LOST, bad, bad)
        assert "declares 255 bytes of tag names" in gap.evidence
        for reading in (
            client.book(book).read_at(bad),
            client.book(book).read_next(tag=5, at_least=0),
            client.book(book).check_tail(tag=5),
            client.book(book).read_prev_many([(5, None)]),
        ):
            with pytest.raises(boki.Lost, match="cannot be read"):
                await reading
        record = await client.book(book).read_next(at_least=bad + 1)
        assert record is not None and record.data == b"3", "the next one"


async def test_a_compressed_batch_is_refused(served: Served) -> None:
    sdk = await served.sdk()
    batch = make_batch(run(1, bytes(10_000)))
    packed = b"".join(join([batch], term=0, shard=0, first_local_id=0, compress=compressor()))
    assert isinstance(await refused(sdk, wire.OP_APPEND, NO_TOKEN + packed), ProtocolError)


BAD_REQUESTS = {
    "unknown opcode": (99, b""),
    "short read": (wire.OP_READ, NO_TOKEN),
    "no reads": (wire.OP_READS, NO_TOKEN),
    "too many records": (wire.OP_READ, wire.encode_read({}, query(max_records=limits.READ_RECORDS + 1))[0]),
    "waits too long": (wire.OP_READ, wire.encode_read({}, query(wait_ms=limits.READ_WAIT_MS + 1))[0]),
    "short position": (wire.OP_POSITION, NO_TOKEN + b"1"),
    "query count": (wire.OP_READ_PREV_MANY, NO_TOKEN + bytes(8) + b"\xff\xff\xff\xff" + bytes(4)),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
async def test_malformed_requests_end_the_connection(served: Served, name: str) -> None:
    sdk = await served.sdk()
    opcode, body = BAD_REQUESTS[name]
    assert isinstance(await refused(sdk, opcode, bytes(body)), ProtocolError)
    await sdk.lost


async def test_a_frame_over_the_entry_limit_is_refused_by_name(served: Served) -> None:
    sdk = await served.sdk()
    error = await refused(sdk, wire.OP_APPEND, NO_TOKEN + bytes(limits.ENTRY_BYTES + 1))
    assert isinstance(error, RecordTooLarge)
    await sdk.peer.call(wire.OP_STATUS)


def with_queue(served: Served, size: int) -> AppendRouter:
    """Its appender, which queues so many bytes."""
    appender = served.core.appender
    appender._settings = dataclasses.replace(appender._settings, append_queue_bytes=size)
    return appender


async def test_a_full_queue_is_reported_to_who_sent(served: Served, cluster: Any) -> None:
    cluster.ledgers.hold_acks = True
    with_queue(served, 1_000)
    sdk = await served.sdk()
    error = await refused(sdk, wire.OP_APPEND, NO_TOKEN + bytes(make_batch(run(1, bytes(5_000)))._view))
    assert isinstance(error, Overloaded)
    await sdk.peer.call(wire.OP_STATUS)


async def test_a_refused_push_ends_the_connection_for_the_sdk(served: Served, cluster: Any) -> None:
    """An append sent as a push has no answer; what the engine drops must still be reported."""
    with_queue(served, 1_000)
    sdk = await served.sdk()
    sdk.append(run(1, bytes(5_000)))
    assert isinstance(await sdk.lost, Overloaded)


async def submitted(cluster: Any, *clients: boki.Client) -> list[tuple[boki.Book, list[boki.Ticket]]]:
    """Fifteen records of 5 KB by each client to a book of its own, in three frames."""
    made: list[tuple[boki.Book, list[boki.Ticket]]] = []
    for number, client in enumerate(clients, 1):
        book = client.book(number)
        tickets = []
        for record in range(15):
            tickets.append(book.submit(b"%d" % record + bytes(5_000)))
            if record % 5 == 4:
                await cluster.settle()
        made.append((book, tickets))
    return made


async def there_once_and_in_order(appended: list[tuple[boki.Book, list[boki.Ticket]]]) -> None:
    for book, tickets in appended:
        seqnums = [await ticket for ticket in tickets]
        found = [(record.seqnum, record.data) async for record in book.read()]
        assert found == [(seqnum, b"%d" % number + bytes(5_000)) for number, seqnum in enumerate(seqnums)]


async def test_what_was_refused_is_there_once_and_in_order(served: Served, cluster: Any) -> None:
    """A refusal takes the verdicts of its connection's other appends along; the SDK sends them all again."""
    appender = with_queue(served, 100_000)
    await cluster.log.end_term()  # nothing makes room, so there is nothing to wait for
    async with boki.connect(url_of(served)) as first, boki.connect(url_of(served)) as second:
        appended = await submitted(cluster, first, second)
        lost = second._connection
        assert lost is not None
        await cluster.until(lambda: lost.peer is None)
        assert appender.queued_bytes > 75_000
        await cluster.log.begin_term()
        await there_once_and_in_order(appended)
    assert appender.queued_bytes == 0


async def test_clients_are_slowed_down_before_they_are_refused(served: Served, cluster: Any) -> None:
    appender = with_queue(served, 150_000)
    cluster.log.cut_by_itself = False
    async with boki.connect(url_of(served)) as first, boki.connect(url_of(served)) as second:
        peers = [client._connection.peer for client in (first, second) if client._connection is not None]
        appended = await submitted(cluster, first, second)
        await cluster.until(lambda: all(connection._intake.held_back for connection in served.connections))
        assert 75_000 < appender.queued_bytes < 150_000
        cluster.log.cut_by_itself = True
        cluster.log.cut_soon()
        await there_once_and_in_order(appended)
        assert [client._connection.peer for client in (first, second) if client._connection is not None] == peers
    assert appender.queued_bytes == 0


async def test_clients_that_were_slowed_down_go_on_when_the_shard_ends(served: Served, cluster: Any) -> None:
    with_queue(served, 150_000)
    cluster.log.cut_by_itself = False
    async with boki.connect(url_of(served)) as first, boki.connect(url_of(served)) as second:
        appended = await submitted(cluster, first, second)
        await cluster.until(lambda: any(connection._intake.held_back for connection in served.connections))
        await cluster.log.end_term()
        assert not any(connection._intake.held_back for connection in served.connections)
        cluster.log.cut_by_itself = True
        await cluster.log.begin_term()
        await there_once_and_in_order(appended)


async def test_a_read_that_fails_inside_is_an_error_for_that_read_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = await served.sdk()
    monkeypatch.setattr(served.core.reader, "position", broken)
    with pytest.raises(RemoteError):
        await sdk.peer.call(wire.OP_POSITION, *wire.encode_position({}, 1))
    await sdk.peer.call(wire.OP_STATUS)


async def broken(token: dict[int, Position]) -> list[bytes]:
    raise ZeroDivisionError("a bug")


async def test_bytes_of_another_protocol(served: Served) -> None:
    address = served.server.address
    if address.path:
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: boki\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    sdk = await served.sdk()
    await sdk.peer.call(wire.OP_STATUS)


async def test_a_certain_conflict_is_answered_while_nothing_is_ordered(served: Served, cluster: Any) -> None:
    sdk = await served.sdk()
    sdk.append(run(1, b"x", b"y", tags=(5,)))
    (row,) = await sdk.answers(1)
    cluster.ledgers.hold_acks = True
    shard = served.core.logs[0].appender.shard
    assert shard is not None
    sdk.append(RunSpec(1, ALICE, 3, (RecordSpec(tags=(5,), data=b"loser", expect=((5, row.first_seqnum),)),)))
    answered = (await sdk.answers(2))[1]
    assert (answered.first, answered.verdict, answered.actual) == (3, Verdict.CONFLICT, ((5, row.first_seqnum + 1),))
    assert answered.position == served.core.view_of(1)[1]
    assert b"loser" not in cluster.ledgers[shard.writer.ledger_id].entries[-1]
    cluster.ledgers[shard.writer.ledger_id].ack()
    ordered = (await sdk.answers(3))[2]
    assert (ordered.first, ordered.verdict, ordered.actual) == (3, Verdict.CONFLICT, answered.actual)
