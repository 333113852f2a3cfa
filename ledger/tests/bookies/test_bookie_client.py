"""The real transport against servers on loopback sockets: matching, runs, reconnecting, hung bookies, bad frames."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.bookies import wires
from tests.bookies.wires import B1, KEY, LEDGER, Listener, SocketBookie

from boki_common.bookkeeper import v2
from boki_common.bookkeeper.digests import CRC32C
from boki_common.bookkeeper.status import V2Status
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, ProtocolError, Unreachable
from boki_common.ids import BookieId
from boki_common.net.connection import FrameConnection
from boki_common.runtime.ports import Buffer
from boki_common.testing.machine import CountingRandom
from boki_ledger.bookies.bookie_link import Channel
from boki_ledger.client import LedgerClient
from boki_ledger.testing.ledgers import QUICK, turns, until
from boki_ledger.transport import BatchAnswer, ReadAnswer


class WireBookie(SocketBookie[v2.Request]):
    """It speaks v2; `raw` is sent instead of the next answer."""

    raw: bytes | None = None
    closes_at_batches = False

    def decode(self, frame: memoryview) -> v2.Request:
        return v2.decode_request(frame)

    def answer(self, connection: FrameConnection, request: v2.Request) -> None:
        if self.raw is not None:
            raw, self.raw = self.raw, None
            connection.send(raw)
        elif isinstance(request, v2.AddRequest):
            status = self.state.add(request)
            connection.send(v2.encode_add_response(status, request.ledger_id, request.entry_id))
        elif isinstance(request, v2.ReadRequest):
            status, body = self.state.read(request.ledger_id, request.entry_id, request.master_key)
            connection.send(*v2.encode_read_response(status, request.ledger_id, request.entry_id, body))
        elif isinstance(request, v2.BatchReadRequest):
            self.answer_batch(connection, request)
        elif isinstance(request, v2.HoldRequest):
            status = self.state.hold(request.ledger_id, request.master_key, request.version)
            connection.send(v2.encode_hold_response(status, request.ledger_id, request.version))

    def answer_batch(self, connection: FrameConnection, request: v2.BatchReadRequest) -> None:
        if self.closes_at_batches:
            connection.abort(ProtocolError("a batch read"))
        elif not self.state.serves_batches:
            connection.send(v2.encode_unknown_response(v2.UnknownRequest(2, v2.OP_BATCH_READ, V2Status.BAD_REQUEST)))
        else:
            ledger_id, first = request.ledger_id, request.entry_id
            status, bodies = self.state.read_batch(ledger_id, first, request.max_count, request.max_bytes)
            connection.send(*v2.encode_batch_read_response(status, ledger_id, first, request.request_id, bodies))


def add(entry_id: int, *, ledger_id: int = LEDGER) -> list[Buffer]:
    return v2.encode_add(v2.EntryHeader(ledger_id, entry_id, -1, 1), CRC32C, KEY, [b"x"])


Wire = wires.Wire[WireBookie]


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with Wire(WireBookie()).running() as made:
        yield made


@pytest.fixture
async def short_timeout() -> AsyncIterator[Wire]:
    """As `wire`, with a time-out of a quarter of a second for hung bookies."""
    async with Wire(WireBookie(), answer_timeout_s=0.25).running() as made:
        yield made


async def test_acks_of_consecutive_entries_come_as_runs_in_batches(wire: Wire) -> None:
    channel, listener = await wire.channel()
    assert listener.ups == 1
    for entry_id in range(100):
        channel.send(add(entry_id))
    await until(lambda: sum(count for _, count in listener.acked) == 100)
    assert listener.batches < 20
    assert [first for first, _ in listener.acked] == sorted(first for first, _ in listener.acked)
    assert isinstance(channel, Channel) and channel.unanswered == 0


async def test_refusals_carry_entry_and_status(wire: Wire) -> None:
    wire.bookie.state.fenced[LEDGER] = True
    channel, listener = await wire.channel()
    channel.send(add(3))
    await until(lambda: bool(listener.refused))
    assert listener.refused == [(3, V2Status.FENCED)] and listener.acked == []


async def test_reads_are_answered_and_distinguish_no_ledger_from_no_entry(wire: Wire) -> None:
    read = wire.network.read
    assert (await read(B1, LEDGER, 0)).status is V2Status.NO_LEDGER
    assert (await read(B1, LEDGER, -1, fence_key=KEY)).status is V2Status.NO_ENTRY
    assert (await read(B1, LEDGER, -1, fence_key=b"?" * 20)).status is V2Status.UNAUTHORIZED
    wire.bookie.state.entries[LEDGER] = {0: b"body"}
    many = await asyncio.gather(*(read(B1, LEDGER, 0) for _ in range(50)))
    assert all(bytes(one.body or b"") == b"body" for one in many)


async def test_an_answer_to_a_read_without_fence_never_counts_for_a_fencing_read(wire: Wire) -> None:
    """A fencing read of the same entry is held back until the plain ones before it are answered."""
    wire.bookie.mute = True
    plain = [wire.network.read(B1, LEDGER, 4) for _ in range(2)]
    fencing = wire.network.read(B1, LEDGER, 4, fence_key=KEY)
    plain.append(wire.network.read(B1, LEDGER, 4))
    await until(lambda: len(wire.bookie.waiting) == 2)
    assert not fencing.done()
    wire.bookie.speak()
    assert (await plain[0]).status is V2Status.NO_LEDGER
    assert (await fencing).status is V2Status.NO_ENTRY, "the fencing read made the ledger"
    assert (await plain[2]).status is V2Status.NO_ENTRY
    keys = [request.master_key for request in wire.bookie.requests if isinstance(request, v2.ReadRequest)]
    assert keys == [None, None, KEY, None]


async def test_a_single_read_and_those_that_join_it_share_no_answer(wire: Wire) -> None:
    """Asked once, then again, with a fence, given up, and refused: in whatever order, each gets its own answer."""
    assert (await wire.network.read(B1, LEDGER, 99)).status is V2Status.NO_LEDGER  # connected
    for seed in range(20):
        rng = random.Random(seed)
        wire.bookie.requests.clear()
        wire.bookie.mute = True
        asked: dict[int, list[tuple[bytes | None, asyncio.Future[ReadAnswer]]]] = {}
        for _ in range(rng.randint(1, 30)):
            entry_id = rng.randrange(3)
            key = rng.choice([None, None, KEY])
            future = wire.network.read(B1, LEDGER, entry_id, fence_key=key)
            asked.setdefault(entry_id, []).append((key, future))
            if rng.random() < 0.2:
                future.cancel()
            if rng.random() < 0.3:
                await until(lambda: bool(wire.bookie.waiting))
            if rng.random() < 0.2:
                answer_numbered(wire)
        while wire.network._links[B1][0].outstanding():
            answer_numbered(wire)
            await turns(1)
        for entry_id, of_entry in asked.items():
            requests = [one for one in wire.bookie.requests if isinstance(one, v2.ReadRequest)]
            of_wire = [(number, one) for number, one in enumerate(requests) if one.entry_id == entry_id]
            assert [one.master_key for _, one in of_wire] == [key for key, _ in of_entry], "in order of asking"
            for (number, _), (_, future) in zip(of_wire, of_entry, strict=True):
                assert future.cancelled() or bytes(future.result().body or b"") == body_of(number), seed


def body_of(number: int) -> bytes:
    """Every third request is refused."""
    return b"" if number % 3 == 2 else b"answer %d" % number


def answer_numbered(wire: Wire) -> None:
    """Answers each request that waits with its number among all of them."""
    waiting, wire.bookie.waiting = wire.bookie.waiting, []
    for connection, request in waiting:
        assert isinstance(request, v2.ReadRequest)
        body = body_of(next(at for at, one in enumerate(wire.bookie.requests) if one is request))
        status = V2Status.OK if body else V2Status.NO_ENTRY
        connection.send(*v2.encode_read_response(status, LEDGER, request.entry_id, body or None))


async def test_reads_that_have_not_left_when_the_connection_ends_are_unknown_for_good(wire: Wire) -> None:
    assert (await wire.network.read(B1, LEDGER, 0)).status is V2Status.NO_LEDGER
    wire.bookie.requests.clear()
    unsent = [wire.network.read(B1, LEDGER, entry_id) for entry_id in (1, 2, 2)]
    wire.network._links[B1][0].drop(ConnectionLost("by the test"))
    assert [(await one).status for one in unsent] == [None] * 3
    while (await wire.network.read(B1, LEDGER, 3)).status is None:
        await turns(1)
    assert [one.entry_id for one in wire.bookie.requests if isinstance(one, v2.ReadRequest)] == [3]


async def test_a_cancelled_read_takes_its_answer_with_it(wire: Wire) -> None:
    wire.bookie.mute = True
    first, second = wire.network.read(B1, LEDGER, 1), wire.network.read(B1, LEDGER, 1, fence_key=KEY)
    await until(lambda: len(wire.bookie.waiting) == 1)
    first.cancel()
    wire.bookie.speak()
    assert (await second).status is V2Status.NO_ENTRY


def read_batch(wire: Wire, entry_id: int, count: int = 3) -> asyncio.Future[BatchAnswer]:
    return wire.network.read_batch(B1, LEDGER, entry_id, max_count=count, max_bytes=1000)


async def test_batch_reads_are_matched_by_their_id_in_any_order(wire: Wire) -> None:
    wire.bookie.state.entries[LEDGER] = {number: b"body %d" % number for number in range(4)}
    wire.bookie.mute = True
    asked = [read_batch(wire, 0), read_batch(wire, 0, 2), read_batch(wire, 2), read_batch(wire, 9)]
    await until(lambda: len(wire.bookie.waiting) == 4)
    asked[1].cancel()
    wire.bookie.waiting.reverse()
    wire.bookie.speak()
    answers = [await asked[0], await asked[2], await asked[3]]
    assert [[bytes(body) for body in one.bodies] for one in answers] == [
        [b"body 0", b"body 1", b"body 2"],
        [b"body 2", b"body 3"],
        [],
    ]
    assert [one.status for one in answers] == [V2Status.OK, V2Status.OK, V2Status.NO_ENTRY]
    assert wire.network.serves_batches(B1)


@pytest.mark.parametrize(
    "response",
    [
        (LEDGER, 0, 2, [b"x"]),
        (LEDGER, 1, 1, [b"x"]),
        (LEDGER + 1, 0, 1, [b"x"]),
        (LEDGER, 0, 1, [b"x"] * 4),
    ],
    ids=["id", "entry", "ledger", "more than asked"],
)
async def test_an_answer_to_another_batch_read_ends_the_connection(
    wire: Wire, response: tuple[int, int, int, list[bytes]]
) -> None:
    wire.bookie.raw = b"".join(bytes(part) for part in v2.encode_batch_read_response(V2Status.OK, *response))
    answer = await read_batch(wire, 0)
    assert answer.status is None and isinstance(answer.error, ProtocolError)


async def test_a_bookie_that_refuses_batch_reads_as_unknown_is_asked_for_none_again(wire: Wire) -> None:
    wire.bookie.state.serves_batches = False
    answers = await asyncio.gather(*(read_batch(wire, number) for number in range(3)))
    assert [one.status for one in answers] == [V2Status.BAD_REQUEST] * 3
    assert not wire.network.serves_batches(B1)
    assert (await wire.network.read(B1, LEDGER, 0)).status is V2Status.NO_LEDGER, "the connection is as good as before"
    assert len(wire.bookie.connections) == 1


async def test_a_bookie_that_ends_connections_at_batch_reads_is_asked_for_none_again(wire: Wire) -> None:
    wire.bookie.closes_at_batches = True
    assert (await read_batch(wire, 0)).status is None
    assert wire.network.serves_batches(B1), "it may have crashed"
    while wire.network.serves_batches(B1):
        assert (await read_batch(wire, 0)).status is None
        await turns()
    assert len(wire.bookie.connections) == 2


async def test_a_bookie_that_served_batch_reads_may_be_lost_without_being_doubted(wire: Wire) -> None:
    for _ in range(3):
        wire.bookie.closes_at_batches = True
        assert (await read_batch(wire, 0)).status is None
        wire.bookie.closes_at_batches = False
        while (await read_batch(wire, 0)).status is not V2Status.NO_LEDGER:  # until it is connected again
            await turns()
    assert wire.network.serves_batches(B1)


async def test_a_bookie_that_hangs_at_a_batch_read_is_dropped(short_timeout: Wire) -> None:
    short_timeout.bookie.mute = True
    assert isinstance((await read_batch(short_timeout, 0)).error, CallTimeout)


async def test_holds_are_answered_by_ledger_and_version_and_unknown_without_an_answer(wire: Wire) -> None:
    wire.bookie.mute = True
    asked = [wire.network.hold_ledger(B1, ledger_id, KEY, version) for ledger_id, version in ((5, 1), (5, 1), (6, 4))]
    await until(lambda: len(wire.bookie.waiting) == 3)
    wire.bookie.waiting.reverse()
    wire.bookie.speak()
    assert [(await one).status for one in asked] == [V2Status.OK] * 3
    assert wire.bookie.state.holds == {5: 1, 6: 4}
    refused = wire.network.hold_ledger(B1, 5, bytes(20), 9)
    assert (await refused).status is V2Status.UNAUTHORIZED
    wire.bookie.mute = True
    lost = wire.network.hold_ledger(B1, 5, KEY, 7)
    await until(lambda: len(wire.bookie.waiting) == 1)
    await wire.bookie.stop()
    assert (await lost).status is None
    assert wire.bookie.state.holds[5] == 1


async def test_a_hold_that_is_not_answered_in_time_is_unknown(short_timeout: Wire) -> None:
    short_timeout.bookie.mute = True
    assert (await short_timeout.network.hold_ledger(B1, 5, KEY, 7)).status is None


async def test_an_answer_to_another_hold_ends_the_connection(wire: Wire) -> None:
    wire.bookie.raw = v2.encode_hold_response(V2Status.OK, 5, 8)
    assert (await wire.network.hold_ledger(B1, 5, KEY, 7)).status is None


async def test_two_channels_of_one_ledger_never_share_a_connection(wire: Wire) -> None:
    """A writer and a recovery in one process: v2 answers do not say whose add they answer."""
    one, two = Listener(), Listener()
    first = wire.network.open_channel(B1, LEDGER, one)
    second = wire.network.open_channel(B1, LEDGER, two)
    other = Listener()
    wire.network.open_channel(B1, LEDGER + 1, other)
    await until(lambda: first.up and second.up)
    assert len(wire.bookie.connections) == 2
    first.send(add(0))
    await until(lambda: bool(one.acked))
    assert two.acked == []
    second.close()
    await until(lambda: sum(not connection.closed for connection in wire.bookie.connections) == 1)


async def test_a_new_channel_never_gets_answers_to_the_old_one(wire: Wire) -> None:
    one, two = Listener(), Listener()
    channel = wire.network.open_channel(B1, LEDGER, one)
    await until(lambda: channel.up)
    wire.bookie.mute = True
    channel.send(add(0))
    await until(lambda: bool(wire.bookie.waiting))
    channel.close()
    again = wire.network.open_channel(B1, LEDGER, two)
    await until(lambda: again.up)
    wire.bookie.speak()
    again.send(add(1))
    await until(lambda: bool(two.acked))
    assert two.acked == [(1, 1)] and one.acked == []
    later = Listener()
    again.close()
    third = wire.network.open_channel(B1, LEDGER, later)
    await until(lambda: third.up)
    third.send(add(2))
    await until(lambda: later.acked == [(2, 1)])


async def test_a_lost_connection_is_reported_once_and_made_again(wire: Wire) -> None:
    channel, listener = await wire.channel()
    wire.bookie.mute = True
    channel.send(add(0))
    reading = wire.network.read(B1, LEDGER, 0)
    await until(lambda: len(wire.bookie.waiting) == 2)
    port = wire.bookie.server.address.port
    await wire.bookie.stop()
    await until(lambda: len(listener.downs) == 1)
    assert isinstance(listener.downs[0], ConnectionLost) and not channel.up
    answer = await reading
    assert answer.status is None and answer.error is not None
    assert not wire.network.seems_up(B1)
    channel.send(add(1))
    wire.bookie.mute = False
    wire.bookie.waiting.clear()
    await wire.bookie.start(port)
    await until(lambda: listener.ups == 2)
    assert len(listener.downs) == 1 and wire.network.seems_up(B1)
    channel.send(add(0))
    await until(lambda: listener.acked == [(0, 1)])


async def test_a_bookie_that_returns_elsewhere_is_found_by_its_registration(wire: Wire) -> None:
    channel, listener = await wire.channel()
    await wire.bookie.stop()
    await wire.bookie.start()
    await wire.register(wire.bookie.server.address.port)
    await until(lambda: listener.ups == 2)
    assert channel.up


async def test_an_unreachable_bookie_is_reported_to_every_channel(wire: Wire) -> None:
    await wire.bookie.stop()
    listener, later = Listener(), Listener()
    channel = wire.network.open_channel(B1, LEDGER, listener)
    await until(lambda: bool(listener.downs))
    assert isinstance(listener.downs[0], Unreachable) and not channel.up
    wire.network.open_channel(B1, LEDGER + 1, later)
    await until(lambda: bool(later.downs))
    answer = await wire.network.read(B1, LEDGER, 0)
    assert answer.status is None
    unknown = await wire.network.read(BookieId("nobody"), LEDGER, 0)
    assert isinstance(unknown.error, Unreachable) and "nobody" in str(unknown.error)


async def test_a_bookie_that_answers_nothing_is_dropped(short_timeout: Wire) -> None:
    channel, listener = await short_timeout.channel()
    short_timeout.bookie.mute = True
    channel.send(add(0))
    await until(lambda: bool(listener.downs))
    assert isinstance(listener.downs[0], CallTimeout) and "answered nothing" in str(listener.downs[0])
    await until(lambda: listener.ups == 2)
    reading = await short_timeout.network.read(B1, LEDGER, 0)
    assert isinstance(reading.error, CallTimeout)


async def test_an_idle_connection_is_not_taken_for_a_hung_one(short_timeout: Wire) -> None:
    """A second bookie, asked later, hangs until it is dropped: the first connection was idle for at least as long."""
    hung = WireBookie("b2")
    hung.mute = True
    await hung.start()
    await short_timeout.register(hung.server.address.port, BookieId("b2"))
    channel, listener = await short_timeout.channel()
    channel.send(add(0))
    await until(lambda: bool(listener.acked))
    reading = await short_timeout.network.read(BookieId("b2"), LEDGER, 0)
    assert isinstance(reading.error, CallTimeout)
    channel.send(add(1))
    await until(lambda: len(listener.acked) == 2)
    assert listener.downs == []
    await hung.stop()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x04\x02\x01\x00\x00",
        v2.encode_add_response(V2Status.OK, LEDGER, 0)[:-16] + bytes(16),
        v2.encode_add_response(V2Status.OK, LEDGER + 1, 0),
        b"".join(bytes(part) for part in v2.encode_read_response(V2Status.NO_ENTRY, LEDGER, 5, None)),
        v2.encode_unknown_response(v2.UnknownRequest(2, 9, V2Status.BAD_REQUEST)),
        v2.encode_add_response(V2Status.OK, LEDGER, 0)[:8] + b"\x00\x00\x30\x39" + bytes(16),
        b"\xff\xff\xff\xff",
    ],
    ids=["short", "ledger 0", "another ledger", "unasked read", "unknown opcode", "unknown status", "huge length"],
)
async def test_an_answer_that_cannot_be_right_ends_the_connection(wire: Wire, raw: bytes) -> None:
    channel, listener = await wire.channel()
    wire.bookie.raw = raw
    channel.send(add(0))
    await until(lambda: bool(listener.downs))
    assert isinstance(listener.downs[0], ProtocolError)
    assert listener.acked == []
    await until(lambda: listener.ups == 2)


async def test_closing_ends_reads_and_notifies_no_channel(wire: Wire) -> None:
    channel, listener = await wire.channel()
    wire.bookie.mute = True
    reading = wire.network.read(B1, LEDGER, 0)
    await wire.network.close()
    assert (await reading).status is None
    assert listener.downs == [] and not channel.up


# -- the whole client over sockets


async def test_a_ledger_over_sockets_survives_a_bookie(wire: Wire) -> None:
    others = [WireBookie("b2"), WireBookie("b3"), WireBookie("b4")]
    for other in others:
        await other.start()
        await wire.register(other.server.address.port, other.state.bookie_id)
    client = LedgerClient(metadata=wire.store, rng=CountingRandom(), settings=replace(QUICK, retry_for_s=5.0))
    await client.start()
    writer = await client.create()
    assert [await writer.append(b"entry", b" %d" % number) for number in range(20)] == list(range(20))
    await wire.bookie.stop()
    for number in range(20, 40):
        await writer.append(b"entry", b" %d" % number)
    await until(lambda: others[2].state.entries.get(writer.ledger_id) is not None)
    second = LedgerClient(metadata=wire.store, rng=CountingRandom(50), settings=replace(QUICK, retry_for_s=5.0))
    await second.start()
    reader = await second.open(writer.ledger_id, recover=True)
    payloads = await reader.read(0, reader.last_entry)
    assert [bytes(payload) for payload in payloads] == [b"entry %d" % number for number in range(40)]
    await client.close()
    await second.close()
    for other in others:
        await other.stop()


async def test_a_recovery_in_the_writers_process_fences_it(wire: Wire) -> None:
    """Both use one client: the acks of recovery adds must not reach the writer."""
    client = LedgerClient(metadata=wire.store, rng=CountingRandom(), settings=replace(QUICK, retry_for_s=5.0))
    await client.start()
    writer = await client.create(replicas=1, acks=1)
    for _ in range(5):
        await writer.append(b"x")
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry == 4
    with pytest.raises(BokiError, match="fenced"):
        await writer.append(b"y")
    await client.close()
