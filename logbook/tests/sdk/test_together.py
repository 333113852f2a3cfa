"""Linearizable reads of one turn leave as one message, and who got the first answers waits for who gets the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import boki
from boki._together import ReadsTogether
from boki_common.engine import engine_protocol as wire
from boki_common.engine.engine_protocol import Consistency, Direction
from boki_common.engine.reads_together import READS_ROWS, decode_reads, encode_read_answers
from boki_common.errors import BokiError, ConnectionLost, Overloaded
from boki_common.ids import Position
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME

if TYPE_CHECKING:
    from tests.sdk.conftest import FaultyEngine, Serve

QUERY = wire.encode_query(1, 0, 0, 9, 1, 9, 0, Direction.NEXT, Consistency.LINEARIZABLE)
TOKENS = [wire.encode_token({0: Position(1, entry)}) for entry in range(2)]


class Engine:
    """Notes what came, and answers when a test says so."""

    def __init__(self, peer: MessagePeer) -> None:
        self.peer = peer
        self.came: list[tuple[int, list[int]]] = []
        """Of each message: the entry in its token, and the request ids."""
        self.alone: list[int] = []
        """Ids of READs."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode == wire.OP_READS:
            token, reads = decode_reads(body)
            self.came.append((token[0].entry, [number for number, _ in reads]))
        elif opcode == wire.OP_READ:
            token, _ = wire.decode_read(body)
            self.came.append((token[0].entry, [request_id]))
            self.alone.append(request_id)
        else:
            peer.respond(request_id, opcode)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None: ...

    def tell(self, *numbers: int, more: bool) -> None:
        self.peer.push_now(
            wire.OP_READS, encode_read_answers([(number, [b"%d" % number]) for number in numbers], more=more)
        )


class Sdk:
    """The other end."""

    def __init__(self) -> None:
        self.reads: ReadsTogether
        self.answered = 0

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.answered += 1
        self.reads.answered(body)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None: ...


class Ends(NamedTuple):
    engine: Engine
    peer: MessagePeer
    sdk: Sdk

    def ask(self, count: int, session: int = 0) -> list[asyncio.Future[memoryview]]:
        return [self.sdk.reads.ask(TOKENS[session], QUERY) for _ in range(count)]

    async def settle(self) -> None:
        """Whatever was sent has come, both ways."""
        await self.peer.request(wire.OP_STATUS)

    def sizes(self) -> list[tuple[int, int]]:
        return [(entry, len(numbers)) for entry, numbers in self.engine.came]


@pytest.fixture(params=[True, False], ids=["taken", "not taken"])
async def ends(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    engines: list[Engine] = []

    def made(peer: MessagePeer) -> Engine:
        engines.append(Engine(peer))
        return engines[-1]

    server = await serve_messages(Address.parse(f"unix://{tmp_path}/e"), made, strangers=BEFORE_FIRST_FRAME)
    sdk = Sdk()
    peer = await connect_messages(server.address, sdk)
    sdk.reads = ReadsTogether(peer, taken=request.param)
    await peer.request(wire.OP_STATUS)
    yield Ends(engines[0], peer, sdk)
    peer.close()
    await server.close()


taken = pytest.mark.parametrize("ends", [True], indirect=True)


@taken
async def test_reads_of_one_turn_leave_together_and_each_gets_its_answer(ends: Ends) -> None:
    asked = ends.ask(3)
    await ends.settle()
    later = ends.ask(2)
    await ends.settle()
    assert ends.sizes() == [(0, 3), (0, 2)]
    (_, first), (_, second) = ends.engine.came
    ends.engine.tell(*second, *reversed(first), more=False)
    assert [int(bytes(one)) for one in await asyncio.gather(*asked, *later)] == [*first, *second]


@taken
async def test_a_read_without_company_is_one_as_any_other(ends: Ends) -> None:
    asked = ends.ask(1) + ends.ask(1, session=1)
    await ends.settle()
    assert ends.sizes() == [(0, 1), (1, 1)]
    assert ends.engine.alone == [number for _, (number,) in ends.engine.came]
    for number in ends.engine.alone:
        ends.engine.peer.respond(number, wire.OP_READ, b"%d" % number)
    assert [int(bytes(one)) for one in await asyncio.gather(*asked)] == ends.engine.alone


@taken
async def test_each_session_sends_what_it_has_seen(ends: Ends) -> None:
    for session in (0, 1, 0):
        ends.ask(2, session)
    await ends.settle()
    assert ends.sizes() == [(0, 4), (1, 2)]


@taken
async def test_while_more_answers_follow_nothing_leaves(ends: Ends) -> None:
    asked = ends.ask(3)
    await ends.settle()
    ((_, numbers),) = ends.engine.came
    ends.engine.tell(numbers[0], more=True)
    await asked[0]
    ends.ask(1)
    await ends.settle()
    ends.engine.tell(numbers[1], more=True)
    await asked[1]
    ends.ask(1, session=1)
    await ends.settle()
    assert len(ends.engine.came) == 1

    async def hear_and_ask() -> None:
        await asked[2]
        ends.ask(1)

    waiting = asyncio.ensure_future(hear_and_ask())
    ends.engine.tell(numbers[2], more=False)
    await waiting
    await ends.settle()
    assert ends.sizes()[1:] == [(0, 2), (1, 1)], "with who heard the last"
    ends.ask(1)
    await ends.settle()
    assert len(ends.engine.came) == 4, "and nobody waits after that"


@taken
async def test_what_was_asked_in_the_turn_in_which_more_was_announced_waits_too(ends: Ends) -> None:
    asked = ends.ask(2)
    await ends.settle()
    ((_, numbers),) = ends.engine.came
    ends.ask(1)
    ends.sdk.reads.answered(memoryview(encode_read_answers([(numbers[0], [])], more=True)))
    await ends.settle()
    assert len(ends.engine.came) == 1
    ends.sdk.reads.answered(memoryview(encode_read_answers([], more=False)))
    await ends.settle()
    assert ends.sizes()[1:] == [(0, 1)]
    assert (asked[0].done(), asked[1].done()) == (True, False)


@taken
async def test_a_full_message_leaves_at_once_whatever_follows(ends: Ends) -> None:
    ends.sdk.reads.answered(memoryview(encode_read_answers([], more=True)))
    ends.ask(READS_ROWS + 1)
    await ends.settle()
    assert ends.sizes() == [(0, READS_ROWS)]


@taken
async def test_one_that_is_refused_and_those_of_an_ended_connection_fail(ends: Ends) -> None:
    refused, lost = ends.ask(2)
    await ends.settle()
    ((_, numbers),) = ends.engine.came
    ends.engine.peer.respond_error(numbers[0], Overloaded("too many"))
    with pytest.raises(Overloaded):
        await refused
    held = ends.ask(1)
    ends.engine.peer.close()
    for one in (lost, *held):
        with pytest.raises(ConnectionLost):
            await one
    with pytest.raises(ConnectionLost):
        ends.ask(1)


@pytest.mark.parametrize("ends", [False], indirect=True)
async def test_an_engine_that_does_not_take_them_is_asked_for_each(ends: Ends) -> None:
    asked = ends.ask(2)
    await ends.settle()
    assert len(ends.engine.alone) == len(ends.engine.came) == 2
    for number in ends.engine.alone:
        ends.engine.peer.respond(number, wire.OP_READ, b"%d" % number)
    assert [int(bytes(one)) for one in await asyncio.gather(*asked)] == ends.engine.alone


async def test_linearizable_reads_of_a_program_share_a_message_and_others_have_their_own(serve: Serve) -> None:
    engine, url, _ = await serve()
    async with boki.connect(url) as client, client.session() as session:
        book, again = client.book("b"), session.book("b")
        seqnum = await book.append(b"x", tags=["t"])
        found = await asyncio.gather(
            *(book.read_next("t", consistency="linearizable") for _ in range(5)),
            book.check_tail("t", consistency="linearizable"),
            book.read_next("t"),
            again.read_next("t", consistency="linearizable"),
        )
        assert [record.seqnum if record else None for record in found] == [seqnum] * 8
        assert list(map(len, engine.together)) == [6]
        assert sorted(query.consistency for query in engine.queries) == [
            Consistency.SESSION,
            Consistency.LINEARIZABLE,
        ], "another session has seen less"


async def test_a_read_whose_engine_is_lost_is_repeated_at_the_next_one(
    client: boki.Client, engine: FaultyEngine
) -> None:
    book = client.book("b")
    seqnum = await book.append(b"x")
    engine.silent = True
    reading = [asyncio.ensure_future(book.check_tail(consistency="linearizable")) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    engine.silent = False
    engine.peers[-1].close()
    assert [record.seqnum if record else None for record in await asyncio.gather(*reading)] == [seqnum] * 3
