"""An engine is dialled by its incarnation: nobody else who answers is taken for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from boki_common.engine import engine_protocol as wire
from boki_common.errors import BokiError, InvalidArgument, ProtocolError, Unreachable
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_logbook.peers.engine_dial import dial_engine
from boki_metalog.terms.index_slots import EngineMember
from boki_metalog.terms.term_order import ALL_SLOTS


class Quiet:
    """Hears nothing."""

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        raise AssertionError("nothing is asked of who dials")

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """The end is not looked at."""


class Answering:
    """A server that answers HELLO with a body of ours, and counts who is connected."""

    def __init__(self) -> None:
        self.answer = msgspec.msgpack.encode({"version": 1, "features": ["headers"], "engine": "e1"})
        self.features: list[str] = []
        self.connected = 0
        self.server: FrameServer

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        assert opcode == wire.OP_HELLO
        self.features = msgspec.msgpack.decode(body)["features"]
        peer.respond(request_id, opcode, self.answer)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.connected -= 1

    def take(self, peer: MessagePeer) -> Answering:
        self.connected += 1
        return self


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    made = Answering()
    made.server = await serve_messages(Address("127.0.0.1", 0), made.take, strangers=BEFORE_FIRST_FRAME)
    yield made
    await made.server.close()
    assert made.connected == 0


def member(incarnation: str) -> EngineMember:
    return EngineMember(incarnation, (), ALL_SLOTS)


async def test_the_engine_says_who_it_is_and_what_it_can(answering: Answering) -> None:
    peer, welcome = await dial_engine(member("e1"), str(answering.server.address), Quiet(), "a", "b")
    assert (welcome.engine, welcome.features, answering.features) == ("e1", ["headers"], ["a", "b"])
    peer.close()


async def test_another_engine_at_the_address_is_left(answering: Answering) -> None:
    with pytest.raises(Unreachable, match=r"expected engine e2 at .*, found e1"):
        await dial_engine(member("e2"), str(answering.server.address), Quiet())


@pytest.mark.parametrize("answer", [b"\xc1", msgspec.msgpack.encode({"engine": 7})])
async def test_what_is_no_engine_is_left(answering: Answering, answer: bytes) -> None:
    answering.answer = answer
    with pytest.raises(ProtocolError, match="expected an engine at"):
        await dial_engine(member("e1"), str(answering.server.address), Quiet())


async def test_an_address_that_means_all_addresses_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no address for others"):
        await dial_engine(member("e1"), "0.0.0.0:7040", Quiet())
