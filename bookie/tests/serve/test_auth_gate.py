"""The token at a bookie: what each first frame is answered, in both protocols, and that nothing is done for who shows none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from tests.serve.requester import LOCAL, Requester, Served, serving

from boki_bookie.serve.auth_gate import admitting
from boki_bookie.serve.server import BookieServer
from boki_common.bookkeeper import auth, v2, v3
from boki_common.bookkeeper.auth import AuthMessage
from boki_common.bookkeeper.status import V2Status
from boki_common.bookkeeper.v3_messages import (
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
from boki_common.net.connection import FrameConnection, FrameHandler, FrameServer
from boki_common.runtime.memory_disk import MemoryDisk

SECRET = "a-token-of-the-cluster-01"
TOKEN = parse(SECRET, "test")
OTHER = "a-token-of-another-one-02"


@pytest.fixture(params=[TOKEN, NO_TOKEN], ids=["token", "none"])
def token(request: pytest.FixtureRequest) -> ClusterToken:
    chosen: ClusterToken = request.param
    return chosen


@pytest.fixture
async def served(world: Any, disk: MemoryDisk, token: ClusterToken) -> AsyncIterator[Served]:
    async with serving(await world.open(disk), world, disk, admit=asking(token), bookie_id="b1") as made:
        yield made


@pytest.fixture
async def guarded(world: Any, disk: MemoryDisk) -> AsyncIterator[Served]:
    async with serving(await world.open(disk), world, disk, admit=asking(TOKEN), bookie_id="b1") as made:
        yield made


def asking(token: ClusterToken) -> Callable[[BookieServer, FrameConnection], FrameHandler]:
    return lambda requests, connection: admitting(requests, token, connection)


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
    ("plugin", "secret", "why"),
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
    served: Served, token: ClusterToken, in_v3: bool, plugin: str, secret: str, why: str
) -> None:
    client = await served.connect()
    client.connection.send(shown(plugin, secret, in_v3=in_v3))
    message, status = answered(await client.frames.get(), in_v3=in_v3)
    if not token.asks:
        expected = auth.greeting("b1") if plugin == auth.IDENTITY else auth.NO_AUTHENTICATION
        assert (message, status) == (expected, V2Status.OK), "as before there were tokens"
    elif why:
        assert why in auth.refused(message) and "bookie b1 asks" in auth.refused(message)
        assert status is V2Status.UNAUTHORIZED and SECRET not in auth.refused(message)
        assert await client.frames.get() is None, "the connection ended"
    else:
        assert (message, status) == (auth.ADMITTED, V2Status.OK)


@pytest.mark.parametrize("in_v3", [False, True], ids=["v2", "v3"])
async def test_what_comes_behind_the_token_in_one_write_is_served(
    served: Served, token: ClusterToken, in_v3: bool
) -> None:
    client = await served.connect()
    who = v3.encode_request(AuthRequest(6, None, auth.greeting("b1"))) if in_v3 else v2.encode_auth(auth.greeting("b1"))
    add = [v3.encode_request(served.add_v3(7, 1, 0))] if in_v3 else served.add(1, 0)
    client.connection.send(shown(auth.TOKEN, SECRET, in_v3=in_v3), who, *add)
    first = answered(await client.frames.get(), in_v3=in_v3)[0]
    assert first == (auth.ADMITTED if token.asks else auth.NO_AUTHENTICATION)
    assert answered(await client.frames.get(), in_v3=in_v3)[0] == auth.greeting("b1")
    assert (await (client.next_v3() if in_v3 else client.next())).status is V2Status.OK


@pytest.mark.parametrize("what", ["add", "recovery", "read", "fence", "batch"])
async def test_a_v2_request_without_the_token_is_unauthorized_and_nothing_is_done(guarded: Served, what: str) -> None:
    key = guarded.world.key
    frames: dict[str, list[Any]] = {
        "add": guarded.add(1, 0),
        "recovery": v2.encode_add_body([guarded.world.body(1, 0)], key, recovery=True),
        "read": [v2.encode_read(1, 0)],
        "fence": [v2.encode_read(1, 0, fence_key=key)],
        "batch": [v2.encode_batch_read(1, 0, request_id=9, max_count=5, max_bytes=1_000)],
    }
    client = await guarded.connect()
    client.connection.send(*frames[what], shown(auth.TOKEN, SECRET, in_v3=False), *guarded.add(1, 1))
    assert (await client.next()).status is V2Status.UNAUTHORIZED
    assert await client.frames.get() is None, "a token that comes too late opens nothing"
    assert list(guarded.storage.ledger_ids) == []


@pytest.mark.parametrize("what", ["add", "read", "force", "info", "entries", "lac"])
async def test_a_v3_request_without_the_token_is_unauthorized_as_apache_says_it(guarded: Served, what: str) -> None:
    frames: dict[str, Any] = {
        "add": v3.encode_request(guarded.add_v3(7, 1, 0)),
        "read": v3.encode_request(ReadRequest(7, None, 1, 0, guarded.world.key, False, -1, 0)),
        "force": v3.encode_request(ForceRequest(7, None, 1)),
        "info": v3.encode_request(BookieInfoRequest(7, None, 3)),
        "entries": v3.encode_request(ListEntriesRequest(7, None, 1)),
        "lac": v3.encode_request(ReadLacRequest(7, None, 1)),
    }
    client = await guarded.connect()
    client.connection.send(frames[what])
    response = await client.next_v3()
    assert isinstance(response, UnknownResponse)
    assert (response.txn_id, response.status) == (7, V2Status.UNAUTHORIZED)
    assert await client.frames.get() is None
    assert list(guarded.storage.ledger_ids) == []


@pytest.mark.parametrize("frame", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n" * 3, b"\xff" * 40, b"\x08" + b"\xff" * 40])
async def test_bytes_of_no_protocol_end_the_connection(guarded: Served, frame: bytes) -> None:
    client = await guarded.connect()
    client.connection.send(len(frame).to_bytes(4, "big") + frame)
    while (found := await client.next()) is not None:  # another version is refused under its own
        assert found.status in (V2Status.UNAUTHORIZED, V2Status.BAD_VERSION)


async def test_an_exchanged_token_holds_for_the_next_connection_and_those_that_are_stay(guarded: Served) -> None:
    held = parse(SECRET, "test")
    server = await FrameServer.start(LOCAL, partial(admitting, guarded.requests, held))
    client = await Requester.of(server.address)
    client.connection.send(shown(auth.TOKEN, SECRET, in_v3=False))
    assert answered(await client.frames.get(), in_v3=False)[0] == auth.ADMITTED
    held.renew(parse(OTHER, "test"))
    client.connection.send(*guarded.add(1, 0))
    assert (await client.next()).status is V2Status.OK
    late = await Requester.of(server.address)
    late.connection.send(shown(auth.TOKEN, SECRET, in_v3=False))
    assert auth.refused(answered(await late.frames.get(), in_v3=False)[0])
    await server.close()


def test_a_credential_is_not_in_the_repr_of_its_message() -> None:
    assert SECRET not in repr(auth.credential(SECRET)) + repr(v2.AuthRequest(auth.credential(SECRET)))
