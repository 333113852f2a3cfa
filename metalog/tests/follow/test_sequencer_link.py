"""What an engine says to a sequencer, frame by frame, at a server that only keeps what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from boki_common import limits
from boki_common.errors import BokiError, CallTimeout, ConnectionLost, InvalidArgument, Overloaded
from boki_common.ids import Position
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.metalog_entry import ShardEnd, Trim
from boki_metalog.entries.sequencer_protocol import SequencerTime
from boki_metalog.follow.sequencer_link import SequencerLink, ShardsOfTerm

A = "aa" * 16


class Keeper:
    """Either end: keeps messages, and answers requests with shard 7, or position (3, 12)."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, memoryview]] = []
        self.lost = asyncio.Event()
        self.status: dict[str, object] = {}

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.messages.append((opcode, body))
        if opcode in (protocol.OP_ORDER, protocol.OP_BARRIER):
            peer.respond(request_id, opcode, protocol.encode_position(Position(3, 12)))
        elif opcode == protocol.OP_STATUS:
            peer.respond(request_id, opcode, msgspec.json.encode(self.status))
        elif request_id:
            peer.respond(request_id, opcode, protocol.encode_shard(7))

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set()


class Ends:
    """A link and what its server got."""

    def __init__(self, server: Keeper, client: Keeper, peer: MessagePeer) -> None:
        self.server, self.client, self.peer = server, client, peer
        self.shards = ShardsOfTerm()
        self.link = SequencerLink(peer, 3, self.shards)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    keeper, client = Keeper(), Keeper()
    server = await serve_messages(Address("127.0.0.1", 0), lambda _: keeper, strangers=BEFORE_FIRST_FRAME)
    peer = await connect_messages(server.address, client)
    yield Ends(keeper, client, peer)
    peer.close()
    await server.close()


async def test_reports_of_one_turn_are_one_frame_with_the_newest_ends(ends: Ends) -> None:
    for shard, records, entries in ((4, 1, 1), (2, 5, 1), (4, 3, 2), (2, 6, 2)):
        ends.link.report(shard, records, entries)
    assert await ends.link.open_shard(A, 50) == 7
    (first, report), (second, opening) = sorted(ends.server.messages, reverse=True)
    assert (first, second) == (protocol.OP_REPORT, protocol.OP_OPEN)
    assert protocol.decode_report(report) == (3, (ShardEnd(2, 6, 2), ShardEnd(4, 3, 2)))
    assert protocol.decode_open(opening) == (3, A, 50)


async def test_a_report_that_nothing_follows_leaves_at_once_with_those_of_its_turn(ends: Ends) -> None:
    ends.link.report(4, 1, 1)
    ends.link.report(2, 5, 1, now=True)
    ends.link.report(2, 6, 2, now=True)
    assert await ends.link.open_shard(A, 50) == 7
    reports = [
        protocol.decode_report(body).rows for opcode, body in ends.server.messages if opcode == protocol.OP_REPORT
    ]
    assert reports == [(ShardEnd(2, 5, 1), ShardEnd(4, 1, 1)), (ShardEnd(2, 6, 2),)]
    assert ends.shards.reported == {4: (1, 1), 2: (6, 2)}


async def test_what_is_to_be_carried_leaves_at_once_behind_the_reports_before_it(ends: Ends) -> None:
    ends.link.report(4, 1, 1)
    ends.link.report(2, 5, 1)
    ends.link.carry(2, 6, 2, (b"in ", memoryview(b"parts")))
    ends.link.report(4, 2, 2)
    assert await ends.link.open_shard(A, 50) == 7
    sent = [body for opcode, body in ends.server.messages if opcode in (protocol.OP_REPORT, protocol.OP_CARRY)]
    assert protocol.decode_report(sent[0]).rows == (ShardEnd(2, 5, 1), ShardEnd(4, 1, 1))
    assert protocol.decode_carry(sent[1]) == (3, 2, 6, 2, b"in parts")
    assert protocol.decode_report(sent[2]).rows == (ShardEnd(4, 2, 2),)
    assert ends.shards.reported == {4: (2, 2), 2: (5, 1)}, "what nobody may have is not repeated"


async def test_of_a_lost_connection_nothing_that_was_to_be_carried_is_remembered(ends: Ends) -> None:
    ends.peer.close()
    await ends.client.lost.wait()
    ends.link.carry(4, 1, 2, (b"x",))
    assert ends.shards.reported == {} and ends.server.messages == []


async def test_a_close_follows_the_reports_before_it(ends: Ends) -> None:
    ends.link.report(4, 1, 1)
    await ends.link.close_shard(4)
    assert [opcode for opcode, _ in ends.server.messages] == [protocol.OP_REPORT, protocol.OP_CLOSE]
    assert protocol.decode_close(ends.server.messages[1][1]) == (3, 4)
    assert ends.shards.reported == {}


async def test_the_next_link_repeats_what_was_reported(ends: Ends) -> None:
    ends.peer.close()
    await ends.client.lost.wait()
    ends.link.report(4, 1, 1)
    with pytest.raises(ConnectionLost):
        await ends.link.open_shard(A, 50)
    assert ends.link.closed and list(ends.shards.incarnations) == [A]
    assert ends.shards.reported == {4: (1, 1)}


async def test_repeating(ends: Ends) -> None:
    ends.link.repeat_reports()
    ends.shards.reported[4] = 1, 1
    ends.link.repeat_reports()
    await ends.link.open_shard(A, 50)
    assert [opcode for opcode, _ in ends.server.messages] == [protocol.OP_REPORT, protocol.OP_OPEN]


async def test_orders_and_barriers(ends: Ends) -> None:
    trim = Trim(1, ((7, 9),), False)
    assert await ends.link.order(trim) == Position(3, 12)
    assert await ends.link.barrier() == Position(3, 12)
    (first, order), (second, barrier) = ends.server.messages
    assert (first, second) == (protocol.OP_ORDER, protocol.OP_BARRIER)
    assert protocol.decode_order(order) == (3, trim) and protocol.decode_term(barrier) == 3
    with pytest.raises(InvalidArgument):
        await ends.link.order(Trim(1, (), False))
    ends.peer.close()
    await ends.client.lost.wait()
    for refused in (ends.link.order(trim), ends.link.barrier()):
        with pytest.raises(ConnectionLost):
            await refused


async def test_barriers_of_one_turn_share_a_request_and_later_ones_do_not(ends: Ends) -> None:
    """Who asks after the request left may not share it: the entry that answers it may have begun before he asked."""
    first = [asyncio.ensure_future(ends.link.barrier()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asyncio.ensure_future(ends.link.barrier())
    first[0].cancel()
    assert {await one for one in (*first[1:], later)} == {Position(3, 12)}
    assert [opcode for opcode, _ in ends.server.messages] == [protocol.OP_BARRIER] * 2


async def asked(link: SequencerLink) -> Position | BokiError:
    """What `ask_barrier` says, once."""
    said: asyncio.Future[Position | BokiError] = asyncio.get_running_loop().create_future()
    link.ask_barrier(said.set_result)
    assert not said.done(), "it calls back later"
    return await said


async def test_a_barrier_asked_without_waiting_is_answered_once(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked(ends.link) == Position(3, 12)
    assert [opcode for opcode, _ in ends.server.messages] == [protocol.OP_BARRIER]
    monkeypatch.setattr(ends.server, "message_received", lambda peer, opcode, request_id, body: None)
    monkeypatch.setattr(limits, "CALL_TIMEOUT_S", 0.01)
    assert isinstance(await asked(ends.link), CallTimeout)
    waiting = asyncio.ensure_future(asked(ends.link))
    await asyncio.sleep(0)
    ends.peer.close()
    assert isinstance(await waiting, ConnectionLost)
    await ends.client.lost.wait()
    assert isinstance(await asked(ends.link), ConnectionLost)


async def test_shards_are_bounded(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TERM_SHARDS", 1)
    ends.link.report(1, 1, 1)
    ends.link.report(1, 2, 2)
    with pytest.raises(Overloaded):
        ends.link.report(2, 1, 1)


async def test_a_sequencer_answers_its_clock_if_it_can(ends: Ends) -> None:
    ends.server.status = {"role": "sequencer", "term": {"term": 3, "time_ms": 40, "now_ms": 50}}
    assert await ends.link.clock() == SequencerTime(now_ms=50, cut_ms=40)
    ends.server.status = {"role": "sequencer", "term": {"term": 3, "time_ms": 40}}
    assert await ends.link.clock() is None, "of a version that does not tell"
    ends.server.status = {"role": "sequencer", "term": None}
    assert await ends.link.clock() is None, "it stands by"
