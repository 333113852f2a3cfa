"""Messages: requests find their answers, damage ends the connection, refusals reach their caller."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from boki_common import errors
from boki_common.errors import (
    BokiError,
    CallTimeout,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    RemoteError,
    VersionMismatch,
)
from boki_common.net.connection import Address, FrameServer, connect
from boki_common.net.messages import (
    FLAG_ANSWER,
    OP_ERROR,
    MessagePeer,
    connect_messages,
    decode,
    encode,
    serve_messages,
)

ECHO, REFUSE, BREAK, HOLD, PUSH_BACK, DAMAGE = range(1, 7)


class Server:
    """Answers by opcode."""

    def __init__(self, peer: MessagePeer) -> None:
        self.held: list[int] = []

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        match opcode:
            case 1:
                peer.respond(request_id, opcode, body)
            case 2:
                raise Overloaded("expected fewer than 3 batches, found 3", found=3)
            case 3:
                raise ZeroDivisionError("a bug")
            case 4:
                self.held.append(request_id)
            case 5:
                peer.push(ECHO, body)
            case 6:
                raise ProtocolError("expected a count of at most 3, found 9")

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None: ...


class Client:
    def __init__(self) -> None:
        self.pushes: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.lost: asyncio.Future[BokiError | None] = asyncio.get_running_loop().create_future()

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        self.pushes.put_nowait((opcode, bytes(body)))

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self.lost.set_result(error)


@pytest.fixture
async def server() -> AsyncIterator[FrameServer]:
    server = await serve_messages(Address("127.0.0.1", 0), Server)
    yield server
    await server.close()


@pytest.fixture
async def client() -> Client:
    return Client()


@pytest.fixture
async def peer(server: FrameServer, client: Client) -> AsyncIterator[MessagePeer]:
    peer = await connect_messages(server.address, client)
    yield peer
    peer.close()


async def test_pipelined_requests_get_their_own_answers(peer: MessagePeer) -> None:
    bodies = [b"%d" % number for number in range(500)]
    answers = await asyncio.gather(*(peer.request(ECHO, body) for body in bodies))
    assert [bytes(answer) for answer in answers] == bodies


async def test_a_request_that_does_not_wait_for_the_end_of_the_turn(peer: MessagePeer) -> None:
    answer = peer.request_now(ECHO, b"x")
    assert not peer.connection._queue
    assert bytes(await answer) == b"x"


async def test_messages_that_leave_at_once(peer: MessagePeer, client: Client) -> None:
    number, answer = peer.expect()
    peer.send_all([(PUSH_BACK, 0, (b"a", b"b")), (ECHO, number, (b"x",))])
    assert not peer.connection._queue
    assert bytes(await answer) == b"x"
    assert client.pushes.get_nowait() == (ECHO, b"ab")


async def test_requests_inside_of_another_message_have_ids_and_futures_as_any_other(peer: MessagePeer) -> None:
    answered, refused, gone = (peer.expect() for _ in range(3))
    assert bytes(await peer.request(ECHO, b"between")) == b"between"
    assert len({answered[0], refused[0], gone[0]}) == 3
    gone[1].cancel()
    peer.take_answers([(answered[0], memoryview(b"a")), (gone[0], memoryview(b"b")), (99, memoryview(b"nobody's"))])
    assert bytes(await answered[1]) == b"a"
    assert not refused[1].done()
    peer.close()
    with pytest.raises(ConnectionLost):
        await refused[1]
    with pytest.raises(ConnectionLost, match="closed"):
        peer.expect()


async def test_a_silent_client_says_that_it_is_still_there_in_a_way_all_versions_drop(
    peer: MessagePeer, server: FrameServer
) -> None:
    assert bytes(await peer.call(ECHO, b"x")) == b"x"
    keeper = server._doorkeeper
    peer.stay(0.01)
    (guest,) = keeper.guests
    for _ in range(4):
        keeper.look()
        while not guest.active:
            await asyncio.wait([peer.connection._ended], timeout=0.01)
    assert bytes(await peer.call(ECHO, b"y")) == b"y"


async def test_refusal_arrives_as_the_same_error_and_the_connection_lives_on(peer: MessagePeer) -> None:
    with pytest.raises(Overloaded, match="found 3") as caught:
        await peer.call(REFUSE)
    assert caught.value.found == 3
    assert bytes(await peer.call(ECHO, b"still ", b"here")) == b"still here"


async def test_bug_in_a_handler_reaches_its_caller_only(peer: MessagePeer) -> None:
    with pytest.raises(RemoteError, match="ZeroDivisionError"):
        await peer.call(BREAK)
    assert bytes(await peer.call(ECHO)) == b""


async def test_no_answer_in_time_is_an_unknown_outcome(peer: MessagePeer) -> None:
    with pytest.raises(CallTimeout) as caught:
        await peer.call(HOLD, timeout_s=0.01)
    assert not caught.value.definite


async def test_end_of_the_connection_fails_what_waits(peer: MessagePeer, client: Client, server: FrameServer) -> None:
    future = peer.request(HOLD)
    await peer.call(ECHO)
    await server.close()
    with pytest.raises(ConnectionLost):
        await future
    assert isinstance(await client.lost, ConnectionLost)
    with pytest.raises(ConnectionLost):
        _ = peer.request(ECHO)


async def test_pushes_go_both_ways(peer: MessagePeer, client: Client) -> None:
    peer.push(PUSH_BACK, b"hello")
    assert await client.pushes.get() == (ECHO, b"hello")


async def test_bad_request_is_answered_and_the_connection_ends(peer: MessagePeer, client: Client) -> None:
    with pytest.raises(ProtocolError, match="found 9"):
        await peer.call(DAMAGE)
    assert isinstance(await client.lost, ConnectionLost)


async def test_refused_push_ends_the_connection_with_its_reason(peer: MessagePeer, client: Client) -> None:
    peer.push(REFUSE)
    assert isinstance(await client.lost, Overloaded)


async def test_garbage_ends_the_connection_without_an_answer() -> None:
    """An answer too: a server asks a peer nothing that it does not know yet."""
    reasons: list[BokiError | None] = []

    class Noting(Server):
        def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
            reasons.append(error)

    class Raw:
        def __init__(self, _: object) -> None:
            self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def frames_received(self, frames: list[memoryview]) -> None:
            raise AssertionError("garbage was answered")

        def connection_lost(self, error: BokiError | None) -> None:
            self.ended.set_result(None)

    error = errors.to_wire(RemoteError("a stranger's words"))
    answers = [
        b"".join(encode(opcode, FLAG_ANSWER, number, (error,))) for opcode in (OP_ERROR, ECHO) for number in (0, 7)
    ]
    garbage = [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\3abc", b"\0\0\0\x0c" + bytes(12), *answers]
    server = await serve_messages(Address("127.0.0.1", 0), Noting)
    for data in garbage:
        connection = await connect(server.address, Raw)
        connection.send(data)
        await connection.handler.ended  # type: ignore[attr-defined]
    await server.close()
    assert len(reasons) == len(garbage)
    assert all(isinstance(reason, ProtocolError) for reason in reasons), "not as peers that say nothing"


@given(
    st.integers(0, 255),
    st.sampled_from([0, 1]),
    st.one_of(st.just(0), st.integers(0, 2**32 - 1)),
    st.lists(st.one_of(st.binary(max_size=50), st.just(bytes(5_000))), max_size=4),
)
def test_a_message_is_laid_out_as_its_table_says(opcode: int, flags: int, number: int, body: list[bytes]) -> None:
    head = struct.pack("<BBHI", 1, opcode, flags, number)
    whole = b"".join(body)
    frame = head + struct.pack("<I", crc32c(head + whole)) + whole
    assert b"".join(encode(opcode, flags, number, tuple(body))) == struct.pack(">I", len(frame)) + frame
    assert decode(memoryview(frame)) == (opcode, flags, number, memoryview(whole))


@given(st.sampled_from([0, 9]), st.integers(0, 8 * 40 - 1))
def test_any_flipped_bit_is_noticed(number: int, bit: int) -> None:
    frame = bytearray(b"".join(encode(7, 0, number, (bytes(28),)))[4:])
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises((ProtocolError, VersionMismatch)):
        decode(memoryview(frame))
