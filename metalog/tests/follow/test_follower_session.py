"""One connection of a follower: what it delivers, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from boki_common.errors import BokiError, ProtocolError, TermOver
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.follow.follower_session import FollowerSession


class Server:
    """A sequencer whose every answer the test gives."""

    def __init__(self) -> None:
        self.peer: MessagePeer
        self.answer: protocol.Subscribed | BokiError = protocol.Subscribed(0, 0)

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.peer = peer
        if opcode == protocol.OP_HELLO:
            peer.respond(
                request_id, opcode, protocol.encode_welcome(protocol.Welcome(1, "aa", 0, 3, True, carries=True))
            )
        elif isinstance(self.answer, BokiError):
            raise self.answer
        else:
            peer.respond(request_id, opcode, protocol.encode_subscribed(*self.answer))
            peer.push(protocol.OP_LAGGED, protocol.encode_term(3))

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None: ...


class Setting:
    """A session connected to a `Server`, and what it delivered."""

    def __init__(self) -> None:
        self.server = Server()
        self.delivered: list[tuple[int, list[bytes]]] = []
        self.fault: Exception | None = None
        self.missing = False
        self.woken = asyncio.Event()
        self.session = FollowerSession(3, self.deliver, self.woken.set)

    def deliver(self, first: int, payloads: Sequence[memoryview]) -> bool:
        if self.fault is not None:
            raise self.fault
        self.delivered.append((first, [bytes(payload) for payload in payloads]))
        return not self.missing

    def push(self, term: int, first: int, *payloads: bytes) -> None:
        self.server.peer.push(protocol.OP_ENTRIES, *protocol.encode_entries(term, first, payloads))

    async def wake(self) -> None:
        await self.woken.wait()
        self.woken.clear()


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    server = await serve_messages(Address("127.0.0.1", 0), lambda _: setting.server, strangers=BEFORE_FIRST_FRAME)
    welcome = await setting.session.connect(server.address, [])
    assert welcome.term == 3
    yield setting
    setting.session.close()
    await server.close()


async def test_whether_the_sequencer_carries_is_known(setting: Setting) -> None:
    assert setting.session.carries


async def test_a_lagged_that_follows_the_answer_at_once_is_not_forgotten(setting: Setting) -> None:
    assert await setting.session.subscribe(0) == (0, 0)
    await setting.wake()
    assert not setting.session.subscribed and setting.session.usable


async def test_an_answer_that_leaves_a_gap_is_no_subscription(setting: Setting) -> None:
    setting.server.answer = protocol.Subscribed(5, 9)
    assert await setting.session.subscribe(0) == (5, 9)
    assert not setting.session.subscribed


async def test_a_refused_subscription(setting: Setting) -> None:
    setting.server.answer = TermOver("term 3 is over", term=3)
    with pytest.raises(TermOver):
        await setting.session.subscribe(0)
    assert not setting.session.subscribed


async def test_entries_until_the_term_is_over(setting: Setting) -> None:
    setting.push(3, 4, b"four", b"five")
    setting.server.peer.push(protocol.OP_TERM_OVER, protocol.encode_term(3))
    setting.push(3, 6, b"six")
    await setting.wake()
    assert not setting.session.usable
    setting.server.peer.close()
    await setting.wake()
    assert setting.delivered == [(4, [b"four", b"five"])]
    setting.session.raise_fault()


@pytest.mark.parametrize("fault", [ZeroDivisionError("listener"), ProtocolError("entry")])
async def test_a_fault_of_the_listener_is_kept_and_ends_it(setting: Setting, fault: Exception) -> None:
    setting.fault = fault
    setting.push(3, 0, b"x")
    setting.push(3, 1, b"y")
    await setting.wake()
    assert not setting.session.usable
    with pytest.raises(type(fault)):
        setting.session.raise_fault()
    assert setting.delivered == []


@pytest.mark.parametrize("garbage", [False, True])
async def test_a_message_that_cannot_be_right_ends_the_connection_and_no_more(setting: Setting, garbage: bool) -> None:
    if garbage:
        setting.server.peer.push(protocol.OP_ENTRIES, b"garbage")
    else:
        setting.push(4, 0, b"of another term")
    await setting.wake()
    assert not setting.session.usable and setting.delivered == []
    setting.session.raise_fault()


async def test_missing_entries_mean_to_subscribe_again(setting: Setting) -> None:
    setting.session.subscribed = True
    setting.missing = True
    setting.push(3, 9, b"x")
    await setting.wake()
    assert setting.session.usable and not setting.session.subscribed


async def test_nothing_after_close(setting: Setting) -> None:
    setting.session.close()
    setting.session.message_received(
        setting.session.peer,
        protocol.OP_ENTRIES,
        0,
        memoryview(b"".join(bytes(part) for part in protocol.encode_entries(3, 0, [b"x"]))),
    )
    assert setting.delivered == []
