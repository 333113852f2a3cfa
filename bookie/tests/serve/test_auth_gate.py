"""The token at a bookie: what each first frame is answered, in both protocols, and that nothing is done for who shows none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from boki_bookie.serve.auth_gate import admitting
from boki_bookie.serve.server import BookieServer
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import (
    AddRequest,
    AuthRequest,
    AuthResponse,
    BookieInfoRequest,
    ForceRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    UnknownResponse,
)
from boki_common.cluster_token import NO_TOKEN, ClusterToken, parse
from boki_common.errors import BokiError
from boki_common.metrics import Metrics
from boki_common.net.connection import Address, FrameConnection, FrameServer, connect
from boki_common.runtime.memory_disk import MemoryDisk

SECRET = "a-token-of-the-cluster-01"
TOKEN = parse(SECRET, "test")
OTHER = "a-token-of-another-one-02"


class Client:
    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: asyncio.Queue[memoryview | None] = asyncio.Queue()

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.frames.put_nowait(frame)

    def connection_lost(self, error: BokiError | None) -> None:
        self.frames.put_nowait(None)


class Guarded:
    """A storage behind a server that asks for the token."""

    def __init__(self, storage: Any, world: Any) -> None:
        self.storage = storage
        self.world = world
        self.token = TOKEN
        self.requests: BookieServer
        self.server: FrameServer

    async def connect(self) -> Client:
        connection = await connect(self.server.address, Client)
        assert isinstance(connection.handler, Client)
        return connection.handler

    def add(self, ledger_id: int = 1, entry_id: int = 0) -> list[Any]:
        return v2.encode_add_body([self.world.body(ledger_id, entry_id)], self.world.key)

    def v3_add(self) -> list[Any]:
        return [
            v3.encode_request(
                AddRequest(7, None, 1, 0, self.world.key, memoryview(bytes(self.world.body(1, 0))), False, False)
            )
        ]


async def serving(token: ClusterToken, world: Any, disk: MemoryDisk) -> AsyncIterator[Guarded]:
    made = Guarded(await world.open(disk), world)
    made.token = token
    made.requests = BookieServer(
        made.storage, requests_limit=50, free_bytes=disk.free_bytes, metrics=Metrics(), bookie_id="b1"
    )
    address = Address("127.0.0.1", 0)
    made.server = await FrameServer.start(address, partial(admitting, made.requests, made.token))
    yield made
    await made.server.close()
    await made.requests.close()


@pytest.fixture(params=[TOKEN, NO_TOKEN], ids=["token", "none"])
async def served(world: Any, disk: MemoryDisk, request: pytest.FixtureRequest) -> AsyncIterator[Guarded]:
    async for made in serving(request.param, world, disk):
        yield made


@pytest.fixture
async def guarded(world: Any, disk: MemoryDisk) -> AsyncIterator[Guarded]:
    async for made in serving(TOKEN, world, disk):
        yield made


def shown(plugin: str, token: str, *, in_v3: bool) -> Any:
    message = AuthMessage(plugin, token.encode())
    return v3.encode_request(AuthRequest(5, None, message)) if in_v3 else v2.encode_auth(message)


def answered(frame: memoryview | None, *, in_v3: bool) -> tuple[AuthMessage, V2Status]:
    assert frame is not None
    if not in_v3:
        message = v2.decode_auth(frame)
        return message, V2Status.UNAUTHORIZED if auth.refused(message) else V2Status.OK
    response = v3.decode_response(frame)
    assert isinstance(response, AuthResponse)
    return response.message, response.status


@pytest.mark.parametrize("in_v3", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize(
    ("plugin", "token", "why"),
    [
        (auth.TOKEN, SECRET, ""),
        (auth.TOKEN, OTHER, "was shown one that is not valid there"),
        (auth.TOKEN, "", "none was shown"),
        (auth.IDENTITY, "b1", "none was shown"),
        (auth.IDENTITY, SECRET, "none was shown"),
        (auth.DISABLED, "", "none was shown"),
        ("SASL", SECRET, "none was shown"),
    ],
)
async def test_a_handshake_is_admitted_only_with_the_token_under_its_name(
    served: Guarded, in_v3: bool, plugin: str, token: str, why: str
) -> None:
    client = await served.connect()
    client.connection.send(shown(plugin, token, in_v3=in_v3))
    message, status = answered(await client.frames.get(), in_v3=in_v3)
    if not served.token.asks:
        expected = auth.greeting("b1") if plugin == auth.IDENTITY else auth.NO_AUTHENTICATION
        assert (message, status) == (expected, V2Status.OK), "as before there were tokens"
    elif why:
        assert why in auth.refused(message) and "bookie b1 asks" in auth.refused(message)
        assert status is V2Status.UNAUTHORIZED and SECRET not in auth.refused(message)
        assert await client.frames.get() is None, "the connection ended"
    else:
        assert (message, status) == (auth.ADMITTED, V2Status.OK)


@pytest.mark.parametrize("in_v3", [False, True], ids=["v2", "v3"])
async def test_what_comes_behind_the_token_in_one_write_is_served(served: Guarded, in_v3: bool) -> None:
    client = await served.connect()
    who = v3.encode_request(AuthRequest(6, None, auth.greeting("b1"))) if in_v3 else v2.encode_auth(auth.greeting("b1"))
    client.connection.send(shown(auth.TOKEN, SECRET, in_v3=in_v3), who, *(served.v3_add() if in_v3 else served.add()))
    first = answered(await client.frames.get(), in_v3=in_v3)[0]
    assert first == (auth.ADMITTED if served.token.asks else auth.NO_AUTHENTICATION)
    assert answered(await client.frames.get(), in_v3=in_v3)[0] == auth.greeting("b1")
    frame = await client.frames.get()
    assert frame is not None
    assert (v3.decode_response(frame) if in_v3 else v2.decode_response(frame)).status is V2Status.OK


@pytest.mark.parametrize("what", ["add", "recovery", "read", "fence", "batch"])
async def test_a_v2_request_without_the_token_is_unauthorized_and_nothing_is_done(guarded: Guarded, what: str) -> None:
    key = guarded.world.key
    frames: dict[str, list[Any]] = {
        "add": guarded.add(),
        "recovery": v2.encode_add_body([guarded.world.body(1, 0)], key, recovery=True),
        "read": [v2.encode_read(1, 0)],
        "fence": [v2.encode_read(1, 0, fence_key=key)],
        "batch": [v2.encode_batch_read(1, 0, request_id=9, max_count=5, max_bytes=1_000)],
    }
    client = await guarded.connect()
    client.connection.send(*frames[what], shown(auth.TOKEN, SECRET, in_v3=False), *guarded.add(1, 1))
    frame = await client.frames.get()
    assert frame is not None and v2.decode_response(frame).status is V2Status.UNAUTHORIZED
    assert await client.frames.get() is None, "a token that comes too late opens nothing"
    assert list(guarded.storage.ledger_ids) == []


@pytest.mark.parametrize("what", ["add", "read", "force", "info", "entries", "lac"])
async def test_a_v3_request_without_the_token_is_unauthorized_as_apache_says_it(guarded: Guarded, what: str) -> None:
    frames: dict[str, Any] = {
        "add": guarded.v3_add()[0],
        "read": v3.encode_request(ReadRequest(7, None, 1, 0, guarded.world.key, False, -1, 0)),
        "force": v3.encode_request(ForceRequest(7, None, 1)),
        "info": v3.encode_request(BookieInfoRequest(7, None, 3)),
        "entries": v3.encode_request(ListEntriesRequest(7, None, 1)),
        "lac": v3.encode_request(ReadLacRequest(7, None, 1)),
    }
    client = await guarded.connect()
    client.connection.send(frames[what])
    frame = await client.frames.get()
    assert frame is not None
    response = v3.decode_response(frame)
    assert isinstance(response, UnknownResponse)
    assert (response.txn_id, response.status) == (7, V2Status.UNAUTHORIZED)
    assert await client.frames.get() is None
    assert list(guarded.storage.ledger_ids) == []


@pytest.mark.parametrize("frame", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n" * 3, b"\xff" * 40, b"\x08" + b"\xff" * 40])
async def test_bytes_of_no_protocol_end_the_connection(guarded: Guarded, frame: bytes) -> None:
    client = await guarded.connect()
    client.connection.send(len(frame).to_bytes(4, "big") + frame)
    found = await client.frames.get()
    while found is not None:  # another version is refused under its own
        assert v2.decode_response(found).status in (V2Status.UNAUTHORIZED, V2Status.BAD_VERSION)
        found = await client.frames.get()


async def test_an_exchanged_token_holds_for_the_next_connection_and_those_that_are_stay(guarded: Guarded) -> None:
    held = parse(SECRET, "test")
    server = await FrameServer.start(Address("127.0.0.1", 0), partial(admitting, guarded.requests, held))
    made = await connect(server.address, Client)
    client = made.handler
    assert isinstance(client, Client)
    client.connection.send(shown(auth.TOKEN, SECRET, in_v3=False))
    assert answered(await client.frames.get(), in_v3=False)[0] == auth.ADMITTED
    held.renew(parse(OTHER, "test"))
    client.connection.send(*guarded.add())
    frame = await client.frames.get()
    assert frame is not None and v2.decode_response(frame).status is V2Status.OK
    late = (await connect(server.address, Client)).handler
    assert isinstance(late, Client)
    late.connection.send(shown(auth.TOKEN, SECRET, in_v3=False))
    assert auth.refused(answered(await late.frames.get(), in_v3=False)[0])
    await server.close()


def test_a_credential_is_not_in_the_repr_of_its_message() -> None:
    assert SECRET not in repr(auth.credential(SECRET)) + repr(v2.AuthRequest(auth.credential(SECRET)))
